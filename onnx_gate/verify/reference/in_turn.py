"""What operators lose that take one number after the other: sums, products and logarithms of sums.

Each step rounds what has come together, and those after it carry that on. Where the numbers have
nothing in common it is a walk. Where they have, steps lean to one side: equal terms do, terms that
differ by less than the last place of their sum, factors so near 1 that their product hardly
changes. How much of it cancels depends on all of them, so that no share of the steps tells it. But
the numbers are known, and so are the orders of engines: a chain, blocks side by side, and PyTorch's
own. What these lose is computed, and the result is moved by the largest of it to one side, and by
the walk, which stands for every other order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.reference.chains import axes
from onnx_gate.verify.reference.equal import Given
from onnx_gate.verify.reference.noise import Mover

# What one step loses of a unit of its result (see ``rounding``); the amplitude of a uniform move is
# sqrt(3) of its deviation.
_STEP = 0.22 * 3**0.5
# How many numbers a block has. Equal ones make equal blocks, all of which are off by the same: 4,000
# factors in blocks of 16 lose up to 50 times what a chain of them does.
_BLOCK = 16

Orders = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class InTurn:
    """An operator over the last axis: as PyTorch does it, and in the ``orders`` of others, chain first.

    ``own`` gives as many results as there are numbers, or one; an order keeps all. ``steps`` says, of
    what a chain has come to after each number, how much of a unit of 1 is lost with it, and by how much
    of that a result is off.
    """

    own: Callable[[torch.Tensor], torch.Tensor]
    orders: Orders
    steps: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]

    def lost(self, noise: Mover, given: Given, result: torch.Tensor) -> torch.Tensor:
        """Return by how much a result is moved, element by element."""
        x, over = given["self"], axes(given)
        wide = result.dtype if result.dtype == torch.float64 else torch.float32
        kept = [d for d in range(x.ndim) if d not in over]
        rows = x.permute(*kept, *over).reshape(*(x.shape[d] for d in kept), -1).to(wide)
        if not rows.shape[-1]:
            return torch.zeros((), dtype=wide)
        lost = self._of_rows(noise, rows.flip(-1) if given.get("reverse") else rows)
        if lost.shape[-1] == 1 or not over:
            return lost.reshape(result.shape)
        return (lost.flip(-1) if given.get("reverse") else lost).movedim(-1, over[0])

    def _of_rows(self, noise: Mover, rows: torch.Tensor) -> torch.Tensor:
        orders, exact = self.orders(rows), self.own(rows.double())
        ends, chain = slice(-exact.shape[-1], None), orders[0]
        answers = self.own(rows), *(order[..., ends] for order in orders)
        off = torch.stack([(answer - exact).abs_() for answer in answers])
        known = off.nan_to_num_(0.0, 0.0, 0.0).amax(0).to(rows.dtype)
        weight, scale = self.steps(chain)
        # Equal rows walk alike; a row that comes back to the same number goes on as a walk does.
        places = torch.arange(1, chain.shape[-1] + 1, dtype=chain.dtype).expand_as(chain)
        walk = noise.made_of([places]).draw(chain).mul(weight).cumsum(-1).mul_(scale)[..., ends]
        side = noise.draw(chain[..., -1:]).sign()
        lost = walk * (_STEP * torch.finfo(rows.dtype).eps) + side * known
        return lost.nan_to_num_(0.0, 0.0, 0.0)


def _in_orders(ufunc: np.ufunc) -> Orders:
    """Return the orders, in the numbers' own precision; PyTorch's running results are of 64 bits."""

    def orders(rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = rows.numpy(force=True)
        with np.errstate(all="ignore"):
            chain = ufunc.accumulate(x, axis=-1)
            blocks = ufunc.accumulate(_blocks(x, ufunc.identity), axis=-1)
            blocks[..., 1:, :] = ufunc(
                blocks[..., 1:, :], ufunc.accumulate(blocks[..., -1], axis=-1)[..., :-1, None]
            )
        inside = blocks.reshape(*x.shape[:-1], -1)[..., : x.shape[-1]]
        return torch.from_numpy(chain), torch.from_numpy(inside)

    return orders


def _blocks(x: Array, filled: float) -> Array:
    rest = -x.shape[-1] % _BLOCK
    whole = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, rest)], constant_values=filled)
    return whole.reshape(*x.shape[:-1], -1, _BLOCK)


_sums, _products = _in_orders(np.add), _in_orders(np.multiply)


def _logarithms(rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return logarithms of sums of powers, of differences to the largest number, as ONNX has them."""
    largest = rows.amax(-1, keepdim=True)
    tiny = torch.finfo(rows.dtype).tiny  # what is lost below the least normal number is no rounding
    sums = _sums((rows - largest).exp())
    return tuple(each.masked_fill(each < tiny, torch.nan).log_() + largest for each in sums)


def _of_sums(sums: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return sums.abs(), torch.ones(())


def _of_products(products: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(()), products.abs()


def _of_logarithms(logarithms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    sums = (logarithms - logarithms.amax(-1, keepdim=True)).exp()
    return sums, sums.reciprocal()


RUNNING_SUM = InTurn(lambda rows: rows.cumsum(-1), _sums, _of_sums)
RUNNING_PRODUCT = InTurn(lambda rows: rows.cumprod(-1), _products, _of_products)
RUNNING_LOGARITHM = InTurn(lambda rows: rows.logcumsumexp(-1), _logarithms, _of_logarithms)
PRODUCT = InTurn(lambda rows: rows.prod(-1, keepdim=True), _products, _of_products)
LOGARITHM = InTurn(lambda rows: rows.logsumexp(-1, keepdim=True), _logarithms, _of_logarithms)
