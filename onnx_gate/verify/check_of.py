"""What is known of one output of one case on one runtime, as a check of the report."""

from __future__ import annotations

from onnx_gate.report.model import Check, CheckVerdict, Form
from onnx_gate.runtimes.base import Refusal
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.judge.judgement import Judgement


def one_sided(
    case: Case,
    label: str,
    against: str,
    torch_refuses: Refusal | None,
    runtime_refuses: Refusal | None,
) -> Check:
    """Return the check of a case that one side, or both, refuse; ``against`` names the first."""
    verdict: CheckVerdict = "diverged"
    if runtime_refuses is not None and torch_refuses is not None:
        reason = f"both refuse; {against}: {torch_refuses}; {label}: {runtime_refuses}"
        verdict = "refused"
    elif runtime_refuses is not None:
        reason = f"{label} refuses: {runtime_refuses}"
    else:
        reason = f"{against} refuses ({torch_refuses}) and {label} answers"
        # A size or value that nobody asked for need not be one that the model is made for.
        asked_for = case.named and case.sized and not case.advice
        verdict = "diverged" if asked_for else "refused"
    return bare_check(case, label, "*", verdict, reason, torch_refuses, runtime_refuses)


def judged_check(case: Case, label: str, output: str, judged: Judgement, *, advice: bool) -> Check:
    """Return the check of an output that both sides have."""
    verdict: CheckVerdict = "pass" if judged.holds else "diverged"
    return bare_check(case, label, output, verdict, judged.reason).model_copy(
        update={
            "advice": advice,
            "budget": judged.budget,
            "tolerance": judged.tolerance,
            "deviation": judged.deviation,
            "metrics": judged.metrics,
            "worst": judged.worst,
            "form": judged.form,
            "compared": judged.compared,
            "open": judged.open,
            "causes": judged.causes,
        }
    )


def bare_check(
    case: Case,
    runtime: str,
    output: str,
    verdict: CheckVerdict,
    reason: str,
    torch_refuses: Refusal | None = None,
    runtime_refuses: Refusal | None = None,
    form: Form | None = None,
) -> Check:
    """Return a check without any figures."""
    return Check(
        runtime=runtime,
        suite=case.suite,
        case=case.id,
        output=output,
        verdict=verdict,
        advice=case.advice,
        reason=reason,
        sizes=dict(case.sizes),
        edge=case.edge,
        refused=(
            *(("pytorch",) if torch_refuses else ()),
            *(("runtime",) if runtime_refuses else ()),
        ),
        refusal=dict(runtime_refuses.data) if runtime_refuses else {},
        form=form,
    )
