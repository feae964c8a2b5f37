"""ONNX Runtime Web in a real Chromium: what it computes, what it refuses, and what it leaves."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_gate.errors import GateError
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.report.io import read_report
from onnx_gate.runtimes.base import Array, Refusal, Session
from onnx_gate_engines.web import package, service
from onnx_gate_engines.web.chromium import find_chromium
from onnx_gate_engines.web.runtime import WebRuntime
from onnx_gate_engines.web.wire import DTYPES
from tests.support.browser import needs_browser
from tests.support.gate import gate

pytestmark = [needs_browser, pytest.mark.slow, pytest.mark.timeout(300)]

WASM = RuntimeSpec("web", "wasm")
WEBGPU = RuntimeSpec("web", "webgpu")


ENDLESS_KERNEL = """
export * from "./ort.webgpu.bundle.min.mjs";
import { InferenceSession as original, env } from "./ort.webgpu.bundle.min.mjs";

const code = `
@group(0) @binding(0) var<storage, read_write> values: array<u32>;
@compute @workgroup_size(1) fn main() {
  loop { values[0] = values[0] + 2u; if (values[0] == 1u) { break; } }
}`;

async function run() {
  const device = await env.webgpu.device;
  const module = device.createShaderModule({ code });
  const pipeline = device.createComputePipeline({ layout: "auto", compute: { module } });
  const buffer = device.createBuffer({ size: 4, usage: GPUBufferUsage.STORAGE });
  const layout = pipeline.getBindGroupLayout(0);
  const entries = [{ binding: 0, resource: { buffer } }];
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, device.createBindGroup({ layout, entries }));
  pass.dispatchWorkgroups(1);
  pass.end();
  device.queue.submit([encoder.finish()]);
  await device.queue.onSubmittedWorkDone();
}

const create = async (...words) => Object.assign(await original.create(...words), { run });
export const InferenceSession = { create };
"""
ENDLESS = RuntimeSpec("web", "webgpu", options={"module": "endless.mjs"})


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[service.BrowserService]:
    """One browser for the sessions of this process; the package has an endless kernel besides."""
    folder = linked_package(tmp_path_factory.mktemp("package"))
    (folder / "dist" / "endless.mjs").write_text(ENDLESS_KERNEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(package.VARIABLE, str(folder))
        running = service.BrowserService()
        for name, value in running.variables.items():
            patch.setenv(name, value)
        yield running
        running.close()


def linked_package(folder: Path) -> Path:
    """Make a package of links to the installed one's files."""
    original = package.find_package().dist
    (folder / "dist").mkdir()
    shutil.copy(original.parent / "package.json", folder)
    for file in original.iterdir():
        (folder / "dist" / file.name).symlink_to(file)
    return folder


Open = Callable[..., Session]


@pytest.fixture
def open_web(browser: service.BrowserService) -> Iterator[Open]:
    sessions = []

    def opened(path: Path, spec: RuntimeSpec = WASM) -> Session:
        sessions.append(WebRuntime().open(path, spec, 1))
        return sessions[-1]

    yield opened
    for session in sessions:
        session.close()


Declared = tuple[int, list[Any]]


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, Declared],
    outputs: Mapping[str, Declared],
    stored: Mapping[str, Array] | None = None,
) -> Path:
    def infos(values: Mapping[str, Declared]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in values.items()
        ]

    initializers = [numpy_helper.from_array(a, name) for name, a in (stored or {}).items()]
    graph = helper.make_graph(nodes, "g", infos(inputs), infos(outputs), initializers)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def test_every_dtype_text_scalars_and_empty_tensors_arrive(open_web: Open, tmp_path: Path) -> None:
    kinds = {d: helper.np_dtype_to_tensor_dtype(np.dtype(d)) for d in sorted(DTYPES)}
    path = save(
        tmp_path / "identity.onnx",
        [helper.make_node("Identity", [f"in_{d}"], [f"out_{d}"]) for d in kinds]
        + [
            helper.make_node("Identity", ["__proto__"], ["scalar_out"]),
            helper.make_node("Identity", ["text"], ["text_out"]),
        ],
        {
            **{f"in_{d}": (kind, ["n", 3]) for d, kind in kinds.items()},
            "__proto__": (TensorProto.FLOAT, []),
            "text": (TensorProto.STRING, ["n"]),
        },
        {
            **{f"out_{d}": (kind, ["n", 3]) for d, kind in kinds.items()},
            "scalar_out": (TensorProto.FLOAT, []),
            "text_out": (TensorProto.STRING, ["n"]),
        },
    )
    session = open_web(path)
    assert [value.dtype for value in session.inputs] == [*kinds, "float32", "str"]
    assert session.inputs[0].shape == ("n", 3)
    for n in (2, 0):
        feeds = {f"in_{d}": (np.arange(n * 3) % 2).reshape(n, 3).astype(d) for d in kinds}
        text = np.array(["a", "\u202e</script>"][:n], object)
        answers = session.run({**feeds, "__proto__": np.array(1.5, np.float32), "text": text})
        for fed, answer in zip(feeds.values(), answers, strict=False):
            assert (fed.dtype, fed.shape) == (answer.dtype, answer.shape)
            np.testing.assert_array_equal(fed, answer)
        np.testing.assert_array_equal(answers[-2], np.array(1.5, np.float32), strict=True)
        assert answers[-1].tolist() == text.tolist()


