"""What usually is behind a divergence like this one: from the guilty node to a finding's code."""

from __future__ import annotations

import onnx

from onnx_gate.diagnose.hints.facts import DivergenceFacts
from onnx_gate.diagnose.hints.operator_rules import OPERATOR_RULES
from onnx_gate.diagnose.hints.value_rules import DECISIVE_RULES, Hint, Rule, converted
from onnx_gate.findings.codes import Code
from onnx_gate.findings.finding import Finding
from onnx_gate.report.model import Check
from onnx_gate.report.model.diagnosis import Diagnosis

# More than this many guesses are no help.
_MOST = 3


def hints(diagnosis: Diagnosis, proto: onnx.ModelProto, check: Check) -> tuple[Finding, ...]:
    """Return notes on what to look at, the most telling first; empty where nothing is known.

    ``proto`` is the graph that diverged, ``check`` the check that the diagnosis is about. What the
    numbers of the worst element say comes before what the operator alone says.
    """
    # Of an operator that the graph lacks, its neighbour shows what it was there for.
    node = diagnosis.beside or diagnosis.node
    facts = DivergenceFacts(diagnosis.model_copy(update={"node": node}), proto, check)
    decisive = next((hint for rule in DECISIVE_RULES if (hint := _ask(rule, facts))), None)
    if decisive is not None:
        return (_finding(*decisive, diagnosis),)
    rules = (converted, *OPERATOR_RULES.get(facts.op, ()))
    by_code = {hint[0]: hint for rule in rules if (hint := _ask(rule, facts)) is not None}
    return tuple(_finding(*hint, diagnosis) for hint in by_code.values())[:_MOST]


def _ask(rule: Rule, facts: DivergenceFacts) -> Hint:
    try:
        return rule(facts)
    except Exception:  # a graph that no rule has seen the like of must not cost the diagnosis
        return None


def _finding(code: Code, message: str, diagnosis: Diagnosis) -> Finding:
    source = None if code.about_file else diagnosis.source
    return code.finding(
        message,
        severity="note",
        file=source.file if source is not None else None,
        line=source.line if source is not None else None,
    )
