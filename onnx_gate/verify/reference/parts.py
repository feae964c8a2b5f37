"""Operators that are one kernel and are run as what they are made of, each part with a rounding of its own.

A product of complex numbers and a cross product are differences of two products, which may cancel: a
unit of the result says nothing of what is lost, and a graph, that has no such operator, computes them
from the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from onnx_gate.verify.reference.fused_attention import attention, encoder_layer

Parts = Callable[..., Any]


def parts_of(name: str, args: Any) -> Parts | None:
    """Return what runs an operator from its parts, if anything; ``name`` is without namespace."""
    if name in _COMPLEX:
        alike = any(isinstance(a, torch.Tensor) and a.is_complex() for a in args[:2])
        return _COMPLEX[name] if alike else None
    if name in _BAGS:  # of the rows that are asked for it is no part of itself
        return _BAGS[name] if len(args[0]) > args[1].numel() + 1 else None
    return _PARTS.get(name)


def _lstm_layer(
    x: torch.Tensor,
    weight_ih: torch.Tensor,
    weight_hh: torch.Tensor,
    bias_ih: torch.Tensor,
    bias_hh: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    reverse: bool,
    *_: Any,
) -> tuple[torch.Tensor | None, ...]:
    """Do what ``aten::mkldnn_rnn_layer`` does (an LSTM, the sequence first), step by step.

    What hangs on no step is done for all of them at once, as kernels do, and so are gates of one
    function: most of what a step costs is that its operators are watched.
    """
    shape, size = hidden.shape, hidden.shape[-1]
    hidden, cell = hidden.reshape(-1, size), cell.reshape(-1, size)
    # Input, forget and output gates are sigmoids, and the third of the four is what is taken in.
    order = torch.arange(4 * size).view(4, size)[[0, 1, 3, 2]].reshape(-1)
    weight_ih, weight_hh, bias_ih, bias_hh = (
        each[order] for each in (weight_ih, weight_hh, bias_ih, bias_hh)
    )
    given = torch.addmm(bias_ih, x.reshape(-1, x.shape[-1]), weight_ih.t())
    steps, recurrent = given.reshape(*x.shape[:2], -1).unbind(0), weight_hh.t()
    outputs = []
    for step in reversed(steps) if reverse else steps:
        gates = torch.addmm(bias_hh, hidden, recurrent) + step
        taken, kept, shown = torch.sigmoid(gates[:, : 3 * size]).split(size, 1)
        cell = kept * cell + taken * torch.tanh(gates[:, 3 * size :])
        hidden = shown * torch.tanh(cell)
        outputs.append(hidden)
    made = torch.stack(outputs[::-1] if reverse else outputs)
    return made, hidden.reshape(shape), cell.reshape(shape), None


def _of_rows(bag: Callable[..., Any], weight: torch.Tensor, *given: Any) -> Any:
    """Sum the rows of a table that are asked for, taken from it: all of it is as large as a model."""
    indices, others, count = given[0], given[1:], given[0].numel()
    rows, places = weight[indices], torch.arange(count)
    padding = others[6] if len(others) > 6 else -1
    if padding >= 0:  # what has this place counts for nothing
        rows = torch.cat([rows, rows.new_zeros(1, *rows.shape[1:])])
        places = places.masked_fill(indices == padding, count)
        others = (*others[:6], count)
    return bag(rows, places, *others)


def _cross(x: torch.Tensor, y: torch.Tensor, *, dim: int = -1) -> torch.Tensor:
    x, y = torch.broadcast_tensors(x, y)
    first, second = torch.tensor([1, 2, 0]), torch.tensor([2, 0, 1])
    ahead = x.index_select(dim, first) * y.index_select(dim, second)
    return ahead - x.index_select(dim, second) * y.index_select(dim, first)


def _product(x: Any, y: Any) -> torch.Tensor:
    (a, b), (c, d) = _both(x, y)
    return torch.complex(a * c - b * d, a * d + b * c)


def _quotient(x: Any, y: Any) -> torch.Tensor:
    """Divide by the larger part of ``y`` first, as its square may overflow (Smith, CACM 5, 1962)."""
    (a, b), (c, d) = _both(x, y)
    size = torch.maximum(c.abs(), d.abs())
    real, imaginary = c / size, d / size
    square = real * c + imaginary * d
    return torch.complex((a * real + b * imaginary) / square, (b * real - a * imaginary) / square)


def _size(x: torch.Tensor) -> torch.Tensor:
    return torch.hypot(*_real_and_imaginary(x))


def _both(x: Any, y: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    dtype = torch.result_type(x, y)
    return (_real_and_imaginary(torch.as_tensor(each).to(dtype)) for each in (x, y))


def _real_and_imaginary(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    real, imaginary = torch.view_as_real(x.resolve_conj()).unbind(-1)
    return real, imaginary


_PARTS: Mapping[str, Parts] = {
    "mkldnn_rnn_layer": _lstm_layer,
    "linalg_cross": _cross,
    "_transformer_encoder_layer_fwd": encoder_layer,
    "_native_multi_head_attention": attention,
}
_BAGS: Mapping[str, Parts] = {
    each.__name__: partial(_of_rows, each)
    for each in (torch.ops.aten._embedding_bag, torch.ops.aten._embedding_bag_forward_only)
}
_COMPLEX: Mapping[str, Parts] = {"mul": _product, "div": _quotient, "abs": _size}
