"""Where another runtime goes wrong: all its intermediate values beside ONNX Runtime's plain ones.

For what no node shows alone: an engine that fuses, converts or lays out the graph as a whole.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.shape_inference

from onnx_gate.diagnose.bench import PLAIN
from onnx_gate.diagnose.graph.graph import Node, read_graph
from onnx_gate.diagnose.subject import Subject
from onnx_gate.errors import GateError
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.numerics.precision import eps_of
from onnx_gate.numerics.scaled import scale_error
from onnx_gate.runtimes.base import Array, Refusal, first_line, open_session

# A value is wrong that is off by this share of the worst one's error, and by so many units of its
# precision; what rounding adds up to on the way is less than either.
_SHARE = 0.05
_UNITS = 100.0


def first_wrong(subject: Subject) -> tuple[Node | None, str]:
    """Return the first node whose value another runtime has otherwise, and a note.

    The values are extra outputs of the graph. ``None`` where the runtime takes no such file, and
    where it agrees once it has to give every value.
    """
    label = subject.runtime.label
    model = onnx.shape_inference.infer_shapes(onnx.load(str(subject.exported.path)))
    outputs = {value.name for value in model.graph.output}
    typed = {v.name: v for v in model.graph.value_info if v.type.tensor_type.elem_type}
    graph = read_graph(subject.exported.proto, subject.exported.path)
    produced = [(node, name) for node in graph.nodes for name in node.outputs]
    model.graph.output.extend(
        typed[name] for _, name in produced if name in typed and name not in outputs
    )
    path = subject.folder / "tapped.onnx"
    try:
        onnx.save(model, str(path))
        actual = _values(subject, path, subject.runtime)
        expected = _values(subject, path, PLAIN)
    except (Refusal, GateError, ValueError) as error:
        return None, f"{label} gives no values from inside of the graph: {first_line(error)}"
    finally:
        path.unlink(missing_ok=True)
    errors = {name: _error(actual[name], expected[name]) for _, name in produced if name in actual}
    worst = max(errors.values(), default=0.0)
    for node, name in produced:
        if name in errors and errors[name] > max(
            _SHARE * worst, _UNITS * eps_of(expected[name].dtype)
        ):
            return node, f"{name} is the first value that {label} has otherwise than {PLAIN.label}"
    return None, f"{label} agrees once it has to give the values from inside of the graph"


def _values(subject: Subject, path: Path, spec: RuntimeSpec) -> dict[str, Array]:
    session = open_session(path, spec, subject.threads)
    try:
        names = [value.name for value in session.outputs]
        return dict(zip(names, map(np.asarray, session.run(subject.feeds())), strict=True))
    finally:
        session.close()


def _error(actual: Array, expected: Array) -> float:
    same = actual.shape == expected.shape and actual.dtype == expected.dtype
    return (
        scale_error(actual, expected) if same and actual.dtype.kind in "fiub" else float(not same)
    )
