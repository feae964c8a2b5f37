"""After the checks of a model that passed: what no input reached is compared at its operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.graph.steer import Steered
from onnx_gate.report.io import to_message
from onnx_gate.report.story import decided
from onnx_gate.runtimes.base import Refusal
from onnx_gate.text import number
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.pairing import order_of
from onnx_gate.verify.reach.account import described
from onnx_gate.verify.reach.probe import Probe, probe

# Both sides keep every value of one case, and the file its weights a second time.
_MOST_BYTES = 2**28


def may_probe(checker: Checker, exported: Exported) -> bool:
    """Return whether there is something to compare, and a file that can be taken apart for it."""
    explorer = checker.explorer
    plain = checker.spec.reference is None and checker.reduced is None and not checker.patterns
    watched = bool(explorer.bases) and not explorer.watcher.lost and bool(explorer.watcher.open())
    return plain and watched and exported.size <= _MOST_BYTES


def probed_as_data(checker: Checker, exported: Exported, workspace: Path) -> dict[str, Any]:
    """Compare what can be; return decisions and findings as data, nothing where nothing could be."""
    try:
        found = compared_at_operators(checker, exported.path)
    except Refusal:
        return {}
    decisions = checker.explorer.account(workspace, {(each.site, each.side) for each in found})
    return {
        "decisions": None if decisions is None else to_message(decisions),
        "findings": [to_message(_finding(p, workspace)) for p in found if p.differs],
    }


def compared_at_operators(checker: Checker, path: Path) -> list[Probe]:
    """Return the sides that no input reached and that were compared; raises ``Refusal``."""
    explorer, arrays = checker.explorer, checker.explorer.base.arrays
    model = onnx.load(str(path), load_external_data=False)
    feeds = {graph: arrays[name] for name, graph in checker.graph_inputs.items()}
    names = checker.eager.run(arrays).names
    order = order_of(names, checker.graph_outputs, checker.spec)[0]
    steered = Steered(model, path, feeds)
    ranged = {name for name, each in checker.spec.inputs.items() if each.range is not None}
    return list(probe(explorer.watcher, arrays, explorer.tried, steered, order, ranged))


def _finding(each: Probe, workspace: Path) -> Finding:
    decision = described(each.site, (each.side,), workspace)
    source = decision.source
    return codes.OG419.finding(
        f"{decided.where(decision)}: {decision.operator} {decided.beyond(decision)}, which no input "
        f"reached: with such values put in, the file answers {number(each.actual)} where PyTorch "
        f"answers {number(each.expected)}. A range or real data that leads there makes it count",
        file=None if source is None else source.file,
        line=None if source is None else source.line,
    )
