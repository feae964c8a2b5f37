"""What is finished survives the end of a run, however it comes: a line for each part of a model's work.

A part is a fault of an audit, or a block. Its key is made by the worker, and names all that the worker
knows of what decides. What a line holds comes from a worker, and is read as such.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from onnx_gate.cache.path_names import digest
from onnx_gate.report.layout import slug

FAULTS = "audit"
BLOCKS = "blocks"
# Larger journals are begun anew: a fault has some hundred bytes, a block some ten thousand.
MAX_BYTES = 64 * 2**20
_KEY = 64


class Journal:
    """The journals of all models, of one ``kind``; one that cannot be written remembers no more than
    which parts have ended their process in this call."""

    def __init__(self, folder: Path | None, kind: str) -> None:
        self._folder = None if folder is None else folder / kind
        self._begun: dict[str, Mapping[str, Any]] = {}
        self._fatal: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._based: dict[str, set[str]] = {}

    def begin(self, model: str, message: Mapping[str, Any]) -> None:
        """Remember which part is being tried."""
        self._begun[model] = message

    def ended(self, model: str, reason: str | None) -> bool:
        """Take the part that was being tried when its process ended, ``reason`` says how, for one
        that the runtime refuses; return whether there was one. No reason: it ended as it should."""
        begun = self._begun.pop(model, {})
        key, value = begun.get("key"), begun.get("value")
        if reason is None or not isinstance(key, str) or not isinstance(value, dict):
            return False
        refused = {**value, "fate": "refused", "reason": reason}
        self._fatal.setdefault(model, {})[key[:_KEY]] = refused
        self.add(model, {"key": key, "value": refused})
        return True

    def read(
        self, model: str, holds: Callable[[Mapping[str, Any]], bool] = lambda _: True
    ) -> dict[str, Mapping[str, Any]]:
        """Return what is known of a model's parts, by key.

        ``holds`` is asked of each ``basis`` whether it still does; what was added on another is left out.
        """
        known = dict(self._fatal.get(model, {}))
        held = {"": True}
        with suppress(OSError):
            path = self._path(model)
            if path is None or path.is_symlink() or path.stat().st_size > MAX_BYTES:
                return known
            for line in path.read_text("ascii", "replace").splitlines():
                checksum, _, text = line.partition(" ")
                if checksum != digest(text):  # it was cut off
                    continue
                with suppress(ValueError, TypeError, KeyError, RecursionError):
                    entry = json.loads(text)
                    if "basis" in entry:
                        held[digest(json.dumps(entry["basis"]))] = holds(entry["basis"])
                    elif held.get(entry["on"]):
                        known[str(entry["key"])[:_KEY]] = dict(entry["value"])
        return known

    def add(
        self, model: str, message: Mapping[str, Any], basis: Mapping[str, Any] | None = None
    ) -> None:
        """Remember what a worker says of one part.

        ``basis`` is what the gate itself knows of what decides; it is written once.
        """
        path = self._path(model)
        key, value = message.get("key"), message.get("value")
        self._begun.pop(model, None)
        if path is None or not isinstance(key, str) or not isinstance(value, dict):
            return
        on = "" if basis is None else digest(json.dumps(basis))
        lines: list[dict[str, Any]] = [{"key": key[:_KEY], "value": value, "on": on}]
        written = self._based.setdefault(model, {""})
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size > MAX_BYTES:
                path.unlink()
                written &= {""}
            if on not in written:
                lines.insert(0, {"basis": basis})
            with path.open("a", encoding="ascii") as file:
                for line in lines:
                    text = json.dumps(line)
                    file.write(f"{digest(text)} {text}\n")
            written.add(on)

    def has(self, model: str) -> bool:
        """Return whether anything of a model is written down."""
        path = self._path(model)
        return path is not None and path.is_file()

    def forget(self, model: str) -> None:
        """Forget what is known of a model."""
        path = self._path(model)
        if path is not None:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def _path(self, model: str) -> Path | None:
        return None if self._folder is None else self._folder / f"{slug(model)}.jsonl"
