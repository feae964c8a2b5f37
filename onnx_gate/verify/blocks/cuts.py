"""A graph that somebody else has written, with the places in it where the module's blocks end.

The idea: which weights are a block's is known by their names or values. Whatever they do to an output
goes through what the block returns; so that is among the values that all ways from the readers of its
weights to this output lead through, their common post-dominators. Which of these it is, values say: what
the graph makes there of PyTorch's values at the ends before is next to what PyTorch's block returns. What
a block writes to a cache, an output that later blocks do nothing to, is found in the same way.

The invariant: a piece is what makes the ends of a block of those before it and of the graph's inputs,
whichever these are. So a choice can be unlucky, and a piece larger than a block, but nothing is left out.

The cost: one pass over the graph for each output that a block is the last to change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from onnx_gate.graph.graph import Graph, Node
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.declared import declared
from onnx_gate.runtimes.tensors import to_array
from onnx_gate.verify.blocks.divided import BlockCall, Divided, call_names
from onnx_gate.verify.blocks.pieces import Cutter
from onnx_gate.verify.blocks.skeleton import Skeleton
from onnx_gate.verify.blocks.staged import Call, Place, Staged
from onnx_gate.verify.context import Reduced
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.prepare import Prepared
from onnx_gate.verify.sessions import Sessions, rounded
from onnx_gate.verify.stopwatch import Clock

# A value is what a block returns where it is nearer to that than half of that is to zero: a wrong block
# is, and another value is not.
_NEAR = 0.5
# And what it is given where it is as near as that: the same to within what few bits round.
_SAME = 0.02
# So many values are tried for the end of a block that is wrong by far.
_GUESSES = 4
# Numbers by which parameters are told from each other.
_SAMPLE = 1 << 10


def divide_file(
    exported: Exported,
    parameters: Mapping[str, str],
    skeleton: Skeleton,
    staged: Staged,
    prepared: Prepared,
    graph_inputs: Mapping[str, str],
    outside: frozenset[str],
    runtime: RuntimeSpec,
    scratch: Path,
    reduced: Reduced | None = None,
    missing: Collection[str] = (),
) -> Divided:
    """Find where blocks end in a file by one call of the module, and the same of the graph's pieces.

    ``parameters`` are the module's by the names of the file's weights, ``missing`` those whose values it
    certainly has not. Raises ``GateError`` where the runtime does not load a piece.
    """
    half = reduced.dtype if reduced is not None and reduced.is_half else None
    folder = exported.path.parent
    # Buffers are in memory anyway.
    parameters = {name: own for name, own in parameters.items() if own in skeleton.parameters}
    cutter = Cutter(exported.proto, folder, parameters)
    called = _called(skeleton, staged, prepared, outside)
    paths = [call.path for call in called]
    owners = {
        name: sorted(
            number
            for number, path in enumerate(paths)
            if any(n.startswith(f"{path}.") for n in skeleton.parameters[parameter].names)
        )
        for name, parameter in _distinct(parameters, skeleton).items()
    }
    ends = list(_ends(cutter.graph, owners, len(called)))
    inputs, _ = declared(exported.proto.graph)
    narrow = frozenset(each.name for each in inputs if each.dtype == half)
    known = {graph: prepared.example[name] for name, graph in graph_inputs.items()}
    scratch.mkdir(parents=True, exist_ok=True)
    way = _Way(cutter, runtime, scratch / "ends.onnx", folder, half, known, narrow)
    for number, (call, values) in enumerate(zip(called, ends, strict=True)):
        way = way.on(number, values, call.said) if values else way
        if number in way.found:
            way = way.from_given(number, call.given)
    way = way.settled(cutter.graph.outputs, prepared.call.outputs.arrays)
    calls = tuple(
        BlockCall(call.path, name, way.given.get(n, {}), found, frozenset(call.said) - found.keys())
        for n, (call, name) in enumerate(zip(called, call_names(paths), strict=True))
        for found in [way.found.get(n, {})]
    )
    left_out = _left_out(paths, missing, skeleton)
    return Divided(exported, calls, parameters, outside, folder, reduced, way.narrow, left_out)


@dataclass(frozen=True)
class _Called:
    """A block as the module calls it on the example, with the tensors that it is given and returns."""

    path: str
    given: Mapping[Place, Array]
    said: Mapping[Place, Array]


@dataclass(frozen=True)
class _Way:
    """How far a file has been run: PyTorch's values that are ``known`` in it, and the ``narrow`` of them.

    ``found`` are the values that blocks return, by the numbers of their calls. Of a block that is wrong by
    far no value is near to PyTorch's. Then it is the last one that could be it, or one before, if what
    comes of PyTorch's value there is next to what the next block returns: ``guesses`` are those ways on.
    One that is no more than near may be another value, where an operator that makes more of it hides the
    end: ``doubted`` is the way without it, which goes on where what comes next, the outputs at last, agrees
    on that way alone.
    ``given`` are those that blocks are given, where these are no ends of others: what lies between blocks
    is judged by its own rounding.
    """

    cutter: Cutter
    runtime: RuntimeSpec
    file: Path
    folder: Path
    half: str | None
    known: Mapping[str, Array]
    narrow: frozenset[str]
    found: Mapping[int, Mapping[Place, str]] = field(default_factory=dict)
    given: Mapping[int, Mapping[Place, str]] = field(default_factory=dict)
    guesses: tuple[_Way, ...] = ()
    doubted: _Way | None = None

    def on(self, number: int, values: Sequence[str], said: Mapping[Place, Array]) -> _Way:
        """Return the way on behind a call, which of the values are what it returns being found."""
        made = self._made(values)
        found = _nearest(said, made, self.half)
        agrees = bool(found) and found == _nearest(said, made, self.half, _SAME)
        if self.doubted is not None and not agrees:
            way = self.doubted._agreeing(number, values, said, found)
            if way is not None:
                return way
        if found:
            way = self._behind(number, found, said, made)
            return way if agrees else replace(way, doubted=replace(self, doubted=None))
        for guess in self.guesses:
            way = guess.on(number, values, said)
            if number in way.found:
                return way
        fitting = _fitting(said, made, self.half)
        ways = [self._behind(number, {at: name}, said, made) for at, name in fitting]
        return replace(self, guesses=tuple(ways))

    def _agreeing(
        self,
        number: int,
        values: Sequence[str],
        said: Mapping[Place, Array],
        places: Collection[Place],
    ) -> _Way | None:
        """Return the way on behind a call where the file makes what it returns, at these places."""
        made = self._made(values)
        found = _nearest(said, made, self.half, _SAME)
        agrees = found and found.keys() >= set(places)
        return self._behind(number, found, said, made) if agrees else None

    def settled(self, outputs: Sequence[str], said: Sequence[Array]) -> _Way:
        """Return the way, or that without an end that is doubted, which comes to more of the outputs."""
        floats: dict[Place, Array] = {
            place: each for place, each in enumerate(said) if each.dtype.kind in "fV"
        }

        def agreeing(way: _Way) -> int:
            return len(_nearest(floats, way._made(outputs), self.half, _SAME))

        return self if self.doubted is None else max(self, self.doubted, key=agreeing)

    def from_given(self, number: int, given: Mapping[Place, Array]) -> _Way:
        """Return the way with the values that a call is given, those made before it reads a weight."""
        ends = tuple(self.found[number].values())
        before = self.known.keys() - set(ends)
        values: list[str] = []
        behind = {*ends, *self.cutter.parameters}
        for node in self.cutter.piece(ends, before).nodes:
            if behind.isdisjoint(node.inputs):
                values += (name for name in node.outputs if name and name not in ends)
            else:
                behind.update(node.outputs)
        made = replace(self, known={n: self.known[n] for n in before})._made(values)
        floats = {place: each for place, each in given.items() if each.dtype.kind in "fV"}
        found = _nearest(floats, made, self.half, _SAME)
        narrow = {name for name in found.values() if made[name].dtype.name == self.half}
        every = {**self.given, number: found}
        return replace(self, given=every, narrow=self.narrow | narrow)

    def _made(self, values: Sequence[str]) -> dict[str, Array]:
        """Return what the file makes of the known values."""
        if not values:
            return {}
        piece = self.cutter.piece(values, self.known.keys())
        held = self.known if self.half is None else rounded(self.known, self.narrow, self.half)
        self.cutter.write(piece, held, self.file)
        feeds = {each: each for each in piece.needs}
        with Sessions(self.file, (self.runtime,), 1, Clock(), self.folder) as sessions:
            answers, _ = sessions.ask(self.runtime.label, held, feeds)
        return dict(zip(values, answers or (), strict=False))

    def _behind(
        self,
        number: int,
        found: Mapping[Place, str],
        said: Mapping[Place, Array],
        made: Mapping[str, Array],
    ) -> _Way:
        known = {**self.known, **{end: said[place] for place, end in found.items()}}
        halves = {end for end in found.values() if made[end].dtype.name == self.half}
        every = {**self.found, number: found}
        narrow = self.narrow | halves
        return replace(self, known=known, narrow=narrow, found=every, guesses=(), doubted=None)


def _distinct(parameters: Mapping[str, str], skeleton: Skeleton) -> dict[str, str]:
    """Leave out what is equal in several parameters: a file may have it once, under any of their names.

    Norms and biases that nobody has trained are.
    """
    samples: dict[str, tuple[tuple[int, ...], bytes]] = {}
    every = skeleton.distinct(tuple(skeleton.parameters))
    for weight in every:
        values = skeleton.values(weight.names[0])
        assert values is not None
        some = values.flatten()[:_SAMPLE].double().numpy().tobytes()
        samples |= dict.fromkeys(weight.names, (tuple(values.shape), some))
    times = Counter(samples[weight.names[0]] for weight in every)
    return {name: own for name, own in parameters.items() if times[samples[own]] == 1}


def _left_out(
    paths: Collection[str], missing: Collection[str], skeleton: Skeleton
) -> frozenset[str]:
    """Return the blocks of whose matrices all that are no others' are missing, and any is."""
    distinct = _distinct({name: name for name in missing and skeleton.parameters}, skeleton)
    own = {
        path: [
            n
            for n in skeleton.named_below(path)
            if n in distinct and len(skeleton.parameters[n].stored.shape) > 1
        ]
        for path in paths
    }
    return frozenset(path for path, names in own.items() if names and {*names} <= {*missing})


