"""What an operator's own algorithm loses: one model of its rounding per family of operators.

A sum of products is exact for operands that are each off by a little (Higham, Accuracy and
Stability of Numerical Algorithms, 2002, section 3.1: componentwise backward stable). How little is
a walk and not a bound (Higham and Mary, SIAM J. Sci. Comput. 41, 2019): each of n additions loses
0.22 units of the partial sum that it makes (a uniform error of half a unit has a deviation of
0.29, and a mantissa between 1 and 2 makes it three quarters), so that adding one after the other
loses

- 0.155 sqrt(n) units of each term, as if the terms were off by that and each by its own, where
  partial sums walk about zero;
- 0.127 sqrt(n) units of the result, where the terms have one sign and partial sums grow with it.

Measured in PyTorch and in ONNX Runtime, for products, convolutions and sums of 4 to 16,384 terms:
0.15 to 0.17 and 0.13 where they add one after the other. Both add in parts once sums are long
(products from 256 terms on, sums over the last axis from 16), a convolution of PyTorch's and a
sum over the first axis of ONNX Runtime's never do.

So an operator has operands that are moved before it is run, which moves each element of the
result by what its own terms allow, whatever the others are; and then its result is moved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from onnx_gate.verify.reference.equal import (
    EQUAL,
    LONG,
    Equal,
    Given,
    alike,
    attended,
    bags,
    kernels,
    product,
    reduced,
    scattered,
    windows,
)
from onnx_gate.verify.reference.noise import Mover, few_bits

# The amplitude of a uniform move is sqrt(3) of its deviation.
TERM, RESULT = 0.155 * 3**0.5, 0.13 * 3**0.5
# A smaller move of an operand is none: most of it is rounded away.
_LEAST = 0.75
# The rounding of a reciprocal, of the product with it and of the quotient add up to a unit and a half
# of the quotient's last place: what is that far from a half falls on either side.
_QUOTIENT = 2.0
# What one addition loses, see above.
_ADDITION = 0.22
# Products are added one after the other up to this length, and in at least four parts when long.
_WHOLE, _PARTS = 256, 4
# Vector lanes that add side by side.
_LANES = 8


def walk(chain: float) -> float:
    """Return what so many additions one after the other lose, in units of what one does."""
    return math.sqrt(max(chain, 1.0))


def in_lanes(terms: float) -> float:
    """Return the longest chain of additions in a sum over what lies side by side."""
    return min(terms, max(2 * _LANES, terms / _LANES))


def _in_blocks(terms: float) -> float:
    """Return the longest chain of additions in a sum of products."""
    return min(terms, max(_WHOLE, terms / _PARTS))


def carried(noise: Mover, given: Given, sums: torch.Tensor) -> torch.Tensor:
    """Return what every partial sum of a cumulative one has lost, those before it included."""
    x, dim = given["self"], given["dim"]
    steps = noise.draw(sums).mul(_ADDITION * 3**0.5).mul_(sums.abs())
    if x.ndim and x.shape[dim] >= LONG:
        share = alike(x.movedim(dim, -1)).unsqueeze(dim)
        sign = noise.draw(sums.narrow(dim, -1, 1)).sign()
        steps = steps + sign * EQUAL * share * sums.abs()
    return steps.cumsum(dim).mul_(torch.finfo(sums.dtype).eps)


@dataclass(frozen=True)
class Model:
    """How an operator rounds.

    ``chain`` says how many additions follow each other and ``operands`` (by name) are what is summed,
    moved beforehand. The result is moved by ``units`` of its last place, and those that the walk of
    its partial sums has lost; where there is ``tail`` by that many units of 1 as well. With ``inner``
    it multiplies by numbers of its own, and is exact for no operands. What is ``added`` to the sum at
    its end is moved by a unit: the sum is rounded at its own size before the two cancel. One that
    ``decides`` rounds a quotient to a whole number: its operands are moved by what a product with the
    reciprocal may differ from the quotient, and what comes out is one number or the next. One that
    others do ``in_steps`` has its operands of 16 bits moved by so many of their own units. ``equal``
    says which share of the terms of each element of the result is equal. Terms that lie ``along`` an
    axis of an operand are multiplied by others each, and each is off by its own.
    """

    operands: tuple[str, ...] = ()
    chain: Callable[[Given], float] | None = None
    units: float = 1.0
    tail: Callable[[Given, torch.Tensor], torch.Tensor | float] | None = None
    inner: bool = False
    added: str = ""
    decides: bool = False
    in_steps: float = 0.0
    equal: Equal | None = None
    along: int | None = None

    def _walk(self, given: Given) -> float:
        return 1.0 if self.chain is None else walk(self.chain(given))

    def adds_few(self, given: Given) -> bool:
        """Return whether sums are made, of few terms each."""
        return self.chain is not None and self.chain(given) <= LONG

    def operand_units(self, given: Given) -> float:
        """Return by how many units of their own operands are moved."""
        if self.decides:
            return _QUOTIENT
        return max(_LEAST, TERM * self._walk(given))

    def result_units(self, given: Given, result: torch.Tensor) -> torch.Tensor | float:
        """Return by how many units of its own the result is moved."""
        units = max(self.units, RESULT * self._walk(given))
        if self.chain is None or self.equal is None or not result.numel():
            return units
        leaning = EQUAL * self.chain(given)
        if leaning <= units:
            return units
        share = self.equal(given, result)
        return (share * leaning).clamp(min=units) if share.any() else units


def _last(name: str) -> Callable[[Given], float]:
    return lambda given: _in_blocks(given[name].shape[-1] if given[name].ndim else 1)


def _all(name: str) -> Callable[[Given], float]:
    return lambda given: in_lanes(given[name].numel())


def _dims(given: Given) -> list[int]:
    x, dims = given["self"], given.get("dim")
    dims = [dims] if isinstance(dims, int) else dims or range(x.ndim)
    return [d % x.ndim for d in dims] if x.ndim else []


def _terms(given: Given) -> float:
    """Return how many terms an operator reduces to one."""
    x: torch.Tensor = given["self"]
    return float(math.prod(x.shape[d] for d in _dims(given)))


def _reduced(given: Given) -> float:
    """Return how many additions follow each other where an operator reduces."""
    terms = _terms(given)
    return in_lanes(terms) if given["self"].ndim - 1 in _dims(given) else terms


def _rooted(given: Given) -> float:
    """Return that of a sum whose root is taken, which halves what it has lost.

    ONNX Runtime adds squares one after the other.
    """
    return _terms(given) / 2


def _kernel(given: Given) -> float:
    """Return how many products make one element of a convolution."""
    weight: torch.Tensor = given["weight"]
    if not given.get("transposed"):
        return _in_blocks(weight.numel() / max(weight.shape[0], 1))
    apart = math.prod(given.get("stride") or (1,))
    return float(weight.numel() / max(weight.shape[1], 1) / given.get("groups", 1) / apart)


def _window(given: Given) -> float:
    return float(math.prod(given["kernel_size"]))


def _bagged(given: Given) -> float:
    """Return how many rows of a table a bag has in the mean."""
    indices, offsets = given["indices"], given["offsets"]
    return float(indices.numel() / max(offsets.numel() - bool(given["include_last_offset"]), 1))


def _adaptive(given: Given) -> float:
    x, size = given["self"], given["output_size"]
    return float(math.prod(x.shape[-len(size) :])) / max(math.prod(size), 1)


def _scattered(given: Given) -> float:
    """Return how many others a term shares its place with, in the mean over terms."""
    index, dim = given.get("index"), given.get("dim") or 0
    if index is None:
        by_axis = [each for each in given["indices"] if each is not None]
        if len(by_axis) != 1 or by_axis[0].dtype == torch.bool:
            return float(given["values"].numel() / max(given["self"].numel(), 1))
        index = by_axis[0].reshape(-1)
    counts = torch.bincount(index.reshape(-1).clamp(min=0)).double()
    rows = index.numel() / max(index.shape[dim], 1) if index.ndim > 1 else 1
    return float(counts.square().sum() / max(float(counts.sum()), 1.0)) / max(rows, 1)


def _fourier(given: Given, y: torch.Tensor) -> torch.Tensor:
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
    size = power.mean(inner, keepdim=True).sqrt()
    return 3**0.5 * lost * size / (2**0.5 if pairs else 1)


def _distance(given: Given, y: torch.Tensor) -> torch.Tensor | float:
    """Return what a distance loses that is the root of a difference of squares, as of many points."""
    if given.get("p", 2) != 2:
        return 0.0
    first, second = given["x1"].square().sum(-1), given["x2"].square().sum(-1)
    size: torch.Tensor = first.unsqueeze(-1) + second.unsqueeze(-2)
    return size / (y + (size * torch.finfo(y.dtype).eps).sqrt()).clamp(min=1e-30)


def _attended(given: Given) -> float:
    return _in_blocks(max(given["query"].shape[-1], given["key"].shape[-2]))


def _sums(chain: Callable[[Given], float], *operands: str, equal: Equal | None = None) -> Model:
    return Model(operands, chain, equal=equal)


def _products(
    chain: Callable[[Given], float],
    *operands: str,
    added: str = "",
    equal: Equal | None = None,
    along: int = -1,
) -> Model:
    """Return the model of a product of matrices: of 16 bits, its weights may be folded into others.

    A normalisation that is folded into a convolution rounds its weights to 16 bits once more, and a
    device stores partial sums in 16 bits, and the sum before the bias is added.
    """
    half = 0.5  # the most that one rounding loses
    return Model(operands, chain, added=added, in_steps=half, equal=equal, along=along)


def _pairs(first: str, second: str, added: str = "") -> Model:
    """Return the model of rows of one matrix times columns of another."""
    return _products(_last(first), first, added=added, equal=product(first, second))


# The sum that a softmax divides by.
_POWERS = Model(chain=_reduced, units=0.0, equal=reduced(_dims))


def _softmax(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return what the exponent of a difference loses: a part of it that grows with the difference."""
    exponent = 1 - y.clamp(min=torch.finfo(y.dtype).tiny).log()
    return y * torch.maximum(0.5 * exponent, torch.as_tensor(_POWERS.result_units(given, y)))


