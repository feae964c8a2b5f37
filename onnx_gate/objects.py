"""Objects of the calling program under names that a manifest's references can spell.

Wherever a manifest has ``file.py:attribute`` (a model, a generator, a metric, an exporter) it can have
``onnx_gate.objects:name`` too. A worker finds the object there if it is a fork of this process.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_registered: dict[str, Any] = {}
_numbers = itertools.count(1)


class Names:
    """The names that were given out, to be forgotten together."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def reference(self, value: object) -> str:
        """Return a reference to an object: ``onnx_gate.objects:Linear_1``."""
        label = getattr(value, "__name__", type(value).__name__)
        name = f"{label if label.isidentifier() else 'object'}_{next(_numbers)}"
        _registered[name] = value
        self._names.append(name)
        return f"{__name__}:{name}"

    def forget(self) -> None:
        """Let go of the objects."""
        for name in self._names:
            _registered.pop(name, None)


@contextmanager
def named() -> Iterator[Names]:
    """Give names to objects for as long as the context lasts."""
    names = Names()
    try:
        yield names
    finally:
        names.forget()


def __getattr__(name: str) -> Any:
    try:
        return _registered[name]
    except KeyError:
        raise AttributeError(name) from None
