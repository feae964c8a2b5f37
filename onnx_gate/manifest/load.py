"""From a file to a manifest, or to every problem in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from onnx_gate.manifest import yaml_source
from onnx_gate.manifest.lookup import Lookup
from onnx_gate.manifest.problems import (
    ManifestError,
    ManifestProblem,
    Mistake,
    TextPosition,
    dotted,
)
from onnx_gate.manifest.resolve import Resolver
from onnx_gate.manifest.spec import Manifest
from onnx_gate.manifest.validate import MAX_MISTAKES, validate
from onnx_gate.pages import page

MAX_BYTES = 2**20
_START = TextPosition(1, 1)


def load(path: Path, *, files: bool = False) -> Manifest:
    """Read, check and resolve a manifest.

    With ``files`` a suite of files that matches none is a problem too; without it the model that
    has the suite is an error, as something may make the files before it is verified. Raises
    ``ManifestError``, with every problem in the order of the file, and nothing else.
    """
    path = Path(path)
    return load_bytes(_read(path), path, on_disk=True, files=files)


def load_bytes(
    content: bytes, path: Path, *, on_disk: bool = False, files: bool = False
) -> Manifest:
    """Check and resolve the bytes of a manifest that is called ``path`` in every message.

    What it names (files, and kinds of suites and runtimes of other packages) has to be here only
    ``on_disk``: a manifest of another commit is read without that commit's files. Raises
    ``ManifestError`` as ``load`` does.
    """
    if len(content) > MAX_BYTES:
        raise _error(path, _START, f"larger than {MAX_BYTES} bytes; split the manifest")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        location = TextPosition(
            before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        )
        raise _error(path, location, "this is not UTF-8 text; save the file as UTF-8") from None
    try:
        source = yaml_source.read(text)
    except yaml_source.Unreadable as error:
        raise _error(path, error.location, error.message) from None
    checked = validate(source)
    mistakes = list(source.mistakes)
    mistakes += [(source.location(each), each) for each in checked.mistakes]
    if checked.file is not None:
        lookup = Lookup(checked, source, path.parent if on_disk else None, files=files)
        models = Resolver(lookup).resolve(checked.file)
        mistakes += [(source.location(each), each) for each in lookup.mistakes]
        if not mistakes:
            digest = hashlib.sha256(content).hexdigest()
            return Manifest(path, digest, checked.file.requirements, models)
    raise ManifestError(_problems(path, mistakes))


def _read(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise _error(path, _START, "this is a folder; name the manifest in it")
        if path.exists() and not path.is_file():
            raise _error(path, _START, "this is not a regular file; name a manifest")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise _error(path, _START, f"no such file; write one: {page('manifest.md')}") from None
    except OSError as error:
        what = error.strerror or type(error).__name__
        raise _error(path, _START, f"cannot be read: {what}; check its permissions") from None


def _error(path: Path, location: TextPosition, message: str) -> ManifestError:
    return ManifestError([ManifestProblem(str(path), location.line, location.column, "", message)])


def _problems(
    path: Path, mistakes: Iterable[tuple[TextPosition, Mistake]]
) -> list[ManifestProblem]:
    unique = sorted(
        {
            ManifestProblem(
                str(path), location.line, location.column, dotted(each.blamed), each.message
            )
            for location, each in mistakes
        },
        key=lambda problem: (problem.line, problem.column, problem.path, problem.message),
    )
    shown = unique[:MAX_MISTAKES]
    if len(unique) > len(shown):
        last = shown[-1]
        more = f"only the first {MAX_MISTAKES} problems are shown; fix these first"
        shown.append(ManifestProblem(last.file, last.line, last.column, "", more))
    return shown
