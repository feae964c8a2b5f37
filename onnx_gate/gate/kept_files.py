"""What stays of a model's files when its worker is gone: the reproduction, and digests of what it wrote.

A statement is about these files and in the gate's name. What a model's process says of them is a
list of names and no more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from onnx_gate.files import (
    plain_files_only,
    remove_entry,
    remove_tree,
    sha256_of,
    size,
    take_folder,
    walk,
)
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.layout import REPORT, REPRO, Layout
from onnx_gate.report.model import ModelResult

# Of a reproduction.
MAX_BYTES = 256 << 20


def with_kept_files(
    workspace: Path, specs: Sequence[ModelSpec], layout: Layout
) -> Callable[[ModelResult], ModelResult]:
    """Return what puts into a result the digests of its files, where they lie when the run ends.

    None of them where one is not there, or lies elsewhere: half a file is not what was verified.
    """
    own = {spec.name: spec.onnx for spec in specs}

    def hashed(result: ModelResult) -> ModelResult:
        if result.export is None:
            return result
        onnx = own[result.name]
        top = layout.model(result.name) if onnx is None else (workspace / onnx).parent
        within = os.path.realpath(top if onnx is None else workspace)
        files = {}
        try:
            for name in result.export.files:
                files[name] = sha256_of(_inside(top / name, within))
        except OSError:
            files = {}
        if onnx is not None and next(iter(files), None) != Path(onnx).name:
            files = {}
        export = result.export.model_copy(update={"files": files})
        return result.model_copy(update={"export": export})

    return hashed


def _inside(path: Path, folder: str) -> str:
    """Return where a file lies, if it is a plain one in the folder; raises ``OSError``."""
    real = os.path.realpath(path)
    hidden = ".git" in Path(real).parts
    if hidden or not real.startswith(folder + os.sep) or not os.path.isfile(real):
        raise FileNotFoundError(real)
    return real


def keep_repro(result: ModelResult, folder: Path, target: Path) -> ModelResult:
    """Move a model's ``folder/repro/MODEL`` to ``target`` and return the result that says so.

    The folder is the model's own, so that nothing but what lies in it is taken, and of that nothing
    but plain files within the cap; and nothing under the name of a report, which could be taken for
    one of the gate's. It is looked at where the model writes no more. The path in the
    result, ``repro/MODEL/CASE``, is relative to the folder that holds ``repro``.
    """
    if all(each.repro is None for each in result.diagnoses):
        return result
    made = [Path(each.repro or "").parts for each in result.diagnoses]
    known = [parts for parts in made if len(parts) == 3 and parts[0] == REPRO and ".." not in parts]
    names: set[str] = set()
    with suppress(OSError):
        remove_tree(target)
        if known:
            target.parent.mkdir(parents=True, exist_ok=True)
            take_folder(folder, known[0][:2], target)
            names = _purged(target, {parts[-1] for parts in known})
        if not names:
            remove_tree(target)
    return result.with_repros(
        lambda repro: (
            f"{REPRO}/{target.name}/{name}" if (name := Path(repro).name) in names else None
        )
    )


def _purged(target: Path, names: Collection[str]) -> set[str]:
    """Leave nothing in ``target`` but what may be shown; return those of its folders ``names``."""
    plain_files_only(target)
    for entry in walk(target):
        if entry.name == REPORT:
            remove_entry(entry)
    if size(target) > MAX_BYTES:
        return set()
    return {name for name in names if (target / name).is_dir()}
