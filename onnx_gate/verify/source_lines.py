"""Which line of the user's an exception or a traced operator comes from."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import onnx
import torch

import onnx_gate
from onnx_gate import objects
from onnx_gate.errors import GateError
from onnx_gate.findings.codes import Code
from onnx_gate.findings.finding import Finding, Severity
from onnx_gate.report.model.diagnosis import Source
from onnx_gate.text import shortened

# The key under which torch's exporter keeps the stack of each node.
STACK_TRACE = "pkg.torch.onnx.stack_trace"
_CODE_LENGTH = 200
# Of a line within a sentence: the reason stands behind it, and what shows a message cuts its end.
_QUOTED = 80
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
# The code that was there when the stack was kept.
_KEPT = re.compile(_FRAME.pattern + r"[^\n]*\n[ \t]+(?!File \")(\S[^\n]*)")
_MACHINERY = tuple(
    str(folder)
    for folder in (
        Path(torch.__file__).parent,
        Path(onnx_gate.__file__).parent,
        sysconfig.get_path("stdlib"),
    )
)
# Code that is nobody's own, wherever the manifest's folder is.
_FOREIGN = tuple(
    str(Path(str(folder)).resolve())
    for folder in (
        Path(onnx_gate.__file__).parent,
        Path(torch.__file__).parent,
        *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    )
)
_PACKAGES = ("site-packages", "dist-packages")
# What exporters and their parts are installed as, beside torch itself.
_TOOLS = ("onnx", "onnxscript", "onnx_ir", "onnxruntime")

# A file and a line of it.
Frame = tuple[str, int]


@dataclass(frozen=True)
class Line:
    """A line of Python: ``file`` is relative to the manifest's folder, or to where packages are.

    ``own`` says that it is the user's, below the manifest's folder. ``inner`` is the line of an
    installed package that it leads to, where that is where it happened.
    """

    file: str
    line: int
    code: str = ""
    own: bool = False
    inner: Line | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def of_error(error: BaseException, root: Path | None) -> Line | None:
    """Return the innermost line of the user's in the traceback of ``error``.

    A line below ``root`` (the manifest's folder) is preferred to one of an installed package.
    ``None`` where only torch, the gate and Python's own library are in the traceback.
    """
    frames = list(_frames(error.__traceback__))
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        frames.append((error.filename, error.lineno))
    return of_frames(frames, root)


def source_of(error: GateError, root: Path) -> Source | None:
    """Return the user's line that an error comes from, ``None`` where it comes from none of them."""
    if error.source is not None:
        file, number = error.source
        return own_source(_line(str(root / file), number, root))
    causes: list[BaseException] = []
    cause = error.__cause__
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__
    sources = (own_source(of_error(each, root)) for each in reversed(causes))
    return next((each for each in sources if each is not None), None)


def of_stack(text: str, root: Path | None) -> Line | None:
    """Do as ``of_error`` does with the text in which torch keeps a stack.

    A line that has other code by now is shown with the code that it had, and is none of today's.
    """
    kept = {(file, int(line)): code.strip() for file, line, code in _KEPT.findall(text)}
    return of_frames(frames_of(text), root, kept)


def frames_of(text: str) -> list[Frame]:
    """Return the files and lines of the text in which torch keeps a stack, outermost first."""
    return [(file, int(line)) for file, line in _FRAME.findall(text)]


def of_node(node: onnx.NodeProto, root: Path | None) -> Line | None:
    """Do as ``of_error`` does with what the exporter wrote into a node of the graph."""
    for entry in node.metadata_props:
        if entry.key == STACK_TRACE:
            return of_stack(entry.value, root)
    return None


def of_frame(frame: FrameType | None, root: Path) -> Line | None:
    """Return the innermost line of the user's in a running stack."""
    folder = str(root.resolve())
    while frame is not None:
        if _own_path(frame.f_code.co_filename, folder) is not None:
            return _line(frame.f_code.co_filename, frame.f_lineno, root)
        frame = frame.f_back
    return None


def place_of(file: str, number: int, root: Path | None) -> Line:
    """Return a line of a file of Python's by its number."""
    return _line(file, number, root)


def own_source(line: Line | None) -> Source | None:
    """Return a line as a report has it, ``None`` where it is not one of the user's."""
    if line is None or not line.own:
        return None
    return Source(file=line.file, line=line.line, code=line.code)


def shown(line: Line | None, otherwise: str) -> str:
    """Return the code's beginning and its place, or ``otherwise`` where it is not known."""
    if line is None:
        return otherwise
    code = shortened((line.inner or line).code, _QUOTED)
    return f"`{code}`{at(line)}" if code else str(line)


def at(line: Line | None) -> str:
    """Return `` (models/a.py:12)``, or nothing where the line is not known."""
    if line is None:
        return ""
    return f" ({line.inner}, from {line})" if line.inner is not None else f" ({line})"


def finding_at(
    code: Code,
    message: str,
    line: Line | None,
    severity: Severity | None = None,
    data: Mapping[str, Any] | None = None,
) -> Finding:
    """Return a finding, at a line where that is one of the user's repository.

    ``data`` then has the line's text as ``code``.
    """
    own = line if line is not None and line.own else None
    known = dict(data or {})
    if own is not None and own.code:
        known["code"] = own.code
    return code.finding(message, severity=severity, at=own, data=known)


def workspace_of(reference: str | None) -> Path | None:
    """Return the folder that ``models/a.py:build`` or ``package.module:build`` was imported from.

    That is the manifest's folder, which is on ``sys.path`` once the model is built. An object of the
    calling program has no manifest: its folder is the one that the program runs in. ``None`` where
    nothing was imported.
    """
    if reference is None:
        return None
    place = reference.partition(":")[0]
    if place == objects.__name__:
        return Path.cwd()
    top = Path(place if place.endswith(".py") else place.partition(".")[0])
    for entry in map(Path, sys.path):
        if not any(part in _PACKAGES for part in entry.parts) and (
            (entry / top).exists() or (entry / top).with_suffix(".py").exists()
        ):
            return entry.resolve()
    return None


def _frames(traceback: TracebackType | None) -> Iterator[Frame]:
    while traceback is not None:
        yield traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
        traceback = traceback.tb_next


def of_frames(
    frames: Iterable[Frame], root: Path | None, kept: Mapping[Frame, str] | None = None
) -> Line | None:
    """Do as ``of_error`` does with frames, outermost first; ``kept`` is the code that they had."""
    own: Line | None = None
    last: Line | None = None
    for file, number in frames:
        if not _is_machinery(file):
            last = _line(file, number, root)
            was = (kept or {}).get((file, number))
            if was is not None and was != linecache.getline(file, number).strip():
                last = replace(last, code=was[:_CODE_LENGTH], own=False)
            own = last if last.own else own
    if own is None or last is None or last.own:
        return own or last
    return Line(own.file, own.line, own.code, own.own, last)


def _line(file: str, number: int, root: Path | None) -> Line:
    code = _code(file, number)
    own = None if root is None else _own_path(file, str(root.resolve()))
    if own is not None:
        return Line(own, number, code, own=True)
    installed = next((f"/{name}/" for name in _PACKAGES if f"/{name}/" in file), None)
    if installed is not None:
        return Line(file.rsplit(installed, 1)[-1], number, code)
    return Line(Path(file).name if root is None else file, number, code)


def _code(file: str, number: int) -> str:
    code = linecache.getline(file, number).strip()
    # `if (` alone says nothing.
    while code.endswith(("(", "[", "{")) and len(code) < _CODE_LENGTH:
        number += 1
        following = linecache.getline(file, number)
        if not following:
            break
        code += following.strip()
    return code[:_CODE_LENGTH]


def is_own_file(file: str, root: Path) -> bool:
    """Return whether a file of Python's is the user's own, below ``root``."""
    return _own_path(file, str(root.resolve())) is not None


def is_installed(file: str) -> bool:
    """Return whether a file is of torch, the gate, Python or another package, and nobody's own."""
    return any(file.startswith(f"{folder}/") for folder in _FOREIGN)


@lru_cache(maxsize=4096)
def _own_path(file: str, root: str) -> str | None:
    """Return a file's path relative to ``root``; ``None`` for a file that is not the user's own."""
    if file.startswith("<"):
        return None
    try:
        path = Path(file).resolve()
        relative = path.relative_to(root)
    except (OSError, ValueError):
        return None
    if is_installed(str(path)) or set(_PACKAGES) & set(relative.parts) or not path.is_file():
        return None
    return relative.as_posix()


def _is_machinery(file: str) -> bool:
    if file.startswith("<"):
        return True
    package = next((file.split(f"/{name}/")[-1] for name in _PACKAGES if f"/{name}/" in file), None)
    if package is not None:
        return package.partition("/")[0] in ("torch", *_TOOLS)
    if not Path(file).is_absolute() and file.partition("/")[0] in ("torch", *_TOOLS):
        # Passes of torch's keep the end of their own path only.
        return not Path(file).exists()
    return any(file.startswith(f"{folder}/") for folder in _MACHINERY)
