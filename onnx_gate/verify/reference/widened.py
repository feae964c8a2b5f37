"""Parameters that a file has in fewer bits, widened as operators read them: some rows, or all.

The idea: of a stack of experts, or a table of words, an operator takes the rows that its indices name. What
a wider copy of all others would hold nobody reads. So the values stay where they lie, and what an operator
is given is widened; what looks at a tensor otherwise gives such a one again.

The invariant: widening is exact, and so it comes to the same before rows are taken and behind.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn

# Nothing is rounded in these: they look at a tensor otherwise, or take rows of it.
VIEWS = frozenset(
    [
        *("alias", "detach", "expand", "permute", "select", "slice", "squeeze", "t"),
        *("transpose", "unbind", "unsqueeze", "view"),
    ]
)
PICKS = frozenset(["embedding", "index", "index_select"])


class Widened(torch.Tensor):
    """A tensor in another dtype than it is ``stored`` in, or a view of the one that is the ``whole``.

    Once an operator has ``read`` all of it, it is kept as that: the next reads it again.
    """

    stored: torch.Tensor
    whole: Widened
    read: torch.Tensor | None

    @staticmethod
    def __new__(
        cls, stored: torch.Tensor, dtype: torch.dtype, whole: Widened | None = None
    ) -> Widened:
        """Stand for values in a dtype that has all of theirs."""
        own: Widened = torch.Tensor._make_wrapper_subclass(
            cls,
            stored.shape,
            strides=stored.stride(),
            storage_offset=stored.storage_offset(),
            dtype=dtype,
            device=stored.device,
        )
        own.stored, own.whole, own.read = stored, own if whole is None else whole, None
        return own

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[no-untyped-def, override]
        cls, func, types, args=(), kwargs=None
    ):
        """Look at the values otherwise, take rows of them, or run an operator on what it reads."""
        name = func._schema.name.split("::")[-1]
        kwargs = kwargs or {}
        own = args[0] if args else None
        if isinstance(own, Widened) and own.whole.read is None:
            others = pytree.tree_map_only(Widened, Widened.plain, args[1:])
            if name in VIEWS and func._overloadname != "dtype":
                made = func(own.stored, *others, **kwargs)
                return pytree.tree_map_only(torch.Tensor, own._view, made)
            if name in PICKS:
                return func(own.stored, *others, **kwargs).to(own.dtype)
        args, kwargs = pytree.tree_map_only(Widened, Widened.plain, (args, dict(kwargs)))
        return func(*args, **kwargs)

    def plain(self) -> torch.Tensor:
        """Return it as an ordinary tensor, which is kept where it is of all values."""
        whole = self.whole
        if whole.read is None:
            if self.numel() < whole.numel():
                return self.stored.to(self.dtype)
            whole.read = whole.stored.to(whole.dtype)
        first = self.stored.storage_offset() - whole.stored.storage_offset()
        return whole.read.as_strided(self.shape, self.stride(), first)

    def _view(self, stored: torch.Tensor) -> Widened:
        """Return a view, which is known by its storage as that of any other tensor is."""
        view = Widened(stored, self.dtype, self.whole)
        torch._functionalize_unsafe_set(view, self)
        return view

    @property
    def data(self) -> torch.Tensor:
        """All values; what is put in their place is read from then on."""
        return self.plain()

    @data.setter
    def data(self, values: torch.Tensor) -> None:
        self.whole.read = values

    def numpy(self, *, force: bool = False) -> Any:
        """Return the values as an array."""
        return self.plain().numpy(force=force)

    def tolist(self) -> Any:
        """Return the values as numbers."""
        return self.plain().tolist()

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        """Return a parameter with values of its own."""
        memo[id(self)] = copied = nn.Parameter(self.plain().clone(), requires_grad=False)
        return copied


def widened_as_read(stored: torch.Tensor, dtype: torch.dtype) -> nn.Parameter:
    """Return values as a parameter in a wider dtype."""
    parameter: Any = Widened(stored, dtype)
    parameter._is_param = True
    return parameter  # type: ignore[no-any-return]
