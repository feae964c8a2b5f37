"""What memory a model takes block by block, said before a weight is read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.blocks.divided import Divided
from onnx_gate.verify.blocks.staged import Staged
from onnx_gate.verify.prepare import Prepared
from onnx_gate.verify.reference.oracle import RUNS

# A block's parameters lie in PyTorch and in a session: as they are stored, widened, and packed for its
# kernels.
TIMES = 4
# Without a session: as it is stored, and widened.
_ALONE_TIMES = 2
# What judging, sessions and values of a few numbers took beside that: 80 to 140 MiB in decoders of 0.1
# and 0.9 thousand million parameters (benchmarks/scale/blocks.py), up to 175 where outputs are 20 MB.
_BESIDE = 224 << 20
# Of what flows from stage to stage each case has so many copies: what the next stage is given, in
# PyTorch and as arrays, and what it has returned.
_COPIES = 3
# What judging holds of one output beside runs, float64 of both sides among it: 10 to 12 times its bytes
# in logits of 65 and of 20 MB; and what the allocator keeps, which differs from run to run by four
# times as much (1.75 to 1.84 GB in 25 runs with 20 MB).
_JUDGED = 20


# Of the largest value inside of a block, beyond what flows between blocks: in PyTorch, its moved and
# widened copies, in float64, and in a session. 19 times its bytes in layers that take 16 matrices of
# a stack of 8 experts.
_INSIDE = 20


@dataclass(frozen=True)
class Load:
    """The bytes of a stage's parameters, and those of them that are rows that inputs choose from.

    Of these PyTorch has so many ``lying`` in memory, or in a file that it maps; a session maps them, too.
    """

    nbytes: int
    tables: int = 0
    lying: int = 0

    @property
    def taken(self) -> int:
        """The bytes that they take at most."""
        return TIMES * (self.nbytes - self.tables) + self.lying + self.tables

    def __add__(self, other: Load) -> Load:
        """Return that of two stages that are loaded together."""
        tables, lying = self.tables + other.tables, self.lying + other.lying
        return Load(self.nbytes + other.nbytes, tables, lying)


@dataclass(frozen=True)
class Flow:
    """Bytes of one case's values: all that blocks return, and the ``largest`` part of it.

    What the module returns in the end is in both. ``inside`` is the largest that an operator makes in a
    block.
    """

    kept: int
    largest: int
    inside: int = 0

    @classmethod
    def of(cls, prepared: Prepared, staged: Staged, divided: Divided) -> Flow:
        """Return that of the example, which the module has answered.

        A block that is called again, for what the file has in no value, keeps what it was given: of a
        layer as much as it returns.
        """
        answers = [staged.returned.get(call.path, 0) for call in divided.calls]
        again = [n for n, call in zip(answers, divided.calls, strict=True) if call.hidden]
        outputs = sum(array.nbytes for array in prepared.call.outputs.arrays)
        inside = max(staged.inside.values(), default=0)
        return cls(sum(answers) + sum(again) + outputs, max(*answers, outputs), inside)

    def at(self, sizes: Mapping[str, int], example: Mapping[str, Array]) -> Flow:
        """Return that of a case: as many times as much as it has of the input that grows most.

        ``sizes`` are the numbers of elements of its inputs.
        """
        inputs = [(sizes[name], each.size) for name, each in example.items() if name in sizes]
        times = max((own / size for own, size in inputs if size), default=1.0)
        return Flow(*(math.ceil(each * times) for each in (self.kept, self.largest, self.inside)))


@dataclass(frozen=True)
class Need:
    """What it takes, in bytes: ``largest`` are the parameters of the stage that takes most, ``block``.

    ``loaded`` is what parameters take at most, in this stage or in a pair of neighbours.
    ``held`` are those that are read outside of blocks, ``values`` what flows between blocks and inside of
    one, ``now`` is the process before the first stage. So many runs with moved rounding go ``together``.
    """

    block: str
    largest: Load
    loaded: int
    held: int
    values: int
    now: int
    together: int

    @classmethod
    def of(
        cls,
        stages: Mapping[str, Load],
        pairs: Sequence[Load],
        held: int,
        flows: Sequence[Flow],
    ) -> Need:
        """Measure it; ``stages`` are those of each stage's parameters, ``flows`` those of the cases."""
        block = max(stages, key=lambda name: stages[name].taken)
        kept, largest = max(f.kept for f in flows), max(f.largest for f in flows)
        walk = sum(f.kept + _COPIES * f.largest for f in flows) + _JUDGED * largest
        # In the end there is no session beside PyTorch: as many go together as have room in its place.
        loaded = max(load.taken for load in (*stages.values(), *pairs))
        free = loaded - _ALONE_TIMES * stages[block].nbytes
        run = max(kept + _COPIES * largest, 1)
        together = min(RUNS, max(1, max(walk + free, _BESIDE) // run))
        values = RUNS * largest + max(walk, together * run - free)
        values += _INSIDE * max(0, *(f.inside - f.largest for f in flows))
        now = psutil.Process().memory_info().rss
        return cls(block, stages[block], loaded, held, values, now, together)

    @property
    def peak(self) -> int:
        """The resident memory that is expected at most, where values are largest that an operator made."""
        return self.now + self.loaded + TIMES * self.held + self.values + _BESIDE
