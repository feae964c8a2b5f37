"""Calls of a module's blocks, met on their way: marked while it is exported, filled, or answered for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn

from onnx_gate.runtimes.torch_eager import fast_path
from onnx_gate.verify.blocks.objects import PLAIN, Foreign, KnownObject, Objects, Parts
from onnx_gate.verify.inspect.altered import Altering
from onnx_gate.verify.reference.operator_mode import OperatorMode, tensors_of

# Called with a call of a block: its answer is the call's.
Handler = Callable[["Call"], Any]
# Of a tensor among what a block is given or returns: its number, or its path in an object.
Place = int | str


class Unfit(BaseException):
    """Why a model cannot be taken apart; no handler of a model's own may take it for an error."""


class Reached(BaseException):
    """A call that nobody has answered yet."""

    def __init__(self, call: Call) -> None:
        super().__init__(call.path)
        self.call = call


@dataclass(frozen=True)
class Leaves:
    """What a block is given or returns: its tensors by place, and what puts them together again.

    A tensor's place is its number among all that is given: in an export there may be more of them. Those
    that ``objects`` hold have a path. Of what a block returns these are as the block leaves them, and the
    tensors are those that it has put there or written to.
    """

    spec: pytree.TreeSpec
    plain: tuple[Any, ...]
    objects: Mapping[str, Parts]
    at: Mapping[Place, torch.Tensor]

    @classmethod
    def of(
        cls,
        value: Any,
        path: str,
        named: Mapping[str, object],
        before: Mapping[str, tuple[torch.Tensor, int]] | None = None,
        parts: Container[nn.Module] = (),
    ) -> Leaves:
        """Take a value apart; raises ``Unfit`` where it cannot be, or has objects that cannot.

        ``named`` are the objects that are known already, ``before`` has what was in them, and how often
        that had been written to. ``parts`` are modules that stay what they are.
        """
        every, spec = pytree.tree_flatten(value)
        names = {id(each): name for name, each in named.items()}
        objects = dict(named)
        plain: list[Any] = []
        at: dict[Place, torch.Tensor] = {}
        for number, leaf in enumerate(every):
            if isinstance(leaf, torch.Tensor):
                at[number] = leaf
                plain.append(None)
            elif _stays(leaf, parts):
                plain.append((leaf,))
            else:
                name = names.setdefault(id(leaf), str(number))
                objects.setdefault(name, leaf)
                plain.append(KnownObject(name))
        try:
            held = Objects.of(objects)
        except Foreign as what:
            raise Unfit(
                f"the block {path} takes or returns {what}, whose tensors cannot be handed on from block "
                "to block; verify the model as a whole (verify: whole), or leave it out if forward has an "
                "argument for that, as in call: {use_cache: false}"
            ) from what
        for place, tensor in held.tensors.items():
            was, version = (before or {}).get(place, (None, 0))
            if was is not tensor or tensor._version != version:
                at[place] = tensor
        return cls(spec, tuple(plain), held.parts, at)

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """The modules that are among it."""
        held = (each[0] for each in self.plain if isinstance(each, tuple))
        return tuple(dict.fromkeys(each for each in held if isinstance(each, nn.Module)))

    def value(self, at: Mapping[Place, torch.Tensor], objects: Mapping[str, object]) -> Any:
        """Return the value with other tensors, and with these objects as they are."""
        leaves = [
            at[number]
            if each is None
            else objects[each.name]
            if isinstance(each, KnownObject)
            else each[0]
            for number, each in enumerate(self.plain)
        ]
        return pytree.tree_unflatten(leaves, self.spec)

    def restored(
        self, at: Mapping[Place, torch.Tensor], objects: Mapping[str, object]
    ) -> dict[str, object]:
        """Let objects be as they are here, with other tensors; return them, and new ones beside."""
        held = {place: tensor for place, tensor in at.items() if isinstance(place, str)}
        return Objects(self.objects).restored(held, objects)

    def copied(self) -> dict[Place, torch.Tensor]:
        """Return copies of the tensors, which may be written to."""
        return {place: tensor.clone() for place, tensor in self.at.items()}