def _log_softmax(given: Given, y: torch.Tensor) -> torch.Tensor:
    return 0.5 * (1 + y.abs()) + _POWERS.result_units(given, y)


def _log_sum(given: Given, y: torch.Tensor) -> float:
    """Return what a logarithm of a sum that is near 1 or is added to a maximum near it loses."""
    terms = max(_reduced(given), 1.0)
    return 1 + math.log(terms) + RESULT * walk(terms)


def _ratio(given: Given, axis: int, old: int, new: int) -> float:
    """Return how many pixels of an image lie between two of the resized one."""
    names = ("scales_d", "scales_h", "scales_w")[axis - given["self"].ndim :]
    factor = given.get("scales" if given["self"].ndim == 3 else names[0])
    return 1 / factor if factor else old / new


def _around(
    x: torch.Tensor, y: torch.Tensor, given: Given, taps: int, steps: int = -1
) -> torch.Tensor:
    """Return the root mean square of what each pixel of a resized image is made of.

    Along the axis ``steps`` that lies between two pixels.
    """
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


def _resized(given: Given, y: torch.Tensor, taps: int = 1) -> torch.Tensor:
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


def _cubic(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return what a cubic resizing loses: it is steeper than a line, and its weights are polynomials.

    These are good to a unit of 1, however small they are.
    """
    x: torch.Tensor = given["self"].to(y.dtype)
    return 2 * _resized(given, y, 2) + _around(x.abs(), y, given, 2)


def _of_x(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return |x|: a product of x with a share that is good to a unit of 1."""
    x: torch.Tensor = given["self"]
    return x.abs()


def _bent_x(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return |x| where a hard sigmoid of it is on its slope."""
    x: torch.Tensor = given["self"]
    return x.abs().masked_fill_(x.abs() > 3, 0)


def _bent(given: Given, y: torch.Tensor) -> torch.Tensor:
    x: torch.Tensor = given["self"]
    return (x.abs() <= 3).to(y.dtype)


def _below(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return 1 for negative numbers, whose exponential has 1 taken from it."""
    x: torch.Tensor = given["self"]
    return (x < 0).to(y.dtype)


def _of_half(given: Given, y: torch.Tensor) -> torch.Tensor:
    x, dim = given["self"], given.get("dim", -1)
    half: torch.Tensor = x.narrow(dim, 0, y.shape[dim])
    return half.abs()


def _one(given: Given, y: torch.Tensor) -> float:
    return 1.0


def _ends(given: Given, y: torch.Tensor) -> float:
    return max(abs(float(given["start"])), abs(float(given["end"])))


def _added(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return the size of what is added: a product that may be rounded before it is."""
    x: torch.Tensor = given["self"]
    return x.abs() + (y - x).abs()


def _variance(given: Given, y: torch.Tensor) -> torch.Tensor | float:
    """Return the square of what the mean has lost."""
    x, keep = given["self"], bool(given.get("keepdim"))
    lost: torch.Tensor = (
        x.mean(_dims(given), keepdim=keep).square() * (RESULT * walk(_reduced(given))) ** 2
    )
    return lost * torch.finfo(y.dtype).eps


def _deviation(given: Given, y: torch.Tensor) -> torch.Tensor:
    """Return what that makes of the root."""
    eps = torch.finfo(y.dtype).eps
    root: torch.Tensor = (y.square() + eps * _variance(given, y)).sqrt()
    return (root - y) / eps


def _affine(given: Given, y: torch.Tensor) -> torch.Tensor | float:
    """Return the sizes of what a normalisation adds: the bias, and x a + (b - m a) if m is known."""
    weight, bias, mean = given["weight"], given["bias"], given.get("running_mean")
    size = torch.zeros(()) if bias is None else bias.abs()
    if mean is not None and not given.get("training"):
        shift = mean.abs() * (given["running_var"] + given["eps"]).rsqrt()
        size = size + (shift if weight is None else shift * weight.abs())
    if size.ndim and "normalized_shape" not in given:
        size = size.reshape(-1, *([1] * (y.ndim - 2)))
    return size


DISTANCES = ("_cdist_forward", "_euclidean_dist")
# Of the scores of a query only differences count: those of its keys are each off by their own.
_ATTENTION = Model(("key", "value"), _attended, added="attn_mask", in_steps=1.0, equal=attended)
# The layers of an encoder as one kernel: whatever it sums, it sums over the embedding.
_FUSED = Model(
    ("src", "query", "qkv_weight", "proj_weight", "ffn_weight_1", "ffn_weight_2"),
    lambda given: float(given["embed_dim"]),
)

MODELS: Mapping[str, Model] = {
    **dict.fromkeys(("mm", "bmm"), _pairs("self", "mat2")),
    "mv": _pairs("self", "vec"),
    "dot": _pairs("self", "tensor"),
    "vdot": _pairs("self", "other"),
    **dict.fromkeys(("addmm", "_addmm_activation"), _pairs("mat1", "mat2", "self")),
    "baddbmm": _pairs("batch1", "batch2", "self"),
    "addbmm": _products(_last("batch1"), "batch1", added="self"),
    "addmv": _pairs("mat", "vec", "self"),
    "linear": _products(
        _last("input"), "input", added="bias", equal=product("input", "weight", rows=True)
    ),
    "_trilinear": _sums(_last("i1"), "i1", "i2"),
    **dict.fromkeys(
        ("convolution", "_convolution", "mkldnn_convolution", "convolution_overrideable"),
        _products(_kernel, "input", "self", "bias", equal=kernels, along=1),
    ),
    **dict.fromkeys(
        ("sum", "mean", "nansum", "nanmean"), _sums(_reduced, "self", equal=reduced(_dims))
    ),
    "trace": _sums(_all("self"), "self"),
    **dict.fromkeys(
        ("avg_pool1d", "avg_pool2d", "avg_pool3d"), _sums(_window, "self", equal=windows)
    ),
    "col2im": _sums(_window, "self"),
    **dict.fromkeys(
        ("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"), _sums(_adaptive, "self", equal=windows)
    ),
    **dict.fromkeys(
        (
            *("scatter", "scatter_add", "scatter_reduce", "index_add", "index_reduce", "put"),
            *("index_put", "_index_put_impl", "_unsafe_index_put"),
        ),
        _sums(_scattered, "src", "source", "values", equal=scattered),
    ),
    **dict.fromkeys(
        ("_embedding_bag", "_embedding_bag_forward_only"), _sums(_bagged, "weight", equal=bags)
    ),
    **dict.fromkeys(("_fft_r2c", "_fft_c2r", "_fft_c2c"), Model(tail=_fourier, inner=True)),
    **dict.fromkeys(
        DISTANCES, Model(("x1",), _last("x1"), tail=_distance, equal=product("x1", "x2", rows=True))
    ),
    "linalg_cross": _sums(lambda _: 2.0, "self"),
    "_pdist_forward": _sums(_last("self"), "self"),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_fused_attention_overrideable",
            "_scaled_dot_product_attention_math",
        ),
        _ATTENTION,
    ),
    **dict.fromkeys(("_transformer_encoder_layer_fwd", "_native_multi_head_attention"), _FUSED),
    **dict.fromkeys(("norm", "linalg_vector_norm"), Model(chain=_rooted, equal=reduced(_dims))),
    **dict.fromkeys(("var_mean", "std_mean"), Model(chain=_reduced, equal=reduced(_dims))),
    **dict.fromkeys(("prod", "cumprod"), Model(chain=lambda given: 4 * _reduced(given))),
    "var": Model(chain=_reduced, tail=_variance, equal=reduced(_dims)),
    "std": Model(chain=_reduced, tail=_deviation, equal=reduced(_dims)),
    **dict.fromkeys(("softmax", "_softmax", "_safe_softmax"), Model(tail=_softmax)),
    **dict.fromkeys(("log_softmax", "_log_softmax"), Model(tail=_log_softmax)),
    **dict.fromkeys(("logsumexp", "logcumsumexp"), Model(tail=_log_sum)),
    **dict.fromkeys(("logaddexp", "logaddexp2"), Model(tail=_one)),
    # Approximations that are good to a unit of 1, and of the argument where they multiply it. (A
    # logsigmoid far out is no logarithm of a sigmoid: who computes it so loses what it keeps.)
    **dict.fromkeys(
        ("sigmoid", "erfc", "softplus", "expm1", "log1p", "log_sigmoid_forward"),
        Model(tail=_one),
    ),
    "tanh": Model(units=1.5),
    **dict.fromkeys(("acos", "asin", "atan", "atan2", "acosh", "logit"), Model(units=2, tail=_one)),
    **dict.fromkeys(("elu", "selu", "celu"), Model(tail=_below)),
    **dict.fromkeys(("gelu", "silu", "mish"), Model(tail=_of_x)),
    "hardsigmoid": Model(tail=_bent),
    "hardswish": Model(tail=_bent_x),
    "glu": Model(tail=_of_half),
    # powf of PyTorch's loses five units.
    "pow": Model(units=2),
    "linspace": Model(tail=_ends),
    **dict.fromkeys(
        (
            *("floor_divide", "remainder", "quantize_per_tensor", "quantize_per_channel"),
            "fake_quantize_per_tensor_affine_cachemask",
            "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
            "fake_quantize_per_channel_affine_cachemask",
        ),
        Model(("self", "input"), decides=True),
    ),
    **dict.fromkeys(("addcmul", "addcdiv", "lerp"), Model(tail=_added)),
    **dict.fromkeys(
        (
            "native_batch_norm",
            "_native_batch_norm_legit",
            "_native_batch_norm_legit_no_training",
            "cudnn_batch_norm",
        ),
        # A product and a sum, both rounded.
        Model(units=2**0.5, tail=_affine),
    ),
    **dict.fromkeys(("native_layer_norm", "native_group_norm"), Model(tail=_affine)),
    **dict.fromkeys(
        (
            *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"),
            "_upsample_bilinear2d_aa",
        ),
        Model(("self",), lambda _: 4, tail=_resized, inner=True),
    ),
    **dict.fromkeys(
        ("upsample_bicubic2d", "_upsample_bicubic2d_aa"),
        Model(("self",), lambda _: 16, tail=_cubic, inner=True),
    ),
    "affine_grid_generator": Model(("theta",), lambda _: 3, inner=True),
    "grid_sampler_2d": Model(("input", "grid"), inner=True),
    "grid_sampler_3d": Model(("input", "grid"), inner=True),
}
PLAIN = Model()
