"""Tolerances: every criterion that is named must hold, so one that is gone is looser too."""

from __future__ import annotations

from collections.abc import Iterator

from onnx_gate.guard.wording import listed, number
from onnx_gate.manifest import ModelSpec, Tolerance
from onnx_gate.text import quote

_CEILINGS = ("auto", "max_ulp")
_MINIMA = ("cosine", "snr_db", "top1")


def tolerances(base: ModelSpec, head: ModelSpec) -> Iterator[str]:
    """Yield what the head's tolerances, of the model and of each output, forgive in addition.

    Outputs are matched by name, and in order where they have other names.
    """
    yield from looser(base.tolerance, head.tolerance)
    before, after = base.outputs or {}, head.outputs or {}
    for old, new in _pairs(list(before), list(after)):
        own_before = before[old] if old is not None else None
        own_after = after[new] if new is not None else None
        if own_before is None and own_after is None:
            continue
        label = f"output {quote(new if new is not None else old)}"
        for sentence in looser(own_before or base.tolerance, own_after or head.tolerance):
            yield f"{label}: {sentence}"
        if own_after is not None and _parts_integers(own_after) and not _parts_integers(own_before):
            allowed = listed(_criteria(own_after).values())
            yield f"{label}: integers, if it holds any, had to be equal and now: {allowed}"


def looser(base: Tolerance, head: Tolerance) -> Iterator[str]:
    """Yield each way in which ``head`` accepts what ``base`` does not.

    Two ``topk`` of different ``k``, and two different metrics, say nothing about each other: each
    is a change in both directions.
    """
    before, after = _criteria(base), _criteria(head)
    gone = [before[name] for name in before if name not in after]
    if gone:
        new = [after[name] for name in after if name not in before]
        yield f"{listed(gone)} " + (f"replaced by {listed(new)}" if new else "dropped")
    for name in (*_CEILINGS, *_MINIMA):
        if name in before and name in after:
            moved = _grown if name in _CEILINGS else _shrunk
            yield from moved(name, getattr(base, name), getattr(head, name))
    if "closeness" in before and "closeness" in after:
        for name in ("atol", "rtol", "mismatch"):
            yield from _grown(name, getattr(base, name) or 0.0, getattr(head, name) or 0.0)
    if base.topk is not None and head.topk is not None:
        if base.topk.k != head.topk.k:
            yield f"topk k {base.topk.k} → {head.topk.k}"
        yield from _shrunk("topk agreement", base.topk.agreement, head.topk.agreement)
    if base.metric is not None and head.metric is not None:
        if base.metric != head.metric:
            yield f"metric {quote(base.metric)} → {quote(head.metric)}"
        yield from _grown("max", base.max or 0.0, head.max or 0.0)
    if base.indices == "exact" and head.indices == "values":
        yield "indices exact → values"


def _pairs(base: list[str], head: list[str]) -> Iterator[tuple[str | None, str | None]]:
    new = iter([name for name in head if name not in base])
    for name in base:
        yield name, (name if name in head else next(new, None))
    for name in new:
        yield None, name


def _grown(name: str, base: float, head: float) -> Iterator[str]:
    if head > base:
        yield f"{name} {number(base)} → {number(head)}"


def _shrunk(name: str, base: float, head: float) -> Iterator[str]:
    if head < base:
        yield f"{name} {number(base)} → {number(head)}"


def _criteria(tolerance: Tolerance) -> dict[str, str]:
    """Return the criteria that are named, in words; ``atol`` and ``rtol`` are one."""
    criteria: dict[str, str] = {}
    for name in (*_CEILINGS, *_MINIMA):
        if getattr(tolerance, name) is not None:
            criteria[name] = f"{name} {number(getattr(tolerance, name))}"
    close = {name: getattr(tolerance, name) for name in ("atol", "rtol")}
    if any(value is not None for value in close.values()):
        if tolerance.mismatch:
            close["mismatch"] = tolerance.mismatch
        given = {name: value for name, value in close.items() if value is not None}
        criteria["closeness"] = listed(f"{name} {number(value)}" for name, value in given.items())
    if tolerance.topk is not None:
        criteria["topk"] = f"top{tolerance.topk.k} {number(tolerance.topk.agreement)}"
    if tolerance.metric is not None:
        criteria["metric"] = f"metric {quote(tolerance.metric)} max {number(tolerance.max)}"
    return criteria


def _parts_integers(own: Tolerance | None) -> bool:
    """Return whether an output's own tolerance lets integers differ, which else must be equal."""
    if own is None:
        return False
    if own.atol is not None or own.rtol is not None:
        # Integers are at least 1 apart.
        return (own.atol or 0) >= 1 or bool(own.rtol) or own.mismatch > 0
    return any(each is not None for each in (own.cosine, own.snr_db, own.metric))
