"""One model in one environment: a run of the gate there, and what its report says."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from onnx_gate.errors import UserError
from onnx_gate.findings import codes
from onnx_gate.report.io import read_report
from onnx_gate.report.layout import REPORT
from onnx_gate.report.model import ModelError, ModelResult
from onnx_gate.report.story.summary import counting, failing, first_line, used_sentence, worst
from onnx_gate.text import plain

_WITHOUT = {"ONNX_GATE_CACHE", "PYTHONHOME"}


def verify(
    command: Sequence[str], options: Sequence[str], names: Sequence[str], output: Path | None = None
) -> dict[str, ModelResult]:
    """Run the gate that ``command`` starts and return the results of the models ``names``.

    A gate that cannot even start there is an error of each. ``output`` keeps report and logs.
    """
    with tempfile.TemporaryDirectory(prefix="onnx-gate-") as folder:
        place = output or Path(folder)
        chosen = [part for name in names for part in ("--model", glob_of(name))]
        done = subprocess.run(
            [*command, "run", *options, *chosen, "--no-cache", "--quiet", "--output", str(place)],
            env={k: v for k, v in os.environ.items() if k not in _WITHOUT},
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            capture_output=True,
        )
        try:
            report = read_report(place / REPORT)
        except UserError:
            said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            return {name: _not_started(name, said) for name in names}
    results = {model.name: model for model in report.models}
    return {name: results.get(name) or _not_started(name, []) for name in names}


def glob_of(name: str) -> str:
    """Return the glob that matches a name and nothing else."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def told(result: ModelResult) -> str:
    """Return verdict, share of the tolerance and place of one model's answer, in one line."""
    if result.error is not None:
        return f"error: {result.error.code}: {first_line(result.error.message)}"
    check = worst(result)
    if check is None:
        return result.verdict
    share = f"{used_sentence(check)} ({check.output}, {check.case})"
    bad = len(failing(result))
    return f"{result.verdict}, {f'{bad} of {counting(result)} checks, ' if bad else ''}{share}"


def verdicts(results: Mapping[str, ModelResult]) -> dict[str, str]:
    """Return the verdict of each model."""
    return {name: result.verdict for name, result in results.items()}


def _not_started(name: str, said: Sequence[str]) -> ModelResult:
    last = plain(said[-1], 300) if said else "it left no report"
    message = f"the gate does not run here: {last}"
    error = ModelError(kind="runtime", code=codes.OG302.code, message=message)
    return ModelResult(name=name, verdict="error", error=error)
