"""The folder in which one run leaves PyTorch's answers and another one finds them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from onnx_gate.errors import UserError, unwritten
from onnx_gate.files import plain_files_only, remove_tree, sha256_of, size
from onnx_gate.findings import codes
from onnx_gate.gate.folder_lock import alone_in
from onnx_gate.manifest import Manifest, ManifestError
from onnx_gate.manifest.load import load_bytes
from onnx_gate.report.io import read_report, to_json, write_bytes, write_text
from onnx_gate.report.layout import REPORT, slug
from onnx_gate.report.model import Answers, Held, ModelResult, Report
from onnx_gate.verify.context import Given

MANIFEST = "onnx-gate.yml"
_INDEX = "answers.json"
_AGAIN = "write it again: onnx-gate run --answers DIR"


def keep_answers(result: ModelResult, source: Path, folder: Path) -> ModelResult:
    """Move what a model's process has written to its place and return the result that says so.

    Where that cannot be done a finding says why (OG430).
    """
    name = slug(result.name)
    target = folder / name
    try:
        remove_tree(target)
        if not source.is_dir() or source.is_symlink():
            return result
        plain_files_only(source)
        shutil.move(source, target)
        made = Answers(folder=name, sha256=sha256_of(target / _INDEX), bytes=size(target))
    except OSError as error:
        with suppress(OSError):
            remove_tree(target)
        lost = codes.OG430.finding(
            f"the answers of this model were not kept: {target}: {error.strerror or error}",
            severity="warning",
        )
        return result.model_copy(update={"findings": (*result.findings, lost)})
    return result.model_copy(update={"answers": made})


@contextmanager
def answers_in(folder: Path | None) -> Iterator[Callable[[Report, Manifest], None]]:
    """Hold the folder of ``--answers``, made where it is not there; yield what finishes it.

    That puts the report and the manifest beside the answers. Raises ``UserError`` where another run
    is writing there, and where it cannot be written.
    """
    if folder is None:
        yield lambda *_: None
        return

    def finish(report: Report, manifest: Manifest) -> None:
        with _refusing(folder):
            write_bytes(folder / MANIFEST, manifest.path.read_bytes())
            write_text(folder / REPORT, to_json(report))

    with _refusing(folder):
        folder.mkdir(exist_ok=True)
    with alone_in(folder, "--answers"):
        yield finish


@contextmanager
def _refusing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unwritten(f"--answers {folder}", error, "name a folder that can be") from error


@dataclass(frozen=True)
class Against:
    """The models of another run, and for each what it is held against; ``path`` as it was named."""

    path: Path
    manifest: Manifest
    held: Held
    given: Mapping[str, Given]


def open_answers(path: Path) -> Against:
    """Read what ``--against`` names, a report or its folder; raises ``UserError``."""
    file = path / REPORT if path.is_dir() else path
    report = read_report(file)
    folder = file.parent
    copy = folder / MANIFEST
    try:
        content = copy.read_bytes()
    except OSError as error:
        raise UserError(
            f"{copy}: {error.strerror or error}; carry it beside the report, or {_AGAIN}"
        ) from error
    try:
        manifest = load_bytes(content, copy)
    except ManifestError as error:
        raise UserError(f"{error.problems[0]}; {_AGAIN}, with this version") from error
    if manifest.sha256 != report.manifest.sha256:
        raise UserError(f"{copy} is not the manifest of {file}; {_AGAIN}")
    models = {model.name: model for model in report.models}
    if not any(model.answers for model in report.models):
        raise UserError(f"{file} carries no answers; {_AGAIN}")
    held = Held(
        sha256=sha256_of(file),
        verdict=report.verdict,
        created=report.created,
        commit=report.commit,
        environment=report.environment,
    )
    given = {name: _given(model, file) for name, model in models.items()}
    own = tuple(spec for spec in manifest.models if spec.name in given)
    return Against(path, replace(manifest, models=own), held, given)


def _given(model: ModelResult, report: Path) -> Given:
    if model.answers is not None:
        name = model.answers.folder
        if os.path.basename(name) == name and name not in ("", ".", ".."):
            return Given(report.parent / name, model.answers.sha256, model.export)
    error = model.error
    why = f"{error.code}: {error.message}" if error is not None else "they were not written"
    return Given(report.parent, "", trouble=f"{report} has no answers of this model: {why}")
