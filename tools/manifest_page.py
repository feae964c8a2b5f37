"""``docs/manifest.md``, written from the types that validate.

``python -m tools.manifest_page`` prints it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from onnx_gate.manifest import BUILT_IN_SUITES, EDGE_KINDS, RandomSuite
from onnx_gate.manifest.jsonschema import json_schema

SMALLEST = """\
version: 1
models:
  resnet18:
    model: models/resnet.py:build            # file.py:attribute or package.module:attribute
    inputs:
      image: float32[batch, 3, 224, 224]     # dtype[shape]; a name is a dynamic dimension
"""

WHOLE = """\
version: 1
requirements: requirements.txt        # installed before any model is built (by the action)
dims:                                 # the sizes at which a dynamic dimension is tested
  batch: [1, 2, 32]
  seq: [1, 16, 128]
suites:                               # named input suites
  typical: {random: normal, count: 2, seed: 0}
  edges:   {edges: [zeros, ones, large, tiny], seed: 0}
  real:    {files: "tests/data/*.npz"}
  custom:  {generator: tests/inputs.py:cases, seed: 0}
tolerances:                           # named tolerances
  serving: {auto: 10}
  int8:    {cosine: 0.995, top1: 0.98, snr_db: 25}
  ranking: {topk: {k: 5, agreement: 0.99}, indices: exact}
  tight:   {max_ulp: 4}
  boxes:   {metric: tests/metrics.py:missed_boxes, max: 0.01}
defaults:                             # merged under every model
  runtimes: [onnxruntime]
  suites: [typical, edges]
  tolerance: serving
models:
  resnet18:
    model: models/resnet.py:build
    args: []
    kwargs: {num_classes: 10}
    call: {return_features: false}    # arguments of forward that are no tensors
    weights: checkpoints/resnet18.safetensors
    inputs:
      image: {dtype: float32, shape: [batch, 3, 224, 224], range: [0, 1]}
    outputs: [logits]                 # names; or name -> tolerance for that output
    export:
      {exporter: dynamo, opset: 20, example: {batch: 3}, optimize: true, options: {external_data: true}}
    dims: {batch: [1, 8, 128]}
    runtimes:
      - onnxruntime
      - name: onnxruntime
        provider: cuda
        strict: true                  # no node on another provider; false: the report says which
        optimization: all
        provider_options: {device_id: 0}
        session_options: {session.intra_op.allow_spinning: 0}
      - {name: openvino, device: CPU, options: {NUM_STREAMS: 1}, tolerance: {auto: 20}}
    suites: [typical, edges, real, custom, {random: uniform}]        # names, or a suite written here
    tolerance: {atol: 1.0e-4, rtol: 1.0e-3, mismatch: 0.001}
    coverage: {decisions: 0.95}       # the share of decisions that inputs have to show both ways
    targets: ["onnxruntime>=1.17"]    # what has to load the file where it is deployed
    timeout: 10m
    memory: 8GiB
    verify: whole                     # blocks: one layer in memory at a time
    seed: 0
    required: true                    # false: reported, never fails the check
    waivers:                          # a known divergence, with a reason and an end
      - check: "edges/large/*"
        until: 2027-03-31
        reason: "fp16 overflow, tracked in #123"
        ceiling: 1.0e-2
  detector:
    model: models/detector.py:Detector
    onnx: artifacts/detector.onnx     # a committed file: verified as it is, nothing is exported
    inputs: {image: "float32[1, 3, 640, 640]"}
    outputs: {boxes: boxes, scores: null}
  fine-tuned:
    model: models/resnet.py:build
    weights: {file: runs/last.ckpt, key: state_dict, strip: "model."}
    inputs: {image: "float32[batch, 3, 224, 224]"}
    export:
      exporter: torchscript
      options:
        do_constant_folding: true
        keep_initializers_as_inputs: false
        autograd_inlining: true
        custom_opsets: {my.domain: 1}
  released:                           # your own script, and what it writes
    model: models/resnet.py:build
    export: {command: "python release.py --out {output}"}
    inputs: {image: "float32[batch, 3, 224, 224]"}
  built:
    model: models/resnet.py:build
    export: {command: make release, file: artifacts/resnet18.onnx}
    inputs: {image: "float32[batch, 3, 224, 224]"}
  smaller:
    reference: artifacts/detector.onnx                # no PyTorch: one file is held against another
    onnx: artifacts/detector.int8.onnx
    tolerance: int8
  decoder:
    model: models/decoder.py:Decoder
    inputs:
      input_ids: {dtype: int64, shape: [batch, 1], range: [0, 31999]}
      attention_mask: {dtype: int64, shape: [batch, past + 1], range: [0, 1]}
      past_key_values: {cache: dynamic, layers: 2, shape: [batch, 8, past, 64]}
    steps:                            # calls in a row, in which outputs come back as inputs
      count: 16
      carry: {past_key_values: present}
      feed: {input_ids: argmax(logits)}
