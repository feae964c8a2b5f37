"""Which line of the user's an exception or a traced operator comes from."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

import onnx
import torch

import onnx_gate
from onnx_gate.report.model import Source

# The key under which torch's exporter keeps the stack of each node.
STACK_TRACE = "pkg.torch.onnx.stack_trace"
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_MACHINERY = tuple(
    str(folder)
    for folder in (
        Path(torch.__file__).parent,
        Path(onnx_gate.__file__).parent,
        sysconfig.get_path("stdlib"),
    )
)
_PACKAGES = ("site-packages", "dist-packages")
# What exporters and their parts are installed as, beside torch itself.
_TOOLS = ("onnx", "onnxscript", "onnx_ir", "onnxruntime")


def of_error(error: BaseException, root: Path | None) -> Source | None:
    """Return the innermost line of the user's in the traceback of ``error``.

    A line below ``root`` (the manifest's folder) is preferred to one of an installed package,
    and is shown relative to it. ``None`` where only torch, the gate and Python's own library are
    in the traceback.
    """
    return _choose(_frames(error.__traceback__), root)


def of_stack(text: str, root: Path | None) -> Source | None:
    """Do as ``of_error`` does with the text of a stack, outermost frame first."""
    return _choose(((file, int(line)) for file, line in _FRAME.findall(text)), root)


def of_node(node: onnx.NodeProto, root: Path | None) -> Source | None:
    """Do as ``of_error`` does with what the exporter wrote into a node of the graph."""
    for entry in node.metadata_props:
        if entry.key == STACK_TRACE:
            return of_stack(entry.value, root)
    return None


def shown(source: Source | None, otherwise: str) -> str:
    """Return the line of code and its place, or ``otherwise`` where it is not known."""
    if source is None:
        return otherwise
    return f"`{source.code}`{at(source)}" if source.code else f"{source.file}:{source.line}"


def at(source: Source | None) -> str:
    """Return `` (models/a.py:12)``, or nothing where the line is not known."""
    return "" if source is None else f" ({source.file}:{source.line})"


def workspace_of(reference: str) -> Path | None:
    """Return the folder that ``models/a.py:build`` or ``package.module:build`` was imported from.

    That is the manifest's folder, which is on ``sys.path`` once the model is built.
    """
    place = reference.partition(":")[0]
    top = Path(place if place.endswith(".py") else place.partition(".")[0])
    for entry in map(Path, sys.path):
        if not any(part in _PACKAGES for part in entry.parts) and (
            (entry / top).exists() or (entry / top).with_suffix(".py").exists()
        ):
            return entry.resolve()
    return None


def _frames(traceback: TracebackType | None) -> Iterator[tuple[str, int]]:
    while traceback is not None:
        yield traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
        traceback = traceback.tb_next


def _choose(frames: Iterable[tuple[str, int]], root: Path | None) -> Source | None:
    own: tuple[str, int] | None = None
    installed: tuple[str, int] | None = None
    for file, line in frames:
        if _is_machinery(file):
            continue
        if any(f"/{name}/" in file for name in _PACKAGES):
            installed = (file, line)
        else:
            own = (file, line)
    chosen = own or installed
    if chosen is None:
        return None
    return Source(file=_relative(chosen[0], root), line=chosen[1], code=_code(*chosen))


def _is_machinery(file: str) -> bool:
    if file.startswith("<"):
        return True
    package = next((file.split(f"/{name}/")[-1] for name in _PACKAGES if f"/{name}/" in file), None)
    if package is not None:
        return package.partition("/")[0] in ("torch", *_TOOLS)
    return any(file.startswith(f"{folder}/") for folder in _MACHINERY)


def _relative(file: str, root: Path | None) -> str:
    path = Path(file)
    if root is not None and path.is_relative_to(root):
        return path.relative_to(root).as_posix()
    for name in _PACKAGES:
        if f"/{name}/" in file:
            return file.rsplit(f"/{name}/", 1)[-1]
    return path.name if root is None else file


def _code(file: str, line: int) -> str:
    return linecache.getline(file, line).strip()[:200]
