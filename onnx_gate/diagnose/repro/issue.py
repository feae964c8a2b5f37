"""What upstream needs of a divergence or an error, as Markdown: the smallest file, and what it answers.

A reproduction has few nodes, and the sizes of the user's case. Equal sizes are halved together for as
long as an oracle still answers otherwise than the engine: the reference evaluator of ONNX, which stands
for what the file says. Where the file itself is wrong, the call that it was made from is the oracle,
and is named. Nothing of a reproduction is run but its operators: its texts are data. Values that are too
many to be shown are drawn anew.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.printer
from onnx.reference import ReferenceEvaluator

from onnx_gate.diagnose.repro.reduce import least_error
from onnx_gate.diagnose.repro.replay import read_folder, runtime_of
from onnx_gate.diagnose.repro.torch_module import torch_script
from onnx_gate.errors import GateError, UserError
from onnx_gate.graph.module_path import props_of
from onnx_gate.graph.walk import all_nodes
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.manifest.values.runtimes import engine_of_label
from onnx_gate.numerics.scaled import scale_error
from onnx_gate.report.model import ModelResult, Report
from onnx_gate.report.model.diagnosis import Diagnosis
from onnx_gate.report.story.knowing import known_faults
from onnx_gate.report.story.sentence import of_model
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.file_module import PLAIN
from onnx_gate.runtimes.open import open_session

_REPOSITORIES = {
    "onnxruntime": "microsoft/onnxruntime",
    "openvino": "openvinotoolkit/openvino",
    "ncnn": "Tencent/ncnn",
    "mnn": "alibaba/MNN",
    "opencv": "opencv/opencv",
    "litert": "google-ai-edge/LiteRT",
    "half": "microsoft/onnxruntime",
}
_OWN = ("model", "stale artifact", "ill-conditioned", "reduced precision", "graph", "undecided")
_FX_NODE = "pkg.torch.onnx.fx_node"
# Values that a script of 15 lines can spell: of float32, which has up to 9 digits, four lines of them.
_FEW = 32
# Characters of an exporter's call, in which long lists of sizes are written out: three lines.
_CALL = 300
# Places, or calls, of which an issue has so many: the first of them are what is to be looked at.
_SHOWN = 4
_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "openvino", "python", "platform")

_RUN = {
    "onnxruntime": (
        "import onnxruntime as ort",
        "print(ort.InferenceSession(model.SerializeToString()).run(None, feeds))",
    ),
    "openvino": (
        "import openvino as ov",
        "core = ov.Core()",
        'exact = {"INFERENCE_PRECISION_HINT": "f32"}',
        "read = core.read_model(model.SerializeToString())",
        'print(core.compile_model(read, "CPU", exact)(feeds))',
    ),
}

Feeds = Mapping[str, Array]


@dataclass(frozen=True)
class _Smallest:
    """A file, what goes in, what should come out and does; ``made_from`` are the exporter's calls.

    ``refusal`` has the engine's words where it answers nothing.
    """

    model: onnx.ModelProto
    feeds: Feeds
    expected: Sequence[Array]
    actual: Sequence[Array]
    made_from: tuple[str, ...]
    engine: str
    refusal: str = ""


def issues(report: Report, folder: Path, models: Sequence[str] = ()) -> Iterator[str]:
    """Yield the issue of each red model of a report, of the named ones where any are.

    ``folder`` is the report's. Raises ``UserError`` where a name is none of the report's, and where no
    model is red.
    """
    unknown = sorted(set(models) - {model.name for model in report.models})
    if unknown:
        raise UserError(f"the report has no model {', '.join(unknown)}")
    red = [m for m in report.models if m.verdict != "pass" and (not models or m.name in models)]
    if not red:
        raise UserError("every model passed: there is nothing to file")
    for model in red:
        yield _issue(report, model, folder)


def repository_of(model: ModelResult) -> str:
    """Return the repository in which a failure is to be filed, empty where it is nobody else's."""
    diagnosis, error = model.diagnosis, model.error
    dynamo = model.export is None or model.export.exporter == "dynamo"
    if diagnosis is not None and diagnosis.blame not in _OWN:
        if diagnosis.blame in ("kernel", "optimiser"):
            return _REPOSITORIES.get(engine_of_label(diagnosis.runtime), "")
        written = diagnosis.blame == "exporter" and dynamo
        return "microsoft/onnxscript" if written else "pytorch/pytorch"
    if error is not None and error.kind == "export":
        return "pytorch/pytorch"
    failed = next((each for each in model.runtimes if each.error is not None), None)
    if error is not None and error.kind == "runtime" and failed is not None:
        return _REPOSITORIES.get(engine_of_label(failed.runtime), "")
    return ""