def _called(
    skeleton: Skeleton, staged: Staged, prepared: Prepared, outside: Collection[str]
) -> list[_Called]:
    """Return the blocks in the order of their calls on the example."""
    called: list[_Called] = []

    def handler(call: Call) -> Any:
        # The block may write to what it is given.
        given = {place: to_array(each).copy() for place, each in call.given.at.items()}
        with skeleton.loaded(skeleton.named_in(staged.read_by(call.path))):
            result, said = call.made()
        returned = {place: to_array(each) for place, each in said.at.items()}
        called.append(_Called(call.path, given, returned))
        return result

    with skeleton.loaded(outside), staged.handled(handler):
        prepared.eager.run(prepared.example)
    return called


def _ends(
    graph: Graph, owners: Mapping[str, Sequence[int]], calls: int
) -> Iterator[tuple[str, ...]]:
    """Yield, for each call, the values that all that its weights do to an output goes through.

    Before later calls'. Of outputs those count that the call is the last to change, and those that
    the last of all calls does.
    """
    weights = {name: frozenset((name,)) for name in owners}
    reached: dict[str, int] = {}
    reach: list[int] = []
    readers: list[list[Node]] = [[] for _ in range(calls)]
    for node in graph.nodes:
        read = frozenset().union(*(weights.get(name, frozenset()) for name in node.inputs))
        now = max((reached.get(name, -1) for name in node.inputs), default=-1)
        if all(map(graph.is_constant, node.outputs)):  # a weight that is cast or transposed
            weights |= dict.fromkeys(node.outputs, read)
        else:
            for name in read:
                # A weight that several calls read is, here, the first's that is not behind.
                number = next((each for each in owners[name] if each >= now), None)
                if number is not None:
                    readers[number].append(node)
                    now = number
        reach.append(now)
        reached |= dict.fromkeys(node.outputs, now)
    last = max((reached.get(name, -1) for name in graph.outputs), default=-1)
    ways: dict[int, list[Sequence[int]]] = {}
    for name in graph.outputs:
        number = reached.get(name, -1)
        ways.setdefault(number, []).append(_post_dominators(graph, name))
    for number, nodes in enumerate(readers):
        found: dict[str, None] = {}
        for after in (each for n in {number, last} for each in ways.get(n, ())):
            for node in _chain(graph, after, nodes):
                if reach[node.index] <= number and len(node.outputs) == 1:
                    found[node.outputs[0]] = None
        yield tuple(found)


