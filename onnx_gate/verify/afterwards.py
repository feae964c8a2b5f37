"""What is added to a result once there is one: advice, operators that no input leads to, and causes.

Each is tried in a fork, within a share of the time that the model itself took: whatever becomes of it, the
result stands.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psutil

from onnx_gate.deadline import Deadline
from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.model import Check, ModelResult
from onnx_gate.report.model.decisions import Decisions
from onnx_gate.report.model.diagnosis import Diagnosis, Precision
from onnx_gate.report.model.headroom import Headroom
from onnx_gate.text import binary_size
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.context import HUNG, Context
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.loading import UNHEARD
from onnx_gate.verify.probing import probed_as_data, skipped
from onnx_gate.verify.progress import Progress
from onnx_gate.verify.subject import NO_CAUSE
from onnx_gate.workers.forked import Fork, SharedLine, Trouble, run_forked

Explain = Callable[[ModelResult, Checker, Exported, Context, float], dict[str, Any]]

# The advisory cases have this share of the time that the model itself took, within these limits, and
# this share of the memory.
_ADVICE_SHARE = 0.2
_LEAST_ADVICE_SECONDS = 5.0
_ADVICE_SECONDS = 60.0
_ADVICE_MEMORY = 0.3

# A diagnosis has this long, and this share of what is left of the model's time.
_DIAGNOSIS_SECONDS = 180.0
_DIAGNOSIS_SHARE = 0.6


def explained(
    result: ModelResult,
    checker: Checker,
    exported: Exported,
    context: Context,
    progress: Progress,
    explain: Explain,
    left: float,
) -> ModelResult:
    """Add the diagnosis, and what layers cost, if there is cause; of the time, ``left`` seconds are.

    Whatever happens in it, a verdict is made no better; a layer with a wrong scale makes it worse.
    """
    seconds = min(_DIAGNOSIS_SECONDS, _DIAGNOSIS_SHARE * left)
    beyond = result.headroom is not None and result.headroom.first is not None
    asked = result.verdict == "diverged" or result.precision is not None or beyond
    if seconds <= 1 or not asked:
        return result
    with progress.stage("diagnose" if result.verdict == "diverged" else "layers"):
        answer, trouble = run_forked(
            lambda: explain(result, checker.alone(), exported, context, seconds), seconds
        )
    if trouble:
        result = _undiagnosed(result, f"{NO_CAUSE}: {trouble}")
    precision = result.precision
    if answer.get("precision") is not None:
        precision = Precision.model_validate(answer["precision"])
    diagnosis = result.diagnosis
    if answer.get("diagnosis") is not None:
        diagnosis = Diagnosis.model_validate(answer["diagnosis"])
    known = diagnosis is not None and diagnosis.is_no_rounding
    known |= any(f.severity == "error" for f in codes.OG417.among(result.findings))
    if precision is not None and known:
        precision = precision.model_copy(update={"proposals": ()})
    told = tuple(Finding.model_validate(finding) for finding in answer.get("findings", ()))
    wrong = result.verdict == "pass" and any(finding.severity == "error" for finding in told)
    return result.model_copy(
        update={
            "diagnosis": diagnosis,
            "further": tuple(map(Diagnosis.model_validate, answer.get("further", ()))),
            "precision": precision,
            "headroom": result.headroom
            if answer.get("headroom") is None
            else Headroom.model_validate(answer["headroom"]),
            "findings": (*result.findings, *told),
            "verdict": "diverged" if wrong else result.verdict,
            "stages": tuple(progress.stages),
        }
    )


class AdvisoryCases:
    """The advisory cases of a model, each tried in a fork: an empty batch can abort ONNX Runtime.

    Where a core is idle that is ``beside`` the model's own cases. What it comes to is the same: where the
    fork would have changed what others see, all are tried again as they are where no core is idle.
    """

    def __init__(self, checker: Checker, *, beside: bool) -> None:
        """Begin with those that are tried beside others."""
        self._checker = checker
        self._begun, self._until = SharedLine(), SharedLine()
        self._fork: Fork | None = None
        if beside:
            with suppress(OSError):
                self._fork = Fork(self._work, beside=True)

    def _work(self) -> dict[str, Any]:
        checker = self._checker.alone()
        # What is said of a worker's loading is said of the worker.
        checker.setting = replace(checker.setting, loading=UNHEARD)
        return checker.advice_as_data(self._late, self._begun.write)

    def _late(self) -> bool:
        until = self._until.read()
        return bool(until) and time.monotonic() > float(until)

    def answer(self, seconds: float) -> tuple[dict[str, Any], Trouble, str]:
        """Return what they have come to as JSON data, and why not and at which case, in so many seconds."""
        failed = any(each.error is not None for each in self._checker.tally.runtimes)
        if self._fork is not None and not failed:
            self._until.write(str(time.monotonic() + seconds / 2))
            advice, trouble = self._fork.answer(seconds)
            if not trouble.acted:
                return advice, trouble, self._begun.read()
        self.end()
        self._begun.write("")
        self._until.write(str(time.monotonic() + seconds / 2))
        advice, trouble = run_forked(self._work, seconds)
        return advice, trouble, self._begun.read()

    def end(self) -> None:
        """End what is still at work."""
        if self._fork is not None:
            self._fork.end()


def advised(
    spec: ModelSpec,
    context: Context,
    result: ModelResult,
    cases: AdvisoryCases,
    progress: Progress,
    own: float,
) -> ModelResult:
    """Add what the advisory cases say; ``own`` is the seconds that the model itself took."""
    if not context.advise:
        note = codes.OG406.finding(
            "the advisory cases (large, NaN, infinite or empty inputs) were not tried: one hung in an "
            "earlier run, which the cache remembers. --no-cache tries them again",
            data={HUNG: True},
        )
        return result.model_copy(update={"findings": (*result.findings, note)})
    seconds = max(
        _LEAST_ADVICE_SECONDS, min(_ADVICE_SHARE * own, _ADVICE_SECONDS, spec.timeout / 4)
    )
    with progress.stage("advice"):
        advice, trouble, case = cases.answer(seconds)
    checks = tuple(Check.model_validate(check) for check in advice.get("checks", ()))
    findings = tuple(Finding.model_validate(finding) for finding in advice.get("findings", ()))
    if trouble:
        which = f"the advisory case {case}" if case else "an advisory case"
        findings = (
            codes.OG406.finding(
                f"{which} (large, NaN, infinite or empty inputs) took its process down: {trouble}",
                data={
                    **({"case": case} if case else {}),
                    **({HUNG: True} if not trouble.killed else {}),
                },
            ),
        )
    return result.model_copy(
        update={
            "checks": (*result.checks, *checks),
            "findings": (*result.findings, *findings),
            "stages": tuple(progress.stages),
        }
    )


def probed(
    context: Context,
    result: ModelResult,
    checker: Checker,
    exported: Exported,
    progress: Progress,
    own: float,
) -> ModelResult:
    """Add what operators answer where no input leads; ``own`` as above."""
    with progress.stage("operators"):
        seconds = max(_LEAST_ADVICE_SECONDS, _ADVICE_SHARE * own)
        # In a fork: what nobody meant for them may end a runtime's process. What it has found by half
        # the time is worth more than one answer more.
        deadline = Deadline(seconds / 2)
        data, trouble = run_forked(
            lambda: probed_as_data(checker.alone(), exported, context.workspace, deadline), seconds
        )
        data = data or skipped(str(trouble))
    told = (Finding.model_validate(finding) for finding in data.get("findings", ()))
    update: dict[str, Any] = {
        "findings": (*result.findings, *told),
        "stages": tuple(progress.stages),
    }
    if data.get("decisions") is not None:
        update["decisions"] = Decisions.model_validate(data["decisions"])
    return result.model_copy(update=update)


def room_for_a_fork(spec: ModelSpec, share: float = _ADVICE_MEMORY) -> bool:
    """Return whether this process takes no more than a share of the memory, so that it may be there twice.

    What both have in common counts for both.
    """
    return psutil.Process().memory_info().rss < share * _limit(spec)


def _undiagnosed(result: ModelResult, why: str) -> ModelResult:
    """Say why a model that diverged has no diagnosis."""
    wrong = next((c for c in result.checks if c.verdict == "diverged" and not c.advice), None)
    if result.verdict != "diverged" or wrong is None:
        return result
    return result.model_copy(update={"diagnosis": Diagnosis.undecided(wrong, why)})


def too_large(spec: ModelSpec, result: ModelResult) -> ModelResult:
    """Say of a model that diverged that there was no room to look for the cause."""
    used, limit = psutil.Process().memory_info().rss, _limit(spec)
    why = (
        f"not looked into: verifying takes {binary_size(used)} of the {binary_size(limit)} "
        "that the model may use, and a diagnosis takes as much again; raise its memory"
    )
    return _undiagnosed(result, why)


def _limit(spec: ModelSpec) -> int:
    return spec.memory or psutil.virtual_memory().available
