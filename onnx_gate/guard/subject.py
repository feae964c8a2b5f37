"""What is verified under a model's name: another module, file or call may agree more easily."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from onnx_gate.guard.wording import listed
from onnx_gate.manifest import ExportSpec, ModelSpec, WeightsSpec
from onnx_gate.text import quote, shortened

# Each key of an entry that decides what is verified, and is not looked at by another aspect.
_NOUNS = {
    "model": "another model",
    "args": "other args",
    "kwargs": "other kwargs",
    "weights": "other weights",
    "seed": "another seed",
    "call": "another call",
    "caches": "other caches",
}
# A maker of the repository's own is told by ``loosened``, whatever stands beside it.
_MAKER = ("exporter", "command")


def verified(base: ModelSpec, head: ModelSpec) -> Iterator[str]:
    """Yield in what the head's entry verifies something else than the base's.

    Whether that asks less nobody can know who has only the manifests.
    """
    for key, noun in _NOUNS.items():
        yield from _another(f"{noun}:", getattr(base, key), getattr(head, key))
    added = [quote(name) for name in head.inputs if name not in base.inputs]
    if added:
        yield f"verifies another call: with the input{'s' * (len(added) > 1)} {listed(added)}, too"
    if head.onnx is not None and base.onnx is None:
        yield f"verifies another file: {quote(head.onnx)}, no longer an export"
    elif head.onnx is not None:
        yield from _another("another file:", base.onnx, head.onnx)
    elif base.onnx is None:
        own = head.export.command is not None or ":" in head.export.exporter
        for each in dataclasses.fields(ExportSpec):
            if not (own and each.name in _MAKER):
                before, after = (getattr(s.export, each.name) for s in (base, head))
                yield from _another(f"another export: {each.name}", before, after)


def _another(what: str, before: Any, after: Any) -> Iterator[str]:
    # As it is written: to Python 1 equals true and 1.0, and to the model it need not.
    if repr(before) != repr(after):
        yield f"verifies {what} {_shown(before)} → {_shown(after)}"


def _shown(value: Any) -> str:
    """Return a value as the manifest has it, near enough to be found there."""
    if value is None or value == () or value == {}:
        return "none"
    if isinstance(value, WeightsSpec):
        given = {key: each for key, each in dataclasses.asdict(value).items() if each is not None}
        return _shown(value.file if len(given) == 1 else given)
    if isinstance(value, tuple):
        value = list(value)
    return quote(value, 120) if isinstance(value, str) else shortened(repr(value), 120)
