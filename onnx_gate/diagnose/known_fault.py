"""What a diagnosis has singled out, as the facts that the book of known faults is held against."""

from __future__ import annotations

from collections.abc import Iterable

from onnx_gate.diagnose.hints.facts import DivergenceFacts
from onnx_gate.graph.module_path import props_of
from onnx_gate.graph.walk import attributes_of
from onnx_gate.known import Failure, Known, find
from onnx_gate.known.book import versions
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.report.model import Check
from onnx_gate.report.model.diagnosis import Diagnosis
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.sessions import placed_on

_FX_NODE = "pkg.torch.onnx.fx_node"


def known_fault(
    diagnosis: Diagnosis, exported: Exported, check: Check, runtimes: Iterable[RuntimeSpec]
) -> Known | None:
    """Return the known fault that explains a diagnosis, ``None`` where the book has none."""
    try:
        runtime = next((each for each in runtimes if each.label == check.runtime), None)
        return find(facts_of(diagnosis, exported, check, runtime))
    except Exception:  # a graph that nobody has seen the like of must not cost the diagnosis
        return None


def facts_of(
    diagnosis: Diagnosis, exported: Exported, check: Check, runtime: RuntimeSpec | None
) -> Failure:
    """Return the facts of a diagnosed check: of the node that it blames, and of whom."""
    facts = DivergenceFacts(diagnosis, exported.proto, check)
    refused, refusal = bool(check.refused), check.refusal
    operator = facts.op or str(refusal.get("op_type", ""))
    gave_up = facts.find(str(refusal.get("node", "")), operator, "") if not facts.op else None
    node = gave_up or facts.node
    return Failure(
        stage="run" if refused else "diverged",
        versions=versions(),
        message=check.reason if refused else "",
        exporter=exported.exporter,
        engine=runtime.name if runtime is not None else "",
        provider=placed_on(runtime) if runtime is not None else "",
        blame=diagnosis.blame,
        operator=operator,
        attributes=attributes_of(node, facts.opset),
        dtypes=tuple(kind for i in range(len(node.input)) if (kind := facts.dtype(i))),
        fused_by=diagnosis.fused_by or "",
        source=props_of(node).get(_FX_NODE, ""),
        nonfinite=facts.one_finite or facts.one_nan,
    )
