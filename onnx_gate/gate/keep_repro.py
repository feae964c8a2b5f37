"""What stays of a model's folder when its worker is gone: the reproduction of its divergence."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from onnx_gate.files import plain_files_only, remove_tree, size
from onnx_gate.report.layout import REPORT, REPRO
from onnx_gate.report.model import ModelResult

MAX_BYTES = 256 << 20


def keep_repro(result: ModelResult, folder: Path, target: Path) -> ModelResult:
    """Move a model's ``folder/repro/MODEL`` to ``target`` and return the result that says so.

    The folder is the model's own, so that nothing but plain files within the cap is taken, and
    nothing under the name of a report, which could be taken for one of the gate's. The path in the
    result, ``repro/MODEL/CASE``, is relative to the folder that holds ``repro``.
    """
    if all(each.repro is None for each in result.diagnoses):
        return result
    made = [Path(each.repro or "").parts for each in result.diagnoses]
    known = [parts for parts in made if len(parts) == 3 and parts[0] == REPRO and ".." not in parts]
    source = folder / REPRO / (known[0][1] if known else "_")
    names: set[str] = set()
    with suppress(OSError):
        remove_tree(target)
        if source.is_dir() and not source.is_symlink():
            plain_files_only(source)
            for forged in source.rglob(REPORT):
                remove_tree(forged)
            there = {parts[-1] for parts in known if (source / parts[-1]).is_dir()}
            if there and size(source) <= MAX_BYTES:
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(source, target)
                names = there
    return result.with_repros(
        lambda repro: (
            f"{REPRO}/{target.name}/{name}" if (name := Path(repro).name) in names else None
        )
    )
