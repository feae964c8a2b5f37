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
from onnx_gate.report.layout import Layout
from onnx_gate.report.merge import find_reports, merge_files
from onnx_gate.report.model import Baseline, ManifestInfo, Report
from onnx_gate.text import fenced

_PIPE_WIDTH = 120


def verify_manifest(manifest: Manifest, options: Options) -> Report:
    """Verify the models that ``options`` select, show how it goes, and return the report.

    The logs, the reproductions and the models that are kept are then in ``options.output``; the
    report is not, see ``deliver``. Raises ``UserError`` where no model is selected, the baseline
    cannot be read, or the output cannot be written.
    """
    console = _console()
    layout = Layout(options.output)
    selected = select(manifest.models, options.models, options.shard)
    # Now, as it may be the very file that is written in the end.
    base = read_report(options.baseline) if options.baseline is not None else None
    past = (base, _readable(layout.report))
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        # A report of an earlier run must not be taken for this one's where this one is cut off.
        for path in (layout.report, layout.summary):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"--output {options.output}: {error.strerror or error}") from error
    progress = make_progress(
        console, len(selected), ci=bool(os.environ.get("CI")), github_actions=_on_github()
    )
    try:
        report = run(
            manifest,
            options,
            history_of(report for report in past if report is not None),
            progress,
            lambda lines: _say(console, lines),
        )
    finally:
        progress.close()
    return report if base is None else with_baseline(report, base, Baseline())


def merge_reports(
    paths: Iterable[Path],
    output: Path,
    manifest: Manifest | None = None,
    models: tuple[str, ...] = (),
) -> Report:
    """Return one report of those at ``paths``; an earlier one in ``output`` is none of them.

    With a ``manifest``, every model of it that ``models`` select has to be there. Raises
    ``UserError`` where none is selected.
    """
    names = info = None
    if manifest is not None:
        names = [spec.name for spec in select(manifest.models, models)]
        info = ManifestInfo(path=manifest.path.name, sha256=manifest.sha256)
    return merge_files(find_reports(paths, output), names, info)


def deliver(report: Report, output: Path) -> None:
    """Write ``report.json`` and ``report.md`` into ``output`` and print the table.

    Raises ``UserError`` where they cannot be written.
    """
    console, layout = _console(), Layout(output)
    try:
        write_text(layout.report, to_json(report))
        write_text(layout.summary, markdown.render(report))
    except OSError as error:
        raise UserError(f"--output {output}: {error.strerror or error}") from error
    _show(console, report)
    console.print(f"report: {layout.report}", style="dim", soft_wrap=True)


def _readable(path: Path) -> Report | None:
    """The report that an earlier run has left, where it can be read."""
    try:
        return read_report(path)
    except UserError:
        return None


def _on_github() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)


def _show(console: Console, report: Report) -> None:
    """Print the table of a report; for a GitHub runner so that nothing in it is a command."""
    console.print()
    if not _on_github():
        console.print(terminal.renderable(report))
        return
    with console.capture() as capture:
        console.print(terminal.renderable(report))
    _say(console, capture.get().splitlines())


def _say(console: Console, lines: Iterable[str]) -> None:
    for line in fenced(lines) if _on_github() else lines:
        console.print(line, markup=False, soft_wrap=True)
