"""What the exporter's own optimiser has made of a graph, by what it leaves in the nodes that it writes."""

from __future__ import annotations

from onnx_gate.diagnose.localize.localize import Located
from onnx_gate.diagnose.whole import Cause
from onnx_gate.graph.constants import array_of
from onnx_gate.graph.module_path import props_of
from onnx_gate.graph.walk import constants
from onnx_gate.verify.subject import Subject

# Where onnxscript's optimiser names the rule that wrote a node.
_RULE = "pkg.onnxscript.rewriter.rule_name"
_SHAPED = ("Reshape", "Expand")


def rewritten(subject: Subject, located: Located) -> Cause | None:
    """Return that a wrong shape is of onnxscript's optimiser, of a graph whose program is right.

    It goes by the shapes that torch's exporter writes beside values, and that is wrong about recurrent
    layers with time first: no line of the module's has made a number of that size.
    """
    node = located.proto
    rule = props_of(node).get(_RULE) if node is not None and node.op_type in _SHAPED else None
    if node is None or rule is None:
        return None
    tensor = constants(subject.exported.proto).get(node.input[1])
    if tensor is None:
        return None
    shape = array_of(tensor, subject.exported.path.parent).tolist()
    told = f"onnxscript's optimiser ({rule}) made the shape of {node.op_type} a constant, {shape}"
    if subject.spec.exported_here:
        return Cause(told, "leave that optimiser out, `export: {optimize: false}`")
    return Cause(told, "leave that optimiser out where the file is made, `optimize=False`")
