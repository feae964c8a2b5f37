"""Reports of runs that have ended: of this workflow's shards, or of another workflow's run."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_gate.action.action_inputs import Inputs
from onnx_gate.action.failed import failed_report, of_manifest, with_problem
from onnx_gate.action.output_folder import refuse_tracked
from onnx_gate.errors import UserError
from onnx_gate.gate.provenance import manifest_info
from onnx_gate.gate.select import select
from onnx_gate.github.api_errors import GitHubError
from onnx_gate.github.artifacts import download_report
from onnx_gate.github.client import Client
from onnx_gate.github.run_context import WorkflowRun
from onnx_gate.manifest import ManifestError
from onnx_gate.manifest.load import load
from onnx_gate.report.io import UNTRUSTED_BYTES, parse_report, read_report
from onnx_gate.report.join.amiss import is_of, run_label
from onnx_gate.report.join.merge import merge_files
from onnx_gate.report.join.report_files import find_reports
from onnx_gate.report.layout import REPORT
from onnx_gate.report.model import ManifestInfo, Problem, Report, Run

ARTIFACT = "onnx-gate-report"


def joined(inputs: Inputs, run: Run | None) -> Report:
    """Return the report of all shards that lie below the output folder, as ``run`` made them."""
    names: Sequence[str] | None = None
    info: ManifestInfo | None = None
    try:
        refuse_tracked(inputs)
        if inputs.manifest_path.is_file():
            manifest = load(inputs.manifest_path)
            names = [model.name for model in select(manifest.models, inputs.models)]
            info = manifest_info(manifest)
    except ManifestError as error:
        return failed_report(of_manifest(error), inputs.manifest)
    except UserError as error:
        return failed_report([Problem(message=str(error))], inputs.manifest)
    paths = find_reports([inputs.output_path], inputs.output_path)
    return merge_files(paths, names, info, run, UNTRUSTED_BYTES)


def local(inputs: Inputs, run: Run | None) -> Report:
    """Return the report in the output folder; an error where there is none, or another run's."""
    try:
        refuse_tracked(inputs)
        report = read_report(inputs.output_path / REPORT)
    except UserError as error:
        return failed_report([Problem(message=str(error))], inputs.manifest)
    if run is not None and not is_of(report, run):
        return with_problem(report, f"the report was made by {run_label(report)}, not by this run")
    return report


def downloaded(inputs: Inputs, client: Client, repository: str, run: WorkflowRun) -> Report:
    """Return the report that a run left as an artifact; an error where it left none.

    The artifact may come from anyone's pull request. It is data: it cannot say which pull request
    it belongs to, and not that a run passed that did not.
    """
    ended = f"run {run.id} ended with {run.conclusion or 'no conclusion'}"
    try:
        content = download_report(client, repository, run.id, ARTIFACT)
        if content is None:
            lacking = (
                f"{ended} and left no artifact '{ARTIFACT}': upload the report's folder in a step "
                "with if: ${{ !cancelled() }}"
            )
            return failed_report([Problem(message=lacking)], inputs.manifest)
        report = parse_report(content, "the artifact's report.json")
    except (GitHubError, UserError) as error:
        return failed_report([Problem(message=f"{ended}: {error}")], inputs.manifest)
    if report.run is not None and (report.run.id, report.run.sha) != (run.id, run.head_sha):
        made = run_label(report)
        return with_problem(report, f"{ended} at {run.head_sha[:7]}, and its report is of {made}")
    if report.verdict == "pass" and run.conclusion != "success":
        return with_problem(report, f"{ended}, and yet its report says 'pass'")
    return report
