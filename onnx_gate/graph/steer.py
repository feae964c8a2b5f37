"""A graph in which values are put in the place of those that its nodes make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx

from onnx_gate.graph.extract import between, cut, open_ends
from onnx_gate.graph.graph import read_graph
from onnx_gate.graph.session import PlainSession, Value
from onnx_gate.graph.walk import inlined
from onnx_gate.runtimes.base import Array, Refusal


class Steered:
    """A file run once as it is, every value kept, and then again behind values that are put in.

    Raises ``Refusal`` where ONNX Runtime does not run it so.
    """

    def __init__(
        self, model: onnx.ModelProto, path: Path, feeds: Mapping[str, Array], threads: int = 1
    ) -> None:
        self._model, self._threads = inlined(model), threads
        self.graph = read_graph(self._model, path)
        made = [name for node in self.graph.nodes for name in node.outputs]
        self.values: dict[str, Value] = {name: feeds[name] for name in self.graph.inputs}
        whole = cut(self._model, self.graph, self.graph.nodes, self.values, dict.fromkeys(made))
        session = PlainSession(whole, threads)
        self.values |= dict(zip(made, session.run(self.values), strict=True))

    def roots(self, alike: Callable[[Array], bool]) -> list[str]:
        """Return the values that are ``alike`` and made of none that is, in topological order.

        What depends on no input is none of them.
        """
        roots = [n for n in self.graph.inputs if alike(np.asarray(self.values[n]))]
        behind = set(roots)
        for node in self.graph.nodes:
            if not behind.isdisjoint(node.inputs):
                behind.update(node.outputs)
                continue
            for name in node.outputs:
                value = self.values[name]
                if self.graph.is_constant(name) or not isinstance(value, np.ndarray):
                    continue
                if alike(value):
                    roots.append(name)
                    behind.add(name)
        return roots

    def behind(self, roots: list[str]) -> Callable[[Array], list[Value]]:
        """Return a function from a value, put in for all ``roots``, to the outputs of the graph."""
        graph, after = self.graph, set(roots)
        for node in graph.nodes:
            if not after.isdisjoint(node.inputs):
                after.update(node.outputs)
        moved = [name for name in graph.outputs if name in after]
        stop = {*roots, *(name for name in self.values if name not in after)}
        nodes = between(graph, moved, stop)
        ends = {name: self.values[name] for name in open_ends(graph, nodes)}
        wanted = [name for name in moved if name not in roots]
        try:
            part = cut(self._model, graph, nodes, ends, dict.fromkeys(wanted))
        except (AttributeError, TypeError, ValueError) as error:
            raise Refusal(str(error)) from error
        session = PlainSession(part, self._threads)

        def run(value: Array) -> list[Value]:
            put = {name: value.astype(np.asarray(self.values[name]).dtype) for name in roots}
            made = dict(zip(wanted, session.run({**ends, **put}), strict=True)) if wanted else {}
            return [(put | made).get(name, self.values[name]) for name in graph.outputs]

        return run
