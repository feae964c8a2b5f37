"""Deciding operators: those that treat values on the two sides of a limit differently, as data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from onnx_gate.verify.reference.operator_mode import tensors_of

Kind = Literal["limit", "equality", "truth", "and", "or", "half", "guard", "scale", "rows", "pairs"]

# NaN, infinity, or a number that stands for them.
Missing = Literal["isnan", "isinf"] | float

# What the sides of a decision are called. A ``half`` is exactly between two whole numbers, above an
# even or an odd one: PyTorch rounds the two to either side. A ``guard`` is a small number that is
# added so that nothing is divided by zero: within it, it is what counts. A ``scale`` is the guard of
# a normalisation, looked at in the scale that it has used. Of two truths each has to be seen to decide
# alone, as those who test aircraft ask of conditions (modified condition and decision coverage, DO-178C).
SIDES: Mapping[Kind, tuple[str, ...]] = {
    "limit": ("below", "above"),
    "equality": ("equal", "different"),
    "truth": ("true", "false"),
    "and": ("both", "first", "second"),
    "or": ("neither", "first", "second"),
    "half": ("even", "odd"),
    "guard": ("within", "beyond"),
    "scale": ("within", "beyond"),
    "rows": ("rest",),
    "pairs": ("rest",),
}

# What else is noted of a limit: a comparison that is strict has one more value on its other side.
AT = "equal"

# What is said of a model counts these. A guard that is no part of the sum is not passed by either: it
# is gone to, but what has no variance at all is nothing that a network could be brought to. So is a pair
# of chosen ones, of which no input may choose some.
COUNTED: frozenset[Kind] = frozenset({"limit", "equality", "truth", "and", "or", "half", "rows"})


@dataclass(frozen=True)
class Rule:
    """One decision of an operator: on which argument, and at which limits.

    ``operand`` and names among ``limits`` are those of the operator's schema; ``-name`` is the
    negative of an argument, ``a/b`` a quotient of two. Of ``rows`` the operand is the table, and
    the limit what points into it, or the ``result`` where that says which of them it is.
    """

    limits: tuple[float | str, ...] = (0.0,)
    kind: Kind = "limit"
    operand: str = "self"


_AT_ZERO = (Rule(),)
_OTHER = (Rule(("other",)),)
_THREES = (Rule((-3.0, 3.0)),)
_WITHIN = (Rule(("-lambd", "lambd")),)

# By the names of ATen's operators, without namespace, overload and the underscore of writing in place.
RULES: Mapping[str, tuple[Rule, ...]] = {
    **dict.fromkeys(("relu", "leaky_relu", "elu", "_prelu_kernel", "abs", "sign", "sgn"), _AT_ZERO),
    "clamp": (Rule(("min", "max")),),
    "clamp_min": (Rule(("min",)),),
    "clamp_max": (Rule(("max",)),),
    "hardtanh": (Rule(("min_val", "max_val")),),
    **dict.fromkeys(("hardsigmoid", "hardswish"), _THREES),
    **dict.fromkeys(("hardshrink", "softshrink"), _WITHIN),
    "threshold": (Rule(("threshold",)),),
    "softplus": (Rule(("threshold/beta",)),),
    **dict.fromkeys(("gt", "ge", "lt", "le"), _OTHER),
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin"), _OTHER),
    **dict.fromkeys(("eq", "ne"), (Rule(("other",), "equality"),)),
    "where": (Rule((), "truth", "condition"),),
    "masked_fill": (Rule((), "truth", "mask"),),
    **dict.fromkeys(("logical_and", "bitwise_and"), (Rule((), "and"),)),
    **dict.fromkeys(("logical_or", "bitwise_or"), (Rule((), "or"),)),
    # Of few numbers that are put in order each two neighbours are held against each other.
    "sort": (Rule(("next",), operand="first"),),
    **dict.fromkeys(("isnan", "isinf", "all", "any"), (Rule((), "truth", "result"),)),
    # Halves, and what is rounded towards zero or down, differ by sign.
    "round": (Rule(), Rule((), "half")),
    **dict.fromkeys(("floor", "ceil", "trunc", "frac"), _AT_ZERO),
    **dict.fromkeys(("floor_divide", "remainder", "fmod"), _AT_ZERO),
    "add": (Rule(("other",), "guard"),),
    **dict.fromkeys(("native_layer_norm", "native_group_norm"), (Rule(("eps",), "scale"),)),
    "_fused_rms_norm": (Rule(("eps",), "scale"),),
    "embedding": (Rule(("indices",), "rows", "weight"),),
    **dict.fromkeys(("index", "_unsafe_index"), (Rule(("indices",), "rows"),)),
    **dict.fromkeys(("index_select", "gather"), (Rule(("index",), "rows"),)),
    # Of experts that are chosen together each two are a pair, and so are two choices of one each.
    **dict.fromkeys(("topk", "argmax", "argmin"), (Rule(("result",), "pairs"),)),
    # A choice that is written out as ones among zeros, and an extreme of values side by side.
    "scatter": (Rule(("index",), "rows"),),
    **dict.fromkeys(("amax", "amin"), (Rule(("dim",), "rows"),)),
    **dict.fromkeys(("max", "min"), (Rule(("dim",), "rows"), Rule(("result",), "pairs"))),
    # Of these the table are the buckets, and the result says which.
    "bucketize": (Rule(("result",), "rows", "boundaries"),),
    "searchsorted": (Rule(("result",), "rows", "sorted_sequence"),),
}

# What leaves out values that are missing, and what looks for some that are no numbers.
_LEAVES_OUT = frozenset(("isnan", "nansum", "nanmean", "nanmedian", "fmax", "fmin"))
ASKS = _LEAVES_OUT | {"isinf", "isposinf", "isneginf", "nan_to_num", "eq", "ne"}

# What asks single bits of whole numbers.
BITWISE = frozenset(
    f"{way}{name}{end}"
    for name in ("and", "or", "xor")
    for way, end in (("bitwise_", ""), ("__", "__"))
)

# What divides whole numbers: some that are far apart leave one remainder, as hashed ids share a bucket.
DIVIDES = frozenset(("remainder", "fmod", "floor_divide", "div"))

# What hands a number to Python, which may decide by it.
TAKEN = "_local_scalar_dense"

# Of more than this, as of all tokens by their scores, no two neighbours are what the code is about.
MOST_SORTED = 16

# What is added to something larger than this is no guard: normalisations add 1e-12 to 1e-3.
LARGEST_GUARD = 1e-3


def limit_of(limit: float | str, bound: Mapping[str, Any]) -> Any:
    """Return what a rule's limit is in one call, ``None`` where it has none."""
    if not isinstance(limit, str):
        return limit
    if "/" in limit:
        over, under = (bound.get(name) for name in limit.split("/"))
        return None if over is None or not under else over / under
    value = bound.get(limit.removeprefix("-"))
    return -value if limit.startswith("-") and value is not None else value


