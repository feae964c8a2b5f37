"""What an operator's own algorithm loses beside its sums: in units of 1, by its arguments and result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from onnx_gate.verify.reference.chains import axes, over_axes, walk
from onnx_gate.verify.reference.equal import Given, reduced
from onnx_gate.verify.reference.noise import few_bits
from onnx_gate.verify.reference.rounding import RESULT, Model


def fourier(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return what transforms lose: the same in every element, whatever its own size.

    PyTorch's loses 0.09 units of the root mean square by doubling, ONNX Runtime's 0.3, and where a
    size n is no power of two, 0.65 n units: it sums over angles that it has in float32.
    """
    x, dims = given["self"], given["dim"]
    pairs = "pairs" in given or y.ndim > x.ndim
    lost = 0.0
    for d in dims:
        n = given.get("last_dim_size", x.shape[d]) if d == dims[-1] else x.shape[d]
        lost += 0.3 * math.log2(n) if n & (n - 1) == 0 else 0.8 * n
    power = y.square().sum(-1, keepdim=True) if pairs else y.square()
    inner = [d % (y.ndim - (y.ndim > x.ndim)) for d in dims]
    size = power.mean(inner, keepdim=True).sqrt() / (2**0.5 if pairs else 1)
    return 3**0.5 * (lost * size + _partial_sums(given, y))


