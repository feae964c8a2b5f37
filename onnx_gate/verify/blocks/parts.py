"""A stage of the way as a small model of PyTorch's: it takes tensors, and names what it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.blocks.staged import Leaves, Reached, Staged

PARAMETER = "values"


class Block(nn.Module):
    """A block on its own; ``said`` is all that its last call has returned.

    ``names`` are those of the places that are compared.
    """

    def __init__(
        self, block: nn.Module, given: Leaves, path: str, names: Mapping[int, str]
    ) -> None:
        super().__init__()
        self.block = block
        self._given, self._path, self._names = given, path, dict(names)
        self.said: Leaves | None = None

    def forward(self, values: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Call the block with these tensors in the place of those that it was given."""
        args, kwargs = self._given.value(values)
        self.said = Leaves.of(self.block(*args, **kwargs), self._path)
        return _named(self.said, self._names)


class Between(nn.Module):
    """What a module does from its inputs, and the blocks' answers, to the next block's inputs.

    Or to its outputs, after the last block. ``given`` is what the last call has led to. The module is no
    part of this one: its parameters are not here.
    """

    given: Leaves | None

    def __init__(
        self,
        eager: Eager,
        staged: Staged,
        answers: Sequence[Leaves],
        calls: Sequence[str],
        names: Mapping[int, str],
    ) -> None:
        super().__init__()
        self.__dict__["_of"] = (eager, staged)
        self._answers, self._calls, self._names = tuple(answers), tuple(calls), dict(names)
        self.given = None

    def forward(self, values: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Call the module with these tensors as its inputs, in the order of its parameters."""
        eager: Eager
        staged: Staged
        eager, staged = self.__dict__["_of"]
        tensors = dict(zip(eager.binding.order, values, strict=True))
        with staged.answered(self._answers, self._calls):
            try:
                return dict(zip(*eager.run_prepared(tensors), strict=True))
            except Reached as reached:
                arguments: Any = (reached.args_given, reached.kwargs_given)
                given = Leaves.of(arguments, reached.path)
        # The block may write to what it is given.
        self.given = Leaves(given.spec, given.plain, tuple(t.clone() for t in given.tensors))
        return _named(self.given, self._names)


def _named(leaves: Leaves, names: Mapping[int, str]) -> dict[str, torch.Tensor]:
    at = leaves.at
    return {name: at[place] for place, name in names.items() if place in at}
