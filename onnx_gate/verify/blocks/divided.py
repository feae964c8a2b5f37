"""A graph, and which calls of a module's blocks are where in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.blocks.staged import Place
from onnx_gate.verify.context import Reduced
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.sessions import rounded

# Take rows of their first input, and look at no others.
_PICKS = ("Gather", "GatherND")


@dataclass(frozen=True)
class BlockCall:
    """One call of a block in the exported program: the graph's values for its tensors, by their places.

    What the graph does not use is not among them. ``name`` is the path, with a number where the block is
    called again. ``hidden`` are the places of what it returns, and a file has in no value.
    """

    path: str
    name: str
    inputs: Mapping[Place, str]
    outputs: Mapping[Place, str]
    hidden: frozenset[Place] = frozenset()


@dataclass(frozen=True)
class Divided:
    """A graph and the calls of blocks in it, in their order.

    ``parameters`` are the module's by the names of the initializers that hold them, ``outside`` those
    that are in no block. ``folder`` is where the external data are. ``reduced``: the file computes in
    fewer bits, and of half precision are the values ``narrow``. ``missing`` are the paths of blocks that
    the module calls, and of whose weights the file has none.
    """

    exported: Exported
    calls: tuple[BlockCall, ...]
    parameters: Mapping[str, str]
    outside: frozenset[str]
    folder: Path
    reduced: Reduced | None = None
    narrow: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()

    def held(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Return values, by the graph's names, in the dtypes that the graph has them in."""
        if self.reduced is None or not self.reduced.is_half:
            return dict(values)
        return rounded(values, self.narrow, self.reduced.dtype)


def call_names(paths: Collection[str]) -> list[str]:
    """Return a name for each call: the path, and from the second call of a block on its number."""
    seen: dict[str, int] = {}
    names = []
    for path in paths:
        seen[path] = seen.get(path, 0) + 1
        names.append(path if seen[path] == 1 else f"{path}@{seen[path]}")
    return names


def is_table(name: str, readers: Sequence[onnx.NodeProto]) -> bool:
    """Return whether all that read a value take rows of it, as of words or of experts."""
    return bool(readers) and all(
        node.op_type in _PICKS and node.input[0] == name for node in readers
    )
