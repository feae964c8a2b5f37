// The browser's side of a session: loads the model, then answers requests until there are none.
// A message is the length of a JSON header (uint32, little endian), the header, zeros up to a
// multiple of 8, then the bytes of its tensors, each padded likewise; see wire.py.

const ARRAYS = {
  float32: Float32Array,
  float64: Float64Array,
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  uint8: Uint8Array,
  uint16: Uint16Array,
  uint32: Uint32Array,
  uint64: BigUint64Array,
  bool: Uint8Array,
  float16: globalThis.Float16Array ?? Uint16Array,
};
const TEXT = "string"; // has no bytes: its values are in the header
const ALIGNMENT = 8;
const MOST_LINES = 100000;

// ONNX Runtime says only on the console which provider each node was given to.
const lines = [];
for (const level of ["log", "info", "debug", "warn", "error"]) {
  console[level] = (...words) => {
    if (lines.length < MOST_LINES) lines.push(words.join(" "));
  };
}

// A device is lost with the browser's GPU process, which it has for all pages: the broker has to know.
let hasDevice = false;
let lost = false;
const SOON = 100; // milliseconds in which a loss is known after what it made fail
if (globalThis.GPUAdapter) {
  const requestDevice = GPUAdapter.prototype.requestDevice;
  GPUAdapter.prototype.requestDevice = async function (...request) {
    const device = await requestDevice.apply(this, request);
    hasDevice = true;
    device.lost.then(({ reason, message }) => {
      if (reason === "destroyed") return; // by the page itself
      lost = true;
      fetch("lost", { method: "POST", body: message });
    });
    return device;
  };
}

const padded = (size) => Math.ceil(size / ALIGNMENT) * ALIGNMENT;

function encode(header, arrays = []) {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const start = padded(4 + text.length);
  const size = arrays.reduce((sum, array) => sum + padded(array.byteLength), start);
  const message = new Uint8Array(size);
  new DataView(message.buffer).setUint32(0, text.length, true);
  message.set(text, 4);
  let offset = start;
  for (const array of arrays) {
    message.set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength), offset);
    offset += padded(array.byteLength);
  }
  return message;
}

function decode(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  let offset = padded(4 + length);
  const arrays = header.tensors.map(({ dtype, shape, values }) => {
    if (dtype === TEXT) return values;
    const size = shape.reduce((product, each) => product * each, 1);
    const array = new ARRAYS[dtype](buffer, offset, size);
    offset += padded(array.byteLength);
    return array;
  });
  return [header, arrays];
}

// Old versions of the package have no metadata.
const described = (metadata) =>
  metadata?.map((value) => ({
    name: value.name,
    dtype: value.isTensor ? value.type : "no tensor",
    shape: value.isTensor ? value.shape : [],
  }));

async function open(ort, job) {
  ort.env.wasm.numThreads = job.threads;
  ort.env.logLevel = "verbose";
  const session = await ort.InferenceSession.create("file/0", {
    ...job.options,
    externalData: job.external.map((path, index) => ({ path, data: `file/${index + 1}` })),
    logSeverityLevel: 0,
  });
  ort.env.logLevel = "error";
  const adapter = job.provider === "webgpu" ? await navigator.gpu?.requestAdapter() : undefined;
  const answer = {
    halves: adapter?.features.has("shader-f16") ?? false,
    version: ort.env.versions.web,
    inputs: described(session.inputMetadata),
    outputs: described(session.outputMetadata),
    lines,
  };
  return [session, answer];
}

async function run(ort, session, request) {
  const [header, arrays] = decode(request);
  const feeds = Object.fromEntries(
    header.tensors.map(({ name, dtype, shape }, index) => [
      name,
      new ort.Tensor(dtype, arrays[index], shape),
    ]),
  );
  const outputs = await session.run(feeds);
  const tensors = session.outputNames.map((name) => ({ name, tensor: outputs[name] }));
  const answer = encode(
    {
      tensors: tensors.map(({ name, tensor }) => ({
        name,
        dtype: tensor.type,
        shape: tensor.dims,
        values: tensor.type === TEXT ? tensor.data : undefined,
      })),
    },
    tensors.filter(({ tensor }) => tensor.type !== TEXT).map(({ tensor }) => tensor.data),
  );
  for (const { tensor } of tensors) tensor.dispose();
  return answer;
}

async function failure(error, facts = {}) {
  if (hasDevice) await new Promise((resolve) => setTimeout(resolve, SOON));
  if (lost) await new Promise(() => {}); // no answer: the page is about to be closed
  return encode({ error: String(error?.message ?? error), ...facts });
}

async function turn(body) {
  const response = await fetch("turn", { method: "POST", body });
  return response.status === 200 ? await response.arrayBuffer() : null;
}

async function serve() {
  const job = await (await fetch("job")).json();
  let ort, session, answer;
  let stage = "import";
  try {
    ort = await import(`./dist/${job.module}`);
    if (!ort.InferenceSession) throw new Error("it exports no InferenceSession");
    stage = "open";
    [session, answer] = await open(ort, job);
  } catch (error) {
    await turn(await failure(error, { stage, version: ort?.env?.versions?.web }));
    return;
  }
  let request = await turn(encode(answer));
  while (request !== null) {
    lines.length = 0;
    const reply = await run(ort, session, request).catch((error) => failure(error));
    request = await turn(reply);
  }
}

serve();
