"""``onnx-gate run``, between the command line and the gate: files, the screen, the environment."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from onnx_gate.errors import UserError
from onnx_gate.gate.progress import make_progress
from onnx_gate.gate.run import Options, run, select
from onnx_gate.manifest import Manifest
from onnx_gate.report import markdown, terminal
from onnx_gate.report.baseline import with_baseline
from onnx_gate.report.history import history_of
from onnx_gate.report.io import read_report, to_json, write_text
from onnx_gate.report.merge import REPORT, find_reports, merge_files
from onnx_gate.report.model import Baseline, ManifestInfo, Report, Sandbox, Shard, Verdict
from onnx_gate.text import fenced
from onnx_gate.workers.launch import Launch

SUMMARY = "report.md"
_PIPE_WIDTH = 120


def run_and_report(
    manifest: Manifest,
    *,
    output: Path,
    models: tuple[str, ...] = (),
    cases: tuple[str, ...] = (),
    shard: Shard | None = None,
    baseline: Path | None = None,
    jobs: int = 0,
    keep_models: bool = False,
    launch: Launch = Launch(),
    sandbox: Sandbox | None = None,
    cache: Path | None = None,
    changed: bool = False,
    traceback: bool = False,
) -> Verdict:
    """Verify, write ``report.json`` and ``report.md`` into ``output``, print the table.

    ``baseline`` is a report to compare with. ``cache`` and ``changed`` are those of ``Options``.
    ``launch`` says how the models' code is started, ``sandbox`` what that keeps it from.

    Raises ``UserError`` where no model is selected, the baseline cannot be read, or the output
    cannot be written.
    """
    console = _console()
    selected = select(manifest.models, models, shard)
    # Now, as it may be the very file that is written in the end.
    base = read_report(baseline) if baseline is not None else None
    history = history_of(report for report in (base, _last(output)) if report is not None)
    try:
        output.mkdir(parents=True, exist_ok=True)
        # A report of an earlier run must not be taken for this one's where this one is cut off.
        for name in (REPORT, SUMMARY):
            (output / name).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"--output {output}: {error.strerror or error}") from error
    github = os.environ.get("GITHUB_ACTIONS") == "true"
    progress = make_progress(
        console, len(selected), ci=bool(os.environ.get("CI")), github_actions=github
    )
    try:
        report = run(
            manifest,
            Options(
                output=output,
                models=models,
                cases=cases,
                shard=shard,
                jobs=jobs,
                keep_models=keep_models,
                launch=launch,
                history=history,
                cache=cache,
                changed=changed,
                traceback=traceback,
            ),
            progress,
            lambda lines: _say(console, lines, github_actions=github),
        )
    finally:
        progress.close()
    report = report.model_copy(update={"sandbox": sandbox})
    if base is not None:
        report = with_baseline(report, base, Baseline())
    _deliver(console, report, output, github_actions=github)
    return report.verdict


def merge_and_report(
    paths: Iterable[Path],
    *,
    output: Path,
    manifest: Manifest | None = None,
    models: tuple[str, ...] = (),
) -> Verdict:
    """Merge the reports at ``paths``, write and print as ``run_and_report`` does.

    With a ``manifest``, every model of it that ``models`` select has to be there. Raises
    ``UserError`` where none is selected or the output cannot be written.
    """
    names = info = None
    if manifest is not None:
        names = [spec.name for spec in select(manifest.models, models)]
        info = ManifestInfo(path=manifest.path.name, sha256=manifest.sha256)
    report = merge_files(find_reports(paths, output), names, info)
    github = os.environ.get("GITHUB_ACTIONS") == "true"
    _deliver(_console(), report, output, github_actions=github)
    return report.verdict


def _last(output: Path) -> Report | None:
    """The report that an earlier run has left in ``output``, where it can be read."""
    try:
        return read_report(output / REPORT)
    except UserError:
        return None


def _say(console: Console, lines: Iterable[str], *, github_actions: bool) -> None:
    for line in fenced(lines) if github_actions else lines:
        console.print(line, markup=False, soft_wrap=True)


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)


def _deliver(console: Console, report: Report, output: Path, *, github_actions: bool) -> None:
    try:
        write_text(output / REPORT, to_json(report))
        write_text(output / SUMMARY, markdown.render(report))
    except OSError as error:
        raise UserError(f"--output {output}: {error.strerror or error}") from error
    show(console, report, github_actions=github_actions)
    console.print(f"report: {output / REPORT}", style="dim", soft_wrap=True)


def show(console: Console, report: Report, *, github_actions: bool) -> None:
    """Print the table of a report; for a GitHub runner so that nothing in it is a command."""
    console.print()
    if not github_actions:
        console.print(terminal.renderable(report))
        return
    with console.capture() as capture:
        console.print(terminal.renderable(report))
    for line in fenced(capture.get().splitlines()):
        console.print(line, markup=False, soft_wrap=True)
