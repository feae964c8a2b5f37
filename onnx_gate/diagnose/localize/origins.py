"""What is known of a faulty node's origin, from the surest source to the least sure."""

from __future__ import annotations

from typing import Any

from onnx_gate.diagnose.trace.trace import TracedValue
from onnx_gate.graph.graph import Node
from onnx_gate.graph.module_path import module_of_fx, module_of_props, module_of_scope
from onnx_gate.report.model.diagnosis import Source
from onnx_gate.verify.source_lines import of_node, of_stack, own_source
from onnx_gate.verify.subject import Subject


class Origins:
    """Finds modules and lines: by the name of a value in the program that was exported, by what
    the file says of the node, and by PyTorch's value in its place."""

    def __init__(self, subject: Subject) -> None:
        program = subject.exported.program
        self._nodes: dict[str, Any] = (
            {} if program is None else {node.name: node for node in program.graph.nodes}
        )
        if program is not None:
            # The graph's outputs have the names that the user gave them.
            made = program.graph_signature.user_outputs
            for graph_output, name in zip(subject.exported.proto.graph.output, made, strict=False):
                if isinstance(name, str) and name in self._nodes:
                    self._nodes[graph_output.name] = self._nodes[name]
        self._modules = {name for name, _ in subject.eager.module.named_modules()}
        self._workspace = subject.workspace

    def fields(self, node: Node, value: str, *traced: TracedValue | None) -> dict[str, Any]:
        """Return what a report's ``GraphNode`` says of a node."""
        return {
            "name": node.proto.name,
            "op_type": node.op_type,
            "output": value,
            "module": self.module(node, value, *traced),
        }

    def module(self, node: Node, value: str, *traced: TracedValue | None) -> str | None:
        """Return the path of the module that a node belongs to."""
        known = self._nodes.get(value)
        names = [
            None if known is None else module_of_fx(known.meta),
            module_of_props(node.proto),
            module_of_scope(node.proto.name, self._modules),
            *(traced.module for traced in traced if traced is not None),
        ]
        return next((name for name in names if name is not None), None)

    def source(self, node: Node, value: str, *traced: TracedValue | None) -> Source | None:
        """Return the user's line that a node comes from."""
        known = self._nodes.get(value)
        trace = "" if known is None else known.meta.get("stack_trace") or ""
        sources = [
            own_source(of_stack(trace, self._workspace)),
            own_source(of_node(node.proto, self._workspace)),
            *(traced.source for traced in traced if traced is not None),
        ]
        return next((source for source in sources if source is not None), None)
