"""A mode that sees every operator of a call, those in the branches of a control flow as well."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import ExitStack
from functools import cache
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary


def tensors_of(values: Any) -> list[torch.Tensor]:
    """Return the tensors among the arguments, or the results, of an operator."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]


class OperatorMode(TorchDispatchMode):
    """Calls ``run`` for each operator, with the mode off.

    Operators of control flow (``torch.cond``, ``while_loop``, ``scan``, ``map``) are functions of
    functions: they are run as they are, and the mode is on again in what they call. What compiles
    itself, as they do, is not compiled meanwhile: Dynamo refuses to under a mode, and remembers it.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Leave Dynamo out: nothing is compiled here, and to say so costs its import and each call."""
        return False

    def __init__(self) -> None:
        super().__init__()
        self._stances: list[ExitStack] = []

    def __enter__(self) -> OperatorMode:
        stance = ExitStack()
        if (
            "torch._dynamo" in sys.modules
        ):  # slow to import, and nothing has compiled itself without
            stance.enter_context(torch.compiler.set_stance("force_eager"))
        self._stances.append(stance)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._stances.pop().close()

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self, func, types, args=(), kwargs=None
    ):
        """Run an operator, or the branches of one."""
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            return self.around(func, args, kwargs)
        return self.run(_name(func), func, args, kwargs)

    def around(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator of control flow, with the mode on in its branches."""
        args, kwargs = pytree.tree_map(self._inside, (args, kwargs))
        return func(*args, **kwargs)

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the result, or what takes its place; ``name`` is without namespace and overload."""
        raise NotImplementedError

    def _inside(self, value: Any) -> Any:
        if not callable(value) or isinstance(value, torch.Tensor):
            return value
        branch: Callable[..., Any] = value

        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return branch(*args, **kwargs)

        return call


class FollowingMode(OperatorMode):
    """Knows which tensors are made of some that it is told to ``follow``."""

    def __init__(self) -> None:
        super().__init__()
        self._behind: MutableMapping[torch.Tensor, None] = WeakTensorKeyDictionary()

    def follow(self, values: Any) -> None:
        """Follow the tensors among values: inputs, or what an operator has made of one."""
        self._behind.update(dict.fromkeys(tensors_of(values)))

    def follows(self, tensors: Iterable[torch.Tensor]) -> bool:
        """Return whether one of them is followed."""
        return any(each in self._behind for each in tensors)


def given_to(func: Any, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, defaults included."""
    names, defaults = _arguments(func)
    return {**defaults, **dict(zip(names, args, strict=False)), **kwargs}


def is_view(func: Any) -> bool:
    """Return whether an operator returns numbers that it was given, where they lie."""
    returns = func._schema.returns
    return any(r.alias_info is not None and not r.alias_info.is_write for r in returns)


@cache
def _name(func: Any) -> str:
    name: str = func._schema.name.split("::")[-1]
    return name


@cache
def _arguments(func: Any) -> tuple[list[str], dict[str, Any]]:
    arguments = func._schema.arguments
    defaults = {a.name: a.default_value for a in arguments if a.has_default_value()}
    return [a.name for a in arguments], defaults