"""

_INTRODUCTION = f"""\
# The manifest

`onnx-gate.yml` lists the models of a repository, the inputs they are tried on and how close to
PyTorch the ONNX model must be. `onnx-gate check` validates it; an editor does the same with the
[JSON Schema](../schema/onnx-gate.schema.json):

```yaml
# yaml-language-server: $schema=schema/onnx-gate.schema.json
```

The smallest manifest:

```yaml
{SMALLEST}```

Everything:

```yaml
{WHOLE}```
"""

_READING = """\
## How it is read

- **Paths** (`file.py`, weights, globs) are relative to the manifest's folder and stay inside it,
  symbolic links followed.
- **References** are `path/to/file.py:attribute` or `package.module:attribute`; the attribute may be
  dotted.
- **Names** of models, suites and tolerances are any printable text of up to 100 characters without
  `/`. Keys are always text: a model called `no` or `123` needs no quotes.
- **Values** follow YAML 1.2: `1e-4` is a number, only `true` and `false` are booleans, `off` is
  the word. In `args`, `kwargs`, `call` and the options of a runtime an unquoted `yes`, `no`, `on` or `off`
  is an error, since YAML 1.1 and 1.2 disagree on what it means.
- **Anchors, aliases and merge keys** (`<<`) work; tags do not. A file has at most 1 MiB, 40 levels
  and 100,000 values.
- **Defaults** are merged under every model: `dims` and `export` key by key, so that a model's own
  keys win, everything else is replaced as a whole.
- **A size may be computed** from dynamic dimensions, with integers, `+`, `-`, `*`, `//` and brackets:
  `attention_mask: {dtype: int64, shape: [batch, past + 1], range: [0, 1]}`. It is at least 1 at every
  size that is tested.
- **A range may name a dimension**, by the same expressions: indices into `nodes` rows are
  `{dtype: int64, shape: [2, edges], range: [0, nodes - 1]}`, in each case by its own sizes.
- **Steps**: an input and an output may be named as a whole (`past_key_values`, `present`), and then all
  below the one is given all below the other. What is given where, and what becomes of all other inputs,
  is in [steps](steps.md).
- **An input inside braces** needs quotes: `inputs: {image: "float32[1, 3]"}`.
- **A mistake** is one line, `file:line:column: path: what is wrong; what to do`, all of them at
  once, and exit status 2:

  ```
  onnx-gate.yml:12:19: models.resnet18.tolerance: unknown key 'atoll'; did you mean 'atol'?
  ```
"""

_NESTED = """\
## Inputs that hold several tensors

A dotted name says where a tensor is below a parameter of `forward`: `batch.image` by the key of a
dictionary or the field of a class, `items.0` by the index in a list or tuple, `past.0.key` in several
steps. Of which class each container is, the annotation or the default of the parameter says: dictionary,
list, tuple, dataclass, NamedTuple, the output classes of transformers and diffusers, or any class that
takes the names as keywords. Where neither says, names make a dictionary and numbers a list. The module
gets new containers at every call. Files and generators of inputs use the dotted names too.

A cache of transformers is one entry, and stands for the keys and values of every layer:

```yaml
  decoder-step:
    model: models/decoder.py:build
    call: {use_cache: true}
    inputs:
      input_ids: {dtype: int64, shape: [batch, 1], range: [0, 31999]}
      attention_mask: {dtype: int64, shape: [batch, past + 1], range: [0, 1]}
      past_key_values: {cache: dynamic, layers: 2, shape: [batch, 8, past, 64]}
    export: {example: {past: 16}}
```

In the file its tensors are called `past_key_values.0.key`, `past_key_values.0.value`,
`past_key_values.1.key` and so on, an `encoder_decoder`'s `past_key_values.0.decoder.key` and
`past_key_values.0.encoder.key`. The cache that a model returns under the name of one that it takes is
called `present` (`present.0.key`), because no two values of a graph may have one name.

