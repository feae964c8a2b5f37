"""Waivers: what the head's forgive and none of the base's does."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterator

from onnx_gate.guard.wording import number
from onnx_gate.manifest import ModelSpec, Waiver
from onnx_gate.text import quote


def waivers(base: ModelSpec, head: ModelSpec) -> Iterator[str]:
    """Yield each waiver that is new, longer, wider or more lenient; other reasons are not."""
    for waiver in head.waivers:
        covering = [each for each in base.waivers if covers(each.check, waiver.check)]
        if any(_as_lenient(each, waiver) for each in covering):
            continue
        same = [each for each in covering if covers(waiver.check, each.check)]
        narrower = [each for each in base.waivers if covers(waiver.check, each.check)]
        if same:
            before = max(same, key=lambda each: (each.until, _ceiling(each)))
            yield f"{quote(waiver.check)}: {_growth(before, waiver)}"
        elif narrower:
            yield f"{quote(narrower[0].check)} → {_whole(waiver)}"
        else:
            yield f"added: {_whole(waiver)}"


def covers(wide: str, narrow: str) -> bool:
    """Return whether every case id that ``narrow`` matches is surely matched by ``wide`` too.

    Never true where it does not hold. Patterns with ``?`` and ``[]`` are compared as they stand.
    """
    wide, narrow = _stem(wide), _stem(narrow)
    if wide in ("*", narrow):
        return True
    if set("[?") & set(wide) or "[" in narrow:
        return False
    # Both match all that is below them as well; a star takes in the other's stars.
    return any(fnmatch.fnmatchcase(narrow, pattern) for pattern in (wide, f"{wide}/*"))


def _stem(pattern: str) -> str:
    """Return the shortest pattern that, with all that is below it, matches the same ids."""
    pattern = re.sub(r"\*+", "*", pattern)
    return pattern.rstrip("/") if pattern.endswith("/") else pattern.removesuffix("/*")


def _as_lenient(base: Waiver, head: Waiver) -> bool:
    return base.until >= head.until and _ceiling(base) >= _ceiling(head)


def _ceiling(waiver: Waiver) -> float:
    return math.inf if waiver.ceiling is None else waiver.ceiling


def _growth(base: Waiver, head: Waiver) -> str:
    parts = []
    if head.until > base.until:
        parts.append(f"until {base.until} → {head.until}")
    if _ceiling(head) > _ceiling(base):
        parts.append(f"ceiling {number(base.ceiling)} → {number(head.ceiling)}")
    return ", ".join(parts)


def _whole(waiver: Waiver) -> str:
    error = "any error" if waiver.ceiling is None else f"errors up to {number(waiver.ceiling)}"
    return f"{quote(waiver.check)}, {error} until {waiver.until}: {quote(waiver.reason, 120)}"
