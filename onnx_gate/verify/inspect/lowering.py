"""What an exporter is known to write otherwise than PyTorch computes, seen without running it.

Both sides are looked at: the program that torch.export captured, and the graph made from it. A
value of the graph has the name of the program's node that it was made from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import onnx
import torch
from torch.export import ExportedProgram
from torch.fx import Node

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.verify.source_lines import finding_at, of_node, of_stack, shown

# The exporter's optimiser takes a constant this close to zero for zero.
TAKEN_FOR_ZERO = 1e-8
# Operators that are no number, or have no slope, at zero, and what they are called.
_AT_ZERO = {
    "div": "division",
    "reciprocal": "division",
    "rsqrt": "root",
    "sqrt": "root",
    "log": "logarithm",
    "log2": "logarithm",
    "log10": "logarithm",
    "pow": "power",
}
_ADDITIONS = ("aten::add", "aten::sub", "aten::rsub")


def deleted_constants(
    program: ExportedProgram, proto: onnx.ModelProto, root: Path | None
) -> Iterator[Finding]:
    """Say which additions of a tiny constant are not in the graph any more.

    ``values`` of a finding's data are what is added to, and what is made of the sum.
    """
    made_by = {name: node.op_type for node in proto.graph.node for name in node.output}
    for node in _dependent(program):
        constant = _tiny(node)
        if constant is not None and made_by.get(node.name) not in ("Add", "Sub"):
            source = of_stack(node.meta.get("stack_trace") or "", root)
            yield finding_at(
                codes.OG124,
                f"the exporter dropped the constant {constant:g} from {shown(source, repr(node.name))}: it "
                f"takes anything up to {TAKEN_FOR_ZERO:g} for zero{_consequence(node)}. Use a larger "
                "constant, or clamp(min=...), which is kept",
                source,
                data={"values": [each.name for each in (*node.all_input_nodes, *node.users)]},
            )


def log_of_sigmoid(proto: onnx.ModelProto, root: Path | None) -> Iterator[Finding]:
    """Return where the graph takes the logarithm of a sigmoid."""
    made_by = {name: node.op_type for node in proto.graph.node for name in node.output}
    for node in proto.graph.node:
        if node.op_type == "Log" and made_by.get(node.input[0]) == "Sigmoid":
            source = of_node(node, root)
            yield finding_at(
                codes.OG126,
                f"{shown(source, repr(node.name))} is Log(Sigmoid(x)) in the graph: ONNX Runtime's Sigmoid "
                "is 0 below -18, so the result is -inf there, where PyTorch's is about x. Write "
                "-torch.nn.functional.softplus(-x)",
                source,
            )


def float64_inside(
    program: ExportedProgram, dtypes: Collection[str], root: Path | None
) -> Iterator[Finding]:
    """Return where a model begins to compute in float64 that has no input or weight of it.

    ``dtypes`` are those of the manifest's inputs.
    """
    weights = (t.dtype for t in program.state_dict.values() if isinstance(t, torch.Tensor))
    if "float64" in dtypes or torch.float64 in weights:
        return
    for node in _dependent(program):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
            source = of_stack(node.meta.get("stack_trace") or "", root)
            yield finding_at(
                codes.OG103,
                f"{shown(source, repr(node.name))} computes in float64, though no input is: usually a "
                "NumPy array or a .double() on the way. Many runtimes have no such kernels: make it "
                "float32",
                source,
            )
            return


def _consequence(node: Node) -> str:
    """Return what reads a sum of which the graph has no constant, and has a pole or an edge at zero."""
    for user in node.users:
        name = _operator(user)
        if name in _AT_ZERO and node in user.args and user.args.index(node) == (name == "div"):
            return (
                f", so the {_AT_ZERO[name]} behind it meets zero where the rest of the sum is zero"
            )
    return ""


def _operator(node: Node) -> str:
    """Return ``div`` of ``aten.div.Tensor``."""
    name = getattr(node.target, "name", None)
    return str(name()).partition("::")[2].partition(".")[0] if callable(name) else ""


def _dependent(program: ExportedProgram) -> Iterator[Node]:
    """Yield the operators that compute with an input: the others are folded away."""
    reached = {str(name) for name in program.graph_signature.user_inputs}
    for node in program.graph.nodes:
        if node.op == "call_function" and any(n.name in reached for n in node.all_input_nodes):
            reached.add(node.name)
            yield node


def _tiny(node: Node) -> float | None:
    """Return the constant that an operator adds, where the exporter takes it for zero."""
    name = getattr(node.target, "name", None)
    value = node.meta.get("val")
    if not callable(name) or str(name()).partition(".")[0] not in _ADDITIONS:
        return None
    if not isinstance(value, torch.Tensor) or value.dtype == torch.float16:
        return None  # float16 rounds it to zero as well
    for argument in node.args[:2]:
        if isinstance(argument, (int, float)) and 0 < abs(argument) <= TAKEN_FOR_ZERO:
            return float(argument)
    return None
