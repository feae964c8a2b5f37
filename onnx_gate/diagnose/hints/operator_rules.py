"""Rules that look at the guilty operator: the conventions in which it can differ, as the node has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from onnx_gate.diagnose.hints.facts import DivergenceFacts
from onnx_gate.diagnose.hints.value_rules import CHOOSERS, Hint, Rule
from onnx_gate.findings import codes
from onnx_gate.graph.walk import trains


def integer_division(facts: DivergenceFacts) -> Hint:
    """Quotients and remainders of integers, and whole quotients of floats."""
    kind = facts.dtype()
    if facts.op == "Mod":
        sign = "dividend" if facts.attribute("fmod", 0) else "divisor"
        return codes.OG701, (
            f"Mod with fmod={facts.attribute('fmod', 0)} takes the sign of the {sign}: torch.remainder "
            "and % take that of the divisor (fmod=0), torch.fmod that of the dividend (fmod=1)"
        )
    if facts.op == "Div" and "int" in kind:
        return codes.OG701, (
            f"Div of {kind} cuts towards zero: torch.div(rounding_mode='trunc') does too, // and "
            "rounding_mode='floor' go down, so that -7 // 2 is -4 and the graph has -3"
        )
    if facts.op in ("Floor", "Trunc") and facts.made_by(0) == "Div":
        return codes.OG701, (
            f"x // y of floats is {facts.op}(x / y) in the graph, and PyTorch corrects the quotient: "
            "1.0 // 0.1 is 9 in PyTorch and 10 in the graph. Divide integers, or stay off the boundaries"
        )
    return None


def rounding(facts: DivergenceFacts) -> Hint:
    """Halves."""
    return codes.OG702, (
        f"{facts.op} rounds halves to the even neighbour, as torch.round does: 0.5 to 0, 2.5 to 2. "
        "floor(x + 0.5) and C's round() go up or away from zero"
    )


def resizing(facts: DivergenceFacts) -> Hint:
    """Where the pixels of an enlarged image lie."""
    shown = facts.attributes(
        *("mode", "coordinate_transformation_mode", "nearest_mode", "antialias", "cubic_coeff_a"),
        *("exclude_outside", "align_corners", "padding_mode"),
    )
    return codes.OG703, (
        f"{facts.op} has {shown or 'its defaults'}: PyTorch's interpolate is half_pixel (align_corners "
        "where asked for), asymmetric with floor for nearest, cubic_coeff_a=-0.75. Each of them moves "
        "every pixel a little"
    )


def normalisation(facts: DivergenceFacts) -> Hint:
    """The constant beside the variance, and what is normalised over."""
    if facts.op == "BatchNormalization" and trains(facts.node):
        return codes.OG113, (
            "BatchNormalization uses the statistics of the batch: it was exported in training mode"
        )
    shown = facts.attributes("epsilon", "axis", "num_groups", "stash_type")
    return codes.OG706, (
        f"{facts.op} has {shown or 'its defaults'}: hold that against the module's eps and "
        "normalized_shape. It shows most where the variance is small"
    )


def gelu(facts: DivergenceFacts) -> Hint:
    """Which of the two functions called GELU."""
    kind = facts.attribute("approximate", "none")
    if facts.op == "Gelu":
        return codes.OG707, (
            f"Gelu has approximate={kind!r}: nn.GELU() is 'none' (by erf), nn.GELU('tanh') is 'tanh'; "
            "they are up to 5e-4 apart"
        )
    if facts.op in ("FastGelu", "QuickGelu") or (
        facts.op in ("Tanh", "Erf", "Mul", "Add", "Pow", "BiasGelu")
        and facts.has_constant(0.044715)
    ):
        return codes.OG707, (
            "the graph has GELU's approximation by tanh (0.044715), which is up to 5e-4 from GELU by "
            "erf: use the same approximate= in the module"
        )
    return None


def ties(facts: DivergenceFacts) -> Hint:
    """Equal values, of which one has to be chosen."""
    shown = facts.attributes("select_last_index", "largest", "sorted", "axis")
    if "select_last_index=1" in shown:
        return codes.OG708, (
            f"{facts.op} ({shown}) takes the last of equal values, and PyTorch promises the first"
        )
    return codes.OG708, (
        f"{facts.op} ({shown or 'its defaults'}) chooses among equal values: which one is first is not "
        "specified. Make the values distinct, or give the values and not the places"
    )


def window(facts: DivergenceFacts) -> Hint:
    """How a window slides over its input, where that is not as PyTorch's usually do.

    With the usual attributes, and an output of PyTorch's shape, weights are as likely to be wrong.
    """
    pads = facts.attribute("pads", [])
    pads = list(pads) if isinstance(pads, Sequence) else []
    half = len(pads) // 2
    alike = pads[:half] == pads[half:] and facts.attribute("auto_pad", "NOTSET") == "NOTSET"
    averages = facts.op == "AveragePool" and any(pads)
    counted = not averages or bool(facts.attribute("count_include_pad", 0))
    if alike and counted and not facts.attribute("ceil_mode", 0):
        return None
    shown = facts.attributes(
        *("kernel_shape", "strides", "pads", "dilations", "auto_pad", "ceil_mode"),
        *("count_include_pad", "output_padding", "group"),
    )
    return codes.OG710, (
        f"{facts.op} has {shown or 'its defaults'}: PyTorch pads both sides alike, rounds sizes down "
        "(ceil_mode=0) and counts the padding in an average (count_include_pad=1)"
    )


def cumulative(facts: DivergenceFacts) -> Hint:
    """Where a running sum begins."""
    exclusive, reverse = facts.attribute("exclusive", 0), facts.attribute("reverse", 0)
    return codes.OG711, (
        f"{facts.op} has exclusive={exclusive}, reverse={reverse}: torch.cumsum includes the element "
        "itself (exclusive=0) and runs forwards. Long sums in float32 also drift by rounding"
    )


def indices(facts: DivergenceFacts) -> Hint:
    """Which element an index means."""
    axis = facts.attributes("axis", "batch_dims", "reduction")
    return codes.OG713, (
        f"{facts.op} ({axis or 'its defaults'}) counts negative indices from the end, and what is out "
        "of range is undefined. Hold the axis and the indices against the module's, and declare the "
        "input's range in the manifest"
    )


def cast(facts: DivergenceFacts) -> Hint:
    """Numbers that the other dtype does not have."""
    source = facts.dtype()
    return codes.OG714, (
        f"Cast from {source or 'another dtype'}: NaN, infinities and numbers beyond the new dtype's "
        "range become whatever the processor makes of them. Clamp first; floats are cut towards zero"
    )


def recurrent(facts: DivergenceFacts) -> Hint:
    """The order of gates, and what is reset before what."""
    shown = facts.attributes("direction", "linear_before_reset", "hidden_size", "clip", "layout")
    gates = {
        "LSTM": "ONNX orders the gates i, o, f, c and PyTorch i, f, g, o",
        "GRU": "PyTorch is linear_before_reset=1, and ONNX orders the gates z, r, h, PyTorch r, z, n",
    }.get(facts.op, "PyTorch adds two biases, ONNX takes them one behind the other")
    return codes.OG715, (
        f"{facts.op} has {shown or 'its defaults'}: {gates}. Look also at the initial state and at "
        "sequence_lens"
    )


def axes(facts: DivergenceFacts) -> Hint:
    """Along which axis."""
    shown = facts.attributes("axis", "axes", "keepdims", "noop_with_empty_axes")
    given = facts.constant(1) if facts.op.startswith("Reduce") else None
    if given is not None:
        shown = ", ".join([*([shown] if shown else []), f"axes={given.tolist()}"])
    flat = " Before opset 13 it flattened everything from that axis on." if facts.opset < 13 else ""
    return codes.OG716, (
        f"{facts.op} has {shown or 'its defaults'}: hold that against dim in the module.{flat}"
    )


def quantisation(facts: DivergenceFacts) -> Hint:
    """What quantising rounds and cuts."""
    zero = facts.dtype(2)
    return codes.OG717, (
        f"{facts.op}{f' to {zero}' if zero else ''}: halves go to the even neighbour, what is beyond "
        "the range is cut, and a processor without VNNI saturates sums of u8 by s8 products (use "
        "reduce_range). Compare scale, zero point and axis with the observer's"
    )


def random(facts: DivergenceFacts) -> Hint:
    """Numbers that nobody can repeat."""
    return (
        codes.OG114,
        f"{facts.op} draws random numbers: no two runs agree. Pass them in as an input",
    )


def dropout(facts: DivergenceFacts) -> Hint:
    """Dropout that is still alive."""
    return codes.OG113, "Dropout is alive in the graph: call model.eval() before exporting"


def _for(rule: Rule, *operators: str) -> Iterable[tuple[str, Rule]]:
    return ((operator, rule) for operator in operators)


_PAIRS = (
    *_for(integer_division, "Mod", "Div", "Floor", "Trunc"),
    *_for(rounding, "Round"),
    *_for(resizing, "Resize", "Upsample", "GridSample", "AffineGrid"),
    *_for(normalisation, "LayerNormalization", "BatchNormalization", "InstanceNormalization"),
    *_for(normalisation, "GroupNormalization", "RMSNormalization", "LpNormalization", "LRN"),
    *_for(normalisation, "SimplifiedLayerNormalization", "SkipLayerNormalization"),
    *_for(gelu, "Gelu", "FastGelu", "QuickGelu", "BiasGelu", "Tanh", "Erf", "Mul", "Add", "Pow"),
    *_for(ties, *CHOOSERS),
    *_for(window, "Conv", "ConvTranspose", "ConvInteger", "MaxPool", "AveragePool", "LpPool"),
    *_for(window, "Col2Im", "MaxUnpool", "Pad"),
    *_for(cumulative, "CumSum", "CumProd"),
    *_for(indices, "Gather", "GatherND", "GatherElements", "Scatter", "ScatterND"),
    *_for(indices, "ScatterElements", "Slice", "OneHot"),
    *_for(cast, "Cast", "CastLike"),
    *_for(recurrent, "LSTM", "GRU", "RNN"),
    *_for(axes, "Softmax", "LogSoftmax", "Hardmax", "Concat", "ReduceSum", "ReduceMean"),
    *_for(axes, "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSumExp"),
    *_for(quantisation, "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"),
    *_for(quantisation, "QLinearConv", "QLinearMatMul", "MatMulInteger", "ConvInteger"),
    *_for(random, "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    *_for(random, "Multinomial", "Bernoulli"),
    *_for(dropout, "Dropout"),
)


def _by_operator() -> Mapping[str, tuple[Rule, ...]]:
    rules: dict[str, tuple[Rule, ...]] = {}
    for operator, rule in _PAIRS:
        rules[operator] = (*rules.get(operator, ()), rule)
    return rules


OPERATOR_RULES: Mapping[str, tuple[Rule, ...]] = _by_operator()
