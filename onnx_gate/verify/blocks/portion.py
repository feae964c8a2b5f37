"""Which blocks of a model one machine judges where several share them.

Each runs PyTorch from the inputs on, as every block is judged on its values, and stops behind its own last
block. The last machine goes to the end, and takes the runtime's own values through all blocks.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from onnx_gate.findings import codes
from onnx_gate.manifest import ModelSpec
from onnx_gate.verify.blocks.pieces import BlockStage
from onnx_gate.verify.blocks.skeleton import Skeleton
from onnx_gate.verify.blocks.torch_side import TorchSide
from onnx_gate.verify.key_hash import KeyHash

# Of each weight so many bytes at its beginning and at its end tell one checkpoint from another.
_SAMPLE = 4096


@dataclass(frozen=True)
class BlockPortion:
    """The calls of blocks that are judged here; ``ends``: so is all that follows the last one.

    ``index`` of ``count`` is which part it is, from 1. ``of`` tells what is divided from other models.
    """

    calls: range
    index: int = 1
    count: int = 1
    of: str = ""

    @classmethod
    def of_model(cls, spec: ModelSpec, torch: TorchSide, cases: int) -> BlockPortion:
        """Return that of a model's entry; raises ``GateError`` (OG434) where there are too few blocks."""
        every = len(torch.divided.calls)
        if spec.portion is None:
            return cls(range(every))
        index, count = spec.portion
        if every < count:
            raise codes.OG434.error(
                f"models.{spec.name} has {every} blocks, and {count} machines are to share them: plan "
                f"with at most {every} shards"
            )
        loads = [torch.load(stage) for stage in torch.pieces.stages if stage.inside]
        weights = [1 + load.nbytes - load.tables for load in loads]
        calls = list(shared(weights, cases, count))[index - 1]
        return cls(calls, index, count, _identity(torch.pieces.stages, torch.skeleton))

    @property
    def ends(self) -> bool:
        """Whether the end of the model is judged here."""
        return self.index == self.count

    def has(self, stage: BlockStage) -> bool:
        """Return whether a stage is judged here; what leads to a block is judged where that is."""
        return stage.number in self.calls or (self.ends and stage.number >= self.calls.stop)

    def leads_in(self, stage: BlockStage, pairs: Container[int]) -> bool:
        """Return whether a block is judged elsewhere, and makes a pair with the first of these.

        The pair is judged here, where both are known to pass alone: so the block is judged once more, and
        nothing is said of it. ``pairs`` are the numbers of the calls that make one with the call before.
        """
        return stage.inside and stage.number + 1 == self.calls.start and self.calls.start in pairs

    def over(self, stage: BlockStage) -> bool:
        """Return whether nothing is left to do from this stage on."""
        return not self.ends and stage.number >= self.calls.stop


def shared(weights: Sequence[int], cases: int, count: int) -> Iterator[range]:
    """Yield neighbours among the blocks for each of ``count`` machines, none without any.

    ``weights`` are the blocks' work on one case. The last machine has the runtime's own way through all
    blocks, too, which is as much as all of them on one case more.
    """
    totals = [0, *itertools.accumulate(weights)]
    work = totals[-1] * (cases + 1) / max(cases, 1)
    first = 0
    for index in range(1, count + 1):
        last = len(weights)
        if index < count:
            ideal = bisect_left(totals, work * index / count)
            nearer = ideal - (
                0 < ideal <= len(weights)
                and totals[ideal] - work * index / count > work * index / count - totals[ideal - 1]
            )
            last = min(max(nearer, first + 1), len(weights) - (count - index))
        yield range(first, last)
        first = last


def _identity(stages: Sequence[BlockStage], skeleton: Skeleton) -> str:
    """Return what tells a model that is taken apart from others, by names and samples of its weights."""
    hashed = KeyHash()
    for stage in stages:
        hashed.add(
            stage.number, stage.names, len(stage.piece.nodes), sorted(stage.piece.parameters)
        )
    for weight in skeleton.distinct(tuple(skeleton.parameters)):
        raw = weight.stored.raw() if weight.stored.nbytes else b""
        some = bytes(raw[:_SAMPLE]), bytes(raw[-_SAMPLE:])
        hashed.add(weight.names, str(weight.stored.dtype), weight.stored.shape, *some)
    return hashed.hex
