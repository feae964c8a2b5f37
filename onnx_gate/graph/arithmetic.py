"""Few numbers that nodes compute of constants and of a size: folded, or for many sizes at once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from onnx_gate.graph.constants import array_of
from onnx_gate.graph.graph import Graph, Node
from onnx_gate.graph.walk import attribute, constant_of
from onnx_gate.runtimes.base import Array

# A tensor of so many numbers is a list of limits or of ends; a larger one is weights.
MOST_LIMITS = 64
# Up to here floats of 24 bits have shown where they round sizes wrongly, and all of it is computed in
# milliseconds.
_LARGEST_SIZE = 4096
# So many of the sizes at which an amount is another one in floats stand for all of them.
_FEW = 2
# No formula of a size is so deep.
_DEEPEST = 16
_SHAPED = frozenset(("Identity", "Squeeze", "Unsqueeze", "Reshape", "Flatten"))
_PICKED = frozenset(("Gather", "Slice"))
_DIVIDES = frozenset(("Div", "Mod", "Cast"))
_ROUNDS = frozenset(("Floor", "Ceil", "Round", "Cast"))


def _divided(one: Any, other: Any) -> Any:
    """Divide as ONNX does: whole numbers towards zero."""
    if np.asarray(one).dtype.kind not in "iu":
        return np.true_divide(one, other)
    quotient = np.abs(one) // np.abs(other)
    return np.where((one < 0) == (other < 0), quotient, -quotient)


_ROUNDED = np.frompyfunc(round, 1, 1)
_OPERATORS: Mapping[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": _divided,
    "Neg": operator.neg,
    "Abs": np.abs,
    "Min": np.minimum,
    "Max": np.maximum,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": lambda value: _ROUNDED(value) if value.dtype == object else np.rint(value),
}


def stored(graph: Graph, name: str) -> Array | None:
    """Return the numbers that a value is, stored or computed of such as are, if they are few."""
    if name in graph.constants:
        few = graph.constants.count(name) <= MOST_LIMITS
        return graph.constants.array(name) if few else None
    node = graph.producer.get(name)
    tensor = None if node is None else constant_of(node.proto)
    if tensor is not None:
        return array_of(tensor, Path())
    return _Sizes(graph, None).value(name) if name in graph.fixed else None


def sizes_rounded(graph: Graph) -> Iterator[int]:
    """Yield some sizes at which a whole number, computed of a size in floats, is not what it is exactly."""
    sizes = np.arange(1, _LARGEST_SIZE + 1)
    plain, exact = _Sizes(graph, sizes), _Sizes(graph, sizes, exact=True)
    for node in graph.nodes:
        if node.op_type not in _ROUNDS or graph.is_constant(node.outputs[0]):
            continue
        made = plain.value(node.outputs[0])
        if made is None or made.shape != sizes.shape:
            continue
        if node.op_type == "Cast" and made.dtype.kind not in "iu":
            continue
        meant = exact.value(node.outputs[0])
        if meant is not None:
            other = made.astype(np.float64) != meant.astype(np.float64)
            yield from map(int, sizes[other][:_FEW])


def sizes_computed(graph: Graph) -> bool:
    """Return whether sizes are divided or go through floats, as amounts and scaled images do."""
    # Of two sizes what follows from one is told from what is the same for all.
    sizes = np.array([5, 11])
    known = _Sizes(graph, sizes)
    for node in graph.nodes:
        if node.op_type == "Resize" and len(node.inputs) > 2 and node.inputs[2]:
            return True
        if node.op_type not in _DIVIDES or node.proto.domain not in ("", "ai.onnx"):
            continue
        made = known.value(node.inputs[0])
        to = attribute(node.proto, "to", 1) if node.op_type == "Cast" else None
        floats = to is None or np.dtype(helper.tensor_dtype_to_np_dtype(to)).kind == "f"
        if floats and made is not None and made.shape == sizes.shape:
            return True
    return False


class _Sizes:
    """What is computed of many ``sizes`` at once, as the file does or ``exact``: of written constants."""

    def __init__(self, graph: Graph, sizes: Array | None, *, exact: bool = False) -> None:
        self._graph, self._sizes, self._exact = graph, sizes, exact
        self._known: dict[str, Array | None] = {}

    def value(self, name: str, depth: int = 0) -> Array | None:
        """Return a value, ``None`` of what is computed in other ways, or is more than few."""
        if name not in self._known:
            self._known[name] = self._value(name, depth)
        return self._known[name]

    def _value(self, name: str, depth: int) -> Array | None:
        node = self._graph.producer.get(name)
        if name in self._graph.constants or (node is not None and node.op_type == "Constant"):
            return self._constant(name)
        if node is None or depth > _DEEPEST or node.proto.domain not in ("", "ai.onnx"):
            return None
        if node.op_type == "Shape":
            return self._sizes
        names = node.inputs
        if node.op_type in _SHAPED or node.op_type == "Cast":
            names = names[:1]
        elif node.op_type in _PICKED and self._graph.depends_on_input(node) == names[:1]:
            # Of sizes any may be the one that is meant.
            return self.value(names[0], depth + 1)
        elif node.op_type not in _OPERATORS:
            return None
        given = [self.value(each, depth + 1) for each in names]
        known = [each for each in given if each is not None]
        return self._made(node, known) if given and len(known) == len(given) else None

    def _constant(self, name: str) -> Array | None:
        array = stored(self._graph, name)
        if array is None or array.dtype.kind not in "fiu" or not 0 < array.size <= MOST_LIMITS:
            return None
        if self._sizes is None:
            return array
        if array.size > 1 or not np.isfinite(array.item()):
            return None
        if self._exact and array.dtype.kind == "f":
            # A factor of 0.65 is meant, and not the nearest number that a float can hold.
            return np.array([Fraction(str(array.reshape(-1)[0]))], dtype=object)
        return array.reshape(1)

    def _made(self, node: Node, given: list[Array]) -> Array | None:
        if node.op_type in _SHAPED:
            return given[0] if self._sizes is not None or given[0].size == 1 else None
        with np.errstate(all="ignore"):
            try:
                if node.op_type == "Cast":
                    return self._cast(node, given[0])
                return np.asarray(_OPERATORS[node.op_type](*given))
            except (ArithmeticError, TypeError, ValueError):
                return None

    def _cast(self, node: Node, value: Array) -> Array | None:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(attribute(node.proto, "to", 1)))
        if dtype.kind not in "fiu":
            return None
        if self._exact and self._sizes is not None:
            if dtype.kind == "f":
                wide = [Fraction(each) for each in value.reshape(-1).tolist()]
                return np.array(wide, dtype=object).reshape(value.shape)
            value = np.trunc(value)
        return value.astype(dtype)
