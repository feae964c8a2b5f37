"""What ``forward`` takes where it refuses what the manifest says: found by trying."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn

from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.torch_eager import Eager

ON_CPU = (
    "the gate calls PyTorch on the CPU: move tensors to the device of an input, "
    "x.to(other.device), in place of .cuda()"
)
# What is written instead of what was meant: NumPy's own dtypes, and indices of another width.
_INSTEAD = {"float64": "float32", "float32": "float64", "int32": "int64", "int64": "float32"}


def what_it_takes(eager: Eager, arrays: Mapping[str, Array], refusal: Refusal) -> str:
    """Return which input is wrong and what to write for it, empty where no trial shows it."""
    if "cuda" in str(refusal).lower():
        return ON_CPU
    try:
        return _range(eager, arrays) or _dtype(eager, arrays)
    except Exception:  # a class may override all that is asked of it; the refusal itself is said
        return ""


def _dtype(eager: Eager, arrays: Mapping[str, Array]) -> str:
    for dtype, other in _INSTEAD.items():
        names = [name for name, array in arrays.items() if array.dtype == dtype]
        for chosen in (names, *([name] for name in names if len(names) > 1)):
            if chosen and _takes(eager, {**arrays, **{n: arrays[n].astype(other) for n in chosen}}):
                shown = ", ".join(f"inputs.{name}" for name in chosen)
                return f"{shown}: the manifest says {dtype}, and forward takes {other}; write that"
    return ""


def _range(eager: Eager, arrays: Mapping[str, Array]) -> str:
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
        return ""
    path, rows, ids = beyond[0]
    names = [n for n, a in arrays.items() if a.dtype.kind in "iu" and a.max(initial=0) == ids.max()]
    return (
        f"inputs.{names[0] if names else next(iter(arrays))} reaches {ids.max()}, and the table "
        f"{path} has rows 0 to {rows - 1}; write range: [0, {rows - 1}]"
    )


def _takes(eager: Eager, arrays: Mapping[str, Array]) -> bool:
    try:
        eager.run(arrays)
    except Refusal:
        return False
    return True
