"""``onnx-gate run``, between the command line and the gate: files, the screen, the environment."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from rich.console import Console

from onnx_gate.errors import UserError, unwritten
from onnx_gate.gate.answers_folder import answers_in
from onnx_gate.gate.folder_lock import alone_in
from onnx_gate.gate.history import history_of
from onnx_gate.gate.options import Options
from onnx_gate.gate.place import place
from onnx_gate.gate.progress import ProgressDisplay, make_progress
from onnx_gate.gate.provenance import manifest_info
from onnx_gate.gate.run import Interrupted, run
from onnx_gate.gate.select import check_cases, select, with_runtimes
from onnx_gate.manifest import Manifest
from onnx_gate.manifest.change import KeyChange, written
from onnx_gate.manifest.find import NAMES
from onnx_gate.report.io import find_format, read_report, to_json, write_text
from onnx_gate.report.join.baseline import baseline_of, with_baseline
from onnx_gate.report.join.merge import merge_files
from onnx_gate.report.join.report_files import find_reports
from onnx_gate.report.layout import Layout
from onnx_gate.report.model import Report
from onnx_gate.report.render import markdown, terminal
from onnx_gate.report.render.screen import make_console, on_github, put_text
from onnx_gate.report.story.locations import inside
from onnx_gate.report.story.view import View
from onnx_gate.text import fenced

_IGNORE_ALL = "# Written by onnx-gate: what a run leaves is not for the repository.\n*\n"
# What a run leaves in any case, or shows and does not keep.
_ELSEWHERE = "name a folder that can be written, with --output DIR"
_ALWAYS = {"json", "markdown", "terminal"}


def verify_and_deliver(
    manifest: Manifest, options: Options, formats: tuple[str, ...] = (), detail: int = 0
) -> Report:
    """Do all of ``onnx-gate run``: verify, write the report and its ``formats``, print the first.

    Without any it is the table; a page is printed into a file or a pipe only. ``detail`` is one of
    ``terminal.QUIET``, ``NORMAL`` and ``VERBOSE``.
    Raises what ``verify_manifest`` and ``deliver`` raise, and ``UserError`` for an unknown format
    before anything is verified. After an interrupt what was finished is delivered before it goes on.
    """
    for name in formats:
        find_format(name)
    view = _view(manifest.path, options)
    with answers_in(options.answers) as finish:
        try:
            report = verify_manifest(
                manifest, options, detail, aside=_printed(formats) != "terminal"
            )
        except Interrupted as interrupted:
            deliver(interrupted.report, options.output, view, formats, detail)
            raise
        deliver(report, options.output, view, formats, detail)
        finish(report, manifest)
    return report


def verify_manifest(
    manifest: Manifest, options: Options, detail: int = 0, *, aside: bool = False
) -> Report:
    """Verify the models that ``options`` select, show how it goes, and return the report.

    It is shown on the standard error where the output is something else's (``aside``).
    The logs, the reproductions and the models that are kept are then in ``options.output``; the
    report is not, see ``deliver``. Raises ``UserError`` where no model is selected, the baseline
    cannot be read, or the output cannot be written.
    """
    console = make_console(stderr=aside)
    layout = Layout(options.output)
    selected = with_runtimes(
        select(manifest.models, options.models, options.shard), options.runtimes
    )
    check_cases(selected, options.cases)
    # Now, as it may be the very file that is written in the end.
    base = read_report(options.baseline) if options.baseline is not None else None
    past = (base, _readable(layout.report))
    progress = _progress(console, len(selected), detail)
    with _own(layout), closing(progress):
        report = run(
            manifest,
            options,
            history_of(report for report in past if report is not None),
            progress,
            lambda lines: _say(console, lines),
        )
        tries = options.remedies and not (options.follows or options.against or options.cases)
        if tries and any(model.verdict != "pass" for model in report.models):
            # The verdicts are settled: nobody waits for them until everything was tried. What parses
            # sources takes a third of a second to import, which a run that passes does not wait for.
            from onnx_gate.gate.remedies import with_remedies

            write_text(layout.report, to_json(report))
            report = with_remedies(manifest, options, report, progress)
    return report if base is None else with_baseline(report, base, baseline_of(base))


def try_remedies(manifest: Manifest, options: Options, report: Report) -> Report:
    """Return a report of ``options.output`` with what was tried for its red models, and what held.

    Raises ``UserError`` where another run is writing there.
    """
    from onnx_gate.gate.remedies import with_remedies

    with alone_in(options.output, "--output"), closing(_progress(make_console(), 0, 0)) as progress:
        return with_remedies(manifest, options, report, progress)


def _progress(console: Console, count: int, detail: int) -> ProgressDisplay:
    return make_progress(
        console,
        count,
        # FORCE_COLOR makes a terminal of everything, but a pipe has no cursor to move.
        ci=bool(os.environ.get("CI")) or not console.file.isatty(),
        github_actions=on_github(),
        quiet=detail == terminal.QUIET,
    )


@contextmanager
def _own(layout: Layout) -> Iterator[None]:
    """Make the output folder and hold it against other runs; raises ``UserError``."""
    try:
        _make_folder(layout.output)
    except OSError as error:
        raise unwritten(f"--output {layout.output}", error, _ELSEWHERE) from error
    with alone_in(layout.output, "--output"):
        try:
            # A report of an earlier run must not be taken for this one's where this one is cut off.
            for path in (layout.report, layout.summary):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise unwritten(f"--output {layout.output}", error, _ELSEWHERE) from error
        yield


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
        info = manifest_info(manifest)
    return merge_files(find_reports(paths, output), names, info)


def deliver(
    report: Report,
    output: Path,
    view: View = View(),
    formats: tuple[str, ...] = (),
    detail: int = terminal.NORMAL,
) -> None:
    """Write ``report.json``, ``report.md`` and ``formats`` into ``output`` and print the first.

    Raises ``UserError`` where they cannot be written, or a format is unknown.
    """
    layout, printed = Layout(output), _printed(formats)
    console = make_console(stderr=printed != "terminal")
    texts = {name: find_format(name)(report.located(str(output))) for name in formats}
    write_report(report, output, view, {name: texts[name] for name in texts.keys() - _ALWAYS})
    if printed == "terminal":
        _show(console, report, view, detail)
    else:
        put_text(texts[printed], printed)
    if detail != terminal.QUIET:
        for path in (layout.report, *(layout.rendering(name) for name in texts if name == "html")):
            console.print(f"report: {path}", style="dim", soft_wrap=True, markup=False)


def write_report(
    report: Report, output: Path, view: View = View(), others: Mapping[str, str] = {}
) -> None:
    """Write ``report.json``, ``report.md`` and ``others``, texts by their formats, into ``output``.

    Raises ``UserError`` where they cannot be written.
    """
    layout = Layout(output)
    try:
        _make_folder(output)
        write_text(layout.report, to_json(report))
        write_text(layout.summary, markdown.render(report, view))
        for name, text in others.items():
            write_text(layout.rendering(name), text)
    except OSError as error:
        raise unwritten(f"--output {output}", error, _ELSEWHERE) from error


def _printed(formats: tuple[str, ...]) -> str:
    first = formats[0] if formats else "terminal"
    return "terminal" if first == "html" and sys.stdout.isatty() else first


def _view(manifest: Path, called: Options) -> View:
    """Return what makes the paths and commands that are shown work where the gate was called."""
    options: list[str] = []
    output = called.output
    if called.against is not None:
        options += ["--against", str(called.against.path)]
    elif manifest.name not in NAMES or str(manifest.parent) != ".":
        options += ["--manifest", str(manifest)]
    if str(output) != View.output:
        options += ["--output", str(output)]
    for runtime in called.runtimes:
        options += ["--runtime", runtime]
    # From outside of the manifest's folders nothing is nearer than the repository's root.
    path = inside(str(manifest))
    return View(manifest_path=path, output=str(output), options=shlex.join(options))


def _make_folder(output: Path) -> None:
    """Make the output folder; a new one keeps itself out of git. Raises ``OSError``."""
    if not output.exists():
        output.mkdir(parents=True)
        write_text(output / ".gitignore", _IGNORE_ALL)


def _readable(path: Path) -> Report | None:
    """The report that an earlier run has left, where it can be read."""
    try:
        return read_report(path)
    except UserError:
        return None


def _show(console: Console, report: Report, view: View, detail: int) -> None:
    """Print the table of a report; for a GitHub runner so that nothing in it is a command."""
    shown = terminal.renderable(report, view, detail)
    console.print()
    if not on_github():
        console.print(shown, crop=False)
        return
    with console.capture() as capture:
        console.print(shown, crop=False)
    _say(console, capture.get().splitlines())


def _say(console: Console, lines: Iterable[str]) -> None:
    for line in fenced(lines) if on_github() else lines:
        console.print(line, markup=False, soft_wrap=True)


def audit_and_deliver(
    manifest: Manifest, options: Options, formats: tuple[str, ...] = (), *, write: bool = False
) -> tuple[Report, tuple[str, ...]]:
    """Do all of ``onnx-gate audit``: verify, seed faults, write the report, print what survived.

    With ``write`` what catches the survivors is put into the manifest; the names of the models whose
    entries are changed are returned beside the report. Raises ``UserError`` as
    ``verify_and_deliver`` does, and where an entry cannot be changed: then none is.
    """
    before = manifest.path.read_bytes() if write else b""
    report = verify_and_deliver(manifest, options, formats)
    return report, _write_changes(manifest.path, before, report) if write else ()


def _write_changes(path: Path, before: bytes, report: Report) -> tuple[str, ...]:
    """Change the entries of a manifest in place, all or none."""
    text, names = before.decode(), []
    for model in report.models:
        if model.audit is not None and model.audit.changes:
            changes = [KeyChange(each.key, each.value) for each in model.audit.changes]
            text = written(text, path, model.name, changes)
            names.append(model.name)
    if not names:
        return ()
    place({}, {path: (before, text.encode())})
    return tuple(names)
