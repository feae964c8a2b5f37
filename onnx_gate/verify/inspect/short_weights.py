"""Which parameters those weights are that a file keeps in few bits, and whether they are these rounded.

The numbers that come of few bits are nobody's bit for bit, and what quantises a file gives them names
of its own. But four bits keep all but a hundredth of a weight, and no two weights of a network have rows
alike: some rows, widened, tell which parameter it is. Rounding leaves half a step, in whatever way rounding
is chosen less than a whole one, and more only where a number is at an end of its type. So where most rows
are within a step of the parameter's, those that are not are wrong; where hardly any are, what quantised it
may have made up for its errors elsewhere, and nothing is said.

It costs one read of the module's weights of such shapes, and one of each that is found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

from onnx_gate.graph.constants import array_of
from onnx_gate.graph.short import WIDENED, ShortWeight, short_weight
from onnx_gate.graph.walk import all_nodes
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inspect.known_weights import Fold, KnownWeights
from onnx_gate.verify.inspect.weight_bits import Mask
from onnx_gate.verify.inspect.wrong_weight import WrongWeight

_Rows = NDArray[np.float32]

# So many rows tell weights from each other.
_ROWS = 8
# The cosine of a weight and of what few bits make of it: 0.99 in four, 0.9 in two; of two weights it is 0.
_ALIKE = 0.8
# A step, and what is lost where a scale is itself one of 16 bits.
_STEP = 1.01
# Where fewer rows than this are not a parameter's, the others say that it is meant.
_FEW = 0.5
# What multiplies integers, with the axis along which its weights have scales.
_INTEGER = {"MatMulInteger": -1, "ConvInteger": 0}
# The numbers that are widened together.
_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class ShortFound:
    """What a weight in few bits is, by the ``names`` of the tensors that it is made of.

    It is ``parameter``, if any is known; ``wrong`` is in what it is not. ``explained``: all of it is that
    parameter, rounded.
    """

    names: tuple[str, ...]
    parameter: str | None = None
    explained: bool = False
    wrong: WrongWeight | None = None


@dataclass(frozen=True)
class _Heads:
    """The first rows and columns of a module's weights, by shape and name."""

    known: KnownWeights
    _rows: MutableMapping[str, _Rows] = field(default_factory=dict)
    _columns: MutableMapping[str, _Rows] = field(default_factory=dict)

    def nearest(self, weight: ShortWeight) -> _Meant | None:
        """Return what a weight is in few bits, as it is nearest to it in its first rows."""
        if weight.widened(slice(1)) is None:
            return None
        if len(weight.shape) == 1:
            names = (n for n, shape in self.known.forms.items() if shape == weight.shape)
            meant = [each for name in (*names, None) for each in self._folded(weight, name)]
        else:
            name, turned = self._alike(weight)
            meant = [] if name is None else list(self._folded(weight, name, turned))
        apart = [float(_off(weight, each, _ROWS)[0].mean()) for each in meant]
        return meant[int(np.argmin(apart))] if meant else None

    def _folded(
        self, weight: ShortWeight, name: str | None, turned: bool = False
    ) -> Iterator[_Meant]:
        """Yield a parameter as it is, and with each norm that may be folded into it."""
        own = np.zeros(weight.shape, np.float32) if name is None else self.known.value(name)
        if own is None:
            return
        if name is not None:
            yield _Meant(name, turned, own)
        for fold in self.known.folds(own.shape, layer=name is not None):
            yield _Meant(name, turned, own, fold)

    def _alike(self, weight: ShortWeight) -> tuple[str | None, bool]:
        """Return the parameter whose rows have the directions of a weight's, and whether it is turned."""
        best: float = _ALIKE
        found: tuple[str | None, bool] = (None, False)
        head = weight.widened(slice(_ROWS))
        for name, shape in self.known.forms.items():
            for turned in (False, True) if len(weight.shape) == 2 else (False,):
                if head is not None and (shape[::-1] if turned else shape) == weight.shape:
                    alike = _cosine(head[0], self._head(name, turned), turned)
                    best, found = max((best, found), (alike, (name, turned)), key=lambda x: x[0])
        return found

    def _head(self, name: str, turned: bool) -> _Rows:
        kept = self._columns if turned else self._rows
        if name not in kept:
            value = self.known.value(name)
            rows = np.zeros((0, 0)) if value is None else value.T if turned else value
            kept[name] = np.array(rows[:_ROWS], np.float32)
        return kept[name]


@dataclass(frozen=True)
class _Meant:
    """What a weight is meant to be: a ``parameter``'s values, or without one a norm's alone.

    ``turned``: the file has it the other way round.
    """

    parameter: str | None
    turned: bool
    own: Array
    fold: Fold | None = None

    def rows(self, rows: slice) -> _Rows:
        """Return some rows, as the file has them."""
        own, *fold = (x.T if self.turned else x for x in (self.own, *(self.fold or ())))
        made = own[rows]
        if fold:
            made = made * fold[0][rows] + fold[1][rows]
        return np.asarray(made, np.float32)


