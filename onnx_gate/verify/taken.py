"""What ``forward`` takes where it refuses what the manifest says: found by trying."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.torch_eager import Eager

ON_CPU = (
    "move tensors to the device of an input, x.to(other.device), in place of .cuda(): the gate "
    "calls PyTorch on the CPU"
)
# What is written instead of what was meant: NumPy's own dtypes, and indices of another width.
_INSTEAD = {"float64": "float32", "float32": "float64", "int32": "int64", "int64": "float32"}


@dataclass(frozen=True)
class Taken:
    """Which input the manifest has wrong, empty where none, and what to do about the refusal.

    ``changes`` are keys below the model's entry in the manifest, with what they have to be.
    """

    wrong: str
    remedy: str
    changes: tuple[tuple[str, object], ...] = ()


def what_it_takes(eager: Eager, arrays: Mapping[str, Array], refusal: Refusal) -> Taken | None:
    """Return which input is wrong and what to write for it, ``None`` where no trial shows it."""
    if "cuda" in str(refusal).lower():
        return Taken("", ON_CPU)
    try:
        return _range(eager, arrays) or _dtype(eager, arrays)
    except Exception:  # a class may override all that is asked of it; the refusal itself is said
        return None


def _dtype(eager: Eager, arrays: Mapping[str, Array]) -> Taken | None:
    for dtype, other in _INSTEAD.items():
        names = [name for name, array in arrays.items() if array.dtype == dtype]
        for chosen in (names, *([name] for name in names if len(names) > 1)):
            if chosen and _takes(eager, {**arrays, **{n: arrays[n].astype(other) for n in chosen}}):
                shown = ", ".join(f"inputs.{name}" for name in chosen)
                wrong = f"{shown}: the manifest says {dtype}, and forward takes {other}"
                changes = tuple((f"inputs.{name}.dtype", other) for name in chosen)
                return Taken(wrong, f"write {other} in {shown}", changes)
    return None


def _range(eager: Eager, arrays: Mapping[str, Array]) -> Taken | None:
    """Say which table has fewer rows than an input's range asks for."""
    beyond: list[tuple[str, int, Array]] = []

    def look(path: str, table: Any, given: Any) -> None:
        ids = np.asarray(given[0]) if given else np.zeros(0)
        if ids.size and ids.max() >= table.num_embeddings:
            beyond.append((path, int(table.num_embeddings), ids))

    tables = [
        (path, part)
        for path, part in eager.module.named_modules()
        if isinstance(part, nn.Embedding | nn.EmbeddingBag)
    ]
    hooks = [
        part.register_forward_pre_hook(lambda table, given, path=path: look(path, table, given))
        for path, part in tables
    ]
    try:
        _takes(eager, arrays)
    finally:
        for hook in hooks:
            hook.remove()
    if not beyond:
        return None
    path, rows, ids = beyond[0]
    names = [n for n, a in arrays.items() if a.dtype.kind in "iu" and a.max(initial=0) == ids.max()]
    if not names:  # computed from an input, and no manifest says by how much
        wrong = f"the table {path} has rows 0 to {rows - 1}, and is asked for row {ids.max()}"
        return Taken(wrong, "give the inputs ranges that stay inside of the table")
    name = f"inputs.{names[0]}"
    wrong = f"{name} reaches {ids.max()}, and the table {path} has rows 0 to {rows - 1}"
    highest = [0, rows - 1]
    return Taken(wrong, f"write range: {highest} in {name}", ((f"{name}.range", highest),))


def _takes(eager: Eager, arrays: Mapping[str, Array]) -> bool:
    try:
        eager.run(arrays)
    except Refusal:
        return False
    return True
