"""A process that writes, reads and prunes a store for ever, and leaves where an entry is damaged."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

from onnx_gate.cache.dependencies import Dependencies
from onnx_gate.cache.key import Key
from onnx_gate.cache.store import Store
from onnx_gate.cache.stored_verdict import StoredVerdict
from onnx_gate.report.model import ModelResult


def entry_of(number: int) -> StoredVerdict:
    """An entry of which every part says the same number."""
    return StoredVerdict(
        key=Key({"package torch": str(number)}, {"seed": str(number)}),
        dependencies=Dependencies(files={"a.py": str(number)}),
        result=ModelResult(name=str(number), verdict="pass", seconds=float(number)),
        files={"case/model.onnx": str(number).encode() * (number % 5000)},
        exported={"model.onnx": str(number)},
    )


def writer(folder: str, seed: int) -> None:
    """Write, read and prune for ever; leave at once where something is not as it was written."""
    store, dice = Store.open(Path(folder)), random.Random(seed)
    scratch = Path(folder).parent / f"scratch-{seed}"
    while True:
        number = dice.randrange(1000)
        model = f"model {number % 5}"
        store.write(model, entry_of(number))
        scratch.write_bytes(str(number).encode() * 3000)
        store.keep_export(scratch)
        for path, head in store.heads(f"model {dice.randrange(5)}"):
            entry = store.read(path)
            if entry is None:
                continue
            assert entry.result is not None
            if entry != entry_of(int(entry.result.name)) or head.verdict != entry.key.verdict:
                os._exit(3)
        for path in (Path(folder) / "exports").iterdir():
            if path.name.startswith(".") or not store.restore_export(path.name, scratch):
                continue
            if hashlib.sha256(scratch.read_bytes()).hexdigest() != path.name:
                os._exit(4)
        if dice.random() < 0.2:
            store.prune()
