"""What is taken one number after the other is moved by what it loses, over shapes and magnitudes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.support.rounding import moves, node

Function = Callable[[Tensor], Tensor]
# What the judge allows: 6.5 at most of some hundred draws, in blocks of another length than those that
# are computed, and 2.2 without these.
BELOW = 10.0
ABOVE = 8.0
EPS = torch.finfo(torch.float32).eps


def chain_of_powers(x: Tensor) -> Tensor:
    largest = x.amax(-1, keepdim=True)
    return node("Log", node("CumSum", node("Exp", x - largest), np.array(-1))) + largest


def in_turn(ufunc: np.ufunc) -> Function:
    def chain(x: Tensor) -> Tensor:
        with np.errstate(over="ignore"):
            return torch.from_numpy(ufunc.accumulate(x.numpy(), axis=-1))

    return chain


def in_blocks(ufunc: np.ufunc) -> Function:
    """Return the same in blocks of 32, as devices do it: within each, over their ends, and joined."""
    chain = in_turn(ufunc)

    def blocks(x: Tensor) -> Tensor:
        inside = chain(x.unflatten(-1, (-1, 32)))
        ends = chain(inside[..., -1].contiguous())[..., :-1, None]
        with np.errstate(over="ignore"):
            inside[..., 1:, :] = torch.from_numpy(ufunc(inside[..., 1:, :].numpy(), ends.numpy()))
        return inside.flatten(-2)

    return blocks


def reduced(op: str) -> Function:
    return lambda x: node(op, x, np.array([-1]), keepdims=0)


# What PyTorch calls it, and how else it is done, over the last axis.
OPERATORS: dict[str, tuple[Callable[[Tensor, int], Tensor], tuple[Function, ...]]] = {
    "cumsum": (torch.cumsum, (lambda x: node("CumSum", x, np.array(-1)), in_blocks(np.add))),
    "cumprod": (torch.cumprod, (in_turn(np.multiply), in_blocks(np.multiply))),
    "logcumsumexp": (torch.logcumsumexp, (chain_of_powers,)),
    "prod": (torch.prod, (reduced("ReduceProd"), lambda x: in_blocks(np.multiply)(x)[..., -1])),
    "logsumexp": (torch.logsumexp, (reduced("ReduceLogSumExp"),)),
}


def numbers(kind: str, rows: int, count: int, size: float, spread: float, seed: int) -> Tensor:
    """Return rows of numbers about ``size``, which differ by ``spread`` of it."""
    torch.manual_seed(seed)
    x = torch.randn(rows, count)
    if kind == "equal":
        x = x[:, :1].expand(-1, count)
    if kind == "in turn":
        x = x[:, :1].abs() * torch.tensor([1.0, -1.0]).repeat(count)[:count]
    return (size * (1 + spread * x)).contiguous()


@pytest.mark.parametrize("name", OPERATORS)
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],
)
@given(
    kind=st.sampled_from(["unlike", "equal", "in turn"]),
    count=st.sampled_from([32, 320, 4000]),
    size=st.floats(-3, 1.5).map(lambda power: 10.0**power),
    # Numbers of few bits lose less, whatever the order.
    spread=st.floats(-5, 0).map(lambda power: 10.0**power),
    seed=st.integers(0, 99),
    axis=st.sampled_from([0, 1]),
)
def test_what_is_taken_in_turn_is_moved_by_what_it_loses(
    name: str, kind: str, count: int, size: float, spread: float, seed: int, axis: int
) -> None:
    function, otherwise = OPERATORS[name]
    size = 1.0 if "prod" in name else size  # whose power would be no number
    x = numbers(kind, 20, count, size, spread, seed)
    given = x if axis else x.mT.contiguous()

    def along(y: Tensor) -> Tensor:
        result = function(y, axis)
        return result if axis or result.ndim == 1 else result.mT

    exact = along(given.double())
    most, normal = moves(along, given), (exact.abs() > 1e-30) & (exact.abs() < 1e30)
    answers = along(given), *(each(x) for each in otherwise)
    lost = torch.stack([(y.double() - exact).abs() for y in answers]).amax(0)
    lost, most, exact = lost[normal], most[normal], exact[normal]
    assert (lost <= BELOW * most + 1e-37).all(), (lost / most).max()
    if not len(exact):
        return
    # Of a few rows some lose nothing by chance; running products are of any size.
    usual = torch.median if exact.numel() > len(x) else torch.mean
    assert usual(most) <= ABOVE * max(float(usual(lost)), EPS * float(usual(exact.abs())))


def test_a_reversed_sum_is_a_chain_from_the_end() -> None:
    x = numbers("equal", 20, 20_000, 0.1, 0.5, 0)

    def backwards(y: Tensor) -> Tensor:
        return y.flip(-1).cumsum(-1).flip(-1)

    exact = backwards(x.double())
    lost = (node("CumSum", x, np.array(-1), reverse=1) - exact).abs()
    assert (lost <= BELOW * moves(backwards, x)).all()