def matmul(path: Path, op_type: str = "MatMul", domain: str = "") -> Path:
    return save(
        path,
        [
            helper.make_node(op_type, ["x", "w"], ["y"], "product", domain=domain),
            helper.make_node("NonZero", ["y"], ["z"], "positions"),
        ],
        {"x": (TensorProto.FLOAT, ["batch", 4])},
        {"y": (TensorProto.FLOAT, ["batch", 3]), "z": (TensorProto.INT64, [2, None])},
        {"w": np.arange(12, dtype=np.float32).reshape(4, 3)},
    )


def test_webgpu_computes_and_says_what_it_does_not(open_web: Open, tmp_path: Path) -> None:
    path = matmul(tmp_path / "m.onnx")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    session = open_web(path, WEBGPU)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    product, positions = session.run({"x": x})
    np.testing.assert_allclose(product, x @ np.arange(12, dtype=np.float32).reshape(4, 3))
    assert positions.shape == (2, 6)
    (finding,) = session.findings  # type: ignore[attr-defined]
    assert finding.code == "OG320"
    assert finding.data["nodes"] == [{"name": "positions", "op_type": "NonZero"}]
    with pytest.raises(Refusal, match="x is 5 on axis 1") as refused:
        session.run({"x": np.zeros((2, 5), np.float32)})
    assert refused.value.data == {"input": "x", "axis": 1, "expected": 4}
    with pytest.raises(Refusal, match="no array for"):
        session.run({"x": np.array([b"a"])})
    with pytest.raises(GateError, match="strict") as error:
        open_web(path, RuntimeSpec("web", "webgpu", strict=True))
    assert error.value.code == "OG301"


@pytest.mark.parametrize(
    ("kind", "words"),
    [(TensorProto.FLOAT16, "shader-f16"), (TensorProto.DOUBLE, "no kernel for Sin in float64")],
    ids=["halves", "doubles"],
)
def test_a_dtype_without_kernels_is_said(
    open_web: Open, tmp_path: Path, kind: int, words: str
) -> None:
    sin = [helper.make_node("Sin", ["x"], ["y"])]
    path = save(tmp_path / "m.onnx", sin, {"x": (kind, [2])}, {"y": (kind, [2])})
    with pytest.raises(GateError, match=words) as error:
        open_web(path, WEBGPU)
    assert error.value.code == "OG202"


def test_a_file_that_is_not_there_is_no_missing_browser(open_web: Open, tmp_path: Path) -> None:
    path = matmul(tmp_path / "m.onnx")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(GateError, match=r"w\.bin: No such file") as error:
        open_web(path)
    assert error.value.code == "OG303"


@pytest.mark.parametrize(
    ("spec", "code", "words"),
    [
        (RuntimeSpec("web", "webgl"), "OG301", "webgpu and wasm"),
        (RuntimeSpec("web", options={"module": "none.mjs"}), "OG302", "'none.mjs'"),
        (RuntimeSpec("web", options={"module": "ort.min.js"}), "OG302", "'ort.min.js'"),
        (RuntimeSpec("web", options={"logID": "x"}), "OG302", "did you mean 'logId'?"),
        (WASM, "OG202", "it does not know Product of the domain 'com.example'"),
    ],
    ids=["provider", "module", "script", "option", "operator"],
)
def test_what_cannot_be_had_is_an_error_with_a_remedy(
    open_web: Open, tmp_path: Path, spec: RuntimeSpec, code: str, words: str
) -> None:
    path = matmul(tmp_path / "m.onnx", "Product", "com.example")
    with pytest.raises(GateError) as error:
        open_web(path, spec)
    assert (error.value.code, words in error.value.message) == (code, True), error.value.message


