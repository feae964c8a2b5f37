"""What a reader has to know of the checks beside the verdict: pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.model import Check
from onnx_gate.report.story.extent import COMPARED
from onnx_gate.text import listed, number, output_called
from onnx_gate.verify.experience import Experience
from onnx_gate.verify.judge.noise import VISIBLE

# From here on per cent are harder to read than times.
_TIMES = 10.0
# So many columns are named.
_COLUMNS = 4
# One draw of a rounding that moves elements by a visible part is hardly a tenth of that.
_NOTHING = 0.1 * VISIBLE


@dataclass(frozen=True)
class Tried:
    """What was tried beside the checks: ``outputs`` by name, ``empty`` the suites without a case.

    ``selected``: the user asked for some of
    the cases only, so what was left out is no omission. ``elsewhere``: which cases were compared at all
    is another machine's to say, which has the first of the model's blocks. ``not_numbers`` looks for the
    parameters that have NaN or an infinity; it is asked where an output is nothing else.
    """

    outputs: Mapping[str, Experience]
    empty: tuple[str, ...] = ()
    selected: bool = False
    elsewhere: bool = False
    not_numbers: Callable[[], Sequence[str]] = tuple


def remarks(spec: ModelSpec, checks: Sequence[Check], tried: Tried) -> Iterator[Finding]:
    """Yield what a reader has to know of the checks, once for each output and not for each case."""
    counting = [check for check in checks if not check.advice]
    by_output: dict[str, list[Check]] = {}
    for check in counting:
        by_output.setdefault(check.output, []).append(check)
    for name, own in by_output.items():
        called = output_called(name)
        empty = [c for c in own if not c.edge and _nonfinite(c)]
        if empty:
            yield codes.OG418.finding(
                f"{spec.against} itself answers NaN or infinity in {sum(map(_nonfinite, empty))} of "
                f"{sum(c.metrics.elements for c in empty if c.metrics)} elements of {called}, on inputs "
                f"that are at no edge ({_cases(empty)}): nothing is compared there",
                data={"output": name, "nonfinite": sum(map(_nonfinite, empty))},
            )
        masked = [check for check in own if check.outside and check.verdict == "pass"]
        if masked:
            outside = sum(check.outside for check in masked)
            of = outside + sum(check.open + check.compared for check in masked)
            yield codes.OG411.finding(
                f"{outside} of {of} elements of {called} were not compared: the manifest has it judged "
                f"by a mask, which is 0 there ({_cases(masked)})",
                data={"output": name, "outside": outside, "of": of},
            )
        opened = [check for check in own if check.open and check.verdict == "pass"]
        if opened:
            causes = ", ".join(dict.fromkeys(c for check in opened for c in check.causes))
            elements = sum(check.open for check in opened)
            of = sum(check.open + check.compared for check in own)
            experience = tried.outputs.get(name)
            columns = [] if experience is None else list(experience.left_open.columns())
            never = f". Nearly always open: {listed(columns, _COLUMNS)}" if columns else ""
            yield codes.OG404.finding(
                f"{elements} of {of} elements of {called} are open: {causes}; {spec.against} has more than "
                f"one answer there, and each is one of them ({_cases(opened)}){never}",
                severity="warning" if columns else "note",
                data={"output": name, "open": elements, "of": of},
            )
        largest = _largest(tried.outputs.get(name))
        shaky = [
            check
            for check in own
            if "rounding" in check.causes
            and check.open > check.compared
            and _is_seen(check, largest)
        ]
        if shaky:
            moves = _moves(spec, shaky, tried.outputs.get(name))
            yield codes.OG401.finding(
                f"{called} is ill-conditioned in {_cases(shaky)}: {moves} "
                "by a visible part of it, so faults of that size cannot be seen there"
            )
        yield from _other_tokens(spec, name, own)
        yield from _blunt(name, own)
    for name, experience in tried.outputs.items():
        if experience.is_constant and name in by_output:
            yield codes.OG408.finding(
                f"the output {name} was {experience.low:g} in every element of every case: where it is "
                "no constant, what it depends on was not tried",
                data={"output": name},
            )
    yield from _refusals(spec, counting)


def _moves(spec: ModelSpec, shaky: Sequence[Check], experience: Experience | None) -> str:
    """Return what moves most of an answer; what a file loses by its forms is not PyTorch's own."""
    order = any("order of equals" in check.causes for check in shaky)
    if experience is not None and experience.rewritten:
        forms = listed([f"{name} as {form}" for name, form in experience.rewritten.items()], 3)
        also = " and the order of equals" if order else ""
        return f"rounding{also}, or what a file loses that writes {forms}, moves most of the answer"
    what = "rounding and the order of equals move" if order else "rounding moves"
    return f"{what} most of {spec.against}'s own answer"


