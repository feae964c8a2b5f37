"""PyTorch's side of a model taken apart: each stage a small model of its own, with its parameters."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from onnx_gate.errors import GateError
from onnx_gate.runtimes.base import Array, Outputs, Refusal
from onnx_gate.runtimes.tensors import to_array
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.blocks.divided import Divided
from onnx_gate.verify.blocks.need import Load
from onnx_gate.verify.blocks.parts import PARAMETER, Between, Block
from onnx_gate.verify.blocks.pieces import BlockStage, Pieces
from onnx_gate.verify.blocks.skeleton import Skeleton
from onnx_gate.verify.blocks.staged import Leaves, Staged, Unfit
from onnx_gate.verify.compared import Asked
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.reference.perturb import MovedRounding
from onnx_gate.verify.steps.feedback import Feedback

# Between blocks seeds are others than in them, and two that are a pair still are.
_OUTSIDE = 1 << 20
# Stands before the graph's names of values that PyTorch's side of a stage is not given.
GRAPH = "graph "


@dataclass
class BlockLine:
    """One case on its way. ``known`` are PyTorch's values at the borders, by the graph's names.

    ``own`` are those that a runtime has carried on itself, by its label; one that refuses them is in
    ``refused``. ``answers`` are what blocks have returned. ``row`` ends with what the next is called with;
    before that is what those before it were, where they are run in a row: on the case that is ``joined``.
    ``again`` is what blocks were called with, by number, of which a later stage makes something anew.
    ``outputs`` are what the module returns in the end, ``refusal`` is why it does not. ``number`` is the
    step of a case that goes on by ``feedback``.
    """

    case: Case
    known: dict[str, Array]
    own: dict[str, dict[str, Array]]
    refused: dict[str, Refusal] = field(default_factory=dict)
    answers: list[Leaves] = field(default_factory=list)
    row: tuple[Leaves, ...] = ()
    again: dict[int, Leaves] = field(default_factory=dict)
    joined: bool = False
    outputs: Outputs | None = None
    refusal: Refusal | None = None
    over: bool = False
    number: int = 1
    feedback: Feedback | None = None

    @property
    def given(self) -> Leaves | None:
        """What the next block is called with."""
        return self.row[-1] if self.row else None

    def goes_on(self, part: Block | Between, hidden: int = 0) -> None:
        """Take what PyTorch's side of a stage has come to in its call, for the next.

        The ends of so many blocks before that are not in the file, and the next is judged with them.
        """
        if isinstance(part, Between) and part.given is not None:
            self.row = (*self.row, part.given)[-1 - max(hidden, self.joined) :]
        elif isinstance(part, Block) and part.said is not None:
            self.answers.append(part.said)

    def keep(self, read: Container[str]) -> None:
        """Drop the values that are not among those that are ``read`` later."""
        for values in (self.known, *self.own.values()):
            for name in [name for name in values if name not in read]:
                del values[name]


@dataclass(frozen=True)
class Said:
    """A case on its way, as it is for one stage, and PyTorch's side of that."""

    line: BlockLine
    case: Case
    asked: Asked[CaseReference]
    eager: Eager


