"""What a weight of a file is likely to be, and what to call a parameter: by the parts that read it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from onnx import ModelProto
from torch import nn

from onnx_gate.graph.module_path import module_of_props, module_of_scope
from onnx_gate.graph.walk import all_nodes
from onnx_gate.report.model import UnknownWeight
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inspect.known_weights import KnownWeights
from onnx_gate.verify.inspect.weight_bits import largest_difference

# A weight that nothing explains is held against at most so many.
_NEAREST = 64


def called(known: KnownWeights, own: str, scopes: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """Return what to call a tensor that parts of these paths read, and its other names if none says."""
    names = known.names(own)
    read = [name for name in names if name.rpartition(".")[0] in scopes]
    if len(names) == 1 or own in read:
        return own, ()
    return (read[0], ()) if read else (own, tuple(name for name in names if name != own))


def nearest(
    known: KnownWeights, name: str, array: Array, own: str | None, scopes: Collection[str]
) -> UnknownWeight:
    """Return a weight that nothing explains beside the parameter ``own``, or that which is likely.

    That is one of a part that reads the weight, by its path among ``scopes``; where no reader is
    known it is the nearest, if it is so by far: of numbers that have nothing to do with each other
    some are always the nearest.
    """
    shapes = {array.shape, array.shape[::-1]} if array.ndim == 2 else {array.shape}
    alike = [own] if own is not None else known.shaped(shapes)
    if own is None and scopes:
        inside = [_inside(known, each, scopes) for each in alike]
        alike = [each for each in inside if each is not None]
    apart = sorted(
        (
            min(largest_difference(each, expected) for each in turned),
            called(known, other, scopes)[0],
        )
        for other in alike[:_NEAREST]
        if (expected := known.value(other)) is not None
        and (turned := [each for each in (array, array.T) if each.shape == expected.shape])
    )
    if not apart or (len(apart) > 1 and 2 * apart[0][0] >= apart[1][0]):
        return UnknownWeight(name=name)
    return UnknownWeight(name=name, parameter=apart[0][1], difference=apart[0][0])


def _inside(known: KnownWeights, own: str, scopes: Collection[str]) -> str | None:
    """Return the name by which a tensor is in one of these parts."""
    within = (n for n in known.names(own) if any(n.startswith(f"{each}.") for each in scopes))
    return next(within, None)


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