def _largest(experience: Experience | None) -> float:
    return 0.0 if experience is None else max(abs(experience.low), abs(experience.high))


def _is_seen(check: Check, largest: float) -> bool:
    """Return whether the sides are apart by more than next to nothing of the output.

    At an edge of what it is ``largest`` in any case: a tail is of no size of its own.
    """
    metrics = check.metrics
    if metrics is None:
        return True
    if check.edge and math.isfinite(largest):
        return metrics.rms > _NOTHING * largest
    return metrics.snr_db is None or metrics.snr_db < -20 * math.log10(_NOTHING)


def _refusals(spec: ModelSpec, counting: Sequence[Check]) -> Iterator[Finding]:
    """Yield a word on the cases that both sides refuse, and one on those that PyTorch alone does."""
    cases = {check.case for check in counting}
    every = [check for check in counting if check.verdict == "refused"]
    never = _never_compared_sizes(counting)
    at = f"; at {', '.join(never)} nothing was compared" if never else ""
    for alone in (False, True) if len(every) < len(counting) else ():
        refused = [check for check in every if (check.refused == ("pytorch",)) == alone]
        if not refused:
            continue
        first = next((c for c in refused if _at(c, never)), refused[0])
        why = f"both sides refuse them ({_cases(refused)})"
        if alone:
            why = (
                f"{spec.against} refuses them ({_cases(refused)}) and the file answers: it is more "
                "permissive than the module, at sizes or values that the manifest does not name"
            )
        yield codes.OG409.finding(
            f"{len({c.case for c in refused})} of {len(cases)} cases compare nothing, because {why}"
            f"{at}. {first.case}: {first.reason}",
            severity="note" if alone and not never else "warning",
        )


def _blunt(name: str, own: Sequence[Check]) -> Iterator[Finding]:
    """Yield a word on an output of which an error of one per cent would have passed somewhere.

    Of one that diverges there is nothing to say: what is wrong with it has been seen.
    """
    if any(check.verdict == "diverged" for check in own):
        return
    for check in own:
        found = check.resolution
        if found is None or found.worst <= VISIBLE:
            continue
        known = {"an element": found.element, "a row": found.row, "a channel": found.channel}
        off = [
            f"{what} by {_as_share(size)}"
            for what, size in known.items()
            if size is not None and size > VISIBLE
        ]
        passed = [f"off in {' or '.join(off)}", *(f"with {each}" for each in found.unseen)]
        yield codes.OG407.finding(
            f"the checks of {output_called(name)} cannot see an error of 1% wherever it is: it could "
            f"have been {', or '.join(passed)} and passed",
            data={"output": name, "resolution": found.worst},
        )
        return


def _as_share(size: float) -> str:
    """Return an error beside what it is an error of: per cent, or times itself."""
    if not math.isfinite(size):
        return "100%"
    return f"{size:.0%}" if size < _TIMES else f"{number(size)} times itself"


def _nonfinite(check: Check) -> int:
    """Return in how many elements both sides are NaN, or the same infinity."""
    if check.metrics is None or check.verdict != "pass" or check.steps is not None:
        return 0
    return max(check.metrics.elements - check.compared - check.open, 0)


def _other_tokens(spec: ModelSpec, name: str, checks: Sequence[Check]) -> Iterator[Finding]:
    """Yield a word on tokens that differ although what they are chosen from is within tolerance."""
    every = [(c, c.steps.tokens) for c in checks if c.steps is not None and c.steps.tokens]
    other = [(c, t) for c, t in every if t.differ_at is not None and c.verdict == "pass"]
    if other:
        same, of = sum(t.same for _, t in every), sum(t.of for _, t in every)
        check, tokens = other[0]
        called = output_called(name)
        yield codes.OG413.finding(
            f"{of - same} of {of} tokens chosen from {called} are not {spec.against}'s, first at step "
            f"{tokens.differ_at} of {check.case}, although {called} is within tolerance. From there on "
            f"both sides were given {spec.against}'s",
            data={"output": name, "same": same, "of": of},
        )


def _at(check: Check, sizes: Sequence[str]) -> bool:
    return any(f"{name}={size}" in sizes for name, size in check.sizes.items())


def _never_compared_sizes(counting: Sequence[Check]) -> list[str]:
    tried: dict[str, bool] = {}
    for check in counting:
        for name, size in check.sizes.items():
            label = f"{name}={size}"
            tried[label] = tried.get(label, False) or check.verdict in COMPARED
    return [label for label, was in tried.items() if not was]


def _cases(checks: Sequence[Check]) -> str:
    return listed(dict.fromkeys(check.case for check in checks), 1)
