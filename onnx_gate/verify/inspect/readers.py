"""Which parts of a module read a file's weights, by what the exporter wrote of their nodes."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import ModelProto
from torch import nn

from onnx_gate.graph.module_path import module_of_props, module_of_scope
from onnx_gate.graph.walk import all_nodes
from onnx_gate.runtimes import state


def readers(proto: ModelProto, module: nn.Module) -> Mapping[str, tuple[str, ...]]:
    """Return the paths of the parts whose nodes read a value, by its name; none where nothing says.

    What was exported may hold the module as a part of its own.
    """
    modules = {name for name, _ in state.parts(module)}
    found: dict[str, dict[str, None]] = {}
    for node in all_nodes(proto):
        scope = module_of_props(node) or module_of_scope(node.name, modules)
        if scope is not None and scope not in modules:
            scope = scope.partition(".")[2]
        if scope:
            for name in node.input:
                found.setdefault(name, {})[scope] = None
    return {name: tuple(scopes) for name, scopes in found.items()}