def neighbours(bound: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return, of few numbers that are put in order, each but the last and the one after it."""
    own, axis = bound["self"], bound.get("dim", -1)
    count = own.shape[axis] if own.ndim else 0
    if not 1 < count <= MOST_SORTED:
        return {}
    return {"first": own.narrow(axis, 0, count - 1), "next": own.narrow(axis, 1, count - 1)}


def missing_asked(name: str, bound: Mapping[str, Any]) -> Iterator[Missing]:
    """Yield what a call asks its operand for: NaN, infinity, or a number that may stand for them."""
    if name in ("eq", "ne"):
        other = bound.get("other")
        if other is bound.get("self"):
            yield "isnan"
        elif isinstance(other, int | float) and bound["self"].is_floating_point():
            yield "isinf" if math.isinf(other) else float(other)
    elif name == "nan_to_num":
        yield "isnan"
        if any(bound.get(end) is not None for end in ("posinf", "neginf")):
            yield "isinf"
    else:
        yield "isnan" if name in _LEAVES_OUT else "isinf"


def guards(operand: torch.Tensor, number: float | None, bound: Mapping[str, Any]) -> bool:
    """Return whether what is added is so small that it only keeps a sum from being zero."""
    small = number is not None and 0 < number <= LARGEST_GUARD
    return small and bound.get("alpha", 1) == 1 and operand.is_floating_point()


def scale_of(result: Any) -> torch.Tensor | None:
    """Return the scale that a normalisation has used, where its result tells."""
    leaves = tensors_of(result)
    return leaves[-1] if len(leaves) > 1 and leaves[-1].numel() else None