def _partial_sums(given: Given, y: torch.Tensor) -> torch.Tensor | float:
    """Return what a product with a matrix of waves loses, as which transforms are written, too.

    It is a walk of partial sums: those of a signal that hardly changes are far larger than most that
    they end at. What the transform of its beginning is stands for them.
    """
    transform = next((own for key, own in _TRANSFORMS.items() if key in given), None)
    if transform is None:
        return 0.0
    x, dims = given["self"], given["dim"]
    lost = torch.zeros(())
    for d in dims:
        ends = sorted({x.shape[d] * part // _BEGINNINGS for part in range(1, _BEGINNINGS)} - {0})
        for end in ends:
            begin = x.clone()
            begin.narrow(d, end, x.shape[d] - end).zero_()
            size = transform(begin, given).abs().square()
            lost = lost + (0.22**2 * x.shape[d] / len(ends)) * size
    return lost.sqrt().unsqueeze(-1) if lost.ndim < y.ndim else lost.sqrt()


# Quarters: a ramp is furthest from its sum of 0 in the middle.
_BEGINNINGS = 4
# By an argument that one of them alone has.
_TRANSFORMS: Mapping[str, Callable[[torch.Tensor, Given], torch.Tensor]] = {
    "onesided": lambda x, given: torch.ops.aten._fft_r2c(
        x, given["dim"], given["normalization"], given["onesided"]
    ),
    "last_dim_size": lambda x, given: torch.ops.aten._fft_c2r(
        x, given["dim"], given["normalization"], given["last_dim_size"]
    ),
    "forward": lambda x, given: torch.ops.aten._fft_c2c(
        x, given["dim"], given["normalization"], given["forward"]
    ),
}


def distance(given: Given, y: torch.Tensor) -> torch.Tensor | float:
    """Return what a distance loses that is the root of a difference of squares, as of many points."""
    if given.get("p", 2) != 2:
        return 0.0
    first, second = given["x1"].square().sum(-1), given["x2"].square().sum(-1)
    size: torch.Tensor = first.unsqueeze(-1) + second.unsqueeze(-2)
    return size / (y + (size * torch.finfo(y.dtype).eps).sqrt()).clamp(min=1e-30)


# The sum that a softmax divides by.
_POWERS = Model(chain=over_axes, units=0.0, equal=reduced(axes))


def _powers_lose(given: Given, powers: torch.Tensor) -> torch.Tensor | float:
    """Return what the sum of ``powers`` loses: where these are equal, not where their logarithms are 0."""
    return _POWERS.result_units({**given, "self": powers}, powers)


def softmax(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return what the exponent of a difference loses: a part of it that grows with the difference."""
    exponent = 1 - y.clamp(min=torch.finfo(y.dtype).tiny).log()
    return y * torch.maximum(0.5 * exponent, torch.as_tensor(_powers_lose(given, y)))


def log_softmax(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return what the logarithm of a softmax loses: a difference, and the logarithm of a sum."""
    return 0.5 * (1 + y.abs()) + _powers_lose(given, y.exp())


def log_sum(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return what powers, and the logarithm of their sum, lose: it is added to the largest number."""
    x: torch.Tensor = given["self"]
    largest = x.amax(axes(given), keepdim=y.ndim == x.ndim)
    return 0.5 * (1 + (y - largest).abs())


def _ratio(given: Given, axis: int, old: int, new: int) -> float:
    """Return how many pixels of an image lie between two of the resized one."""
    names = ("scales_d", "scales_h", "scales_w")[axis - given["self"].ndim :]
    factor = given.get("scales" if given["self"].ndim == 3 else names[0])
    return 1 / factor if factor else old / new


def _around(
    x: torch.Tensor, y: torch.Tensor, given: Given, taps: int, steps: int = -1
) -> torch.Tensor:
    """Return the root mean square of what each pixel of a resized image is made of.

    Along the axis ``steps`` that lies between two pixels. What is no number counts as
    0, as a pixel whose weight is 0 may be one.
    """
    x = x.nan_to_num(0.0, 0.0, 0.0)
    for axis in range(2, y.ndim):
        old, new = x.shape[axis] + (axis == steps), y.shape[axis]
        at = torch.arange(new, dtype=torch.float64)
        aligned = given.get("align_corners")
        ratio = (old - 1) / max(new - 1, 1) if aligned else _ratio(given, axis, old, new)
        at = at * ratio if aligned else (at + 0.5) * ratio - 0.5
        reach = taps * max(1, -(-old // new))  # with antialiasing
        near = (at.floor().long() + k for k in range(1 - reach, reach + (axis != steps)))
        pixels = [x.index_select(axis, n.clamp(0, x.shape[axis] - 1)) for n in near]
        x = torch.stack(pixels).square_().mean(0).sqrt_()
    return x


def resized(given: Given, y: torch.Tensor, taps: int = 1) -> torch.Tensor:
    """Return what a resizing loses by the places that it takes values from.

    A place is a product, off by half a unit of itself or so, and the weights of its neighbours by as
    much: a pixel far from the origin loses more, as much as its neighbours differ.
    """
    x, lost = given["self"].to(y.dtype), torch.zeros(())
    for axis in range(2, y.ndim):
        old, new = x.shape[axis], y.shape[axis]
        ratio = _ratio(given, axis, old, new)
        exact = not given.get("align_corners") and bool(few_bits(torch.tensor(ratio)))
        if old < 2 or old == new or exact:
            continue
        step = _around(x.diff(dim=axis).abs(), y, given, taps, steps=axis)
        place = torch.arange(1, new + 1, dtype=y.dtype) * ratio
        lost = lost + 0.5 * step * place.reshape(-1, *([1] * (y.ndim - 1 - axis)))
    return lost


def cubic(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return what a cubic resizing loses: it is steeper than a line, and its weights are polynomials.

    These are good to a unit of 1, however small they are.
    """
    x: torch.Tensor = given["self"].to(y.dtype)
    return 2 * resized(given, y, 2) + _around(x.abs(), y, given, 2)


def of_x(share: float = 0.0) -> Callable[[Given, torch.Tensor], torch.Tensor]:
    """Return what gives |x|, of a product of x with something that is good to a unit of 1.

    Of 16 bits a ``share`` of it where x is negative. In steps x is multiplied by 1 + erf, or by a tanh of
    log(1 + exp(x)), which loses units of the numbers next to 1 that it adds to 1, and next to nothing is
    left: a quarter of one where erf, between 1/2 and 1, is rounded, and half of one where a sum above 1 is.
    """

    def lost(given: Given, y: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = given["self"].to(y.dtype)
        own = _approximated(given["self"])
        return x.abs() if own == 1.0 else x.abs() * torch.where(x < 0, max(share, own), own)

    return lost


def _approximated(x: torch.Tensor) -> float:
    """Return how large a unit of 32 bits is in those of an operand: approximations have no fewer bits.

    Who computes a sigmoid of 16 bits in steps divides by 1 + exp(-x), each of which loses of its own.
    """
    return min(1.0, torch.finfo(torch.float32).eps / torch.finfo(x.dtype).eps)


def bent_x(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return |x| where a hard sigmoid of it is on its slope."""
    x: torch.Tensor = given["self"]
    return x.abs().masked_fill_(x.abs() > 3, 0)


def bent(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return 1 where a hard sigmoid is on its slope."""
    x: torch.Tensor = given["self"]
    return (x.abs() <= 3).to(y.dtype)


def below(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return 1 for negative numbers, whose exponential has 1 taken from it."""
    x: torch.Tensor = given["self"]
    return (x < 0).to(y.dtype)


def of_half(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return the half that a gated unit multiplies by a sigmoid of the other."""
    x, dim = given["self"], given.get("dim", -1)
    half: torch.Tensor = x.narrow(dim, 0, y.shape[dim])
    return half.abs() * _approximated(half)


def one(given: Given, y: torch.Tensor) -> float:
    """Return 1, whatever the argument."""
    return 1.0


def approximated(given: Given, y: torch.Tensor) -> float:
    """Return 1 of 32 bits, whatever the argument."""
    return _approximated(given["self"])


def ends(given: Given, y: torch.Tensor) -> float:
    """Return the larger one of the ends that a row of numbers is made from."""
    return max(abs(float(given["start"])), abs(float(given["end"])))


def added(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return the size of what is added: a product that may be rounded before it is."""
    x: torch.Tensor = given["self"]
    return x.abs() + (y - x).abs()


def variance(given: Given, y: torch.Tensor) -> torch.Tensor | float:
    """Return the square of what the mean has lost."""
    x, keep = given["self"], bool(given.get("keepdim"))
    lost: torch.Tensor = (
        x.mean(axes(given), keepdim=keep).square() * (RESULT * walk(over_axes(given))) ** 2
    )
    return lost * torch.finfo(y.dtype).eps


def deviation(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return what that makes of the root."""
    eps = torch.finfo(y.dtype).eps
    root: torch.Tensor = (y.square() + eps * variance(given, y)).sqrt()
    return (root - y) / eps


def affine(given: Given, y: torch.Tensor) -> torch.Tensor | float:
    """Return the sizes of what a normalisation adds: the bias, and x a + (b - m a) if m is known."""
    weight, bias, mean = given["weight"], given["bias"], given.get("running_mean")
    size = torch.zeros(()) if bias is None else bias.abs()
    if mean is not None and not given.get("training"):
        shift = mean.abs() * (given["running_var"] + given["eps"]).rsqrt()
        size = size + (shift if weight is None else shift * weight.abs())
    if size.ndim and "normalized_shape" not in given:
        size = size.reshape(-1, *([1] * (y.ndim - 2)))
    return size