class TorchSide:
    """A module's blocks, and what lies between them, as PyTorch computes them."""

    def __init__(
        self, skeleton: Skeleton, staged: Staged, eager: Eager, divided: Divided, pieces: Pieces
    ) -> None:
        self.skeleton, self.staged, self.eager = skeleton, staged, eager
        self.divided, self.pieces = divided, pieces

    def path(self, stage: BlockStage) -> str:
        """Return where in the module the block of a stage is."""
        return self.divided.calls[stage.number].path

    def hidden(self, number: int) -> tuple[BlockStage, ...]:
        """Return the blocks in front of the one of a number whose ends are not in the file.

        An operator of an engine's may compute an end and what the next one makes of it, too. The piece of
        the next has both then, and that of the outputs what the last have.
        """
        before = self.pieces.stages[1 : 2 * number : 2]
        found = itertools.takewhile(lambda stage: not stage.piece.outputs, reversed(before))
        return tuple(found)[::-1]

    def judged_with(self, stage: BlockStage) -> tuple[BlockStage, ...]:
        """Return the hidden blocks that a stage is judged with; what leads to a block comes of none."""
        return self.hidden(stage.number) if stage.inside or not stage.name else ()

    def made_again(self, stage: BlockStage) -> tuple[BlockStage, ...]:
        """Return the blocks before of which a stage's piece makes anew what the file has in no value.

        As where keys and values are found in no layer, and are stacked behind the last: the piece of that
        reads the layers' weights once more.
        """
        calls, read = self.divided.calls, stage.piece.parameters
        own = self.path(stage) if stage.inside else None
        return tuple(
            each
            for each in self.pieces.stages[1 : 2 * stage.number : 2]
            if each.piece.outputs and calls[each.number].hidden and self.path(each) != own
            if not read.isdisjoint(self.read_by(self.path(each)))
        )

    def read_by(self, path: str) -> tuple[str, ...]:
        """Return the parameters that PyTorch's block reads."""
        return self.skeleton.named_in(self.staged.read_by(path))

    def parameters(self, stage: BlockStage) -> tuple[str, ...]:
        """Return the parameters that a stage needs beside those that are held throughout."""
        own = set(stage.piece.parameters)
        before = *self.judged_with(stage), *self.made_again(stage)
        for each in (*before, *([stage] if stage.inside else [])):
            own |= set(self.read_by(self.path(each)))
        return tuple(sorted(own - self.pieces.held))

    def load(self, stage: BlockStage) -> Load:
        """Return what a stage's parameters are, and take."""
        names = self.parameters(stage)
        tables = [name for name in names if name in self.pieces.tables]
        lying = sum(self.skeleton.lying(weight) for weight in self.skeleton.distinct(tables))
        return Load(self.skeleton.nbytes(names), self.skeleton.nbytes(tables), lying)

    @property
    def apart(self) -> bool:
        """Whether blocks read no parameters but their own, so that each can be called with these alone."""
        distinct, paths = self.skeleton.distinct, [call.path for call in self.divided.calls]
        return self.pieces.held == self.divided.outside and all(
            {*distinct(s.piece.parameters)}
            <= {*distinct((*self.read_by(paths[s.number]), *self.pieces.held))}
            for s in self.pieces.stages
            if s.inside
        )

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Let the module be called as a whole inside of a ``with``, each block with its parameters."""
        needed: dict[str, set[str]] = {}
        for stage in self.pieces.stages[:-1]:
            needed.setdefault(self.path(stage), set()).update(self.parameters(stage))

        def loaded(path: str) -> AbstractContextManager[None]:
            if path not in needed:
                raise Unfit(
                    f"forward calls the block {path}, which it did not while it was exported: the graph "
                    "has no such block; verify the model as a whole, which shows what that changes"
                )
            return self.skeleton.loaded(needed[path])

        with self.skeleton.loaded(self.pieces.held), self.staged.streamed(loaded):
            yield

    def part(self, stage: BlockStage, line: BlockLine) -> tuple[Block | Between, dict[str, Array]]:
        """Return what PyTorch has of a stage as a model, and its inputs."""
        calls = [call.path for call in self.divided.calls]
        names = dict(zip(stage.places, stage.names, strict=True))
        part: Block | Between
        if stage.inside:
            assert line.given is not None
            path = self.path(stage)
            part = Block(self.staged.blocks[path], line.given, path, names)
            given = [to_array(tensor) for tensor in line.given.at.values()]
        else:
            part = Between(self.eager, self.staged, line.answers, calls, names)
            given = [line.case.arrays[name] for name in self.eager.binding.order]
        return part, {f"{PARAMETER}.{index}": array for index, array in enumerate(given)}

    def answers(self, cases: Sequence[Case]) -> list[Outputs | Refusal | None]:
        """Return what the module answers to each case; a block is loaded once for all of them."""
        lines = [BlockLine(case, {}, {}) for case in cases]
        with self.skeleton.loaded(self.pieces.held):
            self._through(lines, lambda *_: None)
        return [line.refusal or line.outputs for line in lines]

    def moved(self, cases: Sequence[Case], seeds: Sequence[int]) -> list[tuple[Array, ...] | None]:
        """Return what the module answers to each case with its rounding moved, by a seed for each.

        They go from stage to stage together. What lies between blocks is computed again for each, and is
        moved in the same way again.
        """
        lines = [BlockLine(case, {}, {}) for case in cases]
        modes = [[MovedRounding(seed)] for seed in seeds]

        def mode(stage: BlockStage, run: int) -> MovedRounding:
            if not stage.inside:
                modes[run].append(MovedRounding(seeds[run] + _OUTSIDE))
            return modes[run][0 if stage.inside else -1]

        self._through(lines, mode, (GateError, Unfit))
        return [
            line.outputs.arrays
            if line.outputs is not None and any(mode.has_moved for mode in made) and not line.over
            else None
            for line, made in zip(lines, modes, strict=True)
        ]

    def _through(
        self,
        lines: Sequence[BlockLine],
        mode: Callable[[BlockStage, int], MovedRounding | None],
        failures: tuple[type[BaseException], ...] = (),
    ) -> None:
        """Take cases through all stages; ``failures`` end the way of one as its refusal does."""
        for stage in self.pieces.stages:
            with self.skeleton.loaded(self.parameters(stage)):
                for run, line in enumerate(lines):
                    if line.over:
                        continue
                    part, inputs = self.part(stage, line)
                    try:
                        with_mode = mode(stage, run)
                        line.outputs = Eager(part, tuple(inputs)).run(inputs, mode=with_mode)
                    except Refusal as refusal:
                        line.refusal, line.over = refusal, True
                        continue
                    except failures:
                        line.over = True
                        continue
                    line.goes_on(part)
