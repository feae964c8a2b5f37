"""A graph in which values are put in the place of those that its nodes make."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from onnx_gate.graph.extract import between, cut, open_ends
from onnx_gate.graph.graph import Node, read_graph
from onnx_gate.graph.intervals import ANYWHERE, Interval, around, intervals
from onnx_gate.graph.session import PlainSession, Value
from onnx_gate.graph.walk import inlined
from onnx_gate.runtimes.base import Array, Refusal

# An operator of PyTorch is so many nodes, and what one makes is as another does in so few places.
_MOST_NODES = 16
_MOST_NEAR = 4


class Steered:
    """A file run once as it is, every value kept, and then again behind values that are put in.

    With ``in_place`` external data stay where they are, beside ``path``. Inputs lie where they are
    ``given`` to. Raises ``Refusal`` where ONNX
    Runtime does not run it so.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        path: Path,
        feeds: Mapping[str, Array],
        threads: int = 1,
        *,
        in_place: bool = False,
        given: Mapping[str, Interval] | None = None,
    ) -> None:
        self._given = given
        self._model, self._threads = inlined(model), threads
        self._folder = path.parent if in_place else None
        self.graph = read_graph(self._model, path)
        self._intervals: Mapping[str, Interval] | None = None
        made = [name for node in self.graph.nodes for name in node.outputs]
        self.values: dict[str, Value] = {name: feeds[name] for name in self.graph.inputs}
        session = self._session(self.graph.nodes, self.values, made)
        self.values |= dict(zip(made, session.run(self.values), strict=True))

    def roots(self, alike: Callable[[Array], bool]) -> list[str]:
        """Return the values that are ``alike`` and made of none that is, in topological order.

        What depends on no input is none of them.
        """
        found = set(self.alike(alike))
        roots = [n for n in self.graph.inputs if n in found]
        behind = set(roots)
        for node in self.graph.nodes:
            if not behind.isdisjoint(node.inputs):
                behind.update(node.outputs)
                continue
            new = [name for name in node.outputs if name in found]
            roots += new
            behind.update(new)
        return roots

    def alike(self, alike: Callable[[Array], bool]) -> list[str]:
        """Return the inputs, and the values made of them, that are ``alike``, in topological order."""
        constant = self.graph.is_constant
        arrays = ((n, v) for n, v in self.values.items() if isinstance(v, np.ndarray))
        return [n for n, v in arrays if not constant(n) and alike(v)]

    def ends(self, names: Sequence[str]) -> Interval:
        """Return between which ends the graph proves that all of some values lie."""
        if self._intervals is None:
            self._intervals = intervals(self.graph, self.values, self._given)
        return around(self._intervals.get(n, ANYWHERE) for n in names) if names else ANYWHERE

    def behind(self, roots: list[str]) -> Callable[[Array], list[Value]]:
        """Return a function from a value, put in for all ``roots``, to the outputs of the graph."""
        graph, after = self.graph, set(roots)
        for node in graph.nodes:
            if not after.isdisjoint(node.inputs):
                after.update(node.outputs)
        moved = [name for name in graph.outputs if name in after and name not in roots]
        stop = {*roots, *(name for name in self.values if name not in after)}
        part = self._part(roots, between(graph, moved, stop), moved)

        def run(value: Array) -> list[Value]:
            made = part(value)
            put = dict.fromkeys(roots, value)
            return [(put | made).get(name, self.values[name]) for name in graph.outputs]

        return run

    def near(
        self, roots: Sequence[str], alike: Callable[[Array], bool]
    ) -> Iterator[Callable[[Array], Value]]:
        """Yield functions from a value, put in for all ``roots``, to what few nodes make of it.

        To a value that is ``alike`` as the file stands, the nearest first.
        """
        after, found = set(roots), 0
        for node in self.graph.nodes:
            if after.isdisjoint(node.inputs):
                continue
            after.update(node.outputs)
            for name in node.outputs:
                value = self.values[name]
                if name in roots or not isinstance(value, np.ndarray) or not alike(value):
                    continue
                stop = {*roots, *(each for each in self.values if each not in after)}
                nodes = between(self.graph, [name], stop)
                if found == _MOST_NEAR:
                    return
                if len(nodes) <= _MOST_NODES:
                    found += 1
                    part = self._part(roots, nodes, [name])
                    yield lambda put, part=part, name=name: part(put)[name]  # type: ignore[misc]

    def _part(
        self, roots: Sequence[str], nodes: Sequence[Node], wanted: Sequence[str]
    ) -> Callable[[Array], dict[str, Value]]:
        """Return a function from a value, put in for all ``roots``, to what nodes make of it."""
        ends = {name: self.values[name] for name in open_ends(self.graph, nodes)}
        if not wanted:
            return lambda value: {}
        session = self._session(nodes, ends, wanted)

        def run(value: Array) -> dict[str, Value]:
            put = {name: value.astype(np.asarray(self.values[name]).dtype) for name in roots}
            return dict(zip(wanted, session.run({**ends, **put}), strict=True))

        return run

    def _session(
        self, nodes: Sequence[Node], inputs: Mapping[str, Value], wanted: Sequence[str]
    ) -> PlainSession:
        outputs, in_place = dict.fromkeys(wanted), self._folder is not None
        try:
            part = cut(self._model, self.graph, nodes, inputs, outputs, in_place=in_place)
        except (AttributeError, TypeError, ValueError) as error:
            raise Refusal(str(error)) from error
        return PlainSession(part, self._threads, folder=self._folder)
