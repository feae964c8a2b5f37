"""What usually is behind a divergence like this one: from the guilty node to a finding's code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx

from onnx_gate.diagnose.hints.facts import DivergenceFacts
from onnx_gate.diagnose.hints.operator_rules import OPERATOR_RULES
from onnx_gate.diagnose.hints.value_rules import (
    DECISIVE_RULES,
    LACKING_RULES,
    Hint,
    Rule,
    converted,
)
from onnx_gate.findings.codes import Code
from onnx_gate.findings.finding import GUESS, Finding
from onnx_gate.report.model import Check
from onnx_gate.report.model.diagnosis import Diagnosis

# More than this many guesses are no help.
_MOST = 3


def explaining(
    diagnosis: Diagnosis,
    proto: onnx.ModelProto,
    check: Check,
    checks: Iterable[Check] = (),
    said: Sequence[Finding] = (),
) -> tuple[Finding, ...]:
    """Return what the numbers of the worst element, or an experiment, show to be behind it.

    ``proto`` is the graph that diverged, ``check`` the check that the diagnosis is about, of all the
    ``checks``; ``said`` is what the model's findings are already.
    """
    own = [each for each in checks if each.runtime == check.runtime and not each.advice]
    never_runs = bool(own) and all(each.refused for each in own)
    facts = _facts(diagnosis, proto, check, never_runs=never_runs, said=said)
    # Where the graph lacks an operator its neighbour is right: what the module has there is no advice.
    rules = DECISIVE_RULES if diagnosis.beside is None else LACKING_RULES
    decisive = next((hint for rule in rules if (hint := _ask(rule, facts))), None)
    return (_finding(*decisive, diagnosis),) if decisive is not None else ()


def possible(diagnosis: Diagnosis, proto: onnx.ModelProto, check: Check) -> tuple[Finding, ...]:
    """Return what the guilty operator is often wrong by; that it is here, nothing has shown."""
    facts = _facts(diagnosis, proto, check)
    rules = (converted, *OPERATOR_RULES.get(facts.op, ()))
    by_code = {hint[0]: hint for rule in rules if (hint := _ask(rule, facts)) is not None}
    told = (_finding(code, f"possible: {text}", diagnosis) for code, text in by_code.values())
    return tuple(each.model_copy(update={"data": {GUESS: True}}) for each in told)[:_MOST]


def _facts(
    diagnosis: Diagnosis,
    proto: onnx.ModelProto,
    check: Check,
    *,
    never_runs: bool = False,
    said: Sequence[Finding] = (),
) -> DivergenceFacts:
    # Of an operator that the graph lacks, its neighbour shows what it was there for.
    node = diagnosis.beside or diagnosis.node
    told = diagnosis.model_copy(update={"node": node})
    return DivergenceFacts(told, proto, check, never_runs=never_runs, said=said)


def _ask(rule: Rule, facts: DivergenceFacts) -> Hint:
    try:
        return rule(facts)
    except Exception:  # a graph that no rule has seen the like of must not cost the diagnosis
        return None


def _finding(code: Code, message: str, diagnosis: Diagnosis) -> Finding:
    source = None if code.about_file else diagnosis.source
    return code.finding(message, severity="note", at=source)
