"""Rules that look at how a check failed: what was refused, and which numbers met."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import onnx

from onnx_gate.diagnose.blame.stale import remedy_of_stale
from onnx_gate.diagnose.hints.facts import DivergenceFacts
from onnx_gate.findings import codes
from onnx_gate.findings.codes import Code
from onnx_gate.report.model.diagnosis import Nonfinite
from onnx_gate.verify.export.exported import torch_exporter_of
from onnx_gate.verify.inspect.opsets import changed_between
from onnx_gate.verify.source_lines import at, of_node

Hint = tuple[Code, str] | None
Rule = Callable[[DivergenceFacts], Hint]

_QUOTIENTS = ("Div", "Reciprocal")
# Defined between -1 and 1.
_OF_COSINES = ("Acos", "Asin", "Atanh")
# What says in a line of source that something is divided by what is in it.
_DIVIDES = re.compile(r"/|div|recip|norm|mean|std|var|softmax|cosine|fmod|remainder|%")
_TINY = re.compile(r"(?<![\w.])(\d+(?:\.\d*)?e-(?:[89]|[1-9]\d+))\b", re.I)
_HALF = 65504.0
_FLOAT = 3.4028234e38
# Exporters translate at this opset, and convert from there.
_TRANSLATED_AT = 18
# Operators that hand NaN on in PyTorch, and often do not in a runtime.
_CHOOSE = frozenset(
    [
        *("Max", "Min", "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin"),
        *("Relu", "LeakyRelu", "Clip", "Sign", "HardSwish", "HardSigmoid", "TopK"),
        *("Greater", "Less", "Where"),
    ]
)
CHOOSERS = frozenset(["TopK", "ArgMax", "ArgMin", "Unique", "NonMaxSuppression"])
_ATTENTION = frozenset(
    ["Softmax", "LogSoftmax", "Attention", "MultiHeadAttention", "GroupQueryAttention"]
)
# What scaled_dot_product_attention is written with, beside its softmax.
_AROUND_ATTENTION = frozenset(["", "IsNaN", "Not", "Where", "MatMul"])
_PARTIAL = frozenset(
    ["Sqrt", "Log", "Pow", "Div", "Reciprocal", "Acos", "Asin", "Acosh", "Atanh", "ReduceLogSum"]
)
# What limits what a NonMaxSuppression keeps, by the places among its inputs.
_LIMITS = {2: "max_output_boxes_per_class", 3: "iou_threshold", 4: "score_threshold"}


def refused(facts: DivergenceFacts) -> Hint:
    """One side does not run at all, and not for what the runtime itself makes of the graph."""
    if not facts.check.refused or facts.diagnosis.blame == "optimiser":
        return None
    details = facts.check.refusal
    if "expected" in details:
        return codes.OG102, (
            f"the file declares axis {details['axis']} of its input {details['input']} as "
            f"{details['expected']}, the example's size: name that axis in dynamic_shapes (or "
            "dynamic_axes) where the file is exported"
        )
    if "op_type" in details:
        op_type, name, words = details["op_type"], details["node"], details["words"]
        node = facts.find(name, op_type, "")
        where = at(of_node(node, None)) if node is not None else ""
        if "index" in details:
            return codes.OG713, (
                f"{op_type} {name!r}{where} is given the index {details['index']}, and its table has "
                f"{details['low']} to {details['high']}. Declare the input's range in the manifest, or "
                "bring the index into it inside the model"
            )
        if details["sizes"] and not facts.never_runs:
            return codes.OG102, (
                f"{op_type} {name!r}{where} is made for the sizes of the example: {words}"
            )
    return codes.OG305, f"one side refuses what the other takes: {facts.check.reason}"


def chosen(facts: DivergenceFacts) -> Hint:
    """There are more or fewer than PyTorch's, and a node chooses how many by values."""
    node = facts.chooser if facts.check.form == "shape" else None
    if node is None:
        return None
    limits = [
        f"{name}={value.reshape(-1)[0]:g}"
        for index, name in _LIMITS.items()
        if node.op_type == "NonMaxSuppression"
        if (value := facts.constant(index, node)) is not None and value.size
    ]
    by = f" ({', '.join(limits)})" if limits else ""
    return codes.OG718, (
        f"{facts.check.output}: {facts.check.reason}. {node.op_type} {node.name!r}{by}"
        f"{at(of_node(node, None))} chooses how many there are: compare what it chooses by with the "
        "module's"
    )


def another_form(facts: DivergenceFacts) -> Hint:
    """An output is there and has another dtype, shape or number."""
    if facts.check.form is None:
        return None
    return codes.OG122, (
        f"{facts.check.output}: {facts.check.reason}. Whoever reads the output gets another type "
        "than from PyTorch: look at what the export script adds behind the model, and for a .half(), "
        ".float() or squeeze() on one side only"
    )


