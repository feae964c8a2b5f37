"""Installing the packages that the models need: by the sandbox's user, into a folder of its own.

A virtual environment over the gate's packages: what is there already is not installed again, and
what differs (another torch) is found first, by the models' processes only.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath

from onnx_gate.files import remove_entry, walk

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CONSTRAINTS, WITHOUT = "constraints.txt", "requirements.txt"
SECONDS = 1800
_TAIL = 40
MOST_LINES = 5000
"""Lines of pip's, and of what it starts, that a job's log has: a build backend may print for ever."""
_LONGEST = 1 << 16
# pip's own words, then those of the innermost program that it started. A line that names the step
# that failed ("error: subprocess-exited-with-error") says no more than pip does.
_REASONS = tuple(re.compile(rf"\s*{mark} (.+)") for mark in ("ERROR:", "×"))
_INNERMOST = re.compile(r"\s+(?:error: (?![a-z-]+$)|(?=\w+(?:Error|Exception): ))(.+)")
_OWN = re.compile(r"^\s*onnx[-_.]gate\b(?![-_.\w])", re.I)
_FILES = re.compile(r"^(\s*(?:-r|-c|--requirement|--constraint)[ =]?\s*)(\S.*)$")
_PROBE_SECONDS = 5
_SHADOW = PurePosixPath("lib/python*/site-packages/onnx_gate*")
_TORCH = re.compile(r"^\s*torch(vision|audio)?\b", re.M | re.I)


@dataclass(frozen=True)
class Installed:
    """``python`` sees the packages; ``problem`` is null, or why there are none."""

    python: Path
    problem: str | None = None
    tail: tuple[str, ...] = ()


def install(
    file: Path, folder: Path, prefix: tuple[str, ...], directory: Path, say: Callable[[str], None]
) -> Installed:
    """Install the requirements ``file`` into a new virtual environment in ``folder``.

    ``prefix`` is the command that enters a sandbox with network, in which ``folder`` is writable.
    ``directory`` is the working directory, ``say`` is given each (untrusted) line of output.
    """
    python = folder / "bin" / "python"
    constraints = folder.parent / CONSTRAINTS
    constraints.write_text("\n".join(gate_requirements()) + "\n", encoding="utf-8")
    asked = _without_the_gate(file, folder.parent / WITHOUT, say)
    venv = [*prefix, sys.executable, "-I", "-m", "venv"]
    pip = [*prefix, sys.executable, "-I", "-m", "pip", "--python", str(python)]
    steps = (
        [*venv, "--without-pip", "--system-site-packages", str(folder)],
        [
            *(*pip, "install", "--no-input", "--disable-pip-version-check", "--no-cache-dir"),
            *("--progress-bar", "off", "--constraint", str(constraints)),
            *(f"--extra-index-url={url}" for url in cpu_index(file)),
            *("--requirement", str(asked)),
        ],
    )
    for step in steps:
        status, tail = _run(step, directory, say)
        if status != 0:
            return Installed(
                python, f"{file.name} could not be installed: {why(status, tail)}", tail
            )
    # Whoever installs may have made a link of any folder on the way.
    for entry in walk(folder, max_depth=len(_SHADOW.parts)):
        if entry.path.match(str(_SHADOW)):
            say(f"removed {entry.name}: the gate that verifies is the image's own")
            with suppress(OSError):
                remove_entry(entry)
    return Installed(python)


def _without_the_gate(file: Path, target: Path, say: Callable[[str], None]) -> Path:
    """Return the requirements without the gate itself: ``file``, or a copy in ``target``.

    A model's repository may well list ``onnx-gate`` for its developers. In a copy, the files that
    it names are still those beside the original.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return file  # pip has a better word for it
    if not any(_OWN.match(line) for line in lines):
        return file
    say(
        "onnx-gate is not installed from the requirements: the gate that verifies is the image's own"
    )
    write_as_if_beside(file.read_bytes(), file, target)
    return target


def write_as_if_beside(content: bytes, file: Path, target: Path) -> None:
    """Write requirements without the gate itself; the files that they name are those beside ``file``.

    What is a lock, or no text, is written as it is.
    """
    if file.suffix not in (".txt", ".in"):
        target.write_bytes(content)
        return
    lines = content.decode(errors="replace").splitlines()
    kept = [line for line in lines if not _OWN.match(line)]
    found = (_FILES.match(line) for line in kept)
    kept = [
        f"{match[1]}{file.parent / match[2].strip()}" if match else line
        for line, match in zip(kept, found, strict=True)
    ]
    target.write_text("\n".join(kept) + "\n", encoding="utf-8")


def why(status: int | None, tail: Sequence[str]) -> str:
    """Return how pip ended, its own reason and the innermost of what it started."""
    if status is None:
        return f"it took longer than {SECONDS // 60} minutes"
    ended = f"pip ended with status {status}"
    for pattern in _REASONS:
        reasons = [match[1] for line in tail if (match := pattern.match(line))]
        if reasons:
            ended = f"{ended}: {reasons[-1]}"
            break
    innermost = [match[1] for line in tail if (match := _INNERMOST.match(line))]
    return f"{ended} ({innermost[-1]})" if innermost else ended


def gate_requirements() -> list[str]:
    """Return what the gate itself needs, as constraints: nothing may be replaced beyond them."""
    needs = metadata.requires("onnx-gate") or []
    return [need for need in needs if "extra ==" not in need]


def versions() -> dict[str, str]:
    """Return the versions of the packages that decide about numbers, as the image has them."""
    installed = {}
    for name in ("torch", "onnx", "onnxruntime", "numpy"):
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed


def cpu_index(file: Path) -> list[str]:
    """Return PyTorch's index of CPU builds, where a torch is asked for and the index answers."""
    try:
        if not _TORCH.search(file.read_text(encoding="utf-8", errors="replace")):
            return []
        with urllib.request.urlopen(f"{CPU_INDEX}/torch/", timeout=_PROBE_SECONDS):
            return [CPU_INDEX]
    except OSError:
        return []


def _run(
    command: list[str], directory: Path, say: Callable[[str], None]
) -> tuple[int | None, tuple[str, ...]]:
    with subprocess.Popen(
        command,
        cwd=directory,
        env={},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        output = process.stdout
        lines: list[str] = []
        timed_out = False

        def end() -> None:
            nonlocal timed_out
            timed_out = True
            process.kill()

        timer = threading.Timer(SECONDS, end)
        timer.start()
        try:
            count = 0
            # A line may have no end: what is read at once is bounded.
            for line in iter(lambda: output.readline(_LONGEST), ""):
                count += 1
                if count <= MOST_LINES:
                    say(line.rstrip("\n"))
                lines = [*lines[1 - _TAIL :], line.rstrip("\n")[:500]]
            status = process.wait()
            left = count - MOST_LINES
            if left > 0:
                say(f"{left} more lines, the last of them:")
                for line in lines[-left:]:
                    say(line)
        finally:
            timer.cancel()
            process.kill()
    return (None if timed_out else status), tuple(lines)
