"""Calls of a module's blocks, met on their way: marked while it is exported, filled, or answered for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn

# Called with the path of a block, its own ``forward`` and what it is called with.
Handler = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
# What a block may be given or return beside tensors: it is the same on both sides.
_PLAIN = (
    type(None),
    *(bool, int, float, complex, str, bytes),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, slice, range, type),
)
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Unfit(BaseException):
    """Why a model cannot be taken apart; no handler of a model's own may take it for an error."""


class Reached(BaseException):
    """A call that nobody has answered yet."""

    def __init__(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__(path)
        self.path, self.args_given, self.kwargs_given = path, args, kwargs


@dataclass(frozen=True)
class Leaves:
    """What a block is given or returns: its tensors, in order, and what puts them together again.

    A tensor's place is its number among all that is given: in an export there may be more of them.
    """

    spec: pytree.TreeSpec
    plain: tuple[Any, ...]
    tensors: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, value: Any, path: str) -> Leaves:
        """Take a value apart; raises ``Unfit`` where it has more than tensors and plain values."""
        every, spec = pytree.tree_flatten(value)
        for leaf in every:
            if not isinstance(leaf, (torch.Tensor, *_PLAIN, *_SYMBOLIC)):
                raise Unfit(
                    f"the block {path} takes or returns a {type(leaf).__name__}, whose tensors cannot be "
                    "handed on from block to block; leave it out by an argument under call, such as "
                    "use_cache: false, or verify the model as a whole"
                )
        tensors = tuple(leaf for leaf in every if isinstance(leaf, torch.Tensor))
        plain = tuple(None if isinstance(leaf, torch.Tensor) else (leaf,) for leaf in every)
        return cls(spec, plain, tensors)

    @property
    def at(self) -> dict[int, torch.Tensor]:
        """The tensors by their places."""
        places = (place for place, each in enumerate(self.plain) if each is None)
        return dict(zip(places, self.tensors, strict=True))

    def value(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Return the value with other tensors."""
        left = iter(tensors)
        leaves = [next(left) if each is None else each[0] for each in self.plain]
        return pytree.tree_unflatten(leaves, self.spec)

    def copied(self) -> Any:
        """Return the value with copies of its tensors, which may be written to."""
        return self.value([tensor.clone() for tensor in self.tensors])


class Staged:
    """A module whose blocks' calls are seen; a call inside of another block is that block's own.

    ``returned`` are the bytes of what each block has returned to a module that was called as a whole.
    """

    def __init__(self, module: nn.Module, paths: Sequence[str]) -> None:
        self.module = module
        self.blocks = {path: module.get_submodule(path) for path in paths}
        self.returned: dict[str, int] = {}
        self._inside = 0

    @contextmanager
    def handled(self, handler: Handler) -> Iterator[None]:
        """Let ``handler`` answer the calls of blocks inside of a ``with``."""
        before = {path: block.__dict__.get("forward") for path, block in self.blocks.items()}
        originals = {path: block.forward for path, block in self.blocks.items()}
        outside, self._inside = self._inside, 0
        try:
            for path, block in self.blocks.items():
                block.__dict__["forward"] = self._forward(handler, path, originals[path])
            yield
        finally:
            self._inside = outside
            for path, block in self.blocks.items():
                own = before[path]
                if own is None:
                    block.__dict__.pop("forward", None)
                else:
                    block.__dict__["forward"] = own

    def _forward(self, handler: Handler, path: str, original: Callable[..., Any]) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return original(*args, **kwargs)
            self._inside += 1
            try:
                return handler(path, original, args, kwargs)
            finally:
                self._inside -= 1

        return forward

    @contextmanager
    def answered(self, answers: Sequence[Leaves], calls: Sequence[str]) -> Iterator[None]:
        """Let blocks return ``answers`` in their order inside of a ``with``; the next raises ``Reached``.

        ``calls`` are the paths of the blocks in the order in which they were exported; one that is called
        out of it raises ``Unfit``.
        """
        made = 0

        def handler(
            path: str, _: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Any:
            nonlocal made
            if made >= len(calls) or calls[made] != path:
                was = calls[made] if made < len(calls) else "the end"
                raise Unfit(
                    f"forward calls the block {path} where the export came to {was}: which blocks it calls "
                    "depends on the inputs, and a graph has one order; verify the model as a whole"
                )
            if made == len(answers):
                raise Reached(path, args, kwargs)
            made += 1
            return answers[made - 1].copied()

        with self.handled(handler):
            yield

    @contextmanager
    def streamed(self, loaded: Callable[[str], Any]) -> Iterator[None]:
        """Let every block have its parameters while it is called, inside of a ``with``."""

        def handler(
            path: str, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Any:
            with loaded(path):
                result = original(*args, **kwargs)
            tensors = (x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor))
            self.returned[path] = sum(tensor.nbytes for tensor in tensors)
            return result

        with self.handled(handler):
            yield