An exporter function of your own gets a module that can be called with the example alone, by position or
by name: arguments under `call` and containers are put in their places, and where there are containers
the outputs are a flat tuple. A call that brings arguments of its own goes to `forward` as it is.
"""

EDGE_MEANINGS = {
    "zeros": "all 0",
    "ones": "all 1",
    "negative": "below 0",
    "large": "of the order of 1e4",
    "tiny": "close to 0, still normal numbers",
    "subnormal": "closer to 0 than the smallest normal number",
    "ties": "many equal elements",
    "sweep": "evenly from the low to the high end",
    "bounds": "all at the low end, and all at the high end, of the declared range",
    "masks": "all false, and all true, for inputs of bool",
    "empty": "none: a dynamic dimension of size 0",
    "nan": "some NaN",
    "inf": "some infinities",
    "int_extremes": "the smallest and the largest integers",
}

_ORDER = (
    "ModelEntry",
    "InputSpec",
    "CacheEntry",
    "RandomSuite",
    "EdgesSuite",
    "FilesSuite",
    "GeneratorSuite",
    "Output",
    "Tolerance",
    "TopK",
    "RuntimeSpec",
    "WeightsSpec",
    "CoverageSpec",
    "ExportSpec",
    "ExportOptions",
    "StepsSpec",
    "Waiver",
)


def render() -> str:
    """The whole page, as Markdown."""
    schema = json_schema()
    types: dict[str, Any] = schema["$defs"]
    parts = [_INTRODUCTION, _READING, _NESTED, _section("Manifest", schema, types)]
    parts += [_section(types[name]["title"], types[name], types) for name in _ORDER]
    parts += [_defaults(types), _built_in_suites(), _edge_kinds()]
    return "\n".join(parts)


def _section(title: str, schema: Mapping[str, Any], types: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    lines = [
        f"## {title}",
        "",
        schema["description"],
        "",
        "| key | type | default | meaning |",
        "| --- | --- | --- | --- |",
    ]
    for key, value in sorted(
        schema["properties"].items(), key=lambda item: item[0] not in required
    ):
        default = "**required**" if key in required else _default(value)
        cells = (f"`{key}`", words(value, types), default, value["description"])
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _default(schema: Mapping[str, Any]) -> str:
    if "default" in schema:
        shown = schema["default"]
        return f"`{shown if isinstance(shown, str) else json.dumps(shown)}`"
    return str(schema.get("$comment", "–")).removeprefix("default: ")


def words(schema: Mapping[str, Any], types: Mapping[str, Any]) -> str:
    """A JSON Schema in a few words, with links to the sections of this page."""
    if "$ref" in schema:
        title = types[schema["$ref"].rpartition("/")[2]]["title"]
        return f"[{title}](#{title.lower().replace(' ', '-')})"
    if "anyOf" in schema:
        return " or ".join(words(each, types) for each in schema["anyOf"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if "title" in schema:
        return str(schema["title"])
    kind = schema.get("type")
    if kind == "array":
        return _list_words(schema, types)
    if kind == "object":
        values = schema.get("additionalProperties")
        return (
            f"mapping of name to {words(values, types)}"
            if isinstance(values, dict) and values
            else "mapping"
        )
    if isinstance(kind, list):
        return " or ".join(words({"type": each}, types) for each in kind)
    if kind in ("integer", "number"):
        return f"{kind}{_limits(schema)}"
    return {"string": "text", "boolean": "`true`, `false`", "null": "nothing"}.get(
        str(kind), "anything"
    )


def _list_words(schema: Mapping[str, Any], types: Mapping[str, Any]) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(words(each, types) for each in schema['prefixItems'])}]"
    inner = words(schema["items"], types)
    return f"list of {inner}" if schema["items"] else "list"


def _limits(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None and most < 2**31 - 1:
        return f" from {least:g} to {most:g}"
    if least is not None:
        return f" ≥ {least:g}"
    above = schema.get("exclusiveMinimum")
    return f" > {above:g}" if above is not None else ""


def _defaults(types: Mapping[str, Any]) -> str:
    schema = types["DefaultsEntry"]
    keys = ", ".join(f"`{key}`" for key in schema["properties"])
    return (
        f"## Defaults\n\n{schema['description']}\n\n"
        f"The keys are those of a [Model](#model) that models can share: {keys}.\n"
    )


def _built_in_suites() -> str:
    lines = [
        "## Built-in suites",
        "",
        "These may be named without being defined; a definition of the same name wins. A model "
        "that names no suites gets the gate's own choice.",
        "",
        "| name | suite |",
        "| --- | --- |",
    ]
    for name, suite in BUILT_IN_SUITES.items():
        if isinstance(suite, RandomSuite):
            shown = f"{{random: {suite.random}, count: {suite.count}}}"
        else:
            shown = f"{{edges: [{', '.join(getattr(suite, 'edges', ()))}]}}"
        lines.append(f"| `{name}` | `{shown}` |")
    return "\n".join(lines) + "\n"


def _edge_kinds() -> str:
    lines = ["## Kinds of edge cases", "", "| kind | the values of a case |", "| --- | --- |"]
    lines += [f"| `{kind}` | {EDGE_MEANINGS[kind]} |" for kind in EDGE_KINDS]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
