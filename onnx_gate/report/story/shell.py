"""The command that repeats what a report says, in one line that a shell reads as it is shown."""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from onnx_gate.report.model import Check, ModelResult
from onnx_gate.report.model.diagnosis import Diagnosis
from onnx_gate.report.story.locations import inside
from onnx_gate.report.story.view import View

_DEFAULT = "onnx-gate.yml"
_LIMIT = 160
# An argument that a shell reads as it stands, wherever it is shown.
_PLAIN = re.compile(r"[A-Za-z0-9_.:=/+-]+")

ARTIFACT = "onnx-gate-report"
"""The workflow artifact, and the folder, that a run's files are in."""


def run_command(manifest: str, model: ModelResult, failing: Sequence[Check], view: View) -> str:
    """Return the command that verifies one model, and the worst of its failing cases only."""
    options = _manifest(manifest) if view.options is None else [view.options]
    words = ["onnx-gate run", *filter(None, options), *_option("--model", model.name)]
    return " ".join(words + (_option("--case", failing[0].case) if failing else []))


def check_command(manifest: str) -> str:
    """Return the command that looks for mistakes in the manifest."""
    return " ".join(["onnx-gate check", *_manifest(manifest)])


def replay_command(diagnosis: Diagnosis, view: View) -> str:
    """Return the command that replays a reproduction, in its runtime; empty where there is none."""
    if not diagnosis.repro:
        return ""
    file = inside(diagnosis.repro)
    if file is None or "`" in file or "<!--" in file:
        file = "repro"
    words = diagnosis.replay if all(map(_PLAIN.fullmatch, diagnosis.replay)) else ()
    path = shlex.quote(str(PurePosixPath(view.output, file)))
    return " ".join(("onnx-gate replay", path, *words))


def download_command(run: int | None) -> str:
    """Return the command that fetches the reproductions of a workflow run to where they are replayed."""
    if run is None or not 0 < run < 2**63:
        return ""
    return f"gh run download {run} --name {ARTIFACT} --dir {ARTIFACT}"


def _manifest(path: str) -> list[str]:
    file = inside(path)
    if file is None or file == _DEFAULT or "`" in file:
        return []
    return ["--manifest", shlex.quote(file)]


def _option(name: str, value: str) -> list[str]:
    word = shlex.quote(_glob(value))
    return [f"{name}={word}"] if word.startswith("-") else [name, word]


def _glob(value: str) -> str:
    """A pattern that matches the value, of characters that can be shown; a long one is cut."""
    shown = "".join(
        "?" if not c.isprintable() or c in "`\u3164\u2800" else glob.escape(c)
        for c in value[:_LIMIT]
    )
    # Nothing of ours may hold what looks like the start of a comment's header.
    return shown.replace("<!--", "<?--") + ("*" if len(value) > _LIMIT else "")
