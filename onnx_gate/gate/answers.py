"""The folder in which one run leaves PyTorch's answers and another one finds them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from onnx_gate.errors import UserError
from onnx_gate.files import plain_files_only, remove_tree, sha256_of, size
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
    """Move what a model's process has written to its place and return the result that says so."""
    name = slug(result.name)
    target = folder / name
    with suppress(OSError):
        remove_tree(target)
        if source.is_dir() and not source.is_symlink():
            plain_files_only(source)
            folder.mkdir(parents=True, exist_ok=True)
            shutil.move(source, target)
            made = Answers(folder=name, sha256=sha256_of(target / _INDEX), bytes=size(target))
            return result.model_copy(update={"answers": made})
    return result


def finish_answers(report: Report, manifest: Manifest, folder: Path) -> None:
    """Put the report and the manifest beside the answers; raises ``UserError``."""
    try:
        write_bytes(folder / MANIFEST, manifest.path.read_bytes())
        write_text(folder / REPORT, to_json(report))
    except OSError as error:
        raise UserError(f"--answers {folder}: {error.strerror or error}") from error


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