def _post_dominators(graph: Graph, output: str) -> list[int]:
    """Return, for each node, the next one that all ways to an output lead through.

    The number of nodes is the end of all ways; -1 where there is no way.
    """
    end = len(graph.nodes)
    after = [-1] * (end + 1)
    for node in reversed(graph.nodes):
        readers = {r.index for name in node.outputs for r in graph.readers.get(name, ())}
        following = {index for index in readers if after[index] >= 0}
        if output in node.outputs:
            following.add(end)
        after[node.index] = _common(after, following, end) if following else -1
    return after


def _common(after: Sequence[int], nodes: Iterable[int], end: int) -> int:
    """Return the first node that all ways from these nodes lead through, themselves among them."""

    def meet(one: int, other: int) -> int:
        while one != other:
            low, high = sorted((one, other))
            one, other = after[low], high
        return one

    return reduce(meet, nodes, next(iter(nodes))) if nodes else end


def _chain(graph: Graph, after: Sequence[int], nodes: Sequence[Node]) -> Iterator[Node]:
    end = len(graph.nodes)
    live = {node.index for node in nodes if after[node.index] >= 0}
    index = _common(after, live, end)
    while index != end:
        yield graph.nodes[index]
        index = after[index]


def _nearest(
    said: Mapping[Place, Array],
    values: Mapping[str, Array],
    half: str | None,
    near: float = _NEAR,
) -> dict[Place, str]:
    """Return, by the places of tensors, the value that is next to each; none where no value is near."""
    found: dict[Place, str] = {}
    for place, expected in said.items():
        size, best = float(np.linalg.norm(expected.astype(np.float64))), near
        for name, value in values.items():
            if size and _fits(value, expected, half) and name not in found.values():
                apart = float(np.linalg.norm(value.astype(np.float64) - expected)) / size
                if apart < best:
                    best, found[place] = apart, name
    return found


def _fitting(
    said: Mapping[Place, Array], values: Mapping[str, Array], half: str | None
) -> Iterator[tuple[Place, str]]:
    """Yield the last values that could be what a block returns, where that is one tensor."""
    places = [place for place in said if isinstance(place, int)]
    if len(places) == 1:
        fit = [n for n, value in values.items() if _fits(value, said[places[0]], half)]
        yield from ((places[0], name) for name in reversed(fit[-_GUESSES:]))


def _fits(value: Array, expected: Array, half: str | None) -> bool:
    """Return whether a value has the shape and dtype of a tensor, or ``half`` for a wider one."""
    dtypes = expected.dtype.name, half if expected.dtype.kind == "f" else None
    return value.shape == expected.shape and value.dtype.name in dtypes
