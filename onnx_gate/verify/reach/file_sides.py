"""What a file in the module's place decides, sought without gradients: near rows, and their children.

Nothing watches the operators of a file, and nothing leads through them. But a file can be asked for any of
its values, row by row, and what it holds against a number is nearer to it in some rows than in others. The
nearest have children: moved at random, along what the children before have shown to lead there, and
mixed with each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import onnx
from onnx.shape_inference import infer_shapes

from onnx_gate.graph.extract import cut
from onnx_gate.graph.graph import Graph, Node, read_graph
from onnx_gate.graph.limits import EQUAL, limits_of_values
from onnx_gate.graph.session import PlainSession, Value
from onnx_gate.graph.walk import attribute, inlined
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.verify.inputs.draw import Float64, Stream
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.drawn import DrawnInputs
from onnx_gate.verify.reach.purse import Cost, Purse
from onnx_gate.verify.reach.rules import AT
from onnx_gate.verify.reach.stack import Stack, axis_of, moved

# So many rows have children, and so often the best of all are looked for.
_PARENTS, GENERATIONS = 8, 24
# The largest batch that can be paid for climbs.
CLIMBED = (250, 60, 20)
# And so many of those that show a side are a case.
_KEPT = 16
# The first step, as a share of a domain; one that comes no nearer halves it.
_SHARE = 1 / 4
# Each generation has so many kinds of children.
_PARTS = 4
# Each step is halved so often, from child to child.
_STEPS = 6
# Files with more sides than this that nothing has shown are nothing that a search could end.
MOST_SIDES = 64
_PRODUCTS = frozenset(("MatMul", "Gemm", "Conv"))
_ORDERED = frozenset(("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Max", "Min"))
_CHOICES: Mapping[str, int] = {"ArgMax": 1, "ArgMin": -1}


@dataclass(frozen=True)
class FileSide:
    """A side of what a file holds against a number: ``below``, ``above`` or ``equal``.

    With an ``axis`` the number is the place of the largest along it, or of the least where ``sign`` is -1.
    With an ``other`` value it is that much larger.
    """

    operator: str
    value: str
    number: float
    side: str
    axis: int | None = None
    sign: int = 1
    other: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The values that it is about."""
        return (self.value, self.other) if self.other else (self.value,)

    @property
    def parts(self) -> tuple[str, ...]:
        """What the name of a case that shows it consists of."""
        return ("file", f"{self.operator}.{self.number:g}", self.side)

    def nearness(self, values: Mapping[str, Array]) -> Float64:
        """Return how near elements come, above 0 where one shows the side."""
        held: Float64 = np.asarray(values[self.value], np.float64)
        if self.axis is not None:
            place = int(self.number)
            if not 0 <= place < held.shape[self.axis] > 1:
                return np.full_like(held, -np.inf)
            own = held.take([place], self.axis)
            others = np.delete(held, place, self.axis) * self.sign
            ahead: Float64 = self.sign * own - others.max(axis=self.axis, keepdims=True)
            return ahead
        apart = held - (np.asarray(values[self.other], np.float64) if self.other else self.number)
        if self.side == AT:
            return np.where(apart == 0, 1.0, -np.abs(apart))
        return apart if self.side == "above" else -apart


