"""Where another runtime goes wrong in the whole graph only, as one that fuses nodes wrongly does.

All its floating-point values are extra outputs of the graph. A node is wrong whose value is not what
ONNX Runtime makes of the very values that the runtime has for its inputs: so an error that is
inherited, however far it has grown, is none of the node's own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.shape_inference

from onnx_gate.diagnose.divergence import Divergence
from onnx_gate.diagnose.localize.by_name import MOST, SHARE, reaching
from onnx_gate.diagnose.values import agree, distance
from onnx_gate.errors import GateError
from onnx_gate.graph.graph import Node
from onnx_gate.graph.run_node import Runner
from onnx_gate.graph.session import Value
from onnx_gate.runtimes.base import Array, Refusal, first_line
from onnx_gate.runtimes.file_module import PLAIN
from onnx_gate.runtimes.open import open_session

_FLOATING = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
    onnx.TensorProto.DOUBLE,
)


def first_wrong(divergence: Divergence) -> tuple[Node | None, str]:
    """Return the first node whose error in the whole graph reaches the output, and a note.

    ``None`` where the runtime takes no such file, and where it agrees once it has to give every
    value. Raises ``OutOfTime``.
    """
    subject = divergence.subject
    label = subject.runtime.label
    path = subject.folder / "tapped.onnx"
    try:
        _write(divergence, path)
        actual = _values(divergence, path)
    except (Refusal, GateError, ValueError) as error:
        return None, f"{label} gives no values from inside of the graph: {first_line(error)}"
    finally:
        path.unlink(missing_ok=True)
    runner = Runner(divergence.graph, PLAIN, subject.folder)
    wrong = _wrong(divergence, runner, actual)
    node = _effective(divergence, runner, actual, wrong)
    if node is None:
        return None, f"{label} agrees once it has to give the values from inside of the graph"
    return node, f"{label} has it wrong in the whole graph, and not where the node is alone"


def _write(divergence: Divergence, path: Path) -> None:
    """Write the file with every floating-point value as an output: not every engine gives others."""
    exported = divergence.subject.exported
    model = onnx.shape_inference.infer_shapes(onnx.load(str(exported.path)))
    outputs = {value.name for value in model.graph.output}
    typed = {v.name: v for v in model.graph.value_info if v.type.tensor_type.elem_type in _FLOATING}
    produced = [name for node in divergence.graph.nodes for name in node.outputs]
    model.graph.output.extend(typed[n] for n in produced if n in typed and n not in outputs)
    onnx.save(model, str(path))


def _values(divergence: Divergence, path: Path) -> dict[str, Array]:
    session = open_session(path, divergence.subject.runtime)
    try:
        names = [value.name for value in session.outputs]
        return dict(zip(names, map(np.asarray, session.run(divergence.feeds)), strict=True))
    finally:
        session.close()


def _wrong(
    divergence: Divergence, runner: Runner, actual: dict[str, Array]
) -> list[tuple[Node, str]]:
    """Return the nodes, and their outputs, that the runtime computes otherwise, in order."""
    values: dict[str, Value] = {**divergence.feeds, **actual}
    wrong = []
    for node in divergence.graph.ancestors([divergence.output]):
        divergence.deadline.check()
        for name, value in runner.run(node, values).items():
            values.setdefault(name, value)
            if name in actual and isinstance(value, np.ndarray) and not agree(actual[name], value):
                wrong.append((node, name))
    return wrong


def _effective(
    divergence: Divergence, runner: Runner, actual: dict[str, Array], wrong: list[tuple[Node, str]]
) -> Node | None:
    """Return the first node whose value alone, put into the right graph, moves the output."""

    whole = distance(actual.get(divergence.output), divergence.expected)
    limit = SHARE * whole if np.isfinite(whole) else -1.0
    alone = ((node, {name: actual[name]}) for node, name in wrong[:MOST])
    return reaching(divergence, runner, alone, limit) or (wrong[0][0] if wrong else None)