def stale(facts: DivergenceFacts) -> Hint:
    """The committed file was made from something else, and not only its graph is another one."""
    only = any(each.kind == "graph" and each.decisive for each in facts.diagnosis.evidence)
    if facts.diagnosis.blame != "stale artifact" or only:
        return None
    anew = remedy_of_stale(facts.diagnosis.evidence)
    return codes.OG125, f"the committed file was not made from this model and these weights: {anew}"


def fused(facts: DivergenceFacts) -> Hint:
    """ONNX Runtime's optimiser changes the numbers."""
    diagnosis = facts.diagnosis
    if diagnosis.blame != "optimiser":
        return None
    name = diagnosis.fused_by
    if not name:
        return codes.OG306, (
            "the graph agrees with optimisations off: ship with optimization: off, or the highest "
            "level that agrees, and report it to ONNX Runtime"
        )
    return codes.OG306, (
        f"ONNX Runtime's {name} changes the numbers, and the graph agrees without it: ship with "
        f"session_options: {{optimization.disable_specified_optimizers: {name}}} and report it, or "
        "write the model so that the pattern is not matched"
    )


def masked(facts: DivergenceFacts) -> Hint:
    """Attention over a row that is masked from end to end."""
    born = facts.diagnosis.nonfinite
    if born is not None and born.op_type not in _ATTENTION:
        return None
    inputs = facts.check.edge == "masks" and facts.op in _ATTENTION | _AROUND_ATTENTION
    lost = facts.one_nan and (born is not None or math.isnan(facts.expected))
    meaningless = lost or 0.0 in (facts.expected, facts.actual)
    if not inputs and not (facts.op in _ATTENTION and meaningless):
        return None
    return codes.OG705, (
        f"{facts.diagnosis.against} has {facts.expected:.4g} and {facts.check.runtime} "
        f"{facts.actual:.4g} where a row of the mask lets nothing through: Softmax over -inf alone is "
        "NaN, over the smallest number exporters write for it the mean, and "
        "scaled_dot_product_attention of PyTorch returns 0. Let every row see one position at least"
    )


def not_a_number(facts: DivergenceFacts) -> Hint:
    """NaN on one side only, behind an operator that chooses."""
    # What the file makes of numbers is handed on by nobody.
    if facts.diagnosis.nonfinite is not None:
        return None
    if not facts.one_nan or not (facts.op in _CHOOSE or facts.check.edge == "nan"):
        return None
    who = facts.diagnosis.against if math.isnan(facts.expected) else facts.check.runtime
    operator = facts.op or "an operator"
    return codes.OG709, (
        f"NaN is handed on by {who} only, at {operator}: comparisons with NaN are false, and the "
        "runtimes do not agree on what a maximum, a clip or a sign of it is. Replace NaN before the "
        "model, or with torch.nan_to_num inside"
    )


def overflow(facts: DivergenceFacts) -> Hint:
    """A number too large for the dtype on one side."""
    born = facts.diagnosis.nonfinite
    if born is not None:
        return _overflowing(born)
    worst = [abs(v) for v in (facts.expected, facts.actual) if math.isfinite(v)]
    infinite = math.isinf(facts.expected) != math.isinf(facts.actual)
    half = facts.uses(onnx.TensorProto.FLOAT16)
    limit = _HALF if half else _FLOAT
    beyond = any(0.5 * limit <= v for v in worst)
    born_in_half = half and facts.one_finite and facts.dtype() in ("float16", "")
    if (
        not (infinite and beyond)
        and not born_in_half
        and not (half and any(v > _HALF for v in worst))
    ):
        return None
    name, most = ("float16", "65504") if half else ("float32", "3.4e38")
    finite = f"{max(worst):.4g}" if worst else "no number"
    return codes.OG704, (
        f"one side overflows {name}, which ends at {most}, and the other has {finite}: a value in "
        "between is too large. Scale it down before squares, sums and exponentials, or keep those in "
        "a wider dtype"
    )


def _overflowing(born: Nonfinite) -> Hint:
    if not math.isinf(born.made) or _at_its_end(born):
        return None
    of = " and ".join(f"{number:.4g}" for number in born.of)
    less = (
        "Take the largest argument off before it, as torch.logsumexp and softmax do"
        if born.op_type == "Exp"
        else "Scale it down before squares, sums and exponentials, or keep those in a wider dtype"
    )
    return codes.OG704, (
        f"{born.op_type} of the file overflows {born.dtype}: it makes {born.made:g} of "
        f"{of or 'numbers'}. {less}"
    )


def _at_its_end(born: Nonfinite) -> bool:
    """Return whether a node makes NaN, or an infinity of zero, as who divides by it does."""
    return born.op_type in _PARTIAL and (math.isnan(born.made) or 0.0 in born.of)


