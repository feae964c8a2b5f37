"""The owner's own release script makes the ONNX file: what is verified is what is shipped.

The script is a child of the model's process, so everything that confines a model confines it too:
its user and what it may open, no network, its limits on time and memory, its log.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.paths import is_inside
from onnx_gate.manifest.values.exports import OUTPUT
from onnx_gate.text import plain

# Of the script's output, as much is shown where it fails.
_LINES = 8
_WIDTH = 300
# What a script that has ended left in its pipe is read for so long: a child of it may hold the pipe.
_READING_SECONDS = 2.0

_Stamp = tuple[int, int, int, int]


def run_command(spec: ModelSpec, workspace: Path, folder: Path) -> Path:
    """Run the command of a model in ``workspace`` and return the file that it has written.

    ``folder`` takes the file where the command asks for a path. Raises ``GateError`` (OG211) with
    the last lines of its output where it fails, or leaves no file of this run.
    """
    command, named = spec.export.command, spec.export.file
    assert command is not None
    path = folder / "model.onnx" if named is None else workspace / named
    shown = OUTPUT if named is None else named
    if named is not None and not is_inside(workspace, path):
        raise codes.OG211.error(
            f"{named} leads out of the manifest's folder; keep the file inside it"
        )
    before = _stamp(path)
    status, lines = _run(command.replace(OUTPUT, shlex.quote(str(path))), workspace)
    after = _stamp(path)
    if status:
        if before is None:
            # What a script that failed has begun to write is of no use to anybody.
            path.unlink(missing_ok=True)
        raise _failure(spec, _ended(status), lines)
    if after is None:
        raise _failure(spec, f"ended well and wrote nothing to {shown}", lines)
    if after == before:
        raise _failure(spec, f"ended well and left {shown} as it was before", lines)
    return path


def _run(command: str, workspace: Path) -> tuple[int, list[str]]:
    """Run a command, its output into this process's; return its status and the last lines."""
    folder = os.path.dirname(sys.executable)
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PATH", os.defpath))))
    process = subprocess.Popen(
        ["/bin/sh", "-ec", command],
        cwd=workspace,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lines: deque[bytes] = deque(maxlen=_LINES)
    sys.stdout.flush()
    reader = threading.Thread(target=_copy, args=(process, lines), daemon=True)
    reader.start()
    status = process.wait()
    reader.join(_READING_SECONDS)
    return status, [plain(line.decode("utf-8", "replace"), _WIDTH) for line in list(lines)]


def _copy(process: subprocess.Popen[bytes], lines: deque[bytes]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        os.write(1, line)
        if line.strip():
            lines.append(line.rstrip())


def _stamp(path: Path) -> _Stamp | None:
    """Return what is another after anybody has written a file; ``None`` where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _ended(status: int) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with exit status {status}"


def _failure(spec: ModelSpec, what: str, lines: list[str]) -> GateError:
    text = f"models.{spec.name}.export.command {what}"
    if spec.export.file is not None:
        text += (
            f"; where it may not write in the repository, as in the action, let it take {OUTPUT} for "
            "the path"
        )
    return codes.OG211.error("\n  ".join([text, *(lines or ["(it printed nothing)"])]))
