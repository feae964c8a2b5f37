"""The tolerance that lies between the original and a fault, where there is one; pure.

A check's budget is the share of its tolerance that was used, and every criterion is linear in it: of a
tolerance that is half as wide it is twice the share. So the checks of the original and those of a fault
say which tolerance the one passes and the other does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from onnx_gate.manifest import ModelSpec, Tolerance
from onnx_gate.manifest.nesting import above
from onnx_gate.manifest.spec import DEFAULT_AUTO
from onnx_gate.report.model import Check
from onnx_gate.report.story.summary import within_rounding
from onnx_gate.verify.sessions import without_optimisations

# Nine of ten correct exports have at most 1.9 times the error of the one in the middle
# (docs/evidence.md): what this machine's run leaves of a tolerance, another's may use.
MARGIN = 2.0
# The largest error of correct architectures was 2.9 times PyTorch's own (docs/evidence.md).
SURE = 3.0


@dataclass(frozen=True)
class Scope:
    """The checks that one tolerance of the manifest decides, and the key of a change to it."""

    key: str
    tolerance: Tolerance
    runtimes: frozenset[str]
    outputs: frozenset[str]

    def of(self, checks: Iterable[Check]) -> list[Check]:
        """Return the checks that pass by it; what is waived passes by something else."""
        passing = (c for c in checks if c.verdict == "pass")
        return [c for c in passing if c.runtime in self.runtimes and c.output in self.outputs]


def scopes(spec: ModelSpec, outputs: Sequence[str]) -> Iterator[Scope]:
    """Yield the model's tolerance, then that of each runtime, then of each of its ``outputs``.

    Where there is one runtime, or one output, that has no tolerance of its own, it is the model's.
    """
    declared = spec.outputs or {}
    own = {n: next((declared[k] for k in above(n) if k in declared), None) for n in outputs}
    free = frozenset(name for name in outputs if own[name] is None)
    labels = _labels(spec)
    loose = [labels[each.label] for each in spec.runtimes if each.tolerance is None]
    if loose and free:
        yield Scope("tolerance", spec.tolerance, frozenset().union(*loose), free)
    for each in spec.runtimes:
        if free and (len(spec.runtimes) > 1 or each.tolerance is not None):
            tolerance = each.tolerance or spec.tolerance
            yield Scope(f"runtimes.{each.label}", tolerance, labels[each.label], free)
    for name in outputs:
        if own[name] is not None or (len(outputs) > 1 and len(loose) == len(spec.runtimes)):
            everywhere = frozenset().union(*labels.values())
            tolerance = own[name] or spec.tolerance
            yield Scope(f"outputs.{name}", tolerance, everywhere, frozenset((name,)))


def _labels(spec: ModelSpec) -> dict[str, frozenset[str]]:
    """Return the labels of each runtime's checks: of one, a case is tried without optimisations."""
    labels = {each.label: frozenset((each.label,)) for each in spec.runtimes}
    plain = without_optimisations(spec.runtimes)
    if plain is not None:
        same = (each for each in spec.runtimes if replace(each, optimization="off") == plain)
        labels[next(same).label] |= {plain.label}
    return labels


def usual(tolerance: Tolerance) -> Tolerance:
    """Return the default tolerance; what a manifest asks of indices stays."""
    return Tolerance(auto=DEFAULT_AUTO, indices=tolerance.indices)


def separating(
    scope: Scope, original: Iterable[Check], faulty: Sequence[Iterable[Check]]
) -> Iterator[Tolerance]:
    """Yield, for each criterion, the tolerances that could tell the faults that any could tell.

    First the widest that does, then the sharpest that leaves the original ``MARGIN`` times what it
    uses: ``auto`` looks closer where an error would not be allowed, and may grant more then.
    """
    own = scope.of(original)
    every = [scope.of(checks) for checks in faulty]
    for criterion in criteria_of(c for checks in every for c in checks):
        least = least_share(scope.tolerance, criterion, own)
        told = [share for share in (reach(criterion, checks) for checks in every) if share > least]
        if told:
            yield sharpened(scope.tolerance, criterion, least, min(told))
            if least:
                yield sharpest(scope.tolerance, criterion, least)


