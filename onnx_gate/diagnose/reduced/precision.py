"""The diagnosis of a file that computes in fewer bits: what each layer costs, and which costs too much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import onnx

from onnx_gate.diagnose.bench import Bench
from onnx_gate.diagnose.dequantised import told_of_constant, told_of_packed
from onnx_gate.diagnose.reduced.join import snr
from onnx_gate.diagnose.reduced.layers import Weighed, weigh_layers
from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.graph.graph import read_graph
from onnx_gate.manifest.spec import Against
from onnx_gate.report.model import Check, ModelResult
from onnx_gate.report.model.check import REACHED
from onnx_gate.report.model.diagnosis import (
    Diagnosis,
    Evidence,
    LayerCost,
    NodeError,
    Precision,
    Saturated,
)
from onnx_gate.report.story.precision import RIGHT, WIDER, decibels, layer_name, saturation
from onnx_gate.runtimes.base import Refusal
from onnx_gate.runtimes.file_module import PLAIN
from onnx_gate.verify.context import Reduced
from onnx_gate.verify.subject import Subject

# Calibration by entropy or percentiles gives up some values in a thousand, and other draws than those
# that it saw are beyond it in 1 or 2 %.
_CUT_OFF = 0.05
_CONTRIB = "com.microsoft"
# Layers that the report lists, the costliest first.
MOST = 50
# With optimisations off it is that much nearer to PyTorch, half of the noise (in amplitude) and more
# gone: then it is no matter of the bits.
_OPTIMISED_DB = 6.0
# Where a layer is wrong that has scales, and one that has none.
_NO_OTHER = "no other is noisy at all"
_LOOKED_AT = ("its scale, its zero point and its weights", "its weights and what it computes")


def clearest(result: ModelResult) -> Check | None:
    """Return the check on which layers are weighed: where it diverged, with the least noise.

    What is wrong with a layer is wrong in all of them, and the least is hidden by values beyond
    those that the scales were made for, as edges and what was reached have.
    """
    counting = [c for c in result.checks if not c.advice and c.metrics is not None]
    wrong = [c for c in counting if c.verdict == "diverged"] or counting
    ordinary = [c for c in wrong if not c.edge and c.suite != REACHED]
    return max(ordinary or wrong, key=_nearness, default=None)


def _nearness(check: Check) -> float:
    db = check.metrics.snr_db if check.metrics is not None else None
    return -math.inf if db is None or math.isinf(db) else float(db)


def is_beyond_bits(check: Check | None, reduced: Reduced | None) -> bool:
    """Return whether one side alone has a number where a check failed: that is none of integers' noise.

    Half precision overflows.
    """
    worst = None if check is None or reduced is None or reduced.is_half else check.worst
    return worst is not None and worst.one_finite


def with_layers(
    subject: Subject, precision: Precision, seconds: float
) -> tuple[Precision, Weighed]:
    """Add what the layers cost; no tolerance is proposed that lets more pass than the bits explain."""
    if subject.reduced is None:
        return precision, Weighed()
    try:
        weighed = weigh_layers(subject, subject.reduced, seconds)
    except Refusal:
        return precision, Weighed()
    suspect = weighed.suspect
    told = _of_weight(subject, weighed)
    first = told[0] if told is not None else suspect
    worst = sorted(weighed.layers, key=lambda each: (each is not first, each.snr_db))[:MOST]
    left_db = weighed.left_db
    update: dict[str, Any] = {"layers": tuple(worst), "suspect": suspect, "left_db": left_db}
    update |= {"proposals": ()} if first or left_db is not None else {}
    return precision.model_copy(update=update), replace(weighed, told=told)


def suspicion(precision: Precision, against: Against) -> tuple[Finding, ...]:
    """Return what to say of the layer, or the file, that costs more than its bits explain.

    An error where a scale is wrong: no tolerance is meant to let that through. Other noise may be
    what the owner has decided to bear.
    """
    suspect = precision.suspect
    if suspect is None and precision.left_db is not None:
        return (
            codes.OG415.finding(
                f"{precision.dtype} alone leaves {decibels(precision.left_db)} of signal to noise, and "
                "the file has much less: it differs by more than its bits",
                severity="warning",
            ),
        )
    if suspect is None:
        return ()
    cause = f"Look at {_LOOKED_AT[precision.how == 'half']}"
    if suspect.gain is not None:
        cause = f"Its output is {suspect.gain:.3g} times {against}'s, so one of its scales is wrong"
    return (
        codes.OG415.finding(
            f"{layer_name(suspect)} is {decibels(suspect.snr_db)} of signal to noise on {against}'s "
            f"own inputs, {_others(suspect, precision.layers, _NO_OTHER)}: more noise than "
            f"{precision.dtype} explains. {cause}",
            severity="warning" if suspect.gain is None else "error",
            at=suspect.source,
        ),
    )


def cut_off(precision: Precision) -> tuple[Finding, ...]:
    """Return what to say of a scale that cuts off more than those of calibration are meant to."""
    worst = _cuts_most(precision)
    if worst is None:
        return ()
    return (
        codes.OG420.finding(_told_of_scale(worst, precision), severity="warning", at=worst.source),
    )


def _cuts_most(precision: Precision) -> Saturated | None:
    """Return the quantiser that cuts off more than those of calibration are meant to, the worst."""
    worst = next(iter(precision.saturated), None)
    return None if worst is None or worst.share < _CUT_OFF else worst


def _cut_by(subject: Subject, precision: Precision) -> Saturated | None:
    """Return the quantiser of the suspect's own output that cuts off that much.

    What others behind it cut off is beyond their scales for what the suspect has made of it.
    """
    output = precision.suspect.output if precision.suspect is not None else ""
    made = {name: node for node in subject.exported.proto.graph.node for name in node.output}
    own = {output, *(made[output].input if output in made else ())}
    return next((c for c in precision.saturated if c.output in own and c.share >= _CUT_OFF), None)


def _told_of_scale(cut: Saturated, precision: Precision) -> str:
    return f"{saturation(cut)} are cut off by its scale of {precision.dtype}"


def of_layers(
    subject: Subject, precision: Precision, weighed: Weighed, seconds: float
) -> Diagnosis | None:
    """Return the diagnosis that a check diverged by what its layers cost.

    ``None`` where no layer could be weighed, and where optimisations cost more than all layers.
    """
    layers = precision.layers
    if not layers or _optimised(subject, seconds):
        return None
    worst, cause = weighed.told or (precision.suspect or layers[0], "")
    remedy = RIGHT if cause else ""
    cut = _cuts_most(precision) if precision.suspect is None else _cut_by(subject, precision)
    if cut is not None and not cause:
        cause, remedy = _told_of_scale(cut, precision), WIDER
    # What the bits do not explain is wrong where no layer could be told from another.
    elsewhere = precision.suspect is None and precision.left_db is not None and not cause
    others = "no other could be told" if elsewhere else _NO_OTHER
    outcome = f"{layer_name(worst)}: {decibels(worst.snr_db)}, {_others(worst, layers, others)}"
    if precision.suspect is not None:
        outcome += f"; {precision.dtype} does not explain that"
    ordered = sorted(layers, key=lambda each: _position(subject, each))
    return Diagnosis(
        runtime=subject.check.runtime,
        case=subject.check.case,
        output=subject.check.output,
        blame="reduced precision",
        against=subject.spec.against,
        evidence=(
            Evidence(
                kind="layers",
                decisive=True,
                experiment=f"each layer alone on {subject.spec.against}'s own values of its inputs, "
                "signal to noise",
                outcome=outcome,
                agrees=False,
                error=_share(worst.snr_db),
            ),
        ),
        node=None if elsewhere else worst.node,
        cause=cause,
        remedy=remedy,
        source=None if elsewhere else worst.source,
        nodes=tuple(
            NodeError(
                **each.node.model_dump(), error=_share(each.total_db), born=_share(each.snr_db)
            )
            for each in ordered
        ),
        guilty=None if elsewhere else ordered.index(worst),
    )


def _of_weight(subject: Subject, weighed: Weighed) -> tuple[LayerCost, str] | None:
    """Return the layer that is noisy by its weight, and what became of that."""
    module, against, wrong = subject.eager.module, subject.spec.against, weighed.constant
    if wrong is not None and weighed.suspect is not None:
        node = weighed.made_by.proto if weighed.made_by is not None else onnx.NodeProto()
        told = told_of_constant(wrong, node, weighed.reads, module, against)
        return weighed.suspect, told
    # Who packs a weight with itself has it in no value that anybody could be asked for.
    graph = read_graph(subject.exported.proto, subject.exported.path)
    nodes = {(node.proto.name, node.op_type): node for node in graph.nodes}
    for layer in weighed.layers:
        product = nodes.get((layer.name, layer.op_type))
        if product is not None and product.proto.domain == _CONTRIB:
            stored = [n for n in product.inputs if n in graph.constants]
            feeds = {n: graph.constants.array(n) for n in stored}
            told = told_of_packed(product.proto, feeds, module, layer.module or "", against)
            if told:
                return layer, told
    return None


def _others(worst: LayerCost, layers: Sequence[LayerCost], otherwise: str) -> str:
    others = [each.snr_db for each in layers if each is not worst and each != worst]
    if not others:
        return f"and {otherwise}"
    return f"the others from {decibels(min(others))} to {decibels(max(others))}"


def _position(subject: Subject, layer: LayerCost) -> int:
    names = [output for node in subject.exported.proto.graph.node for output in node.output]
    return names.index(layer.output) if layer.output in names else len(names)


def _optimised(subject: Subject, seconds: float) -> bool:
    """Return whether the file is much nearer to PyTorch with optimisations off."""
    if subject.runtime.optimization == "off" or subject.check.metrics is None:
        return False
    expected = subject.eager.run(subject.arrays).arrays[subject.output]
    plain = Bench(subject, seconds).runtime(PLAIN, subject.arrays)
    if plain.array is None or plain.array.shape != expected.shape:
        return False
    usual = subject.check.metrics.snr_db
    return usual is not None and snr(plain.array, expected) > usual + _OPTIMISED_DB


def _share(db: float) -> float:
    """Return noise over signal, as amplitudes."""
    if math.isinf(db):
        return math.inf if db < 0 else 0.0
    return float(10 ** (-db / 20))
