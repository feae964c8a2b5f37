"""What earlier audits have found out, a line for each fault: what is finished survives Ctrl-C.

A key names the model's files, its cases, PyTorch's answers, the tolerances and the fault, so a line
never says anything of another model. What a line holds comes from a worker, and is read as such.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from onnx_gate.report.layout import slug

FOLDER = "audit"
# Larger journals are begun anew: a line has some hundred bytes.
MAX_BYTES = 64 * 2**20
_KEY = 64


class Journal:
    """The journals of all models in one folder; one that cannot be written remembers no more than
    which faults have ended their process in this call."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._begun: dict[str, Mapping[str, Any]] = {}
        self._fatal: dict[str, dict[str, Mapping[str, Any]]] = {}

    def begin(self, model: str, message: Mapping[str, Any]) -> None:
        """Remember which fault is being tried."""
        self._begun[model] = message

    def ended(self, model: str, reason: str | None) -> bool:
        """Take the fault that was being tried when its process ended, ``reason`` says how, for one
        that the runtime refuses; return whether there was one. No reason: it ended as it should."""
        begun = self._begun.pop(model, {})
        key, mutant = begun.get("key"), begun.get("mutant")
        if reason is None or not isinstance(key, str) or not isinstance(mutant, dict):
            return False
        refused = {**mutant, "fate": "refused", "reason": reason}
        self._fatal.setdefault(model, {})[key[:_KEY]] = refused
        self.add(model, {"key": key, "mutant": refused})
        return True

    def read(self, model: str) -> dict[str, Mapping[str, Any]]:
        """Return what is known of a model's faults, by key."""
        known = dict(self._fatal.get(model, {}))
        with suppress(OSError):
            path = self._path(model)
            if path is None or path.stat().st_size > MAX_BYTES:
                return known
            for line in path.read_bytes().splitlines():
                with suppress(ValueError, TypeError, KeyError, RecursionError):
                    entry = json.loads(line)
                    known[str(entry["key"])[:_KEY]] = dict(entry["mutant"])
        return known

    def add(self, model: str, message: Mapping[str, Any]) -> None:
        """Remember what a worker says of one fault."""
        path = self._path(model)
        key, mutant = message.get("key"), message.get("mutant")
        self._begun.pop(model, None)
        if path is None or not isinstance(key, str) or not isinstance(mutant, dict):
            return
        line = json.dumps({"key": key[:_KEY], "mutant": mutant}, ensure_ascii=True)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size + len(line) > MAX_BYTES:
                path.unlink()
            with path.open("a", encoding="ascii") as file:
                file.write(line + "\n")

    def _path(self, model: str) -> Path | None:
        return None if self._folder is None else self._folder / FOLDER / f"{slug(model)}.jsonl"