def criterion_of(check: Check) -> str:
    """Return the criterion that a check has used most of; empty where no tolerance decides.

    The floor is what ``auto`` grants in any case: no factor makes it smaller.
    """
    return "" if check.deviation is None or within_rounding(check) else check.deviation.criterion


def criteria_of(checks: Iterable[Check]) -> list[str]:
    """Return the criteria that decide checks, each once."""
    return [each for each in dict.fromkeys(map(criterion_of, checks)) if each]


def reach(criterion: str, checks: Iterable[Check]) -> float:
    """Return the largest share of the tolerance that checks use by a criterion."""
    return max((c.budget or 0.0 for c in checks if criterion_of(c) == criterion), default=0.0)


def used_share(checks: Iterable[Check]) -> float:
    """Return the largest share of the tolerance that checks use by any criterion."""
    return max((c.budget or 0.0 for c in checks if criterion_of(c)), default=0.0)


def least_share(tolerance: Tolerance, criterion: str, own: Iterable[Check]) -> float:
    """Return the share of a tolerance that correct files need: this one, and what others were seen to.

    It is rounded up to that of a number that one would write.
    """
    least = MARGIN * used_share(own)
    if criterion == "auto" and tolerance.auto is not None:
        least = max(least, SURE / tolerance.auto)
    return share_left(tolerance, sharpest(tolerance, criterion, least), criterion) if least else 0.0


def sharpened(tolerance: Tolerance, criterion: str, least: float, widest: float) -> Tolerance:
    """Return a tolerance with less than the share ``widest`` of one criterion's width.

    In as few digits as leave it the share ``least``.
    """
    tried = (_narrowed(tolerance, criterion, widest, partial(below, digits=d)) for d in (1, 2, 3))
    fitting = (each for each in tried if share_left(tolerance, each, criterion) >= least)
    exact = _narrowed(tolerance, criterion, widest, partial(below, digits=6))
    return next(fitting, exact)


def sharpest(tolerance: Tolerance, criterion: str, least: float) -> Tolerance:
    """Return the sharpest tolerance that leaves the share ``least`` of one criterion's width."""
    return _narrowed(tolerance, criterion, least, at_least)


def _narrowed(
    tolerance: Tolerance, criterion: str, share: float, rounded: Callable[[float], float]
) -> Tolerance:
    """Return a tolerance with a rounded share of one criterion's width."""
    olds = {name: getattr(tolerance, name) for name in _fields(tolerance, criterion)}
    widths = {name: rounded(share * _width(name, old)) for name, old in olds.items()}
    return replace(tolerance, **{n: _of_width(n, widths[n], old) for n, old in olds.items()})


def share_left(tolerance: Tolerance, sharper: Tolerance, criterion: str) -> float:
    """Return the share of a criterion's width that a sharper tolerance leaves."""
    names = _fields(tolerance, criterion)
    return min(_width(n, getattr(sharper, n)) / _width(n, getattr(tolerance, n)) for n in names)


def _fields(tolerance: Tolerance, criterion: str) -> list[str]:
    """Return the keys of a tolerance that a criterion of checks is judged by."""
    if criterion == "atol":
        return [name for name in ("atol", "rtol") if getattr(tolerance, name)]
    return [criterion]


def _width(name: str, value: Any) -> float:
    """Return what a criterion allows, on the scale on which budgets are linear."""
    if name == "topk":
        return 1 - float(value.agreement)
    if name in ("cosine", "top1"):
        return 1 - float(value)
    return float(10 ** (-value / 20)) if name == "snr_db" else float(value)


def _of_width(name: str, width: float, old: Any) -> Any:
    if name == "topk":
        return replace(old, agreement=round(1 - width, 12))
    if name in ("cosine", "top1"):
        return round(1 - width, 12)
    if name == "snr_db":
        return math.ceil(-200 * math.log10(width)) / 10
    return math.floor(width) if name == "max_ulp" else width


def at_least(value: float) -> float:
    """Return the smallest number of two significant digits that is no smaller."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.2g}")


def below(value: float, digits: int) -> float:
    """Return the largest number of so many significant digits that is smaller."""
    if value <= 0:
        return 0.0
    slightly_less = value * (1 - 1e-9)
    unit = 10.0 ** (math.floor(math.log10(slightly_less)) - digits + 1)
    return float(f"{math.floor(slightly_less / unit) * unit:.{digits}g}")