def _issue(report: Report, model: ModelResult, folder: Path) -> str:
    repository = repository_of(model)
    known = [f"{fault.what}, {fault.address}{fault.rest}." for fault in known_faults(model)]
    shown = of_model(model, report.manifest.path)
    lines = [f"# {shown.what}{f': {shown.why}' if shown.why else ''}", ""]
    place = (
        f"To be filed in https://github.com/{repository}/issues."
        if repository
        else ("Nothing singles out a project to file this in.")
    )
    lines += [place, *(known or ["The book of known faults has nothing that fits."]), ""]
    diagnosis = model.diagnosis
    if diagnosis is not None and diagnosis.repro is not None:
        lines += _reproduced(diagnosis, folder)
    elif model.error is not None:
        lines += ["## Actual", "", *_fenced(model.error.message)]
    source = diagnosis.source if diagnosis is not None else None
    source = source or (model.error.source if model.error is not None else None)
    if source is not None and source.code:
        lines += ["## The line that it comes from", "", *_fenced(source.code, "python")]
    found = [(n, report.environment.get(n)) for n in _PACKAGES]
    said = [f"- {name} {value}" for name, value in found if isinstance(value, str)]
    return "\n".join([*lines, "## Versions", "", *said, ""])


def _reproduced(diagnosis: Diagnosis, folder: Path) -> list[str]:
    path = (folder / str(diagnosis.repro)).resolve()
    if folder.resolve() not in path.parents:
        raise UserError(f"{diagnosis.repro} is outside of {folder}")
    smallest = _smallest(path, diagnosis)
    return [
        "## To reproduce",
        "",
        *_fenced(_script(smallest), "python"),
        *_module(smallest),
        "## Expected",
        "",
        *_fenced(_values(smallest.expected, smallest.actual)),
        "## Actual",
        "",
        *_fenced(smallest.refusal or _values(smallest.actual, smallest.expected)),
    ]


def _module(smallest: _Smallest) -> list[str]:
    """Return the module that the nodes were made from, or else the calls."""
    arrays = {
        **{
            each.name: onnx.numpy_helper.to_array(each) for each in smallest.model.graph.initializer
        },
        **smallest.feeds,
    }
    calls = smallest.made_from
    script = torch_script(calls[0], arrays, _literal) if len(calls) == 1 else None
    if script is not None:
        return ["The same from PyTorch:", "", *_fenced(script, "python")]
    more = [f"And {len(calls) - _SHOWN} more."] if len(calls) > _SHOWN else []
    told = [f"The nodes were made from `{each[:_CALL]}`." for each in calls[:_SHOWN]]
    return [*told, *more, ""]


def _smallest(path: Path, diagnosis: Diagnosis) -> _Smallest:
    """Return a reproduction with sizes halved as far as it still shows."""
    file, model, data_sets = read_folder(path)
    model = onnx.load(str(file))
    data = data_sets[0]
    names = [value.name for value in model.graph.input]
    feeds = {name: array for name, (_, array) in zip(names, data.inputs, strict=True)}
    runtime = PLAIN if diagnosis.blame == "exporter" else _runtime(diagnosis)
    calls = dict.fromkeys(props_of(n).get(_FX_NODE, "") for n in all_nodes(model))
    made = tuple(each.partition(" = ")[2].replace("`", "'") for each in calls if each)
    expected = [array for _, array in data.outputs]
    try:
        actual = _answers(model, feeds, runtime)
    except (GateError, Refusal) as refusal:
        return _Smallest(model, feeds, expected, (), made, runtime.name, str(refusal))
    if diagnosis.blame not in ("kernel", "optimiser"):
        return _Smallest(model, feeds, expected, actual, made, runtime.name)
    open_sizes = _without_sizes(model)
    best: tuple[Feeds, Sequence[Array], Sequence[Array]] = feeds, expected, actual
    for size in sorted({s for a in feeds.values() for s in a.shape if s > 1}, reverse=True):
        while size > 1:
            size, before = size // 2, size
            smaller = {n: _cut(array, before, size) for n, array in best[0].items()}
            tried = _differs(open_sizes, smaller, runtime)
            if tried is None:
                break
            best = smaller, *tried
            model = open_sizes
    return _Smallest(model, *best, made, runtime.name)


