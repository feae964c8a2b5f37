"""Kernels are run as what they are made of: they answer the same, and their rounding is moved inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reference.moved import moved
from onnx_gate.verify.reference.operator_mode import OperatorMode
from onnx_gate.verify.reference.parts import parts_of
from onnx_gate.verify.reference.perturb import MovedRounding

_PADDED = torch.arange(5) >= torch.tensor([[5], [3]])
_LATER = torch.ones(5, 5, dtype=torch.bool).triu(1)
_MASKS: dict[str, dict[str, torch.Tensor]] = {
    "none": {},
    "keys": {"src_key_padding_mask": _PADDED},
    "pairs": {"mask": _LATER},
    "both": {"mask": _LATER, "src_key_padding_mask": _PADDED},
    "floats": {"mask": torch.zeros(5, 5).masked_fill(_LATER, -0.5)},
}
# What float32 loses in two layers of 16 numbers, with room: they are of the size of 1.
_LOST = 4e-6


class _InParts(OperatorMode):
    """Runs kernels of attention from their parts, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = 0

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        parts = parts_of(name, args)
        if parts is None or "attention" not in parts.__module__:
            return func(*args, **kwargs)
        self.kernels += 1
        with self:
            return parts(*args, **kwargs)


def _weighted(module: nn.Module) -> nn.Module:
    """Return the module in evaluation, with no weight that is zero or one."""
    torch.manual_seed(0)
    for weight in module.parameters():
        weight.data += 0.2 * torch.randn_like(weight)
    return module.eval()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:enable_nested")
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("activation", "first"), [("relu", False), ("gelu", True)])
@pytest.mark.parametrize("mask", _MASKS)
def test_a_layer_does_what_the_kernel_does(
    mask: str, activation: str, first: bool, nested: bool
) -> None:
    layer = nn.TransformerEncoderLayer(
        16, 2, 32, 0.0, activation=activation, batch_first=True, norm_first=first
    )
    model = _weighted(nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested))
    x, mode = torch.randn(2, 5, 16), _InParts()
    with torch.no_grad():
        expected = model(x, **_MASKS[mask])
        with mode:
            made = model(x, **_MASKS[mask])
    assert mode.kernels == 2
    assert torch.allclose(made, expected, rtol=0, atol=_LOST)


@pytest.mark.parametrize("asks", [{}, {"average_attn_weights": False}, {"need_weights": False}])
def test_attention_does_what_the_kernel_does(asks: dict[str, bool]) -> None:
    model, x = _weighted(nn.MultiheadAttention(16, 2, batch_first=True)), torch.randn(2, 5, 16)
    for given in ({}, {"key_padding_mask": _PADDED}, {"attn_mask": _LATER}):
        if given and asks != {"need_weights": False}:
            continue  # no kernel then
        mode = _InParts()
        with torch.no_grad():
            expected, shares = model(x, x, x, **asks, **given)
            with mode:
                made, own = model(x, x, x, **asks, **given)
        assert mode.kernels == 1
        assert torch.allclose(made, expected, rtol=0, atol=_LOST)
        assert (own is None) == (shares is None)
        assert own is None or torch.allclose(own, shares, rtol=0, atol=_LOST)


class _Padded(nn.Module):
    """An encoder of which sequences are as long as they are, which PyTorch takes as nested ones."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x, src_key_padding_mask=_PADDED)
        return out


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_rounding_is_moved_inside_of_the_kernel() -> None:
    model, x = _weighted(_Padded()), torch.randn(2, 5, 16)
    eager = Eager(model, ("x",))
    own = eager.run({"x": x.numpy()}).arrays[0]
    runs = [moved(eager, {"x": x.numpy()}, seed) for seed in range(4)]
    assert all(run is not None and run.watched for run in runs)
    moves = np.max([abs(run.arrays[0] - own) for run in runs if run is not None], axis=0)
    # Each element of a sequence is moved, by no more than what two layers lose; what pads it is not.
    assert moves[~_PADDED.numpy()].min() > 0
    assert moves.max() <= _LOST
    assert not moves[_PADDED.numpy()].any()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("last", [False, True])
def test_a_bag_sums_rows_that_are_taken_from_its_table(
    mode: str, padding: int | None, last: bool
) -> None:
    torch.manual_seed(0)
    bag = nn.EmbeddingBag(1000, 8, mode=mode, padding_idx=padding, include_last_offset=last)
    rows, offsets = torch.tensor([1, 3, 5, 999, 3, 3, 7]), torch.tensor([0, 3, 5, 7][: 3 + last])
    tables = _Tables()
    with torch.no_grad():
        expected = bag(rows, offsets)
        with MovedRounding(0, times=0.0):
            unmoved = bag(rows, offsets)
        with tables, MovedRounding(0):
            made = bag(rows, offsets)
    assert torch.equal(unmoved, expected)
    assert not torch.equal(made, expected)
    assert torch.allclose(made, expected, rtol=0, atol=_LOST)
    assert 0 < tables.rows <= len(rows) + 1  # nothing else of the table was moved


class _Tables(OperatorMode):
    """Sees how many rows the tables of bags have, at most."""

    rows = 0

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        self.rows = max(self.rows, len(args[0]) if "bag" in name else 0)
        return func(*args, **kwargs)
