"""A stage of the way as a small model of PyTorch's: it takes tensors, and names what it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import nn

from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.blocks.staged import Call, Leaves, Place, Reached, Staged

PARAMETER = "values"


class Block(nn.Module):
    """A block on its own, found at its ``path``; ``said`` is all that its last call has returned.

    ``names`` are those of the places that are compared. Parts of the model that it is given are lent.
    """

    block: nn.Module

    def __init__(
        self, block: nn.Module, given: Leaves, path: str, names: Mapping[Place, str]
    ) -> None:
        super().__init__()
        self.__dict__["block"] = block
        self._lent = nn.ModuleList(given.modules)
        put_at(self, path, block)
        self._given, self._path, self._names = given, path, dict(names)
        self.said: Leaves | None = None

    @property
    def takes(self) -> int:
        """How many tensors it takes."""
        return len(self._given.at)

    def forward(self, values: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Call the block with these tensors in the place of those that it was given."""
        at = dict(zip(self._given.at, values, strict=True))
        objects = self._given.restored(at, {})
        args, kwargs = self._given.value(at, objects)
        call = Call(self._path, self.block, args, kwargs, objects, tuple(self._lent))
        _, self.said = call.made()
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
        names: Mapping[Place, str],
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
                given = reached.call.given
        # The block may write to what it is given.
        self.given = replace(given, at=given.copied())
        return _named(self.given, self._names)


def put_at(module: nn.Module, path: str, part: nn.Module) -> None:
    """Make a part that of a module at a path: what is said of it names what the user's model has there."""
    *above, name = path.split(".")
    for each in above:
        module = module._modules.setdefault(each, nn.Module()) or module
    module._modules[name] = part


def _named(leaves: Leaves, names: Mapping[Place, str]) -> dict[str, torch.Tensor]:
    return {name: leaves.at[place] for place, name in names.items() if place in leaves.at}
