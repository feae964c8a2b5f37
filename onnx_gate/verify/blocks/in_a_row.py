"""Blocks, and what leads to them, as one model of PyTorch's that ends with what the last returns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import nn

from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.tensors import to_array
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.blocks.parts import Between, Block, put_at
from onnx_gate.verify.blocks.pieces import BlockStage
from onnx_gate.verify.blocks.staged import Leaves
from onnx_gate.verify.blocks.torch_side import BlockLine, Said, TorchSide
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.stopwatch import Clock


class BlockRow(nn.Module):
    """Blocks, what leads from each to the next, and what follows the last, as PyTorch computes them.

    ``between`` makes what follows some blocks of what they have said; ``following`` make the other blocks
    of what they are given, the last of them ``None`` where the row ends with what leads to a block, or with
    the model's outputs. Without a ``first`` it begins with what leads to those. Some blocks before the row
    are called ``again``, for what they say. All blocks are found at their paths in ``blocks``.
    """

    def __init__(
        self,
        first: Block | None,
        between: Callable[[Sequence[Leaves], Sequence[Leaves]], Between],
        following: Sequence[Callable[[Leaves], Block] | None],
        again: Sequence[Block],
        blocks: Mapping[str, nn.Module],
    ) -> None:
        super().__init__()
        for path, part in blocks.items():
            put_at(self, path, part)
        self.__dict__["_on"] = (first, between, following, again)

    def forward(
        self,
        inputs: list[torch.Tensor],
        values: Sequence[torch.Tensor] = (),
        more: Sequence[torch.Tensor] = (),
    ) -> dict[str, torch.Tensor]:
        """Call them with the model's inputs, what the first is given, and what those before the row are."""
        first, between, following, again = self.__dict__["_on"]
        said, anew, left = [], [], iter(more)
        for block in again:
            block(list(itertools.islice(left, block.takes)))
            anew.append(block.said)
        if first is not None:
            first(values)
            said.append(first.said)
        for make in following:
            on_the_way = between(said, anew)
            named = on_the_way(inputs)
            if make is not None:
                given = on_the_way.given
                block = make(given)
                named = block(list(given.at.values()))
                said.append(block.said)
        outputs: dict[str, torch.Tensor] = named
        return outputs


def behind_hidden(torch_side: TorchSide, stage: BlockStage, said: Said, clock: Clock) -> Said:
    """Return PyTorch's side of a stage behind the blocks before it whose ends are hidden, if any.

    And with those of which its piece makes an end anew, whose rounding is the piece's, too.
    """
    hidden, again = torch_side.judged_with(stage), torch_side.made_again(stage)
    known = said.asked.reference
    if not (hidden or again) or known is None:
        return said
    eager, inputs = in_a_row(torch_side, hidden, stage, said.line, again)
    reference = CaseReference(eager, Float64Reference(eager), inputs, known.outputs, clock)
    case = replace(said.case, arrays={**said.case.arrays, **inputs})
    return Said(said.line, case, replace(said.asked, reference=reference), eager)


def in_a_row(
    torch_side: TorchSide,
    before: Sequence[BlockStage],
    stage: BlockStage,
    line: BlockLine,
    again: Sequence[BlockStage] = (),
) -> tuple[Eager, dict[str, Array]]:
    """Return a stage behind the blocks before it, or behind what leads to it, as a model, and its inputs.

    ``line`` has just gone through the stage, and has kept what the first of these was given, and what those
    were of which ``again`` is computed what the file has in no value.
    """
    calls = torch_side.divided.calls
    every = (*before, stage)
    names = dict(zip(stage.places, stage.names, strict=True))

    def block(of: BlockStage, given: Leaves) -> Block:
        own = torch_side.staged.blocks[torch_side.path(of)]
        return Block(own, given, torch_side.path(of), names if of is stage else {})

    def between(said: Sequence[Leaves], anew: Sequence[Leaves]) -> Between:
        answers = line.answers[: every[0].number]
        for of, new in zip(again, anew, strict=True):
            made = {place: new.at[place] for place in calls[of.number].hidden}
            answers[of.number] = replace(answers[of.number], at={**answers[of.number].at, **made})
        paths, own = [call.path for call in calls], {} if stage.inside else names
        return Between(torch_side.eager, torch_side.staged, [*answers, *said], paths, own)

    following = [
        (lambda given, of=of: block(of, given)) if of.inside else None
        for of in (every[1:] if before else every)
    ]
    first = line.row[-1 - len(before) if stage.inside else -len(before)] if before else None
    paths = [torch_side.path(of) for of in (*again, *every) if of.inside]
    blocks = {path: torch_side.staged.blocks[path] for path in paths}
    begin = None if first is None else block(every[0], first)
    anew = [block(of, line.again[of.number]) for of in again]
    module = BlockRow(begin, between, following, anew, blocks)
    own = [line.case.arrays[name] for name in torch_side.eager.binding.order]
    inputs = {
        f"{parameter}.{index}": array
        for parameter, arrays in (
            ("inputs", own),
            ("values", [to_array(each) for each in first.at.values()] if first else []),
            ("more", [to_array(t) for of in again for t in line.again[of.number].at.values()]),
        )
        for index, array in enumerate(arrays)
    }
    return Eager(module.eval(), tuple(inputs)), inputs