def log_of_sigmoid(facts: DivergenceFacts) -> Hint:
    """A logarithm of what is 0 too early."""
    before = facts.op == "Sigmoid" and "Log" in facts.read_by()
    # Measured by its largest values neither of the two is wrong alone.
    last = facts.maker if not facts.op and math.isinf(facts.actual) else facts.node
    if not before and not (last.op_type == "Log" and facts.made_by(0, last) == "Sigmoid"):
        return None
    return codes.OG126, (
        "the graph takes Log(Sigmoid(x)): ONNX Runtime's Sigmoid is 0 below -18, so the result is "
        "-inf there. Write -torch.nn.functional.softplus(-x)"
    )


def domain(facts: DivergenceFacts) -> Hint:
    """A root, logarithm or quotient at the end of where it is defined."""
    born = facts.diagnosis.nonfinite
    if born is not None and not _at_its_end(born):
        return None
    op = facts.op if born is None else born.op_type
    if op not in _PARTIAL or not facts.one_finite:
        return None
    where = "zero" if op in _QUOTIENTS else "zero or a negative number"
    clamp = "min=1e-6"
    if op in _OF_COSINES:
        where, clamp = "a number beyond -1 or 1", "-1, 1"
    half = born is not None and born.dtype == "float16"
    constant = None if half else tiny_constant(facts)
    if constant is not None or _own_quotient(facts, op):
        return constant
    if half:  # what was added is there, and is none
        where += ", as everything below 3e-8 is in float16,"
    return codes.OG712, (
        f"{op} meets {where} on one side: {facts.diagnosis.against} has {facts.expected:.4g}, "
        f"{facts.check.runtime} {facts.actual:.4g}. Rounding of 1e-7 before it is enough; clamp its "
        f"argument, x.clamp({clamp})"
    )


def _own_quotient(facts: DivergenceFacts, op: str) -> bool:
    """Return whether the quotient is the exporter's own, as that of an ``atan2``: nobody can clamp it."""
    source = facts.diagnosis.source
    if facts.diagnosis.blame != "exporter" or source is None or op not in _QUOTIENTS:
        return False
    return _DIVIDES.search(source.code) is None


def tiny_constant(facts: DivergenceFacts) -> Hint:
    """The line adds a constant that the exporter takes for zero."""
    said, source = facts.said(codes.OG124), facts.diagnosis.source
    if said is not None:
        line = said.data.get("code")
        lacks = f"the graph lacks a constant that {f'`{line}`' if line else 'the module'} adds"
    elif source is None:
        return None
    else:
        tiny = _TINY.search(source.code)
        if tiny is None or not 0 < float(tiny[1]) <= 1e-8 or facts.has_constant(float(tiny[1])):
            return None
        lacks = f"the graph has no constant {tiny[1]}, and `{source.code}` does"
    return codes.OG124, (
        f"{lacks}: the exporter drops an addition of anything up to 1e-8. Use a larger constant, or "
        "clamp(min=...)"
    )


def dropped(facts: DivergenceFacts) -> Hint:
    """The exporter has left out a constant that kept what a root or a quotient reads from zero."""
    # What is dropped is an addition: the node before it is as wrong as the one that reads its sum.
    guarded = facts.op in _PARTIAL or not facts.read_by().isdisjoint(_PARTIAL)
    return tiny_constant(facts) if guarded and facts.diagnosis.blame == "exporter" else None


def converted(facts: DivergenceFacts) -> Hint:
    """The file was converted from another opset, and the operator changed in between."""
    older = torch_exporter_of(facts.proto) == "torchscript"  # which writes each opset by itself
    if facts.proto.producer_name != "pytorch" or older or not 0 < facts.opset < _TRANSLATED_AT:
        return None
    changes = changed_between(facts.op, facts.opset, _TRANSLATED_AT)
    if not changes:
        return None
    return codes.OG119, (
        f"{facts.op} changed at opset {' and '.join(map(str, changes))}, and the file was converted "
        f"down to {facts.opset}: export at opset {_TRANSLATED_AT} or later to see whether the "
        "conversion is to blame"
    )


def undecided(facts: DivergenceFacts) -> Hint:
    """Places among equal values, which PyTorch itself does not decide."""
    node = facts.maker
    if facts.diagnosis.blame != "ill-conditioned" or node.op_type not in CHOOSERS:
        return None
    return codes.OG708, (
        f"{node.op_type} chooses among values that are equal, or within rounding of it, and PyTorch "
        "itself answers otherwise when rounding moves. Make the values distinct, leave out "
        "indices: exact, or give the values and not the places"
    )


# The first that speaks has the last word: what it sees explains the divergence.
_OF_THE_FORM: tuple[Rule, ...] = (refused, chosen, another_form, stale, fused)
LACKING_RULES: tuple[Rule, ...] = (*_OF_THE_FORM, dropped)
DECISIVE_RULES: tuple[Rule, ...] = (
    *(*_OF_THE_FORM, undecided),
    *(masked, log_of_sigmoid, overflow, domain, dropped, not_a_number),
)
