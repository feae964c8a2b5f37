"""Every case: a network, how its file came to be, what is wrong with it and what is to be said.

``blame`` of a committed file is ``stale artifact`` where a fresh export agrees with PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from . import graphs as g
from .case import Array, Arrays, DivergingCase, Draw

HALF = onnx.TensorProto.FLOAT16

INPUTS: Mapping[str, Mapping[str, Draw]] = {
    "Mlp": {"x": Draw((3, 12))},
    "ConvNet": {"image": Draw((2, 3, 16, 16))},
    "ResNet": {"image": Draw((2, 3, 12, 12))},
    "Encoder": {"tokens": Draw((3, 6), 50)},
    "Tagger": {"words": Draw((2, 7), 40)},
    "Gru": {"x": Draw((5, 2, 6))},
    "UNet": {"image": Draw((2, 2, 16, 16))},
    "Bilinear": {"x": Draw((2, 5, 8))},
    "Mha": {"x": Draw((2, 5, 16))},
    "Retrieval": {"x": Draw((4, 8))},
    "Sequence": {"x": Draw((2, 6, 6))},
    "Buckets": {"places": Draw((3, 4), 20, -20), "price": Draw((3, 4))},
    "Gated": {"x": Draw((2, 5, 8))},
    "Norms": {"x": Draw((2, 4, 9))},
    "Switch": {"x": Draw((2, 6))},
    "Gain": {"audio": Draw((2, 8), scale=3.0)},
    "ItemScale": {"x": Draw((3, 8))},
    "BakedLength": {"frames": Draw((2, 5, 4))},
    "Looped": {"x": Draw((2, 4, 5))},
    "Poolings": {"image": Draw((1, 1, 4, 4))},
    "Parts": {"x": Draw((3, 12))},
    "Stack": {"x": Draw((2, 3, 12))},
    "Detector": {"image": Draw((2, 3, 16, 16))},
    "TiedEncoder": {"tokens": Draw((2, 6), 30)},
    "Half": {"x": Draw((3, 8))},
}

_BLAME = {"dynamo": "exporter", "torchscript": "exporter", "custom": "exporter"}


def case(
    name: str,
    model: str,
    form: str,
    seed: g.Seed,
    guilty: str,
    module: str | None,
    line: str = "",
    blame: str = "",
    **more: object,
) -> DivergingCase:
    """One case; ``guilty`` are operator types, separated by spaces."""
    return DivergingCase(
        name=f"{form}/{name}",
        model=model,
        form=form,
        seed=seed,
        guilty_op=frozenset(guilty.split()),
        module=module,
        line=line,
        blame=blame or _BLAME.get(form, "stale artifact"),
        **{"inputs": INPUTS[model], **more},  # type: ignore[arg-type]
    )


def half(array: Array) -> Array:
    return array.astype(np.float16).astype(np.float32)


def plus_one(array: Array) -> Array:
    return array + 1


def ones_like(array: Array) -> Array:
    return np.ones_like(array)


def one_nan(arrays: Arrays) -> None:
    next(iter(arrays.values())).flat[0] = np.nan


def positive(arrays: Arrays) -> None:
    arrays["x"] = np.abs(arrays["x"])


def negative(arrays: Arrays) -> None:
    arrays["x"] = -np.abs(arrays["x"])


def loud(arrays: Arrays) -> None:
    arrays["audio"] = arrays["audio"] * 3


CASES: tuple[DivergingCase, ...] = (
    # --- dynamo, with all that it says of its nodes ---
    case("gelu-tanh", "Mlp", "dynamo", g.attribute("Gelu", approximate="tanh"), "Gelu", "", "gelu"),
    case("alpha", "Mlp", "dynamo", g.attribute("LeakyRelu", alpha=0.11), "LeakyRelu", ""),
    case(
        "clip-upper",
        "Mlp",
        "dynamo",
        g.constant("Clip", 0, 2, lambda a: a + np.float32(0.01)),
        "Clip",
        "",
        "clamp",
    ),
    case(
        "weight-transposed",
        "Mlp",
        "dynamo",
        g.weight("square.weight", np.transpose),
        "Gemm",
        "square",
        "self.square",
    ),
    case("weight-half", "Mlp", "dynamo", g.weight("up.weight", half), "Gemm", "up", "self.up"),
    case(
        "pads",
        "ConvNet",
        "dynamo",
        g.attribute("Conv", 1, pads=[1, 2, 3, 2]),
        "Conv",
        "norm2",
        "norm2",
    ),
    case(
        "dilation",
        "ConvNet",
        "dynamo",
        g.attribute("Conv", 1, pads=[1, 1, 1, 1], dilations=[1, 1]),
        "Conv",
        "norm2",
    ),
    case(
        "count-include-pad",
        "ConvNet",
        "dynamo",
        g.attribute("AveragePool", count_include_pad=1),
        "AveragePool",
        "pool",
        "self.pool",
    ),
    case("bias-dropped", "ConvNet", "dynamo", g.weight("stem.bias", np.zeros_like), "Conv", "norm"),
    case(
        "folded-scale",
        "ResNet",
        "dynamo",
        g.constant("Conv", 3, 1, lambda a: a * np.float32(1.001)),
        "Conv",
        "blocks.1.norm1",
        "self.norm1",
    ),
    case("relu-dropped", "ResNet", "dynamo", g.replace("Relu", 3, "Identity"), "Identity", None),
    case(
        "residual-dropped",
        "ResNet",
        "dynamo",
        g.replace("Add", 1, "Identity"),
        "Identity",
        "blocks.1",
        "self.shortcut",
    ),
    case(
        "epsilon",
        "Encoder",
        "dynamo",
        g.attribute("LayerNormalization", 2, epsilon=1e-3),
        "LayerNormalization",
        "layers.1.norm1",
        "self.norm1",
    ),
    case(
        "softmax-axis",
        "Encoder",
        "dynamo",
        g.attribute("Softmax", 1, axis=2),
        "Softmax",
        "layers.1.attn",
        "softmax",
    ),
    case(
        "heads-permuted",
        "Encoder",
        "dynamo",
        g.attribute("Transpose", 1, perm=[0, 3, 1, 2]),
        "Transpose",
        "layers.0.attn",
        "self.split(self.value(x))",
        inputs={"tokens": Draw((3, 4), 50)},
    ),
    case(
        "scale-missing",
        "Encoder",
        "dynamo",
        g.constant("Div", 0, 1, ones_like),
        "Div",
        "layers.0.attn",
        "math.sqrt",
    ),
    case(
        "mask-value",
        "Encoder",
        "dynamo",
        g.constant("Where", 0, 1, np.zeros_like),
        "Where",
        "layers.0.attn",
        "masked_fill",
        change=lambda arrays: arrays["tokens"].__setitem__((slice(None), slice(3, None)), 0),
    ),
    case(
        "query-stale",
        "Encoder",
        "dynamo",
        g.constant("MatMul", 0, 1, lambda a: a[::-1]),
        "MatMul",
        "layers.0.attn.query",
        "self.query",
    ),
    case(
        "key-bias",
        "Encoder",
        "dynamo",
        g.weight("layers.1.attn.value.bias", lambda a: a + np.float32(0.1)),
        "Add",
        "layers.1.attn.value",
    ),
    case(
        "lstm-weights-half",
        "Tagger",
        "dynamo",
        g.constant("LSTM", 0, 1, half),
        "LSTM",
        "lstm",
        "self.lstm",
    ),
    case(
        "lstm-gates",
        "Tagger",
        "dynamo",
        g.constant("LSTM", 0, 2, lambda a: np.roll(a, 8, axis=1)),
        "LSTM",
        "lstm",
    ),
    case(
        "gru-reset",
        "Gru",
        "dynamo",
        g.attribute("GRU", linear_before_reset=0),
        "GRU",
        "gru",
        "self.gru",
    ),
    case(
        "resize-mode",
        "UNet",
        "dynamo",
        g.attribute("Resize", 0, coordinate_transformation_mode="asymmetric"),
        "Resize",
        "",
        "interpolate",
    ),
    case(
        "resize-nearest",
        "UNet",
        "dynamo",
        g.attribute("Resize", 1, nearest_mode="ceil", coordinate_transformation_mode="half_pixel"),
        "Resize",
        "",
        "interpolate",
    ),
    case("elu-alpha", "UNet", "dynamo", g.attribute("Elu", alpha=0.9), "Elu", "", "F.elu"),
    case(
        "deconv-padding",
        "UNet",
        "dynamo",
        g.attribute("ConvTranspose", pads=[0, 0, 2, 2]),
        "ConvTranspose",
        "up",
        "self.up",
    ),
    case("concat-order", "UNet", "dynamo", g.swap_inputs("Concat", 0), "Concat", "", "torch.cat"),
    case(
        "einsum",
        "Bilinear",
        "dynamo",
        g.attribute("Einsum", 2, equation="bhte,bhse->bhst"),
        "Einsum",
        "",
        "bhse,bhte->bhst",
    ),
    case(
        "attention-scale",
        "Mha",
        "dynamo",
        g.constant("Mul", 0, 1, lambda a: a * np.float32(1.2)),
        "Mul",
        "attention",
        "self.attention",
    ),
    case(
        "norm2-bias",
        "TiedEncoder",
        "dynamo",
        g.weight("encoder.layers.0.norm2.bias", np.zeros_like),
        "LayerNormalization",
        "encoder.layers.0.norm2",
        "self.encoder",
    ),
    case(
        "topk-smallest", "Retrieval", "dynamo", g.attribute("TopK", largest=0), "TopK", "", "topk"
    ),
    case(
        "argmax-axis",
        "Retrieval",
        "dynamo",
        g.turn("ArgMax", 0, "ArgMin"),
        "ArgMin",
        "",
        "argmax",
    ),
    case(
        "cumsum-exclusive",
        "Sequence",
        "dynamo",
        g.attribute("CumSum", exclusive=1),
        "CumSum",
        "",
        "cumsum",
    ),
    case("roll", "Sequence", "dynamo", g.swap_inputs("Concat"), "Concat", "", "torch.roll"),
    case(
        "rms-constant",
        "Gated",
        "dynamo",
        g.constant("Add", 1, 1, lambda a: a / 10),
        "Add",
        "norm",
        "rsqrt",
    ),
    case("rotary-sign", "Gated", "dynamo", g.turn("Sub", 0, "Add"), "Add", "", "angle.cos"),
    case(
        "group-epsilon",
        "Norms",
        "dynamo",
        g.attribute("InstanceNormalization", 0, epsilon=1e-2),
        "InstanceNormalization",
        "group",
        "self.group",
    ),
    case(
        "branch",
        "Switch",
        "dynamo",
        g.turn("Tanh", 0, "Sigmoid"),
        "Sigmoid If",
        None,
        change=positive,
    ),
    case(
        "branches-exchanged",
        "Switch",
        "dynamo",
        g.turn("Greater", 0, "Less"),
        "Less",
        "",
        "torch.cond",
        change=negative,
    ),
    case(
        "nan-pooling",
        "Poolings",
        "dynamo",
        g.nothing,
        "MaxPool",
        "pool",
        blame="kernel",
        change=one_nan,
    ),
    case(
        "split-sizes",
        "Parts",
        "dynamo",
        g.constant("Split", 0, 1, lambda a: np.array([4, 4, 4])),
        "Split",
        "",
        "split",
    ),
    case(
        "gather-index",
        "Parts",
        "dynamo",
        g.constant("Add", 1, 1, plus_one),
        "Add",
        "",
        "gather",
    ),
    case(
        "all-gelus",
        "Stack",
        "dynamo",
        g.everywhere("Gelu", approximate="tanh"),
        "Gelu",
        "layers.0.2",
        "layer(x)",
    ),
    case(
        "clamp-bound",
        "Detector",
        "dynamo",
        g.constant("Clip", 1, 2, lambda a: a - 1),
        "Clip",
        "",
        "clamp(0, 16)",
    ),
    case("cast-inserted", "Detector", "dynamo", g.insert_cast("Conv", 1, 0, HALF), "Cast", None),
    case(
        "function-body",
        "Mlp",
        "dynamo",
        g.several(
            g.attribute("LeakyRelu", alpha=0.3), g.into_function(["linear_1", "leaky_relu"], "Own")
        ),
        "LeakyRelu Own",
        None,
    ),
    # --- real wrong lowerings, through the exporters' own extension points ---
    case(
        "gelu",
        "Stack",
        "custom",
        g.nothing,
        "Gelu",
        "layers.0.2",
        exporter="exporters.py:dynamo_gelu",
    ),
    case(
        "silu",
        "Gated",
        "custom",
        g.nothing,
        "HardSigmoid Mul",
        "",
        "F.silu",
        exporter="exporters.py:dynamo_silu",
    ),
    case(
        "rsqrt",
        "Gated",
        "custom",
        g.nothing,
        "Reciprocal",
        "norm",
        "rsqrt",
        exporter="exporters.py:dynamo_rsqrt",
    ),
    case(
        "layer-norm",
        "Encoder",
        "custom",
        g.nothing,
        "Add Sqrt",
        "layers.0.norm1",
        "self.norm1",
        exporter="exporters.py:dynamo_layer_norm",
    ),
    case(
        "floor-divide",
        "Buckets",
        "custom",
        g.nothing,
        "Div",
        "",
        "places // 3",
        exporter="exporters.py:dynamo_floor_divide",
    ),
    case(
        "mish",
        "Detector",
        "custom",
        g.nothing,
        "Sigmoid",
        "",
        "F.mish",
        exporter="exporters.py:dynamo_mish",
    ),
    case(
        "hardswish",
        "ConvNet",
        "custom",
        g.nothing,
        "HardSigmoid Mul",
        "",
        "hardswish",
        exporter="exporters.py:torchscript_hardswish",
    ),
    case(
        "softmax",
        "Encoder",
        "custom",
        g.nothing,
        "Softmax",
        "layers.0.attn",
        "softmax",
        exporter="exporters.py:torchscript_softmax",
    ),
    # --- TorchScript ---
    case(
        "epsilon",
        "Encoder",
        "torchscript",
        g.attribute("LayerNormalization", 3, epsilon=1e-3),
        "LayerNormalization",
        "layers.1.norm2",
        "self.norm2",
    ),
    case(
        "query-stale",
        "Encoder",
        "torchscript",
        g.constant("MatMul", 0, 1, lambda a: a[:, ::-1]),
        "MatMul",
        "layers.0.attn.query",
    ),
    case(
        "folded-scale",
        "ResNet",
        "torchscript",
        g.constant("Conv", 2, 1, lambda a: a * np.float32(0.999)),
        "Conv",
        None,
    ),
    case(
        "softmax-axis",
        "Bilinear",
        "torchscript",
        g.attribute("Softmax", 0, axis=1),
        "Softmax",
        "",
        "torch.softmax",
    ),
    case("floor-divide", "Buckets", "torchscript", g.nothing, "Div Cast", "", "places // 3"),
    case(
        "branch-baked",
        "Gain",
        "torchscript",
        g.nothing,
        "Tanh",
        "",
        "0.25",
        blame="capture",
        example={"audio": Draw((2, 8), scale=0.3)},
        change=loud,
    ),
    case(
        "number-baked",
        "ItemScale",
        "torchscript",
        g.nothing,
        "Div",
        "",
        "torch.round",
        blame="capture",
    ),
    case(
        "length-baked",
        "BakedLength",
        "torchscript",
        g.constant("Div", 0, 1, plus_one),
        "Div",
        "",
        "length",
    ),
    case("loop", "Looped", "torchscript", g.turn("Tanh", 0, "Softsign"), "Softsign Loop", None),
    case("gru", "Gru", "torchscript", g.constant("GRU", 0, 2, half), "GRU", "gru"),
    case(
        "deviation",
        "Parts",
        "torchscript",
        g.constant("Add", 0, 1, lambda a: a * 2),
        "Add",
        "",
        "deviation + 0.1",
    ),
    # --- committed files: names kept, metadata gone ---
    case(
        "stale-weights", "Mlp", "names", g.weight("down.weight", lambda a: a * 1.01), "Gemm", "down"
    ),
    case("softmax-axis", "Bilinear", "names", g.attribute("Softmax", axis=1), "Softmax", ""),
    case(
        "gelu-tanh",
        "Stack",
        "converted",
        g.attribute("Gelu", 3, approximate="tanh"),
        "Gelu",
        "layers.3.2",
    ),
    case(
        "pool-ceil",
        "ConvNet",
        "converted",
        g.attribute("AveragePool", pads=[0, 0, 2, 2]),
        "AveragePool",
        "pool",
    ),
    # --- committed files: everything renamed ---
    case("gelu-tanh", "Stack", "renamed", g.attribute("Gelu", 2, approximate="tanh"), "Gelu", None),
    case(
        "stale-weight",
        "Encoder",
        "renamed",
        g.constant("MatMul", 5, 1, lambda a: a * np.float32(1.01)),
        "MatMul",
        None,
    ),
    case(
        "epsilon",
        "Encoder",
        "renamed",
        g.attribute("LayerNormalization", 1, epsilon=1e-4),
        "LayerNormalization",
        None,
    ),
    case("concat-order", "UNet", "renamed", g.swap_inputs("Concat", 0), "Concat", None),
    case(
        "resize",
        "UNet",
        "renamed",
        g.attribute("Resize", 0, coordinate_transformation_mode="align_corners"),
        "Resize",
        None,
    ),
    case("relu-dropped", "ResNet", "renamed", g.replace("Relu", 1, "Identity"), "Identity", None),
    case(
        "folded-bias",
        "ResNet",
        "renamed",
        g.constant("Conv", 4, 2, lambda a: a + 1e-2),
        "Conv",
        None,
    ),
    case("lstm", "Tagger", "renamed", g.constant("LSTM", 0, 3, np.zeros_like), "LSTM", None),
    case(
        "slice-bound",
        "Sequence",
        "renamed",
        g.constant("Slice", 3, 2, lambda a: a - 1),
        "Slice",
        None,
    ),
    case(
        "mean-axis",
        "Sequence",
        "renamed",
        g.constant("ReduceMean", 0, 1, plus_one),
        "ReduceMean",
        None,
    ),
    case("topk", "Retrieval", "renamed", g.attribute("TopK", largest=0), "TopK", None),
    case(
        "index-off-by-one",
        "Retrieval",
        "renamed",
        g.constant("GatherND", 0, 0, lambda a: np.roll(a, 1, axis=0)),
        "GatherND",
        None,
    ),
    case(
        "rms-constant", "Gated", "renamed", g.constant("Add", 1, 1, lambda a: a / 10), "Add", None
    ),
    case("rounding", "Buckets", "renamed", g.turn("Round", 0, "Floor"), "Floor", None),
    case("remainder", "Buckets", "renamed", g.attribute("Mod", 1, fmod=1), "Mod", None),
    case("half-layer", "Half", "renamed", g.weight("inner.bias", np.zeros_like), "Gemm", None),
    case(
        "group-weight", "Norms", "renamed", g.constant("Mul", 0, 1, lambda a: a[::-1]), "Mul", None
    ),
    case(
        "threshold", "Norms", "renamed", g.constant("Greater", 0, 1, np.zeros_like), "Greater", None
    ),
    case("scale", "Mha", "renamed", g.constant("Mul", 1, 1, ones_like), "Mul", None),
    case("select", "Mha", "renamed", g.constant("Gather", 1, 1, plus_one), "Gather", None),
    case(
        "anchors", "Detector", "renamed", g.weight("anchors", lambda a: a[..., ::-1]), "Add", None
    ),
    case(
        "epsilon",
        "Encoder",
        "traced",
        g.attribute("LayerNormalization", 2, epsilon=1e-3),
        "LayerNormalization",
        None,
    ),
    case("scale", "Encoder", "traced", g.constant("Div", 1, 1, ones_like), "Div", None),
    case(
        "pool",
        "ConvNet",
        "traced",
        g.attribute("AveragePool", count_include_pad=1),
        "AveragePool",
        None,
    ),
    case("softmax", "Encoder", "traced", g.attribute("Softmax", 1, axis=1), "Softmax", None),
    case("clip", "Detector", "traced", g.constant("Clip", 0, 2, lambda a: a / 2), "Clip", None),
)
