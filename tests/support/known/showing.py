"""How a known fault is shown: a tiny module or file, run as the gate runs it, and what fails."""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import torch

from onnx_gate.diagnose.known_fault import facts_of
from onnx_gate.errors import GateError
from onnx_gate.known import Failure
from onnx_gate.known.book import message_of, versions
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.report.model import Check
from onnx_gate.report.model.diagnosis import Diagnosis, GraphNode
from onnx_gate.runtimes.base import Refusal
from onnx_gate.runtimes.file_module import PLAIN
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.sessions import Sessions
from onnx_gate.verify.stopwatch import Clock
from tests.support.report.reports import check

Shown = Failure | GateError | None
Feeds = Mapping[str, Any]
OPTIMISED = RuntimeSpec(name="onnxruntime")
OPENVINO = RuntimeSpec(name="openvino")


class Calls(torch.nn.Module):
    """``function`` of the inputs, with what ``parts`` hold."""

    def __init__(self, function: Callable[..., Any], parts: Sequence[torch.nn.Module] = ()) -> None:
        super().__init__()
        self.function, self.parts = function, torch.nn.ModuleList(parts)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*self.parts, *inputs)


def export(
    function: Callable[..., Any],
    *inputs: torch.Tensor,
    exporter: str = "torchscript",
    opset: int = 20,
    parts: Sequence[torch.nn.Module] = (),
    **options: Any,
) -> onnx.ModelProto:
    """Return the file; raises what the exporter does."""
    module = Calls(function, parts).eval()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            program = torch.onnx.export(
                module, inputs, dynamo=True, verbose=False, opset_version=opset, **options
            )
            return program.model_proto
        made = io.BytesIO()
        target: Any = made
        torch.onnx.export(module, inputs, target, dynamo=False, opset_version=opset, **options)
    return onnx.load_from_string(made.getvalue())


def exporting(function: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> Shown:
    """Return the error that an export ends with, if it does."""
    try:
        export(function, *inputs, **options)
    except Exception as error:
        failed = GateError("export", "OG207", "the exporter failed")
        failed.__cause__ = error
        return failed
    return None


def loading(file: str | onnx.ModelProto, runtime: RuntimeSpec = OPTIMISED) -> Shown:
    """Return the error that loading a file ends with, if it does."""
    try:
        with _opened(parsed(file), runtime):
            return None
    except GateError as error:
        return error


def answering(
    file: str | onnx.ModelProto,
    feeds: Feeds,
    expected: Any,
    blame: str,
    operator: str,
    runtime: RuntimeSpec = PLAIN,
    exporter: str = "file",
) -> Shown:
    """Return the facts of a wrong answer, or of a refusal, with the node that a diagnosis would name."""
    proto = parsed(file)
    arrays = [np.asarray(value) for value in feeds.values()]
    names = [value.name for value in proto.graph.input]
    node = next((each for each in proto.graph.node if each.op_type == operator), None)
    named = None
    if node is not None:
        named = GraphNode(name=node.name, op_type=operator, output=node.output[0])
    with _opened(proto, runtime) as sessions:
        try:
            actual = np.asarray(
                sessions[runtime.label].run(dict(zip(names, arrays, strict=True)))[0]
            )
        except Refusal as refusal:
            made = check("c", "diverged", refused=("runtime",), reason=str(refusal))
            made = made.model_copy(update={"refusal": dict(refusal.data)})
            return _facts(proto, made, blame, None, runtime, exporter)
    wanted = np.asarray(expected)
    if actual.shape == wanted.shape and np.allclose(
        actual.astype(float), wanted.astype(float), 1e-4, 1e-5, equal_nan=True
    ):
        return None
    made = check("c", "diverged")
    if actual.shape == wanted.shape:
        far = np.argmax(~np.isclose(actual.astype(float), wanted.astype(float), equal_nan=True))
        sides = {"expected": float(wanted.flat[far]), "actual": float(actual.flat[far])}
        made = made.model_copy(update={"worst": made.worst.model_copy(update=sides)})
    return _facts(proto, made, blame, named, runtime, exporter)


def exported(
    function: Callable[..., Any],
    *inputs: torch.Tensor,
    operator: str,
    blame: str = "exporter",
    **options: Any,
) -> Shown:
    """Return the facts of an export that answers otherwise than the module, with the node at fault."""
    other = options.pop("other", inputs)
    exporter = options.get("exporter", "torchscript")
    proto = export(function, *inputs, **options)
    expected = Calls(function, options.get("parts", ())).eval()(*other)
    feeds = {str(i): each.detach().numpy() for i, each in enumerate(other)}
    return answering(proto, feeds, expected.detach().numpy(), blame, operator, exporter=exporter)


def parsed(file: str | onnx.ModelProto) -> onnx.ModelProto:
    return file if isinstance(file, onnx.ModelProto) else onnx.parser.parse_model(file)


def graph(text: str, opset: int = 17, ir: int = 8) -> str:
    """Return a model in ONNX's own text format."""
    return f'<ir_version: {ir}, opset_import: ["" : {opset}]> g {text}'


def facts_as(shown: Shown, exporter: str) -> Failure:
    """Return the facts that the book is asked with."""
    if isinstance(shown, Failure):
        return shown
    assert isinstance(shown, GateError)
    data = shown.data
    return Failure(
        stage="export" if shown.kind == "export" else "load",
        versions=versions(),
        message=message_of(shown),
        exporter=exporter,
        engine=str(data.get("engine", "")),
        operator=str(data.get("operator", "")),
        dtypes=tuple(data.get("dtypes", ())),
    )


@contextlib.contextmanager
def _opened(proto: onnx.ModelProto, runtime: RuntimeSpec) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(proto, str(path))
        if runtime.name == "openvino":  # in this process, as its host does it
            from onnx_gate.runtimes.openvino import OpenVino

            try:
                yield {runtime.label: OpenVino().open(path, runtime, 1)}
            except GateError as error:
                error.data |= {"engine": "openvino"}
                raise
            return
        with Sessions(path, [runtime], 1, Clock()) as sessions:
            yield sessions


def _facts(
    proto: onnx.ModelProto,
    made: Check,
    blame: str,
    node: GraphNode | None,
    runtime: RuntimeSpec,
    exporter: str,
) -> Failure:
    diagnosis = Diagnosis.model_validate(
        {"runtime": runtime.label, "case": "c", "output": "y", "blame": blame, "node": node}
    )
    return facts_of(diagnosis, Exported(Path("model.onnx"), exporter, proto), made, runtime)
