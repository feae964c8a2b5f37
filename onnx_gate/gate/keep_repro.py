"""What stays of a model's folder when its worker is gone: the reproduction of its divergence."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from onnx_gate.files import plain_files_only, remove_entry, remove_tree, size, take_folder, walk
from onnx_gate.report.layout import REPORT, REPRO
from onnx_gate.report.model import ModelResult

MAX_BYTES = 256 << 20


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