def test_a_page_that_crashes_is_its_sessions_error_alone(
    browser: service.BrowserService, open_web: Open, tmp_path: Path
) -> None:
    path = matmul(tmp_path / "m.onnx")
    x = {"x": np.ones((1, 4), np.float32)}
    first = open_web(path)
    before = set(renderers(browser.pid))
    second = open_web(path)
    for process in set(renderers(browser.pid)) - before:
        process.kill()
    with pytest.raises(GateError, match="has crashed") as error:
        second.run(x)
    assert error.value.code == "OG321"
    assert len(first.run(x)) == len(open_web(path).run(x)) == 2


LOAD_AND_RUN = """
import sys
import numpy as np
from pathlib import Path
from onnx_gate.manifest import RuntimeSpec
from onnx_gate_engines.web.runtime import WebRuntime

spec = RuntimeSpec("web", sys.argv[2], options=dict(each.split("=") for each in sys.argv[3:]))
session = WebRuntime().open(Path(sys.argv[1]), spec, 1)
print("open", flush=True)
session.run({"x": np.ones(session.inputs[0].shape[-1:], np.float32)})
"""


def process_of_a_model(*arguments: str) -> subprocess.Popen[str]:
    """Return the process of a model that has its session open and is about to run it."""
    model = subprocess.Popen(
        [sys.executable, "-c", LOAD_AND_RUN, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert model.stdout is not None
    assert model.stdout.readline() == "open\n"
    return model


def test_a_page_that_hangs_ends_with_the_process_of_its_model(
    browser: service.BrowserService, tmp_path: Path
) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["on_out"]), helper.make_node("Sin", ["v"], ["w"])],
        "body",
        [
            helper.make_tensor_value_info(name, kind, shape)
            for name, kind, shape in (("i", 7, []), ("on", 9, []), ("v", 1, [2]))
        ],
        [helper.make_tensor_value_info(n, k, s) for n, k, s in (("on_out", 9, []), ("w", 1, [2]))],
    )
    path = save(
        tmp_path / "endless.onnx",
        [helper.make_node("Loop", ["count", "true", "x"], ["y"], body=body)],
        {"x": (TensorProto.FLOAT, [2])},
        {"y": (TensorProto.FLOAT, [2])},
        {"count": np.array(10**12), "true": np.array(True)},
    )
    before = set(renderers(browser.pid))
    model = process_of_a_model(str(path), "wasm")
    page = busiest(lambda: set(renderers(browser.pid)) - before)
    model.kill()
    model.communicate()
    wait_until(lambda: page not in renderers(browser.pid))


def test_a_dead_gpu_process_is_the_error_of_the_model_alone_that_ends_it_again(
    browser: service.BrowserService, open_web: Open, tmp_path: Path
) -> None:
    path = matmul(tmp_path / "m.onnx")
    x = {"x": np.ones((1, 4), np.float32)}
    fatal, other = open_web(path, ENDLESS), open_web(path, WEBGPU)
    with ThreadPoolExecutor() as threads:
        ended = threads.submit(fatal.run, x)
        first = busiest(lambda: gpu_processes(browser.pid))
        repeated = threads.submit(other.run, x)
        first.kill()
        np.testing.assert_array_equal(repeated.result()[0], [[18, 22, 26]])
        busiest(lambda: set(gpu_processes(browser.pid)) - {first}).kill()
        with pytest.raises(
            GateError, match=r"GPU process .* again, in a browser of its own"
        ) as error:
            ended.result()
    assert error.value.code == "OG321"
    assert len(other.run(x)) == len(open_web(path, WEBGPU).run(x)) == 2
    assert "OG326" in {finding.code for finding in other.findings}  # type: ignore[attr-defined]


def test_nobody_waits_for_the_kernel_of_a_model_that_was_stopped(
    browser: service.BrowserService, open_web: Open, tmp_path: Path
) -> None:
    path = matmul(tmp_path / "m.onnx")
    other = open_web(path, WEBGPU)
    model = process_of_a_model(str(path), "webgpu", "module=endless.mjs")
    stuck = busiest(lambda: gpu_processes(browser.pid))
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(other.run, {"x": np.ones((1, 4), np.float32)})
        model.kill()
        model.communicate()
        np.testing.assert_array_equal(waiting.result()[0], [[18, 22, 26]])
    assert stuck not in gpu_processes(browser.pid)


def gpu_processes(pid: int) -> list[psutil.Process]:
    return processes_of("gpu-process", pid)


def renderers(pid: int) -> list[psutil.Process]:
    return processes_of("renderer", pid)


def processes_of(kind: str, pid: int) -> list[psutil.Process]:
    family = psutil.Process(pid).children(recursive=True)
    return [process for process in family if f"--type={kind}" in _command(process)]


