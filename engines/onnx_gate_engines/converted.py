"""What engines have in common that take a file by way of a converter, for fixed sizes each time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from onnx_gate.findings import codes
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.declared import check_feeds, declared, read_graph, refuse_empty

Network = TypeVar("Network")


def option(
    spec: RuntimeSpec,
    engine: str,
    name: str,
    takes: str,
    default: Any,
    allowed: Sequence[Any] | None = None,
) -> Any:
    """Return the one option that an engine has; raises ``GateError`` (OG302) for any other.

    ``takes`` says how it is written; ``allowed`` are its values, any where there is no list.
    """
    others = dict(spec.options)
    given = others.pop(name, default)
    # 1 equals True, and is none.
    known = allowed is None or any(type(given) is type(a) and given == a for a in allowed)
    if known and not others:
        return given
    wrong = ", ".join(map(str, others)) or f"{name}: {given}"
    raise codes.OG302.error(f"{spec.label}: {engine} has no option {wrong}; it takes {takes}")


class ConvertedSession(ABC, Generic[Network]):
    """One model, converted for each combination of sizes that it is called with.

    At once where it has no others, so that what is wrong with the file is said before anything runs.
    """

    def __init__(self, model: Path, spec: RuntimeSpec, threads: int, engine: str) -> None:
        self._model, self._spec, self._threads, self._engine = model, spec, threads, engine
        self.inputs, self.outputs = declared(read_graph(model))
        self._networks: dict[tuple[Any, ...], Network] = {}

    @abstractmethod
    def convert(self, shapes: Mapping[str, Sequence[int]]) -> Network:
        """Return the model for these sizes of its inputs; raises ``GateError`` where there is none."""

    @abstractmethod
    def answer(self, network: Network, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Run once; raises ``Refusal`` with the engine's own sentence."""

    def start(self) -> None:
        """Convert a file of fixed sizes."""
        if all(isinstance(size, int) for value in self.inputs for size in value.shape):
            self._network({value.name: value.shape for value in self.inputs})

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Run once; see ``Session.run``."""
        check_feeds(self.inputs, feeds)
        refuse_empty(feeds, self._engine)
        return self.answer(self._network({n: array.shape for n, array in feeds.items()}), feeds)

    def close(self) -> None:
        """Drop the converted models."""
        self._networks.clear()

    def _network(self, shapes: Mapping[str, Sequence[Any]]) -> Network:
        key = tuple(tuple(shapes[value.name]) for value in self.inputs)
        if key not in self._networks:
            self._networks[key] = self.convert(shapes)
        return self._networks[key]