def _differs(
    model: onnx.ModelProto, feeds: Feeds, runtime: RuntimeSpec
) -> tuple[Sequence[Array], Sequence[Array]] | None:
    """Return what the file says and what the engine answers, where these differ."""
    try:
        expected = [np.asarray(each) for each in ReferenceEvaluator(model).run(None, dict(feeds))]
        actual = _answers(model, feeds, runtime)
    except Exception:  # a size that something in the file is made for
        return None
    pairs = zip(actual, expected, strict=True)
    differs = any(a.shape != e.shape or scale_error(a, e) > least_error(e) for a, e in pairs)
    return (expected, actual) if differs else None


def _answers(model: onnx.ModelProto, feeds: Feeds, runtime: RuntimeSpec) -> list[Array]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, str(path))
        session = open_session(path, runtime)
        try:
            return [np.asarray(each) for each in session.run(feeds)]
        finally:
            session.close()


def _runtime(diagnosis: Diagnosis) -> RuntimeSpec:
    words = dict(zip(diagnosis.replay[::2], diagnosis.replay[1::2], strict=False))
    name = words.get("--runtime", engine_of_label(diagnosis.runtime))
    return runtime_of(name, None, words.get("--provider"), words.get("--device"), [])


def _without_sizes(model: onnx.ModelProto) -> onnx.ModelProto:
    free = onnx.ModelProto()
    free.CopyFrom(model)
    del free.graph.value_info[:]
    for value in (*free.graph.input, *free.graph.output):
        for place, size in enumerate(value.type.tensor_type.shape.dim):
            size.dim_param = f"{value.name}_{place}"
    return free


def _cut(array: Array, before: int, size: int) -> Array:
    return array[tuple(slice(size if each == before else each) for each in array.shape)]


def _script(smallest: _Smallest) -> str:
    bare = onnx.ModelProto()
    bare.CopyFrom(smallest.model)
    del bare.metadata_props[:], bare.graph.metadata_props[:]
    bare.ClearField("producer_name")
    bare.ClearField("producer_version")
    for node in all_nodes(bare):
        del node.metadata_props[:]
        node.ClearField("doc_string")
    text = onnx.printer.to_text(bare).replace("\\", "\\\\").replace('"""', "'''").strip()
    head, _, body = text.partition("\n>\n")
    text = f"{' '.join(head.split())} >\n{body}"
    feeds = ", ".join(f"{json.dumps(n)}: {_literal(a)}" for n, a in smallest.feeds.items())
    run = _RUN.get(smallest.engine, _RUN["onnxruntime"])
    return "\n".join(
        (
            "import numpy as np, onnx.parser",
            "from numpy import inf, nan",
            f'model = onnx.parser.parse_model("""{text}""")',
            f"feeds = {{{feeds}}}",
            *run,
        )
    )


def _literal(array: Array) -> str:
    if array.size <= _FEW and array.dtype.kind in "fiub":
        return f"np.array({array.tolist()}, {array.dtype.name!r})"
    drawn = f"np.random.default_rng(0).standard_normal({array.shape})"
    return f"{drawn}.astype({array.dtype.name!r})"


def _values(arrays: Sequence[Array], others: Sequence[Array]) -> str:
    """Return arrays in full where they are small, and else where they are furthest from the others."""
    told = []
    for n, array in enumerate(map(np.asarray, arrays)):
        other = np.asarray(others[n]) if n < len(others) else array
        told.append(f"{array.dtype}{list(array.shape)}")
        if array.size <= _FEW or array.shape != other.shape:
            told.append(np.array2string(array.reshape(-1), threshold=_FEW, edgeitems=4))
            continue
        with np.errstate(all="ignore"):
            apart = np.abs(array.astype(np.float64) - other.astype(np.float64)).reshape(-1)
        # NaN, of which one side or both have one, is as far off as can be.
        worst = np.argsort(-np.nan_to_num(apart, nan=np.inf), kind="stable")[:_SHOWN]
        for place in worst:
            index = [int(i) for i in np.unravel_index(place, array.shape)]
            told.append(f"at {index}: {array.reshape(-1)[place]}")
    return "\n".join(told)


def _fenced(text: str, language: str = "") -> list[str]:
    return [f"```{language}", text.replace("```", "'''"), "```", ""]
