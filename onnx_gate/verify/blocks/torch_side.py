"""PyTorch's side of a model taken apart: each stage a small model of its own, with its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from torch import nn

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

# Between blocks seeds are others than in them, and two that are a pair still are.
_OUTSIDE = 1 << 20
# Stands before the graph's names of values that PyTorch's side of a stage is not given.
GRAPH = "graph "


@dataclass
class BlockLine:
    """One case on its way. ``known`` are PyTorch's values at the borders, by the graph's names.

    ``own`` are those that a runtime has carried on itself, by its label; one that refuses them is in
    ``refused``. ``answers`` are what blocks have returned, ``given`` is what the next is called with, and
    ``outputs`` what the module returns in the end.
    """

    case: Case
    known: dict[str, Array]
    own: dict[str, dict[str, Array]]
    refused: dict[str, Refusal] = field(default_factory=dict)
    answers: list[Leaves] = field(default_factory=list)
    given: Leaves | None = None
    outputs: Outputs | None = None
    over: bool = False

    def goes_on(self, part: Block | Between) -> None:
        """Take what PyTorch's side of a stage has come to in its call, for the next."""
        if isinstance(part, Between):
            self.given = part.given
        elif part.said is not None:
            self.answers.append(part.said)


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

    def parameters(self, stage: BlockStage) -> tuple[str, ...]:
        """Return the parameters that a stage needs beside those that are held throughout."""
        own = set(stage.piece.parameters)
        if stage.inside:
            own |= set(self.skeleton.named_below(self.path(stage)))
        return tuple(sorted(own - self.pieces.held))

    def load(self, stage: BlockStage) -> Load:
        """Return what a stage's parameters are, and take."""
        nbytes = self.skeleton.nbytes(self.parameters(stage))
        path = self.path(stage) if stage.inside else ""
        return Load(nbytes, bool(path) and type(self.staged.blocks[path]) is nn.Embedding)

    @property
    def apart(self) -> bool:
        """Whether blocks read no parameters but their own, so that each can be called with these alone."""
        distinct, paths = self.skeleton.distinct, [call.path for call in self.divided.calls]
        return self.pieces.held == self.divided.outside and all(
            {*distinct(s.piece.parameters)}
            <= {*distinct((*self.skeleton.named_below(paths[s.number]), *self.pieces.held))}
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

    def moved(self, case: Case, seeds: Sequence[int]) -> list[tuple[Array, ...] | None]:
        """Return what the module answers with its rounding moved, in a run for each of some seeds.

        They go from stage to stage together. What lies between blocks is computed again for each, and is
        moved in the same way again.
        """
        runs = [(BlockLine(case, {}, {}), seed, MovedRounding(seed)) for seed in seeds]
        for stage in self.pieces.stages:
            with self.skeleton.loaded(self.parameters(stage)):
                for line, seed, inside in runs:
                    if line.over:
                        continue
                    part, inputs = self.part(stage, line)
                    mode = inside if stage.inside else MovedRounding(seed + _OUTSIDE)
                    try:
                        line.outputs = Eager(part, tuple(inputs)).run(inputs, mode=mode)
                    except (Refusal, GateError, Unfit):
                        line.over = True
                        continue
                    inside.has_moved |= mode.has_moved
                    line.goes_on(part)
        return [
            line.outputs.arrays
            if line.outputs is not None and inside.has_moved and not line.over
            else None
            for line, _, inside in runs
        ]
