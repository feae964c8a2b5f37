"""Models in another environment: the gate here, and the process of each model there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onnx_gate.gate.answers_folder import answers_in
from onnx_gate.gate.deliver import verify_manifest
from onnx_gate.gate.options import Options
from onnx_gate.manifest import Manifest
from onnx_gate.report.model import ModelResult, Report
from onnx_gate.report.render.terminal import QUIET
from onnx_gate.report.story.summary import counting, failing, first_line, used_sentence, worst
from onnx_gate.since.environments import Environment


def verify(manifest: Manifest, options: Options, environment: Environment | None) -> Report:
    """Verify with the packages of an environment, null for those that are here, and show nothing.

    Raises ``UserError`` as ``verify_manifest`` does.
    """
    if environment is not None:
        launch = replace(options.launch, python=str(environment.python))
        options = replace(options, launch=launch)
    with answers_in(options.answers) as finish:
        report = verify_manifest(manifest, options, QUIET)
        finish(report, manifest)
    return report


def results(report: Report) -> Mapping[str, ModelResult]:
    """Return the results of models by name."""
    return {model.name: model for model in report.models}


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
