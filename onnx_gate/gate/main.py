"""``onnx-gate run``, between the command line and the gate: files, the screen, the environment."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console

from onnx_gate.errors import UserError
from onnx_gate.gate.progress import make_progress
from onnx_gate.gate.run import Options, run, select
from onnx_gate.manifest import Manifest
from onnx_gate.report import markdown, terminal
from onnx_gate.report.io import to_json, write_text
from onnx_gate.report.model import Verdict

REPORT = "report.json"
SUMMARY = "report.md"
_PIPE_WIDTH = 120


def run_and_report(
    manifest: Manifest,
    *,
    output: Path,
    models: tuple[str, ...] = (),
    cases: tuple[str, ...] = (),
    jobs: int = 0,
    keep_models: bool = False,
) -> Verdict:
    """Verify, write ``report.json`` and ``report.md`` into ``output``, print the table.

    Raises ``UserError`` where no model is selected or the output cannot be written.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    selected = select(manifest.models, models)
    try:
        output.mkdir(parents=True, exist_ok=True)
        # A report of an earlier run must not be taken for this one's where this one is cut off.
        for name in (REPORT, SUMMARY):
            (output / name).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"--output {output}: {error.strerror or error}") from error
    progress = make_progress(
        console,
        len(selected),
        ci=bool(os.environ.get("CI")),
        github_actions=os.environ.get("GITHUB_ACTIONS") == "true",
    )
    try:
        report = run(
            manifest,
            Options(output=output, models=models, cases=cases, jobs=jobs, keep_models=keep_models),
            progress,
        )
    finally:
        progress.close()
    try:
        write_text(output / REPORT, to_json(report))
        write_text(output / SUMMARY, markdown.render(report))
    except OSError as error:
        raise UserError(f"--output {output}: {error.strerror or error}") from error
    console.print()
    console.print(terminal.renderable(report))
    console.print(f"report: {output / REPORT}", style="dim", soft_wrap=True)
    return report.verdict
