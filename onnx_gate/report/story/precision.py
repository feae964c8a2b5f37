"""What a file that computes in fewer bits costs, in words, and a tolerance to paste."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from onnx_gate.report.model.diagnosis import LayerCost, Precision, Proposal, ReducedHow, Saturated
from onnx_gate.report.model.headroom import ValueRange
from onnx_gate.text import format_int, number, plain

_NAME = 80
_OPERATORS = 4
_OUTPUTS = 8
SHOWN_LAYERS = 5
WIDER = (
    "Give it a scale that leaves room for these values, by a Clip or a calibration that has them"
)
"""What to do about a scale that cuts values off."""
RIGHT = "Put its scale, its zero point or its weights right"
"""What to do about a weight that is another one in few bits."""
RIGHT_IN_HALF = "Put its weights right, or what it computes"
"""What to do about a layer that is another one, where there are no scales."""

_HOW: Mapping[ReducedHow, str] = {
    "static": "with fixed scales",
    "dynamic": "with the scales of the values",
    "weights": "in its weights alone",
    "half": "throughout",
}


def put_right(how: ReducedHow) -> str:
    """Return what to do about a layer that its bits do not explain."""
    return RIGHT_IN_HALF if how == "half" else RIGHT


def kind_line(precision: Precision) -> str:
    """Return ``int8 with fixed scales (14 DequantizeLinear, 6 QuantizeLinear)``."""
    operators = [
        f"{format_int(count)} {plain(name, 40)}" for name, count in precision.operators.items()
    ][:_OPERATORS]
    seen = f" ({', '.join(operators)})" if operators else ""
    return f"{plain(precision.dtype, 20)} {_HOW[precision.how]}{seen}"


def lines(precision: Precision) -> list[str]:
    """Return what it computes in, the tolerance that it meets, and its costliest layers."""
    shown = [f"computes in {kind_line(precision)}"]
    if precision.suspect is not None:
        shown.append(
            f"no tolerance is proposed: {layer_name(precision.suspect)} costs more than "
            f"{plain(precision.dtype, 20)} explains, put that right first"
        )
    elif precision.left_db is not None:
        shown.append(
            f"no tolerance is proposed: {plain(precision.dtype, 20)} alone leaves "
            f"{decibels(precision.left_db)}"
        )
    elif precision.proposals:
        offers = offered(precision.proposals)
        shown += [yaml(precision)] if offers else []
        # What the manifest has needs no reason.
        told = [each for each in precision.proposals if offers or not each.tolerance]
        shown += [reason(each) for each in told[:_OUTPUTS]]
    costs = [
        f"{layer_name(each)} {decibels(each.snr_db)}" for each in precision.layers[:SHOWN_LAYERS]
    ]
    cut = [saturation(each) for each in precision.saturated[:SHOWN_LAYERS]]
    if cut:
        shown.append(f"cut off by their scales: {', '.join(cut)}")
    if costs:
        shown.append(f"signal to noise of its layers, the costliest first: {', '.join(costs)}")
    return shown


def yaml(precision: Precision) -> str:
    """Return the tolerance as the manifest has it: the model's, or each output's own.

    A manifest that names one output as the file does names them all.
    """
    offers = {each.output: each for each in offered(precision.proposals)}
    if len(precision.proposals) == 1 and offers:
        return f"tolerance: {_flow(precision.proposals[0])}"
    names = precision.names or {name: name for name in offers}
    own = [
        f"{_key(name)}: {_flow(offers[output]) if output in offers else 'null'}"
        for output, name in names.items()
    ]
    return f"outputs: {{{', '.join(own)}}}"


def offered(proposals: Sequence[Proposal]) -> list[Proposal]:
    """Return the proposals that propose something, none where the manifest has all of it."""
    some = [each for each in proposals if each.tolerance]
    return [] if all(each.had for each in some) else some


def reason(proposal: Proposal) -> str:
    """Return what a proposal rests on, or why there is none."""
    if not proposal.tolerance and proposal.margin_db >= proposal.snr_db > 0:
        return (
            f"no tolerance is proposed for {plain(proposal.output, _NAME)}: two draws of equal sizes are "
            f"{decibels(proposal.margin_db)} apart, and the worst has {decibels(proposal.snr_db)}"
        )
    if not proposal.tolerance:
        return (
            f"no tolerance is proposed for {plain(proposal.output, _NAME)}: "
            f"{decibels(proposal.snr_db)} ({plain(proposal.case, _NAME)}) is more than fewer bits lose"
        )
    agreeing = (
        f", the largest element at the same place in {100 * proposal.top1:.3g} % of rows"
        if proposal.top1 is not None
        else ""
    )
    margin = (
        "which is how far two draws of equal sizes are apart"
        if proposal.draws
        else "the usual margin, as no two draws have equal sizes"
    )
    return (
        f"that is the worst of {format_int(proposal.checks)} checks of {plain(proposal.output, _NAME)} "
        f"({plain(proposal.case, _NAME)}: {decibels(proposal.snr_db)}{agreeing}) less "
        f"{decibels(proposal.margin_db)}, {margin}"
    )


def reason_and_action(precision: Precision) -> tuple[str, str]:
    """Return why a file in fewer bits differs in a phrase, and what to do in a sentence."""
    suspect = precision.suspect
    dtype = plain(precision.dtype, 20)
    if suspect is None and precision.left_db is not None:
        return (
            f"the file differs by more than {dtype}, which alone leaves {decibels(precision.left_db)}",
            ("Hold its operators and weights against the model's."),
        )
    if suspect is None:
        costliest = f", most of it in {layer_name(precision.layers[0])}" if precision.layers else ""
        if offered(precision.proposals):
            action = f"Paste `{yaml(precision)}`."
        elif precision.proposals:
            action = "Leave its costliest layers in float32, or find other scales for them."
        else:
            action = ""
        return f"the file computes in {dtype}{costliest}", action
    off = (
        f"is {suspect.gain:.3g} times what it should be"
        if suspect.gain is not None
        else "is too noisy"
    )
    why = f"the output of {layer_name(suspect)} {off}"
    return why, f"{put_right(precision.how)}."


def saturation(layer: Saturated) -> str:
    """Return ``12 % of body (QuantizeLinear q1)``."""
    return f"{100 * layer.share:.3g} % of {layer_name(layer)}{_beyond(layer)}"


def _beyond(layer: Saturated) -> str:
    """Return which values are cut off, as far as that is known."""
    low, high = layer.ends or (-math.inf, math.inf)
    ends = [
        f"{side} {number(end)}"
        for side, end in (("below", low), ("above", high))
        if math.isfinite(end)
    ]
    return f" ({' or '.join(ends)})" if ends else ""


def layer_name(layer: LayerCost | Saturated | ValueRange) -> str:
    """Return ``blocks.3.attn (MatMul node_1, models/a.py:37)``, as far as it is known."""
    node = " ".join(plain(part, _NAME) for part in (layer.op_type, layer.name or layer.output))
    source = layer.source
    where = f", {plain(source.file, _NAME)}:{format_int(source.line)}" if source is not None else ""
    return f"{plain(layer.module, _NAME)} ({node}{where})" if layer.module else f"{node}{where}"


def decibels(value: float) -> str:
    """Return ``34.5 dB``."""
    return f"{value:.1f} dB" if abs(value) < 1e6 else ("∞ dB" if value > 0 else "-∞ dB")


def _flow(proposal: Proposal) -> str:
    return "{" + ", ".join(f"{plain(k, 20)}: {v:.10g}" for k, v in proposal.tolerance.items()) + "}"


def _key(name: str) -> str:
    shown = plain(name, _NAME).replace("`", "'")  # it is shown between backticks
    return shown if shown.replace("_", "a").isalnum() else f'"{shown}"'