def _cosine(one: Array, other: _Rows, turned: bool) -> float:
    """Return the mean cosine of rows, or of a turned one's all: norms give each row a factor."""
    if one.shape != other.shape:  # of values that are not to be had
        return 0.0
    a, b = (each.reshape(1 if turned else len(each), -1) for each in (one, other))
    size = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    some = size > 0
    return float(np.mean(np.abs((a * b).sum(1)[some] / size[some]))) if some.any() else 0.0


def short_weights(
    proto: ModelProto, tensors: Mapping[str, TensorProto], folder: Path, known: KnownWeights
) -> Iterator[ShortFound]:
    """Yield what each weight in few bits of a file in ``folder`` is, whose constants are ``tensors``.

    One number throughout is an attribute rather than a weight.
    """
    heads, told, links = _Heads(known), set[str](), _Links(proto, tensors)
    for node in all_nodes(proto):
        weight = links.weight(node, folder)
        if (
            weight is None
            or weight.names[0] in told
            or (weight.stored == weight.stored.flat[0]).all()
        ):
            continue
        told.add(weight.names[0])
        yield _found(weight, heads)


class _Links:
    """Finds the weights of nodes, whose scales may be elsewhere, or that are looked up first."""

    def __init__(self, proto: ModelProto, tensors: Mapping[str, TensorProto]) -> None:
        self._tensors = tensors
        self._made = {name: node for node in all_nodes(proto) for name in node.output}
        self._read = {name: node for node in all_nodes(proto) for name in node.input}

    def weight(self, node: NodeProto, folder: Path) -> ShortWeight | None:
        """Return the weight of a node, ``None`` where it has none that could be found."""
        if node.op_type in _INTEGER and (scale := self._scale(node)) is not None:
            zero = [*node.input[3:4]]
            axis = _INTEGER[node.op_type]
            inputs = [node.input[1], scale, *zero]
            node = helper.make_node("DequantizeLinear", inputs, [""], axis=axis)
        if node.op_type not in WIDENED:
            return None
        named = {n: own for n in node.input if (own := self._table(n)) in self._tensors}
        try:
            stored = {n: array_of(self._tensors[own], folder) for n, own in named.items()}
            weight = short_weight(node, stored)
        except ValueError:  # said by the checker
            return None
        if weight is None or not weight.stored.size:
            return None
        # A table that is looked up has its rows at other places.
        moved = weight.names[0] not in self._tensors and weight.scale.size > 1
        return None if moved else replace(weight, names=tuple(named[n] for n in weight.names))

    def _table(self, name: str) -> str:
        made = self._made.get(name)
        return made.input[0] if made is not None and made.op_type == "Gather" else name

    def _scale(self, node: NodeProto) -> str | None:
        """Return the constant that a product of integers is multiplied by, beside its input's scale."""
        after = self._read.get(node.output[0])
        if after is not None and after.op_type == "Cast":
            after = self._read.get(after.output[0])
        if after is None or after.op_type != "Mul":
            return None
        factors = [self._made[n] for n in after.input if n in self._made]
        names = [n for each in (after, *factors) if each.op_type == "Mul" for n in each.input]
        return next((n for n in names if n in self._tensors), None)


def _found(weight: ShortWeight, heads: _Heads) -> ShortFound:
    meant = heads.nearest(weight)
    if meant is None:
        return ShortFound(weight.names)
    off, apart = _off(weight, meant)
    if not off.any():
        return ShortFound(weight.names, meant.parameter, explained=True)
    # Of a vector there are no rows that others could vouch for.
    if meant.parameter is None or off.ndim == 1:
        return ShortFound(weight.names, meant.parameter)
    by_row = off.reshape(len(off), -1)
    by_row = by_row.T if meant.turned else by_row
    wrong = [by_row.any(axis=1), by_row.any(axis=0)]
    if min(float(each.mean()) for each in wrong if each.size > 1) >= _FEW:
        return ShortFound(weight.names, meant.parameter)
    rows = tuple(map(int, np.flatnonzero(wrong[0])))
    told = WrongWeight(weight.names[0], meant.parameter, apart, rows, len(by_row))
    return ShortFound(weight.names, meant.parameter, wrong=told)


def _off(weight: ShortWeight, meant: _Meant, most: int | None = None) -> tuple[Mask, float]:
    """Return which numbers, of the first rows or of all, are further off than a step, and how far."""
    least, largest = weight.ends
    total, width = weight.shape[0], math.prod(weight.shape[1:])
    total = total if most is None or len(weight.shape) == 1 else min(most, total)
    count = max(1, _AT_ONCE // max(1, width))
    parts, apart = [], 0.0
    for low in range(0, total, count):
        rows = slice(low, min(low + count, total))
        made = weight.widened(rows)
        assert made is not None
        numbers, expected = weight.numbers(rows), meant.rows(rows)
        away = np.abs(made[0] - expected)
        off = ~(away <= _STEP * made[1] + 1e-6 * np.abs(expected))
        off &= (numbers > least) & (numbers < largest)
        apart = max(apart, float(away[off].max(initial=0.0)))
        parts.append(off)
    return np.concatenate(parts), apart
