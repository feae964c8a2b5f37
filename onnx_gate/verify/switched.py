"""Attributes that calls have switched: does the module as it was built answer otherwise?

A short input may make a module choose another computation for good (``self.attention_type = "full"``).
What is exported and compared is then a module that an earlier call has altered, and both sides agree on
an answer that a fresh module does not give. Whether a change matters is found out by behaviour, in a
fork: a counter, and a cache that grows, answer as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from onnx_gate.deadline import Deadline
from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Outputs, Refusal
from onnx_gate.runtimes.torch_eager import Eager, seed_everything
from onnx_gate.text import listed, quote
from onnx_gate.verify.build import build
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.determinism import disagreement
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.sizes import sizes_label
from onnx_gate.verify.prepare import Prepared
from onnx_gate.workers.forked import run_forked

Attributes = Mapping[tuple[str, str], object]

# The search has this share of the time that the model has taken, within these limits.
_SHARE = 0.2
_LEAST_SECONDS = 10.0
_MOST_SECONDS = 60.0
# Cases that are tried, and those of them for which the module is built anew.
_CASES = 16
_BUILDS = 8
# Bytes of inputs and outputs that are kept.
_KEPT_BYTES = 2**28
# Another way to the same sum may round a hundred times as far as the same way does twice.
_ROOM = 100.0


class _Missing:
    """What an attribute is that is not there."""


_MISSING = _Missing()


@dataclass(frozen=True)
class AttributeChange:
    """An attribute of a part, before the first call and now."""

    part: str
    name: str
    before: object
    after: object

    @property
    def kind(self) -> tuple[str, str, str]:
        """What it has in common with the same change in other parts."""
        return self.name, _shown(self.before), _shown(self.after)

    @property
    def switches(self) -> bool:
        """Whether it is text or a switch, which choose something."""
        return all(type(each) in (str, bool) for each in (self.before, self.after))

    @property
    def counts(self) -> bool:
        """Whether it is a number, which mostly counts something, and no switch."""
        return all(type(each) in (int, float) for each in (self.before, self.after))

    def __str__(self) -> str:
        name = f"{self.part}.{self.name}" if self.part else self.name
        return f"{name} was {_shown(self.before)} and is {_shown(self.after)}"


def plain(module: torch.nn.Module) -> Attributes:
    """Return the plain attributes of every part: a moment to compare a later one with."""
    own = state.own_attributes(module)
    return {key: value for key, value in own.items() if state.is_plain(value)}


def changes(before: Attributes, module: torch.nn.Module) -> tuple[AttributeChange, ...]:
    """Return what plain attributes have become in the parts that are there still, switches first.

    One that was plain and is none any more has changed as well, and so has one that is new.
    """
    now = state.own_attributes(module)
    parts = {name for name, _ in now}
    keys = (*before, *(key for key, value in now.items() if state.is_plain(value)))
    found = [
        AttributeChange(*key, before.get(key, _MISSING), now.get(key, _MISSING))
        for key in dict.fromkeys(keys)
        if key[0] in parts and not _same(before.get(key, _MISSING), now.get(key, _MISSING))
    ]
    return tuple(sorted(found, key=lambda change: change.counts))


def told_of(before: Attributes, module: torch.nn.Module) -> str:
    """Return which attributes calls have switched in brackets, empty where none."""
    switches = [change for change in changes(before, module) if change.switches]
    return f" ({listed(switches, 3)})" if switches else ""


def must_not_switch(
    before: Attributes, prepared: Prepared, checker: Checker, taken: float, *, room: bool
) -> list[Finding]:
    """Raise ``GateError`` (OG106) where attributes that calls have switched make another answer.

    ``before`` are those before the first call, ``taken`` the seconds that the model has had. Nothing is
    tried where there is no ``room`` for a fork. What could not be tried is a finding.
    """
    found = changes(before, prepared.eager.module)
    if not found:
        return []
    answer: Mapping[str, Any] = {}
    trouble = "there is no room for another process"
    if room:
        seconds = max(_LEAST_SECONDS, min(_SHARE * taken, _MOST_SECONDS))
        search = _SwitchSearch(found, prepared, checker, Deadline(0.8 * seconds))
        search.swapped = _swapped(before, prepared.eager.module, found)
        answer, why = run_forked(search.as_data, seconds)
        trouble = str(why) or "no time was left"
    if answer.get("difference"):
        raise codes.OG106.error(
            f"the model disagrees with itself: on the inputs of {answer['case']} it answers otherwise "
            f"as it was built than after the calls before, {answer['difference']}; calls have switched "
            f"attributes of it ({answer['told']}), and a graph keeps none",
            remedy=f"choose {answer['name']} in __init__ and write nothing to self in forward, or give "
            "sizes that do not switch it (dims)",
        )
    switches = [change for change in found if change.switches]
    if answer.get("compared") or not switches:
        return []
    return [
        codes.OG109.finding(
            f"calls have switched attributes of the model ({listed(switches, 3)}); whether its answers "
            f"depend on them was not found out: {trouble}"
        )
    ]


class _SwitchSearch:
    """Looks for a case on which a module answers otherwise than it did as it was built.

    ``swapped`` is whether parts of it are others now, which old attributes do not make what they were.
    """

    def __init__(
        self,
        found: Sequence[AttributeChange],
        prepared: Prepared,
        checker: Checker,
        deadline: Deadline,
    ) -> None:
        self._changes, self._prepared, self._checker = found, prepared, checker
        self._deadline, self._share = deadline, deadline.left / 2
        self._eager = prepared.eager
        self._builds = 0
        self.swapped = False

    def as_data(self) -> dict[str, Any]:
        """Return the case and the difference, or how many were compared. The module is altered."""
        answers: list[tuple[Case, Outputs]] = []
        kept = 0
        # All of them first: restored attributes may alter the module further.
        for case in _chosen(self._checker.tried(), self._deadline):
            outputs = self._ask(self._eager, case.arrays)
            if outputs is not None:
                answers.append((case, outputs))
                kept += sum(each.nbytes for each in (*case.arrays.values(), *outputs.arrays))
            if self._deadline.left < self._share or kept > _KEPT_BYTES:
                break
        doubted: list[tuple[Case, Outputs]] = []
        alike: list[tuple[Case, Outputs]] = []
        for case, outputs in answers:
            if self._deadline.left < self._share / 2:
                break
            before = self._as_before(case, self._changes)
            same = before is not None and not disagreement(before, outputs, _ROOM)
            (alike if same else doubted).append((case, outputs))
        # Old attributes need not make of other parts what these were.
        compared = 0 if self.swapped else len(alike)
        for case, outputs in (*doubted, *(alike if self.swapped else ())):
            if self._deadline.passed():
                break
            difference = self._of_fresh(case, outputs)
            if difference:
                return self._told(case, outputs, difference)
            compared += difference is not None
        return {"compared": compared}

    def _told(self, case: Case, outputs: Outputs, difference: str) -> dict[str, Any]:
        to_blame = [] if self.swapped else self._to_blame(case, outputs)
        # Where it takes several, what chooses something is to blame before what counts.
        to_blame = to_blame or [change for change in self._changes if change.switches]
        # Of the same change in several parts the first, from outside.
        kinds: dict[tuple[str, str, str], AttributeChange] = {}
        for change in to_blame or self._changes:
            kinds.setdefault(change.kind, change)
        return {
            "case": case.id,
            "difference": difference,
            "told": listed(kinds.values(), 3),
            "name": next(iter(kinds.values())).name,
        }

    def _as_before(self, case: Case, restored: Sequence[AttributeChange]) -> Outputs | None:
        """Return the answer with these attributes as they were; ``None`` where it raises."""
        module = self._eager.module
        _put(module, ((change, change.after) for change in self._changes))
        _put(module, ((change, change.before) for change in restored))
        return self._ask(self._eager, case.arrays)

    def _of_fresh(self, case: Case, outputs: Outputs) -> str | None:
        """Return how modules that are built anew, and were never called, answer otherwise.

        ``None`` where it was not found out: two of them differ, or one answers the export's example
        otherwise than the first did. Then it is the build that differs.
        """
        if self._builds >= _BUILDS:
            return None
        self._builds += 1
        first = self._ask(self._fresh(), case.arrays)
        if first is None:
            return None
        difference = disagreement(first, outputs, _ROOM)
        if not difference:
            return ""
        second = self._ask(self._fresh(), case.arrays)
        example = self._ask(self._fresh(), self._prepared.example)
        if second is None or disagreement(first, second, _ROOM):
            return None
        if example is None or disagreement(example, self._prepared.call.outputs, _ROOM):
            return None
        return difference

    def _to_blame(self, case: Case, outputs: Outputs) -> list[AttributeChange]:
        """Return those that alone make the difference; none where it takes several."""
        alone = []
        for kind in dict.fromkeys(change.kind for change in self._changes):
            if self._deadline.passed():
                break
            same = [change for change in self._changes if change.kind == kind]
            answer = self._as_before(case, same)
            if answer is not None and disagreement(answer, outputs, _ROOM):
                alone += same
        return alone

    def _fresh(self) -> Eager | None:
        try:
            module = build(self._checker.setting.spec, self._checker.setting.workspace).module
        except GateError:
            return None
        # Another build need not have the same weights.
        state.take_values(module, self._eager.module, but=self._prepared.call.changed)
        return self._eager.with_module(module)

    def _ask(self, eager: Eager | None, arrays: Mapping[str, Any]) -> Outputs | None:
        if eager is None:
            return None
        seed_everything(self._checker.setting.spec.seed)
        try:
            return eager.run(arrays)
        except Refusal:
            return None


def _swapped(before: Attributes, module: torch.nn.Module, found: Sequence[AttributeChange]) -> bool:
    names = {name for name, _ in state.own_attributes(module)}
    gone = any(isinstance(change.after, _Missing) for change in found)
    return gone or names != {name for name, _ in before}


def _put(module: torch.nn.Module, values: Iterable[tuple[AttributeChange, object]]) -> None:
    parts = dict(state.parts(module))
    for change, value in values:
        part = parts.get(change.part)
        if part is not None and isinstance(value, _Missing):
            part.__dict__.pop(change.name, None)
        elif part is not None:
            part.__dict__[change.name] = value


def _chosen(cases: Iterable[Case], deadline: Deadline) -> list[Case]:
    """Return cases of as many sizes as may be, and as many with other values at those."""
    first: dict[str, Case] = {}
    others: list[Case] = []
    for case in cases:
        if deadline.passed():
            break
        if sum(each.nbytes for each in case.arrays.values()) > _KEPT_BYTES / _CASES:
            continue
        label = sizes_label(case.sizes)
        if label not in first:
            first[label] = case
        elif len(others) < _CASES:
            others.append(case)
    by_size = list(_from_both_ends(first.values()))
    half = max(_CASES // 2, _CASES - len(others))
    return [*by_size[:half], *others][:_CASES]


def _from_both_ends(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield the largest, the smallest, the second largest and so on: either may be what switches."""
    ordered = sorted(cases, key=lambda case: sum(each.size for each in case.arrays.values()))
    for index in range(len(ordered)):
        yield ordered[index // 2] if index % 2 else ordered[-1 - index // 2]


def _same(one: object, other: object) -> bool:
    if one is other:
        return True
    plain = state.is_plain(one) and type(one) is type(other)
    return plain and (one == other or (one != one and other != other))


def _shown(value: object) -> str:
    if isinstance(value, _Missing):
        return "not there"
    if isinstance(value, str):
        return quote(value)
    if value is None or type(value) in (bool, int, float):
        return repr(value)
    return f"a {type(value).__name__}"