class DecidingFile:
    """An ONNX file that is asked for the values that it decides by; raises ``Refusal`` where it cannot be.

    ``price`` is what it costs to ask for them, of what it is given at first.
    """

    def __init__(
        self, path: Path, inputs: Mapping[str, str], threads: int, first: Mapping[str, Array]
    ) -> None:
        model = inlined(infer_shapes(onnx.load(str(path), load_external_data=False)))
        graph = read_graph(model, path)
        self._inputs = dict(inputs)
        self.sides = tuple(islice(_sides(graph), MOST_SIDES))
        read = (name for each in self.sides for name in each.names)
        made = dict.fromkeys(name for name in read if name in graph.producer)
        nodes = graph.ancestors(made)
        feeds = {own: first[name] for name, own in inputs.items()}
        every = [name for node in nodes for name in node.outputs]

        def session(wanted: Sequence[str]) -> PlainSession:
            part = cut(model, graph, nodes, feeds, dict.fromkeys(wanted), in_place=True)
            return PlainSession(part, threads, folder=path.parent)

        self._made, self._session = tuple(made), session([*made]) if made else None
        values = dict(zip(every, session(every).run(feeds), strict=True)) if made else {}
        self.price = cost_of_nodes(graph, nodes, {**feeds, **values})

    def run(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return the values that it decides by; raises ``Refusal``."""
        feeds = {own: arrays[name] for name, own in self._inputs.items()}
        made = self._session.run(feeds) if self._session is not None else ()
        return {**feeds, **dict(zip(self._made, made, strict=True))}


def cost_of_nodes(graph: Graph, nodes: Sequence[Node], values: Mapping[str, Value]) -> Cost:
    """Return what nodes cost that have made values."""
    numbers = products = 0
    for node in nodes:
        made = sum(np.asarray(values[n]).size for n in node.outputs if n in values)
        numbers += made
        if node.op_type in _PRODUCTS and len(node.inputs) > 1:
            name = node.inputs[1]
            dims = graph.constants.dims(name) if name in graph.constants else values[name].shape
            # Of a product the other axes are those that it keeps, of a window its channels.
            kept = dims[-1] if node.op_type == "MatMul" else dims[0]
            products += (
                made * math.prod(dims[-2:] if node.op_type == "MatMul" else dims) // max(kept, 1)
            )
    return Cost(len(nodes), numbers, products)


def found_in(
    files: Callable[[], Iterable[DecidingFile]],
    inputs: DrawnInputs,
    known: Mapping[str, Domain],
    stack: Stack,
    purse: Purse,
    seconds: float,
) -> Iterator[tuple[FileSide, Mapping[str, Array]]]:
    """Yield rows, first axis first, that show sides of what files decide, for so many seconds in each."""
    for file in files():
        for rows in CLIMBED:
            sizes = purse.base.sizes if stack.passes else inputs.sized(purse.base.sizes, rows)
            price = file.price.forward(purse.ratio(sizes)) * (rows if stack.passes else 1)
            if GENERATIONS * price <= seconds:
                if stack.passes:
                    drawn: Mapping[str, Array] = inputs.rows(purse.base, known, rows, ("file",))
                else:
                    flat = inputs.draw(known, sizes, ("file",), None)
                    drawn = {n: moved(a, stack.axes.get(n, 0), 0) for n, a in flat.items()}
                yield from FileClimbs(file, known, stack, seconds, price).found(drawn)
                break


@dataclass
class FileClimbs:
    """Climbs to the sides of what a file decides, from rows that were drawn of ``known`` domains.

    ``stack`` says how rows are given. ``left`` may be spent, ``price`` on each batch. ``shown`` are the
    sides that some row has shown.
    """

    file: DecidingFile
    known: Mapping[str, Domain]
    stack: Stack
    left: float
    price: float
    shown: set[FileSide] = field(default_factory=set)

    def found(self, drawn: Mapping[str, Array]) -> Iterator[tuple[FileSide, Mapping[str, Array]]]:
        """Yield rows, first axis first, that show a side which none before has shown."""
        first = self._nearness(drawn) if self._pays() else {}
        for side in self.file.sides:
            if side in first and side not in self.shown:
                reached = self._climbed(side, drawn, first[side])
                if reached is not None:
                    yield side, reached

    def _pays(self) -> bool:
        self.left -= self.price
        return self.left >= 0

    def _nearness(self, rows: Mapping[str, Array]) -> dict[FileSide, Float64]:
        """Return how near each row comes to each side, and take note of those that are shown."""
        count = 1 if self.stack.passes else self.stack.count(rows)
        try:
            parts = [self._near(given, count) for given in self.stack.given(rows)]
        except Refusal:
            return {}
        found = {
            s: np.concatenate([p[s] for p in parts]) for s in parts[0] if all(s in p for p in parts)
        }
        self.shown.update(side for side, near in found.items() if (near > 0).any())
        return found

    def _near(self, given: Mapping[str, Array], count: int) -> dict[FileSide, Float64]:
        values, found = self.file.run(given), {}
        for side in self.file.sides:
            arrays = [np.asarray(values[name]) for name in side.names]
            if not all(array.size and array.dtype.kind in "fiu" for array in arrays):
                continue
            apart = side.nearness(values)
            usual = next(iter(self.stack.axes.values()), 0)
            axis = None if self.stack.passes else axis_of(apart.shape, count, usual)
            if axis is None and not self.stack.passes:
                continue
            rows = apart[None] if axis is None else moved(apart, axis, 0)
            near = rows.reshape(count, -1).max(axis=1)
            found[side] = np.nan_to_num(near, nan=-np.inf, posinf=-np.inf)
        return found

    def _climbed(
        self, side: FileSide, drawn: Mapping[str, Array], near: Float64
    ) -> Mapping[str, Array] | None:
        count, share = self.stack.count(drawn), _SHARE
        best, reached = _nearest(drawn, near, self.stack), np.sort(near)[::-1][:_PARENTS]
        ways: dict[str, Float64] = {}
        for number in range(GENERATIONS):
            source = Stream("file", *side.parts, side.value, number)
            children = self._children(best, count, share, ways, source)
            if not self._pays():
                return None
            made = self._nearness(children).get(side)
            if made is None:
                return None
            if side in self.shown:
                return _nearest(children, made, self.stack, _KEPT)
            ways = self._leading(best, children, made) or ways
            share = share if made.max() > reached.max() else share / 2
            together = np.concatenate((reached, made))
            both = self.stack.joined((best, children))
            best, reached = _nearest(both, together, self.stack), np.sort(together)[::-1][:_PARENTS]
        return None

    def _children(
        self,
        best: Mapping[str, Array],
        count: int,
        share: float,
        ways: Mapping[str, Float64],
        source: Stream,
    ) -> dict[str, Array]:
        """Return rows of which some are moved at random, some along ``ways``, and some are mixed."""
        parents, number = self.stack.count(best), np.arange(count)
        kind, of = number % _PARTS, number // _PARTS % parents
        other = (source.words(count) % np.uint64(parents)).astype(np.int64)
        step = share * 0.5 ** (number // _PARTS % _STEPS)[:, None]
        children = dict(best)
        for name, domain in self.known.items():
            if name not in self.stack.axes:
                continue
            array = best[name]
            flat = array.reshape(parents, -1)
            own, width = flat[of].astype(np.float64), flat.shape[1]
            span = domain.high - domain.low
            random = source.normal(count * width).reshape(count, width)
            lot = source.uniform(count * width).reshape(count, width)
            # All elements a little, few of them a lot, along what leads there, or of two parents.
            little = own + span * step * random
            few = np.where(lot < 1.5 / width, own + 4 * span * step * random, own)
            led = own + span * step * ways[name] if name in ways else few
            mixed = np.where(lot < 0.5, own, flat[other])
            made = np.choose(kind[:, None], (led, little if domain.is_float else few, few, mixed))
            made = np.clip(made if domain.is_float else np.rint(made), domain.low, domain.high)
            children[name] = made.astype(array.dtype).reshape(count, *array.shape[1:])
        for name in self.stack.axes.keys() - self.known.keys():
            children[name] = best[name][of]
        return children

    def _leading(
        self, best: Mapping[str, Array], children: Mapping[str, Array], made: Float64
    ) -> dict[str, Float64]:
        """Return by signs which way each input's elements lead nearer, by what children have shown."""
        finite = np.isfinite(made)
        if finite.sum() < 2 or np.ptp(made[finite]) == 0:
            return {}
        rank = np.zeros(len(made))
        rank[finite] = made[finite].argsort().argsort() / finite.sum() - 0.5
        ways = {}
        for name, domain in self.known.items():
            if domain.is_float and name in self.stack.axes:
                rows = children[name].reshape(len(made), -1).astype(np.float64)
                ways[name] = np.sign(rank @ (rows - rows.mean(axis=0)))
        return ways


def _sides(graph: Graph) -> Iterator[FileSide]:
    """Yield the sides of a graph's limits, each value and number once, and of values against others."""
    known: set[tuple[str, float]] = set()
    for limit in limits_of_values(graph):
        value, number = limit.values[0]
        if (value, number) in known or not math.isfinite(number):
            continue
        if value not in graph.inputs and value not in graph.producer:
            continue
        known.add((value, number))
        if limit.operator != EQUAL:
            for side in ("below", "above"):
                yield FileSide(limit.operator, value, number, side)
            continue
        made, place = limit.values[-1]
        node = graph.producer.get(made)
        if node is not None and node.op_type in _CHOICES:
            axis, sign = attribute(node.proto, "axis", 0), _CHOICES[node.op_type]
            yield FileSide(limit.operator, node.inputs[0], place, AT, axis, sign)
        else:
            yield FileSide(limit.operator, value, number, AT)
    for node in graph.nodes:
        if node.op_type in _ORDERED and len(graph.depends_on_input(node)) == 2:
            for side in ("below", "above"):
                yield FileSide(node.op_type, node.inputs[0], 0.0, side, other=node.inputs[1])


def _nearest(
    rows: Mapping[str, Array], near: Float64, stack: Stack, most: int = _PARENTS
) -> dict[str, Array]:
    """Return the rows that come nearest."""
    return stack.at(rows, np.argsort(-near, kind="stable")[:most])
