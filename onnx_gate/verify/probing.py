"""After the checks of a model that passed: what no input reached is compared at its operator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnx_gate.deadline import Deadline
from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.graph.steer import Steered
from onnx_gate.report.io import to_message
from onnx_gate.report.story import decisions
from onnx_gate.report.story.summary import distinct_digits
from onnx_gate.runtimes.base import Array, Refusal, first_line
from onnx_gate.text import number
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.inputs.draw import FLOATS
from onnx_gate.verify.pairing import order_of
from onnx_gate.verify.reach.account import described
from onnx_gate.verify.reach.probe import EXACT, HALF, INTEGER, Probe, probe, to_compare
from onnx_gate.verify.reach.sites import Seen
from onnx_gate.verify.reach.watch import Watch
from onnx_gate.verify.sessions import rounded

# Both sides keep every value of one case, and the file its weights a second time.
MOST_BYTES = 2**28
# Up to a thousand times what is drawn; what lies beyond that is no value of anybody's.
_DOUBLINGS = 11
_REAL = "Real data or a generator that leads there makes it count"
_HALVES = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def may_probe(checker: Checker) -> bool:
    """Return whether there is something to compare, and inputs to begin with."""
    explorer = checker.explorer
    plain = checker.setting.spec.reference is None and not checker.setting.patterns
    watched = bool(explorer.bases) and not explorer.watcher.lost
    return plain and watched and bool(to_compare(explorer.watcher, explorer.doubted))


def probed_as_data(
    checker: Checker, exported: Exported, workspace: Path, deadline: Deadline
) -> dict[str, Any]:
    """Compare what can be; return decisions and findings as data, or why nothing could be compared."""
    if exported.size > MOST_BYTES:
        return skipped(f"the file is larger than {MOST_BYTES >> 20} MiB")
    try:
        found = compared_at_operators(checker, exported.path, deadline)
    except Refusal as refusal:
        return skipped(f"it cannot be run node by node: {first_line(refusal)}")
    decisions = checker.explorer.account(workspace, {(each.site, each.side) for each in found})
    seen, remedy = checker.explorer.watcher.seen, partial(_remedy, checker)
    findings = [finding_of(p, seen[p.site], workspace, remedy) for p in found if p.differs]
    return {
        "decisions": None if decisions is None else to_message(decisions),
        "findings": [to_message(each) for each in findings],
    }


def skipped(why: str) -> dict[str, Any]:
    """Return data that says why nothing was compared."""
    note = f"what no input reached was not compared at its operator: {why}"
    return {"findings": [to_message(codes.OG406.finding(note))]}


def compared_at_operators(
    checker: Checker, path: Path, deadline: Deadline | None = None
) -> list[Probe]:
    """Return the sides that no input reached and that were compared, in time; raises ``Refusal``."""
    explorer, arrays = checker.explorer, checker.explorer.base.arrays
    model = onnx.load(str(path), load_external_data=False)
    feeds = {graph: arrays[name] for name, graph in checker.setting.graph_inputs.items()}
    nearness = EXACT if checker.setting.reduced is None else INTEGER
    if checker.setting.half is not None:
        elements = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
        halves = {n for n, kind in elements.items() if kind in _HALVES}
        feeds, nearness = rounded(feeds, halves, checker.setting.half), HALF
    names = checker.setting.eager.run(arrays).names
    order = order_of(names, checker.setting.graph_outputs, checker.setting.spec)[0]
    steered = Steered(model, path, feeds, given=checker.setting.graph_ranges)
    ranged = {name for name, each in checker.setting.spec.inputs.items() if each.range is not None}
    tried, doubted = explorer.tried, explorer.doubted
    late = deadline.passed if deadline is not None else lambda: False
    return [
        *probe(explorer.watcher, arrays, tried, steered, order, ranged, nearness, doubted, late)
    ]


def finding_of(
    each: Probe, seen: Seen, workspace: Path, remedy: Callable[[Probe], str] = lambda _: _REAL
) -> Finding:
    """Return what to say of a side at which the file differs, of a decision that was ``seen`` so far."""
    reached = "which no input reached"
    if each.side in seen.sides:  # no range keeps inputs from what they have reached
        reached, remedy = "where inputs leave it open", lambda _: _REAL
    decision = described(each.site, (each.side,), workspace)
    source = decision.source
    expected, actual = distinct_digits(each.expected, each.actual, 2)
    return codes.OG419.finding(
        f"{decisions.where(decision)}: {decision.operator} {decisions.beyond(decision)}, {reached}: with "
        f"such values put in, the file answers {actual} where PyTorch answers {expected}. {remedy(each)}",
        at=source,
    )


def _remedy(checker: Checker, each: Probe) -> str:
    """Return the ranges that rule a side out and that make it count, where larger inputs lead there."""
    watcher, start = checker.explorer.watcher, checker.explorer.base.arrays
    free = [
        n for n, s in checker.setting.spec.inputs.items() if s.range is None and s.dtype in FLOATS
    ]
    ends = {n: max(map(abs, watcher.hulls[n])) for n in free if n in watcher.hulls}
    for doubling in range(1, _DOUBLINGS):
        larger = {n: _scaled(start[n], 2**doubling * end) for n, end in ends.items()}
        watch = Watch(watcher)
        with suppress(Refusal):
            checker.setting.eager.run({**start, **larger}, mode=watch)
        if each.site in watch.seen and each.side in watch.seen[each.site].sides:
            rules_out, counts = (
                ", ".join(
                    f"{n}: [{number(-size * end)}, {number(size * end)}]" for n, end in ends.items()
                )
                for size in (1, 2**doubling)
            )
            return f"`range` {rules_out} rules it out; {counts} makes it count"
    return _REAL


def _scaled(array: Array, largest: float) -> Array:
    """Return an array of which the largest magnitude is ``largest``."""
    wide = array.astype(np.float64)
    scaled: Array = (wide * (largest / max(np.abs(wide).max(initial=0.0), 1e-30))).astype(
        array.dtype
    )
    return scaled