class Call:
    """A call of a block: its arguments, and the objects among them by name.

    Where nobody has ``named`` them they are called as the parameters of ``forward`` that take them.
    ``parts`` are the modules of the model, which are handed on as they are.
    """

    def __init__(
        self,
        path: str,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        named: Mapping[str, object] | None = None,
        parts: Container[nn.Module] = (),
    ) -> None:
        self.path, self.args, self.kwargs = path, args, kwargs
        self._original, self._parts = original, parts
        named = self._named() if named is None else named
        self.given = Leaves.of((args, kwargs), path, named, parts=parts)
        every = pytree.tree_leaves((args, kwargs))
        known = zip(self.given.plain, every, strict=True)
        self.objects = {each.name: leaf for each, leaf in known if isinstance(each, KnownObject)}
        self._before = stamped(self.given.at)

    def made(self, at: Mapping[Place, torch.Tensor] | None = None) -> tuple[Any, Leaves]:
        """Make the call, with other tensors beside its objects; return what it does, and that apart."""
        args, kwargs = self.args, self.kwargs
        if at is not None:
            args, kwargs = self.given.value(at, self.objects)
        result = self._original(*args, **kwargs)
        return result, Leaves.of(result, self.path, self.objects, self._before, self._parts)

    def answered(self, said: Leaves, at: Mapping[Place, torch.Tensor]) -> Any:
        """Return what a call has returned, with other tensors, and let the objects be as it left them."""
        return said.value(at, said.restored(at, self.objects))

    def _named(self) -> dict[str, object]:
        try:
            bound = inspect.signature(self._original).bind(*self.args, **self.kwargs).arguments
        except (TypeError, ValueError):
            return {}
        named = {id(v): n for n, v in bound.items() if self._is_object(v)}
        return {name: bound[name] for name in named.values()}

    def _is_object(self, value: Any) -> bool:
        simple = isinstance(value, torch.Tensor) or _stays(value, self._parts)
        return pytree.tree_is_leaf(value) and not simple


def stamped(at: Mapping[Place, torch.Tensor]) -> dict[str, tuple[torch.Tensor, int]]:
    """Return the tensors of objects, each with how often it was written to."""
    return {place: (each, each._version) for place, each in at.items() if isinstance(place, str)}


def _stays(value: Any, parts: Container[nn.Module]) -> bool:
    return isinstance(value, PLAIN) or (isinstance(value, nn.Module) and value in parts)


class _Largest(OperatorMode):
    """Measures the largest value that operators make; a view of another is none."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the operator, and measure what it makes."""
        result = func(*args, **kwargs)
        if all(each.alias_info is None for each in func._schema.returns):
            self.nbytes = max(self.nbytes, *(each.nbytes for each in tensors_of(result)), 0)
        return result


class Staged:
    """A module whose blocks' calls are seen; a call inside of another block is that block's own.

    ``returned`` are the bytes of what each block has returned to a module that was called as a whole,
    ``inside`` those of the largest value that an operator has made in it, ``altered`` the parameters
    that blocks make others of,
    ``handed`` the module's other parts that a block was given in any call: it may read their parameters.
    """

    def __init__(self, module: nn.Module, paths: Sequence[str]) -> None:
        self.blocks = {path: module.get_submodule(path) for path in paths}
        self.returned: dict[str, int] = {}
        self.inside: dict[str, int] = {}
        self.altered: set[str] = set()
        self.handed: dict[str, dict[nn.Module, None]] = {path: {} for path in paths}
        self._parts = frozenset(module.modules())
        self._inside = 0

    def read_by(self, path: str) -> tuple[nn.Module, ...]:
        """Return the parts whose parameters a block reads: itself, and those that it is handed."""
        return self.blocks[path], *self.handed[path]

    @contextmanager
    def handled(self, handler: Handler) -> Iterator[None]:
        """Let ``handler`` answer the calls of blocks inside of a ``with``.

        torch's encoder hands its layers nested tensors on its fast path, which no graph has: between
        blocks it is not taken.
        """
        before = {path: block.__dict__.get("forward") for path, block in self.blocks.items()}
        originals = {path: block.forward for path, block in self.blocks.items()}
        outside, self._inside = self._inside, 0
        try:
            for path, block in self.blocks.items():
                block.__dict__["forward"] = self._forward(handler, path, originals[path])
            with fast_path(False):
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
                call = Call(path, original, args, kwargs, parts=self._parts)
                self.handed[path].update(dict.fromkeys(call.given.modules))
                return handler(call)
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

        def handler(call: Call) -> Any:
            nonlocal made
            if made >= len(calls) or calls[made] != call.path:
                was = calls[made] if made < len(calls) else "the end"
                raise Unfit(
                    f"forward calls the block {call.path} where the export came to {was}: which blocks it "
                    "calls depends on the inputs, and a graph has one order; verify the model as a whole"
                )
            if made == len(answers):
                raise Reached(call)
            made += 1
            said = answers[made - 1]
            return call.answered(said, said.copied())

        with self.handled(handler):
            yield

    @contextmanager
    def streamed(self, loaded: Callable[[str], Any]) -> Iterator[None]:
        """Let every block have its parameters while it is called, inside of a ``with``."""

        def handler(call: Call) -> Any:
            with loaded(call.path):
                largest, altering = _Largest(), Altering(self.blocks[call.path])
                with largest, altering:
                    result, said = call.made()
            self.altered.update(f"{call.path}.{name}" for name in altering.altered)
            self.inside[call.path] = max(largest.nbytes, self.inside.get(call.path, 0))
            self.returned[call.path] = sum(tensor.nbytes for tensor in said.at.values())
            return result

        with self.handled(handler):
            yield
