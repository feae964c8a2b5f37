"""A module's weights in other hands: which of them there are, what they move, and others in their place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from zlib import crc32

import torch
from torch import nn

from onnx_gate.manifest.spec import DEFAULT_AUTO
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import Eager, to_array, to_tensor
from onnx_gate.verify.judge.noise import Terms

# A factor that begins below this is as good as zero.
_SMALL = 1e-2
# Up to so many numbers each is drawn, which takes less than what the rest of it does.
_LARGE = 1 << 16
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether it is a plain parameter, which gradients may lead to."""
    plain = type(tensor) is nn.Parameter and tensor.layout == torch.strided and tensor.is_leaf
    return plain and tensor.dtype in _DTYPES and not tensor.is_inference()


def moves(
    eager: Eager, arrays: Mapping[str, Array], weights: Mapping[str, torch.Tensor]
) -> dict[str, float]:
    """Return by how many floors the outputs move with each weight, of those that gradients lead to."""
    found: dict[str, float] = {}

    def take(name: str, weight: torch.Tensor) -> None:
        grad, weight.grad = weight.grad, None  # all of them at once are as large as the model
        assert grad is not None
        wide = grad if grad.dtype.itemsize > 2 else grad.float()
        # What overflows has an effect, and what underflows is decided by the exchange.
        found[name] = float(wide.mul_(weight.detach()).norm())

    tensors = {name: to_tensor(array) for name, array in arrays.items()}
    try:
        with _gradients(weights) as stack:
            for name, weight in weights.items():
                hook = weight.register_post_accumulate_grad_hook(partial(take, name))
                stack.callback(hook.remove)
            _, outputs = eager.run_prepared(tensors, mode=torch.enable_grad())
            ends = [o for o in outputs if o.requires_grad and o.numel() and o.isfinite().all()]
            if ends:
                torch.autograd.backward(ends, [*map(_in_floors, ends)], inputs=[*weights.values()])
    except (
        Exception
    ):  # it writes to its weights, or an operator has no gradient, or one that raises
        return {}
    return found


@contextmanager
def _gradients(weights: Mapping[str, torch.Tensor]) -> Iterator[ExitStack]:
    """Let gradients lead to these weights, and leave them as they were."""
    with ExitStack() as stack:
        for weight in weights.values():
            stack.callback(setattr, weight, "grad", weight.grad)
            stack.callback(weight.requires_grad_, weight.requires_grad)
            weight.grad = None
            weight.requires_grad_()
        yield stack


def _in_floors(end: torch.Tensor) -> torch.Tensor:
    """Return a random sign for each element, in units of the floor of what is usual in the output."""
    size = end.detach().abs()
    terms = Terms.of(DEFAULT_AUTO, to_array(size).dtype)
    scale = torch.maximum(size, size.mean()).mul(terms.relative).clamp(min=terms.least)
    drawn = torch.randint(0, 2, end.shape, generator=torch.Generator().manual_seed(0))
    return (drawn * 2 - 1) / scale


@contextmanager
def exchanged(weights: Sequence[torch.Tensor], others: Iterable[torch.Tensor]) -> Iterator[None]:
    """Have others in the place of weights, and leave these as they were."""
    own = [weight.data for weight in weights]
    try:
        for weight, other in zip(weights, others, strict=True):
            weight.data = other
        yield
    finally:
        for weight, data in zip(weights, own, strict=True):
            weight.data = data


def turned(weight: torch.Tensor) -> torch.Tensor:
    """Return its own numbers the other way round, of the other sign: of the same size, as a whole."""
    return -weight.data.flip([*range(weight.ndim)])


def drawn(name: str, weight: torch.Tensor) -> torch.Tensor:
    """Return other numbers of an ordinary size, none of another sign.

    Of a large one that is no constant rows and columns have numbers, and each element the fraction of the
    sum of its two: no product of theirs, which a norm of rows or of columns would take away.
    """
    own = weight.data if weight.dtype.itemsize > 2 else weight.data.float()
    low, high = map(float, own.aminmax())
    generator = torch.Generator().manual_seed(crc32(name.encode()))
    draw = partial(torch.rand, generator=generator, dtype=own.dtype)
    if low == high or own.numel() <= _LARGE:
        drawn = draw(own.shape)
    else:
        columns = draw(own.shape[1:])
        drawn = (draw(len(own)).reshape(-1, *([1] * columns.ndim)) + columns).frac_()
    if max(-low, high) < _SMALL:
        drawn = torch.where(own == 0, drawn - 0.5, own.sign() * drawn / 2)
        other = drawn / math.sqrt(own.numel() / own.shape[0] if own.ndim > 1 else 1)
    else:
        other = own * (0.5 + drawn)
    return other.to(weight.dtype)
