"""The manifest of a pull request against that of its base, model by model."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from onnx_gate.guard import subject, tried
from onnx_gate.guard.tolerance import looser, tolerances
from onnx_gate.guard.wording import listed, number
from onnx_gate.manifest import OPTIMIZATIONS, Manifest, ModelSpec, RuntimeSpec, Waiver
from onnx_gate.report.model import Change
from onnx_gate.text import quote

_Kind = Literal["required", "subject", "tolerance", "suites", "dims", "waiver", "other"]
_OWN = {False: "a function of the repository's own", True: "a command of the repository's own"}
_LEVELS = (None, *reversed(OPTIMIZATIONS))


def loosened(base: Manifest, head: Manifest) -> tuple[Change, ...]:
    """Return every way in which ``head`` asks less of a model than ``base`` does.

    In the order of ``base``. Models are known by their names. Where it cannot be known that at
    least as much is asked, the change is returned: another metric, say, another dtype, or another
    file that is verified under the same name.
    """
    after = {spec.name: spec for spec in head.models}
    known = {spec.name for spec in base.models}
    new = {spec.name: _entry(spec) for spec in head.models if spec.name not in known}
    changes: list[Change] = []
    for spec in base.models:
        other = after.get(spec.name)
        if other is None:
            changes.append(Change(kind="model", model=spec.name, message=_removal(spec, new)))
            continue
        line = other.line or None
        changes += [
            Change(kind=kind, model=spec.name, message=message, line=line)
            for kind, aspect in _ASPECTS
            for message in aspect(spec, other)
        ]
    return tuple(changes)


def _removal(spec: ModelSpec, new: Mapping[str, ModelSpec]) -> str:
    entry = _entry(spec)
    for name, other in new.items():
        if other == entry:
            return f"removed; a model with the same entry is now called {quote(name, 120)}"
    return "removed"


def _entry(spec: ModelSpec) -> ModelSpec:
    return replace(spec, name="", line=0)


def _required(base: ModelSpec, head: ModelSpec) -> Iterator[str]:
    if base.required and not head.required:
        yield "required: true → false"


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


def _targets(base: ModelSpec, head: ModelSpec) -> Iterator[str]:
    kept = {target.name: target for target in head.targets}
    for target in base.targets:
        other = kept.get(target.name)
        if other is None or other.least > target.least:
            yield f"target {target} → {other or 'none'}"


def _coverage(base: ModelSpec, head: ModelSpec) -> Iterator[str]:
    before, after = (0.0 if s.coverage is None else s.coverage.decisions for s in (base, head))
    if after < before:
        yield f"coverage of decisions: {before:g} → {after:g}"


def _outputs(base: ModelSpec, head: ModelSpec) -> Iterator[str]:
    if base.outputs is not None and head.outputs is None:
        names = listed(map(quote, base.outputs))
        yield f"outputs {names} → none: their names and number are checked no more"


def _masked(base: ModelSpec, head: ModelSpec) -> Iterator[str]:
    for name, mask in head.where.items():
        before = base.where.get(name)
        if before != mask:
            was = f"where {quote(before)} is not 0" if before else "everywhere"
            yield f"output {quote(name)}: judged {was} → only where {quote(mask)} is not 0"


def _runtimes(base: ModelSpec, head: ModelSpec) -> Iterator[str]:
    if _half_off(head) and not _half_off(base):
        yield "runtime half off: 16-bit results are no more rounded as they are stored"
    left = [runtime for runtime in head.runtimes if runtime not in base.runtimes]
    silent = True
    for runtime in base.runtimes:
        if runtime in head.runtimes:
            continue
        label = f"runtime {quote(runtime.label, 120)}"
        other = _nearest(runtime, left)
        if other is None:
            silent = False
            yield f"{label} dropped"
            continue
        left.remove(other)
        what = _lesser(runtime, other)
        if what:
            silent = False
            yield f"{label} → {quote(other.label, 120)}: {what}"
        if runtime.tolerance or other.tolerance:
            before, after = runtime.tolerance or base.tolerance, other.tolerance or head.tolerance
            for sentence in looser(before, after):
                yield f"{label}: {sentence}"
    if silent and _also_off(base.runtimes) and not _runs_off(head.runtimes):
        yield "onnxruntime: the one case with optimizations off is run no more"


def _half_off(spec: ModelSpec) -> bool:
    """Return whether the candidate is left out that files with 16-bit results have by themselves."""
    return any(each.name == "half" and each.options.get("off") for each in spec.runtimes)


def _nearest(runtime: RuntimeSpec, others: Iterable[RuntimeSpec]) -> RuntimeSpec | None:
    same = [other for other in others if other.name == runtime.name]
    near = [other for other in same if _processor(other) == _processor(runtime)]
    return next(iter(near or same), None)


def _lesser(base: RuntimeSpec, head: RuntimeSpec) -> str:
    if base.processor != head.processor:
        return "another provider"
    if base.device != head.device:
        return "another device"
    if base.strict is not False and head.strict is False:
        return "strict no more: nodes may run elsewhere"
    for name in ("provider_options", "session_options", "options"):
        if getattr(base, name) != getattr(head, name):
            return f"other {name.replace('_', ' ')}"
    lower = _LEVELS.index(head.optimization) > max(1, _LEVELS.index(base.optimization))
    return "lower optimization" if lower else ""


def _processor(runtime: RuntimeSpec) -> tuple[str, str | None]:
    return runtime.processor, runtime.device


def _on_cpu(runtimes: Iterable[RuntimeSpec]) -> list[RuntimeSpec]:
    return [each for each in runtimes if each.engine.plain and each.processor == "cpu"]


def _also_off(runtimes: Iterable[RuntimeSpec]) -> bool:
    """Return whether one case is run with optimizations off as well, unasked."""
    plain = _on_cpu(runtimes)
    return bool(plain) and all(each.optimization is None for each in plain)


def _runs_off(runtimes: Sequence[RuntimeSpec]) -> bool:
    return _also_off(runtimes) or any(each.optimization == "off" for each in _on_cpu(runtimes))


def _source(base: ModelSpec, head: ModelSpec) -> Iterator[str]:
    if base.reference != head.reference and head.reference is not None:
        was = "PyTorch" if base.reference is None else f"the file {quote(base.reference)}"
        yield f"held against the file {quote(head.reference)}, no longer against {was}"
    if base.onnx is not None and head.onnx is None:
        yield f"the committed file {quote(base.onnx)} is no longer verified: an export is"
    maker = _own_maker(head)
    if maker is not None and maker != _own_maker(base):
        was = "" if base.onnx is not None else f"{quote(_maker(base))} → "
        yield f"exporter {was}{quote(maker)}, {_OWN[head.export.command is not None]}"


def _verified(base: ModelSpec, head: ModelSpec) -> Iterator[str]:
    if head.verify == "blocks" and base.verify != "blocks":
        yield (
            f"verify {base.verify or 'as memory allows'} → blocks: each block is run alone, no inputs "
            "are looked for, and nothing is optimised across blocks"
        )


def _own_maker(spec: ModelSpec) -> str | None:
    """Return the function or the command of the repository's that makes the file."""
    maker = _maker(spec)
    return maker if spec.onnx is None and (":" in maker or spec.export.command) else None


def _maker(spec: ModelSpec) -> str:
    return spec.export.command or spec.export.exporter


_ASPECTS: tuple[tuple[_Kind, Callable[[ModelSpec, ModelSpec], Iterator[str]]], ...] = (
    ("required", _required),
    ("subject", subject.verified),
    ("tolerance", tolerances),
    ("other", _outputs),
    ("other", _masked),
    ("suites", tried.suites),
    ("dims", tried.dims),
    ("other", tried.inputs),
    ("other", tried.steps),
    ("other", _coverage),
    ("other", _targets),
    ("other", _runtimes),
    ("waiver", waivers),
    ("other", _source),
    ("other", _verified),
)
