"""A module whose state is an argument and a result of every call: what its rewrite has to answer."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from inspect import Parameter
from typing import Any

from torch import nn


def with_states(module: nn.Module, names: Sequence[str]) -> nn.Module:
    """Return a module that takes buffers behind the arguments, and returns them behind the results."""
    signature = inspect.signature(module.forward)

    class Explicit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
            given = full.bind(self, *args, **kwargs).arguments
            for name in names:
                setattr(self.inner, name, given.pop(name).clone())
            result = self.inner(*list(given.values())[1:])
            states = [getattr(self.inner, name).clone() for name in names]
            return (*(result if isinstance(result, tuple | list) else (result,)), *states)

    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    more = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    full = signature.replace(parameters=[own, *signature.parameters.values(), *more])
    Explicit.forward.__signature__ = full  # type: ignore[attr-defined]
    return Explicit().train(module.training)
