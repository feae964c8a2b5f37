"""One model of rounding per family of operators, by PyTorch's names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from onnx_gate.verify.reference import chains, in_turn, tails
from onnx_gate.verify.reference.equal import (
    Equal,
    Given,
    attended,
    bags,
    kernels,
    product,
    reduced,
    scattered,
    windows,
)
from onnx_gate.verify.reference.rounding import Model


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
    return _products(chains.last(first), first, added=added, equal=product(first, second))


_POSITIVE = (0.0, math.inf)
_SHARE, _WAVE = (0.0, 1.0), (-1.0, 1.0)
SCATTERED = (
    *("scatter", "scatter_add", "scatter_reduce", "index_add", "index_reduce", "put"),
    *("index_put", "_index_put_impl", "_unsafe_index_put"),
)
ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_attention_math",
)
# Fused kernels that layers of attention have where nothing is trained.
FAST_PATH = ("_transformer_encoder_layer_fwd", "_native_multi_head_attention")
QUANTISERS = (
    *("quantize_per_tensor", "quantize_per_channel", "fake_quantize_per_tensor_affine_cachemask"),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    "fake_quantize_per_channel_affine_cachemask",
)
# Of the scores of a query only differences count: those of its keys are each off by their own. The
# shares that values are multiplied by are no few bits, whatever scores they are made of.
_ATTENTION = Model(
    ("key", "value"), chains.keys, added="attn_mask", in_steps=1.0, equal=attended, inner=True
)
MODELS: Mapping[str, Model] = {
    **dict.fromkeys(("mm", "bmm"), _pairs("self", "mat2")),
    "mv": _pairs("self", "vec"),
    "dot": _pairs("self", "tensor"),
    "vdot": _pairs("self", "other"),
    **dict.fromkeys(("addmm", "_addmm_activation"), _pairs("mat1", "mat2", "self")),
    "baddbmm": _pairs("batch1", "batch2", "self"),
    "addbmm": _products(chains.last("batch1"), "batch1", added="self"),
    "addmv": _pairs("mat", "vec", "self"),
    "linear": _products(
        chains.last("input"), "input", added="bias", equal=product("input", "weight", rows=True)
    ),
    "_trilinear": _sums(chains.last("i1"), "i1", "i2"),
    **dict.fromkeys(
        ("convolution", "_convolution", "mkldnn_convolution", "convolution_overrideable"),
        replace(
            _products(chains.kernel, "input", "self", "bias", equal=kernels, along=1),
            folded=("weight", "bias"),
        ),
    ),
    **dict.fromkeys(
        ("sum", "mean", "nansum", "nanmean"),
        replace(_sums(chains.over_axes, "self", equal=reduced(chains.axes)), reduces=chains.axes),
    ),
    "trace": _sums(chains.whole("self"), "self"),
    **dict.fromkeys(
        ("avg_pool1d", "avg_pool2d", "avg_pool3d"), _sums(chains.window, "self", equal=windows)
    ),
    "col2im": _sums(chains.window, "self"),
    **dict.fromkeys(
        ("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"),
        _sums(chains.adaptive, "self", equal=windows),
    ),
    **dict.fromkeys(SCATTERED, _sums(chains.by_places, "src", "source", "values", equal=scattered)),
    **dict.fromkeys(
        ("_embedding_bag", "_embedding_bag_forward_only"),
        _sums(chains.bagged, "weight", equal=bags),
    ),
    **dict.fromkeys(("_fft_r2c", "_fft_c2r", "_fft_c2c"), Model(tail=tails.fourier, inner=True)),
    **dict.fromkeys(
        ("_cdist_forward", "_euclidean_dist"),
        Model(
            ("x1",),
            chains.last("x1"),
            tail=tails.distance,
            equal=product("x1", "x2", rows=True),
            bounds=_POSITIVE,
        ),
    ),
    "_pdist_forward": _sums(chains.last("self"), "self"),
    **dict.fromkeys(ATTENTION, _ATTENTION),
    **dict.fromkeys(
        ("norm", "linalg_vector_norm"), Model(chain=chains.rooted, equal=reduced(chains.axes))
    ),
    **dict.fromkeys(
        ("var_mean", "std_mean"), Model(chain=chains.over_axes, equal=reduced(chains.axes))
    ),
    "cumsum": Model(in_turn=in_turn.RUNNING_SUM),
    "cumprod": Model(in_turn=in_turn.RUNNING_PRODUCT),
    "prod": Model(in_turn=in_turn.PRODUCT),
    "logcumsumexp": Model(tail=tails.log_sum, in_turn=in_turn.RUNNING_LOGARITHM),
    "logsumexp": Model(tail=tails.log_sum, in_turn=in_turn.LOGARITHM),
    **{
        name: Model(chain=chains.over_axes, tail=tail, equal=reduced(chains.axes), bounds=_POSITIVE)
        for name, tail in (("var", tails.variance), ("std", tails.deviation))
    },
    **dict.fromkeys(
        ("softmax", "_softmax", "_safe_softmax", "_masked_softmax"),
        Model(tail=tails.softmax, bounds=_SHARE),
    ),
    **dict.fromkeys(
        ("log_softmax", "_log_softmax"), Model(tail=tails.log_softmax, bounds=(-math.inf, 0.0))
    ),
    **dict.fromkeys(("logaddexp", "logaddexp2"), Model(tail=tails.one)),
    # Approximations that are good to a unit of 1, and of the argument where they multiply it. (A
    # logsigmoid far out is no logarithm of a sigmoid: who computes it so loses what it keeps.)
    **{
        name: Model(tail=tails.one, bounds=bounds, rewritten=rewritten)
        for name, bounds, rewritten in (
            ("erfc", (0.0, 2.0), "1 - erf(x)"),
            ("expm1", (-1.0, math.inf), "exp(x) - 1"),
            ("log_sigmoid_forward", (-math.inf, 0.0), ""),
        )
    },
    # One operator on both sides, good to two units and a half of what it makes, however small that is.
    "softplus": Model(units=2, bounds=_POSITIVE),
    "sigmoid": Model(tail=tails.approximated, bounds=_SHARE),
    "tanh": Model(units=1.5, bounds=_WAVE),
    **dict.fromkeys(("sin", "cos", "erf"), Model(bounds=_WAVE)),
    **dict.fromkeys(("atan", "atan2"), Model(units=2, tail=tails.one)),
    **{
        name: Model(units=2, tail=tails.one, domain=("self", *ends))
        for name, ends in {
            **dict.fromkeys(("acos", "asin"), _WAVE),
            "acosh": (1.0, math.inf),
            "logit": _SHARE,
        }.items()
    },
    **dict.fromkeys(("sqrt", "rsqrt"), Model(bounds=_POSITIVE, domain=("self", *_POSITIVE))),
    **dict.fromkeys(("log", "log2", "log10"), Model(domain=("self", *_POSITIVE))),
    **dict.fromkeys(("exp", "exp2"), Model(bounds=_POSITIVE)),
    # Good to a unit of 1 or two, as tests/verify/test_rounding.py measures it in PyTorch: at their roots,
    # too, of which those of lgamma are whole numbers.
    "lgamma": Model(tail=tails.one, inner=True),
    **dict.fromkeys(("digamma", "polygamma"), Model(tail=lambda given, y: 2.0, inner=True)),
    **{
        f"special_{kind}_{name}": Model(units=4, tail=tails.one, inner=True)
        for kind in ("bessel", "modified_bessel")
        for name in ("j0", "j1", "y0", "y1", "i0", "i1", "k0", "k1")
    },
    "log1p": Model(tail=tails.one, domain=("self", -1.0, math.inf), rewritten="log(1 + x)"),
    **dict.fromkeys(("atanh", "erfinv", "special_erfinv"), Model(domain=("self", *_WAVE))),
    "special_ndtri": Model(domain=("self", *_SHARE)),
    "xlogy": Model(domain=("other", *_POSITIVE)),
    "special_xlog1py": Model(domain=("other", -1.0, math.inf)),
    **dict.fromkeys(("elu", "selu", "celu"), Model(tail=tails.below)),
    "silu": Model(tail=tails.of_x()),
    "gelu": Model(tail=tails.of_x(0.25)),
    "mish": Model(tail=tails.of_x(0.5)),
    "hardsigmoid": Model(tail=tails.bent, bounds=_SHARE),
    "hardswish": Model(tail=tails.bent_x),
    "glu": Model(tail=tails.of_half),
    # powf of PyTorch's loses five units.
    "pow": Model(units=2, domain=("self", *_POSITIVE)),
    **dict.fromkeys(("mul", "div"), Model(underflows=True)),
    "linspace": Model(tail=tails.ends),
    **dict.fromkeys(
        ("floor_divide", "remainder", *QUANTISERS), Model(("self", "input"), decides=True)
    ),
    **dict.fromkeys(("addcmul", "addcdiv", "lerp"), Model(tail=tails.added)),
    **dict.fromkeys(
        (
            "native_batch_norm",
            "_native_batch_norm_legit",
            "_native_batch_norm_legit_no_training",
            "cudnn_batch_norm",
        ),
        # A product and a sum, both rounded.
        Model(units=2**0.5, tail=tails.affine),
    ),
    **dict.fromkeys(("native_layer_norm", "native_group_norm"), Model(tail=tails.affine)),
    **dict.fromkeys(
        (
            *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"),
            "_upsample_bilinear2d_aa",
        ),
        Model(("self",), lambda _: 4, tail=tails.resized, inner=True),
    ),
    **dict.fromkeys(
        ("upsample_bicubic2d", "_upsample_bicubic2d_aa"),
        Model(("self",), lambda _: 16, tail=tails.cubic, inner=True),
    ),
    "affine_grid_generator": Model(("theta",), lambda _: 3, inner=True),
    "grid_sampler_2d": Model(("input", "grid"), inner=True),
    "grid_sampler_3d": Model(("input", "grid"), inner=True),
}
PLAIN = Model()
