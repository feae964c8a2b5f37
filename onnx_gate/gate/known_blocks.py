"""The blocks of models that earlier runs have verified, and on what that rests.

The key of a block has two halves. The worker's names the bytes of the block's weights, what it is given
and what PyTorch answers, and its piece of the graph. The gate's, which is its ``basis``, names the code,
the entry in the manifest, packages and machine, as for whole verdicts; only it is believed across
changes of the code. A model that forges its half says so of runs of the very same code, which can report
what they like anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from onnx_gate.cache.cache import Cache
from onnx_gate.files import remove_tree
from onnx_gate.gate.journal import BLOCKS, Journal
from onnx_gate.manifest import ModelSpec


@dataclass(frozen=True)
class KnownBlocks:
    """``interrupted`` is the folder of what is kept for a run alone that goes on, ``None`` with a cache."""

    cache: Cache
    journal: Journal
    interrupted: Path | None = None

    def of(self, spec: ModelSpec) -> Mapping[str, Mapping[str, Any]] | None:
        """Return what holds of a model's blocks by the worker's half of their keys.

        ``None`` where nothing is to be remembered.
        """
        if spec.weights is None or not self.cache.records:
            return None
        return self.journal.read(spec.name, partial(self.cache.holds, spec))

    def add(self, spec: ModelSpec, message: Mapping[str, Any]) -> None:
        """Take down what a worker says of one block."""
        basis = self.cache.basis(spec, message)
        if basis is not None:
            self.journal.add(spec.name, message, basis)

    def kept(self, names: Iterable[str]) -> bool:
        """Return whether blocks of one of these models are taken down for the next run."""
        return any(map(self.journal.has, names))

    def ended(self, name: str) -> None:
        """The model has a verdict."""
        if self.interrupted is not None:
            self.journal.forget(name)

    def close(self) -> None:
        """Nothing runs any more."""
        self.cache.close()
        if self.interrupted is not None and not any(self.interrupted.glob(f"{BLOCKS}/*")):
            remove_tree(self.interrupted)
