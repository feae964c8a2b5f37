"""Inputs that gradients lead to: floats, and integers where arithmetic makes floats of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode

from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.tensors import to_array, to_tensor
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reference.operator_mode import OperatorMode, tensors_of

# What makes floats of integers by a slope and an offset; a table's rows have neither.
_ARITHMETIC = frozenset(("_to_copy", "add", "sub", "rsub", "mul", "div"))


@dataclass(frozen=True)
class _Cast:
    """A float made of an integer input, or of a view of it, and its slope."""

    name: str
    view: torch.Tensor
    leaf: torch.Tensor
    slope: float


@dataclass
class InputLeaves:
    """The inputs of one pass that may change: ``tensors`` has their values."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    casts: list[_Cast] = field(default_factory=list)

    def whole(self, tensor: torch.Tensor) -> tuple[str, torch.Tensor] | None:
        """Return of which integer input a tensor is a view, and the flat place of each element in it."""
        for name, base in self.tensors.items():
            own = not base.requires_grad and base.dtype == tensor.dtype and base.numel() > 0
            if own and base.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
                places = torch.arange(base.numel())
                shape, stride = tensor.shape, tensor.stride()
                return name, places.as_strided(shape, stride, tensor.storage_offset()).clone()
        return None

    def gradients(
        self, results: Sequence[Any], towards: Sequence[torch.Tensor] | None = None
    ) -> dict[str, torch.Tensor]:
        """Return the gradient of results to each input that has one, in the input's own unit."""
        floats = [name for name, tensor in self.tensors.items() if tensor.requires_grad]
        leaves = [*(self.tensors[name] for name in floats), *(cast.leaf for cast in self.casts)]
        if not leaves:  # integers alone, which nothing makes floats of
            return {}
        try:
            found = torch.autograd.grad(
                results, leaves, grad_outputs=towards, retain_graph=True, allow_unused=True
            )
        except Exception:  # of what the module calls some parts have no way back, or a wrong one
            return {}
        total = {n: g for n, g in zip(floats, found, strict=False) if g is not None}
        for cast, gradient in zip(self.casts, found[len(floats) :], strict=True):
            if gradient is not None:
                whole = total.setdefault(
                    cast.name, torch.zeros(self.tensors[cast.name].shape, dtype=torch.float64)
                )
                view = cast.view
                into = whole.as_strided(view.shape, view.stride(), view.storage_offset())
                into.add_(gradient.double() * cast.slope)
        return total


def moved_by(array: Array, change: torch.Tensor, domain: Domain) -> Array:
    """Return an input's values with a change, within its domain and whole where they were."""
    tensor = to_tensor(array)
    if domain.is_float:
        return to_array((tensor + change.to(tensor.dtype)).clamp(domain.low, domain.high))
    wide = (tensor.double() + change.double()).round()
    return to_array(wide.clamp(domain.low, domain.high).to(tensor.dtype))


def by_row(values: torch.Tensor, like: torch.Tensor, axis: int = 0) -> torch.Tensor:
    """Return a value of each row, beside an input or its gradient that has rows along an axis."""
    shape = [1] * like.ndim
    if shape:
        shape[axis] = len(values)
    return values.reshape(shape) if shape else values[0]


class _Casts(OperatorMode):
    """Has gradients begin at floats that are made of integer inputs."""

    def __init__(self, leaves: InputLeaves, whole: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self._leaves = leaves
        self._names = {tensor.untyped_storage().data_ptr(): n for n, tensor in whole.items()}

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the operator, and begin at its result where it is the first float of an input."""
        result = func(*args, **kwargs)
        if name not in _ARITHMETIC or not isinstance(result, torch.Tensor):
            return result
        if not result.is_floating_point() or result.requires_grad:
            return result
        for view in tensors_of(args):
            own = self._names.get(view.untyped_storage().data_ptr())
            # Of what is expanded one element stands for several.
            if own is not None and view.shape == result.shape and 0 not in view.stride():
                slope = _slope(view, result)
                self._leaves.casts.append(_Cast(own, view, result.requires_grad_(), slope))
                break
        return result


def _slope(whole: torch.Tensor, made: torch.Tensor) -> float:
    """Return by how much a float grows with the integer that it is made of."""
    x, y = whole.double(), made.detach().double()
    x = x - x.mean()
    square = float(x.square().sum())
    return float((x * y).sum()) / square if square else 1.0


class _Kept(TorchFunctionMode):
    """Keeps gradients on where a module turns them off: ``torch.no_grad`` around its ``forward``."""

    def __torch_function__(  # type: ignore[no-untyped-def]
        self, func, types, args=(), kwargs=None
    ):
        """Call a function of torch's, but the one that turns them off."""
        if func is torch._C._set_grad_enabled and args == (False,):
            return None
        return func(*args, **(kwargs or {}))


def run_with_gradients(
    eager: Eager,
    arrays: Mapping[str, Array],
    known: Mapping[str, Domain],
    mode: OperatorMode,
    *,
    own: Collection[int] | None = None,
    leaves: InputLeaves | None = None,
) -> InputLeaves | None:
    """Run the module under a mode; return the inputs that may change, ``None`` where it refuses.

    ``own`` are the addresses of the tensors of a module that writes to values which gradients may need:
    copies of these are kept, and none of its own. ``leaves`` are filled, and returned, where given.
    """
    leaves = InputLeaves() if leaves is None else leaves
    tensors: dict[str, torch.Tensor] = {}
    for name, array in arrays.items():
        tensor = to_tensor(array)
        if name in known:
            leaves.tensors[name] = tensor
            if known[name].is_float:
                # What is written in place may be no leaf.
                tensor = tensor.requires_grad_().clone()
        tensors[name] = tensor
    whole = {n: t for n, t in leaves.tensors.items() if not t.requires_grad and t.numel()}
    try:
        hooks = nullcontext() if own is None else saved_tensors_hooks(_copied(own), _same)
        with hooks, _without_own(eager.module):
            eager.run_prepared(tensors, mode=_with_gradients(mode, leaves, whole))
    except Refusal:
        return None
    return leaves


@contextmanager
def _without_own(module: nn.Module) -> Iterator[None]:
    """Have gradients lead to inputs alone: what a module does to its parameters is its own matter."""
    wanted = [each for each in state.parameters(module) if each.requires_grad and each.is_leaf]
    try:
        for each in wanted:
            each.requires_grad_(False)
        yield
    finally:
        for each in wanted:
            each.requires_grad_()


def _copied(own: Collection[int]) -> Callable[[torch.Tensor], torch.Tensor]:
    def copied(saved: torch.Tensor) -> torch.Tensor:
        return saved if state.address(saved) in own else saved.detach().clone()

    return copied


def _same(saved: torch.Tensor) -> torch.Tensor:
    return saved


@contextmanager
def _with_gradients(
    mode: OperatorMode, leaves: InputLeaves, whole: Mapping[str, torch.Tensor]
) -> Iterator[None]:
    with ExitStack() as stack:
        if leaves.tensors:
            stack.enter_context(torch.enable_grad())
            stack.enter_context(_Kept())
        stack.enter_context(mode)
        if whole:
            stack.enter_context(_Casts(leaves, whole))
        yield
