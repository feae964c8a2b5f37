"""What memory a model takes block by block, said before a weight is read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.blocks.divided import Divided
from onnx_gate.verify.blocks.staged import Staged
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.prepare import Prepared
from onnx_gate.verify.reference.oracle import RUNS

# A block's parameters lie in PyTorch and in a session: as they are stored, widened, and packed for its
# kernels.
TIMES = 4
# What judging, sessions and values of a few numbers took beside that: 80 to 140 MiB in decoders of 0.1
# and 0.9 thousand million parameters (benchmarks/scale/blocks.py).
_BESIDE = 160 << 20


# Of what flows from stage to stage each case has so many copies: what the next stage is given, in
# PyTorch and as arrays, and what it has returned.
_COPIES = 3
# What judging holds of one output beside runs, float64 of both sides among it: 10 to 12 times its bytes
# in logits of 65 and of 20 MB; and what the allocator keeps.
_JUDGED = 16


@dataclass(frozen=True)
class Flow:
    """Bytes of one case's values: all that blocks return, and the ``largest`` part of it.

    What the module returns in the end is in both.
    """

    kept: int
    largest: int

    @classmethod
    def of(cls, prepared: Prepared, staged: Staged, divided: Divided) -> Flow:
        """Return that of the example, which the module has answered."""
        answers = [staged.returned.get(call.path, 0) for call in divided.calls]
        outputs = sum(array.nbytes for array in prepared.call.outputs.arrays)
        return cls(sum(answers) + outputs, max(*answers, outputs))

    def at(self, case: Case, example: Mapping[str, Array]) -> Flow:
        """Return that of a case: as many times as much as it has of the input that grows most."""
        inputs = [(case.arrays[n].size, e.size) for n, e in example.items() if n in case.arrays]
        times = max((own / size for own, size in inputs if size), default=1.0)
        return Flow(math.ceil(self.kept * times), math.ceil(self.largest * times))


@dataclass(frozen=True)
class Need:
    """What it takes, in bytes: ``largest`` are the parameters of the stage called ``block``.

    ``held`` are those that are read outside of blocks, ``values`` what flows between blocks, ``now`` is
    the process before the first stage. So many runs with moved rounding go ``together``.
    """

    block: str
    largest: int
    held: int
    values: int
    now: int
    together: int

    @classmethod
    def of(cls, stages: Mapping[str, int], held: int, flows: Sequence[Flow]) -> Need:
        """Measure it; ``stages`` are the bytes of each stage's parameters, ``flows`` those of the cases."""
        block = max(stages, key=lambda name: stages[name])
        kept, largest = max(f.kept for f in flows), max(f.largest for f in flows)
        # As much of them as is taken anyway.
        room = max(TIMES * stages[block], _BESIDE)
        together = min(RUNS, max(1, room // max(kept, 1)))
        walk = sum(f.kept + _COPIES * f.largest for f in flows) + _JUDGED * largest
        values = RUNS * largest + max(walk, together * (kept + _COPIES * largest))
        now = psutil.Process().memory_info().rss
        return cls(block, stages[block], held, values, now, together)

    @property
    def peak(self) -> int:
        """The resident memory that is expected at most, where little flows between operators."""
        return self.now + TIMES * (self.largest + self.held) + self.values + _BESIDE