def busiest(processes: Callable[[], Iterable[psutil.Process]]) -> psutil.Process:
    """Wait for one that has computed for a second, and return it."""
    busy: list[psutil.Process] = []

    def look() -> bool:
        for process in processes():
            with suppress(psutil.Error):
                if process.cpu_times().user > 1:
                    busy.append(process)
        return bool(busy)

    wait_until(look)
    return busy[0]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


MODELS = """
from torch import nn

def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))

def cnn():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
"""
MANIFEST = """
version: 1
suites: {few: {random: normal, count: 1}}
dims: {batch: [3]}
defaults: {suites: [few], runtimes: [onnxruntime, web, {name: web, provider: wasm}]}
models:
  mlp: {model: "models.py:mlp", inputs: {x: "float32[batch, 8]"}}
  cnn: {model: "models.py:cnn", inputs: {x: "float32[batch, 3, 8, 8]"}}
"""
RIGHT, WRONG = b"erf_v(a * 0.7071067811865475)", b"erf_v(a * 0.7171067811865475)"
# One node, so that nearly all of a run is spent in the browser.
STOPPED = """
version: 1
suites: {one: {random: normal, count: 1}}
models:
  copy: {reference: m.onnx, onnx: copy.onnx, inputs: {x: "float32[1, 4]"}, suites: [one], runtimes: [web]}
"""


def test_one_browser_serves_all_models_and_a_wrong_kernel_is_blamed(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    counted = tmp_path / "chromium"
    counted.write_text(f'#!/bin/sh\necho >> {tmp_path}/starts\nexec "{find_chromium()}" "$@"\n')
    counted.chmod(0o755)
    monkeypatch.setenv("CHROME_PATH", str(counted))
    monkeypatch.setenv(package.VARIABLE, str(with_wrong_gelu(tmp_path / "patched")))

    finished = gate("run", "--no-cache", "--remedies", "0", cwd=tmp_path)

    assert finished.returncode == 1, finished.stdout + finished.stderr
    report = read_report(tmp_path / "onnx-gate-report" / "report.json")
    verdicts = {(m.name, c.runtime, c.verdict) for m in report.models for c in m.checks}
    assert {each for each in verdicts if each[1].startswith("web")} == {
        ("cnn", "web", "pass"),
        ("cnn", "web:wasm", "pass"),
        ("mlp", "web", "diverged"),
        ("mlp", "web:wasm", "pass"),
    }
    diagnosis = next(model.diagnosis for model in report.models if model.name == "mlp")
    assert diagnosis is not None
    assert (diagnosis.runtime, diagnosis.blame) == ("web", "kernel")
    assert diagnosis.node is not None
    assert diagnosis.node.op_type == "Gelu"
    assert report.environment["onnxruntime-web"] == package.find_package().version
    assert "Chrom" in report.environment["browser"]
    assert (tmp_path / "starts").read_text() == "\n"
    assert [each for each in left_behind(temporary) if "browser" in each] == []


def with_wrong_gelu(folder: Path) -> Path:
    """Make a package whose Gelu is wrong on WebGPU and right in WebAssembly."""
    folder.mkdir()
    for file in linked_package(folder).glob("dist/ort-wasm-simd-threaded.asyncify.*"):
        code = file.read_bytes().replace(RIGHT, WRONG)
        file.unlink()
        file.write_bytes(code)
    return folder


def test_a_run_that_is_stopped_leaves_nothing(tmp_path: Path, temporary: Path) -> None:
    shutil.copy(matmul(tmp_path / "m.onnx"), tmp_path / "copy.onnx")
    (tmp_path / "onnx-gate.yml").write_text(STOPPED)
    runs = {
        number: subprocess.Popen(
            [sys.executable, "-m", "onnx_gate", "run", "--no-cache", "--output", number.name],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in (signal.SIGINT, signal.SIGKILL)
    }
    waiting = dict(runs)
    family = []

    def stop_those_with_a_page() -> bool:
        for number, run in list(waiting.items()):
            assert run.poll() is None
            # One of them is of the empty page that a browser starts with.
            if len(renderers(run.pid)) == 2:
                family.extend(psutil.Process(run.pid).children(recursive=True))
                run.send_signal(number)
                del waiting[number]
        return not waiting

    wait_until(stop_those_with_a_page)
    for run in runs.values():
        run.wait()
    wait_until(lambda: not any(process.is_running() for process in family))
    wait_until(lambda: not any(temporary.glob("*browser*")))


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files whose name is short enough for sockets in it."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="og-"))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder)


def left_behind(temporary: Path) -> list[str]:
    """Return the processes that know the folder ``temporary`` by name, and what is in it."""
    lines = [path.name for path in temporary.iterdir()]
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(temporary) in line:
            lines.append(line)
    return lines


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
