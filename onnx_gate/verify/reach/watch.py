"""A module watched while it answers: which sides of its operators' decisions the inputs have shown."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._ops import HigherOrderOperator
from torch.utils.weak import WeakTensorKeyDictionary

from onnx_gate.graph.arithmetic import MOST_LIMITS
from onnx_gate.runtimes import state
from onnx_gate.verify.reach.branches import compared_in
from onnx_gate.verify.reach.flags import FLAGGED, Flags
from onnx_gate.verify.reach.leaves import InputLeaves
from onnx_gate.verify.reach.listed import ListedLimits
from onnx_gate.verify.reach.margin import Margin, apart, distance_from
from onnx_gate.verify.reach.margins import (
    CHOOSES,
    MOST_CANDIDATES,
    TRUTHS,
    Margins,
    before_next,
)
from onnx_gate.verify.reach.places import caller_from, place_from
from onnx_gate.verify.reach.rows import Tables
from onnx_gate.verify.reach.rules import (
    ASKS,
    AT,
    BITWISE,
    DIVIDES,
    RULES,
    TAKEN,
    Kind,
    Missing,
    Rule,
    guards,
    limit_of,
    missing_asked,
    neighbours,
    scale_of,
)
from onnx_gate.verify.reach.shown import Call, Shown, rules_besides
from onnx_gate.verify.reach.sites import MOST_COLUMNS, READ, DecisionSite, Seen
from onnx_gate.verify.reference.models import MODELS, PLAIN
from onnx_gate.verify.reference.operator_mode import given_to, tensors_of
from onnx_gate.verify.reference.tape import Recording, Tape

# Whether an element is exactly at a limit is asked of tensors that cost next to nothing.
_LOOKED_AT = 2**16
# What decides nothing, and is taken note of.
_NOTED = ASKS | BITWISE | DIVIDES | FLAGGED | {"stack", "isin"}
# What is a truth of several: as what they count where all of them are so, and on which side.
_TOGETHER: Mapping[str, tuple[Kind, str]] = {"all": ("and", "both"), "any": ("or", "neither")}
# Stands for what follows from two operators, beside the rules of each.
_NESTED = 1000
# What an operator that is called in another way than its rule knows may raise here.
_NOT_LOOKED_AT = (RuntimeError, TypeError, ValueError, NotImplementedError, LookupError)


class Watch(Recording):
    """Looks once at what each deciding operator is given.

    ``targets`` are decisions whose operands are kept with their gradients, which lead to a ``side`` and
    to ``leaves``; with ``follow`` it is noted of each decision whether it has one.
    """

    def __init__(
        self,
        shown: Shown,
        targets: frozenset[DecisionSite] = frozenset(),
        *,
        side: str = "",
        follow: bool = False,
        leaves: InputLeaves | None = None,
        tape: Tape | None = None,
    ) -> None:
        super().__init__(tape)
        self.seen: dict[DecisionSite, Seen] = {}
        self.limits: dict[DecisionSite, set[float]] = {}
        self.listed = ListedLimits(shown.own)
        self.asked: set[Missing] = set()
        self.operands: dict[DecisionSite, list[Margin]] = {}
        # The first place at which two truths were as nothing has shown them before, and in which shape.
        self.met: dict[tuple[DecisionSite, str], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._margins = Margins(leaves) if targets or follow else None
        self._side, self._leaves = side, leaves
        self._tables, self._flags = Tables(shown.own), Flags()
        # Values that the file has limits of its own for, looked at where they are first read: there
        # they have their gradients.
        self._besides: MutableMapping[torch.Tensor, Mapping[DecisionSite, Rule]] = (
            WeakTensorKeyDictionary()
        )
        self._calls = 0
        self._times: dict[tuple[str, str, str, int, int], int] = {}
        self._shown, self._targets, self._follow = shown, targets, follow

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self, func, types, args=(), kwargs=None
    ):
        """Note which branch is taken, and go on in it."""
        if isinstance(func, HigherOrderOperator) and func.name() == "cond" and args:
            predicate, site = args[0], self._site("cond", Rule((), "truth"), None, 0)
            if isinstance(predicate, torch.Tensor):
                self._truth(site, predicate)
            elif isinstance(predicate, bool):
                self._add(site, Seen({site.sides[0 if predicate else 1]}, at=True))
        return super().__torch_dispatch__(func, types, args, kwargs)

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the operator between a look at its arguments and one at its result."""
        self._calls += 1
        self._shown.writes |= func._schema.is_mutable
        if self._besides:
            self._read(tensors_of((args, kwargs)))
        result = self._looked_at(name, func, args, kwargs)
        self.keep(name, func, args, kwargs, result)
        call = self.place_of(name) if self._shown.besides else None
        limits = {n: t for (at, n), t in self._shown.besides.items() if at == call}
        for index, leaf in enumerate(pytree.tree_leaves(result) if limits else ()):
            if index in limits:
                bounds = MODELS.get(name.rstrip("_"), PLAIN).bounds
                self._besides[leaf] = {
                    self._site(operator, rule, number, 0): rule
                    for number, operator in limits[index].items()
                    for rule in rules_besides(operator, number, leaf, bounds)
                }
        return result

    def __exit__(self, *error: Any) -> None:
        """Look at what nothing has read: the outputs."""
        super().__exit__(*error)
        self._read([*self._besides])

    def place_of(self, name: str) -> Call:
        """Return where the operator that runs is called."""
        key = (name, *self._place())
        self._times[key] = self._times.get(key, -1) + 1
        return (*key, self._times[key])

    def call(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator as it is."""
        return func(*args, **kwargs)

    def _read(self, tensors: Sequence[torch.Tensor]) -> None:
        """Look at values that the file has limits of its own for."""
        for tensor in tensors:
            for site, rule in self._besides.pop(tensor, {}).items():
                with suppress(*_NOT_LOOKED_AT):
                    self._limit(site, rule, tensor, site.limit, {})

    def _looked_at(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        base = name if name.startswith("_") else name.rstrip("_")
        if base == TAKEN:
            self._taken(args[0])
        rules = RULES.get(base, ())
        self._shown.chooses |= base in CHOOSES
        if not rules and self._margins is None and base not in _NOTED:
            return self.call(func, args, kwargs)
        bound = given_to(func, args, kwargs)
        bound.setdefault("self", bound.get("input"))
        if base == "sort":
            bound |= neighbours(bound)
        self.listed.named(base, bound)
        if base in ASKS:
            self.asked.update(missing_asked(base, bound))
        for part, rule in enumerate(rules):
            if rule.operand != "result" and "result" not in rule.limits and rule.kind != "scale":
                self._look(name, rule, part, bound)
        result = self.call(func, args, kwargs)
        bound["result"] = result
        if base in READ:
            self.listed.read(bound.get("weight", bound["self"]), result)
        if name == "stack":
            self._tables.stacked(result, bound["dim"])
        if base in FLAGGED and (truths := self._flags.joined(base, bound, result)) is not None:
            one, other, both = truths
            self._two(self._site(name, Rule((), "and"), None, 0), one, other)
            if self._margins is not None:
                self._margins.learn("logical_and", func, {"self": one, "other": other}, both)
        if name == "where" and isinstance(result, torch.Tensor):
            with suppress(*_NOT_LOOKED_AT):
                for met in self._flags.chosen(bound, result):
                    self._meet(self._site(name, Rule((), "and"), None, _NESTED), "both", met)
        if base in _TOGETHER and bound["self"].dtype == torch.bool:
            kind, side = _TOGETHER[base]
            held = result if base == "all" else ~result
            if held.any():
                self._meet(self._site(name, Rule((), kind), None, _NESTED), side, held)
        if self._margins is not None:
            with suppress(*_NOT_LOOKED_AT):
                self._margins.learn(name, func, bound, result)
        for part, rule in enumerate(rules):
            if rule.operand == "result" or "result" in rule.limits or rule.kind == "scale":
                self._look(name, rule, part, bound)
        return result

    def _taken(self, number: torch.Tensor) -> None:
        """Look at a number that Python takes, and may decide by."""
        caller = caller_from(sys._getframe(1))
        if caller is None or number.dtype == torch.bool or number.is_complex():
            return
        for part, (limit, kind) in enumerate(compared_in(caller)):
            rule = Rule((limit,), kind)
            with suppress(*_NOT_LOOKED_AT):
                self._limit(self._site("item", rule, limit, part), rule, number, limit, {})

    def _look(self, name: str, rule: Rule, part: int, bound: Mapping[str, Any]) -> None:
        """Look at one decision; whatever cannot be looked at is not PyTorch's fault."""
        try:
            other = bound.get("other")
            turned = isinstance(other, torch.Tensor) and self._is_own(bound["self"])
            if rule.limits == ("other",) and turned:
                # Python asks a parameter first, as one of a subclass: `x > p` is `p < x`.
                bound = {**bound, "self": other, "other": bound["self"]}
            operand = bound.get(rule.operand)
            if not isinstance(operand, torch.Tensor) or not operand.numel():
                return
            if rule.kind == "truth":
                if operand.dtype == torch.bool:
                    self._truth(self._site(name, rule, None, part), operand)
            elif rule.kind in ("and", "or"):
                if operand.dtype == torch.bool and isinstance(other, torch.Tensor):
                    self._two(self._site(name, rule, None, part), operand, other.bool())
            elif rule.kind == "half":
                if operand.is_floating_point() and not bound.get("decimals"):
                    self._halves(self._site(name, rule, None, part), operand)
            elif rule.kind in ("rows", "pairs"):
                self._rows(name, rule, part, operand, bound)
            else:
                for number, limit in enumerate(rule.limits):
                    value = limit_of(limit, bound)
                    own = None if value is None else self._number(value)
                    if rule.kind == "guard" and not guards(operand, own, bound):
                        continue
                    if value is not None:
                        site = self._site(name, rule, own, 10 * part + number)
                        self._limit(site, rule, operand, value, bound)
        except _NOT_LOOKED_AT:
            return

    def _limit(
        self,
        site: DecisionSite,
        rule: Rule,
        operand: torch.Tensor,
        limit: Any,
        bound: Mapping[str, Any],
    ) -> None:
        number = site.limit
        if number is not None and not math.isfinite(number):
            return
        listed = number is None and self.listed.take(limit)
        if number is not None:
            self.limits.setdefault(site.place, set()).add(number)
            site = self._shown.known_as(site)
        known = self._shown.seen.get(site)
        wanted = site in self._targets or self._follow
        done = known is not None and known.at and not known.narrow and not known.left(site)
        if done and not wanted:
            return
        if rule.kind == "scale":
            scale = scale_of(bound["result"])
            if number is None or not number or scale is None:
                return
            # Where the variance is no larger than the guard, the scale is 1 / sqrt(2 eps) or more.
            low, high = (float(v) for v in torch.aminmax(scale))
            border = (2 * number) ** -0.5
            seen = Seen(_sides(site, low <= border, high > border, swap=True))
            self._add(site, seen, operand, limit)
            return
        distance = distance_from(operand, limit)
        seen = Seen(whole=not operand.is_floating_point(), computed=self._is_computed(operand))
        seen.named = number is not None or listed
        if wanted:
            seen.follows = any(self._leads(each) for each in (operand, limit))
            margins, led = self._margins, None
            if "next" in rule.limits:
                led = before_next(bound["self"], bound["dim"])
            elif margins is not None:
                led = margins.towards(operand, number, rule.kind, self._side)
            if led is not None:
                self._aim(site, seen, led)
            elif site in self._targets:
                self.operands.setdefault(site, []).append(apart(operand, limit, self._leaves))
        if rule.kind == "guard":
            assert number is not None
            # Within some units of the guard it is a good part of the sum.
            low, high = (float(v) for v in torch.aminmax(operand.detach().abs()))
            seen.sides = _sides(site, low <= 10 * number, high > 10 * number)
            seen.at = True
        else:
            low, high = (float(v) for v in torch.aminmax(distance))
            seen.low, seen.high = low, high
            near = low <= 0 <= high and distance.numel() <= _LOOKED_AT
            seen.at = near and bool((distance == 0).any())
            if rule.kind == "equality":
                seen.sides = _sides(site, seen.at, low < 0 or high > 0)
            else:
                seen.sides = _sides(site, low < 0, high > 0) | ({AT} if seen.at else set())
                if distance.ndim == 2 and 1 < distance.shape[1] <= MOST_COLUMNS:
                    seen.columns = torch.stack(((distance < 0).any(0), (distance > 0).any(0)))
        self._add(site, seen, operand, limit)

    def _is_computed(self, value: Any) -> bool:
        """Return whether a value is known to be made of the inputs', and none of these itself."""
        return False

    def _leads(self, value: Any) -> bool:
        """Return whether a gradient may lead from a value to an input, or it is one of integers."""
        if not isinstance(value, torch.Tensor) or value.is_floating_point():
            return getattr(value, "requires_grad", False)
        return self._leaves is not None and self._leaves.whole(value) is not None

    def _number(self, limit: Any) -> float | None:
        """Return a limit that is one number of the module's, and no value that it computes."""
        if isinstance(limit, torch.Tensor):
            return float(limit.detach()) if limit.ndim == 0 and self._is_own(limit) else None
        return float(limit)

    def _is_own(self, value: Any) -> bool:
        """Return whether a value is a tensor of the module's."""
        return isinstance(value, torch.Tensor) and state.address(value) in self._shown.own

    def _truth(self, site: DecisionSite, mask: torch.Tensor) -> None:
        known = self._shown.seen.get(site)
        if known is None or known.left(site):
            seen = Seen(_sides(site, bool(mask.any()), not bool(mask.all())), at=True)
            if self._margins is not None:
                self._aim(site, seen, self._margins.truth(mask))
            self._add(site, seen, mask)

    def _two(self, site: DecisionSite, one: torch.Tensor, other: torch.Tensor) -> None:
        known = self._shown.seen.get(site)
        if known is not None and not known.left(site):
            return
        seen = Seen(at=True)
        for side in site.sides:
            first, second = TRUTHS[side]
            held = (one if first > 0 else ~one) & (other if second > 0 else ~other)
            if held.any():
                seen.sides.add(side)
                self._meet(site, side, held)
            elif self._margins is not None and self._side in ("", side):
                self._aim(site, seen, self._margins.joined(one, other, first, second))
        self._add(site, seen, one)

    def _meet(self, site: DecisionSite, side: str, held: torch.Tensor) -> None:
        """Note the first place at which two truths are so."""
        if (site, side) not in self.met:
            first = torch.unravel_index(held.reshape(-1).int().argmax(), held.shape)
            self.met[site, side] = tuple(map(int, first)), tuple(held.shape)

    def _aim(self, site: DecisionSite, seen: Seen, margin: Margin | None) -> None:
        """Take note that a gradient leads to a decision, and keep it where it is sought."""
        if margin is None or not margin.pulls:
            return
        seen.follows = True
        if site in self._targets:
            self.operands.setdefault(site, []).append(margin)

    def _halves(self, site: DecisionSite, operand: torch.Tensor) -> None:
        known = self._shown.seen.get(site)
        if known is None or known.left(site) or site in self._targets:
            whole = operand.detach().floor()
            half = operand.detach() - whole == 0.5
            odd = half & (whole % 2 == 1)
            sides = _sides(site, bool((half & ~odd).any()), bool(odd.any()))
            self._add(site, Seen(sides, at=True), operand)

    def _rows(
        self, name: str, rule: Rule, part: int, table: torch.Tensor, bound: Mapping[str, Any]
    ) -> None:
        # Of limits, where it is no table of vectors.
        few = table.ndim == 1 and table.is_floating_point() and table.numel() <= MOST_LIMITS
        if few or "result" in rule.limits:
            self.listed.take(table)
        found = self._tables.pointed(name, rule, table, bound, self._margins)
        if found is None:
            return
        site = self._site(name, rule, float(found.count), part)
        known = self._shown.seen.get(site)
        if known is None or known.rows is None or not bool(known.rows.all()):
            rows = torch.zeros(found.count, dtype=torch.bool)
            rows[found.at.detach().reshape(-1).long()] = True
            seen, fresh = Seen(rows=rows, whole=True, at=True), rows
            seen.computed = self._is_computed(found.at)
            if known is not None and known.rows is not None:
                rows, fresh = known.rows, rows & ~known.rows
            if fresh.any():
                seen.sides |= {*site.sides}
            for margin in found.towards(~rows, MOST_CANDIDATES if site in self._targets else 1):
                self._aim(site, seen, margin)
            self._add(site, seen)

    def _add(
        self, site: DecisionSite, seen: Seen, operand: torch.Tensor | None = None, limit: Any = None
    ) -> None:
        """Remember what a decision about ``operand``, where it is about one, has shown."""
        self.seen.setdefault(site, Seen()).add(seen)

    def _site(self, name: str, rule: Rule, limit: float | None, part: int) -> DecisionSite:
        module, file, line, at = self._place()
        return DecisionSite(module, name.rstrip("_"), rule.kind, limit, file, line, at, part)

    def _place(self) -> tuple[str, str, int, int]:
        return place_from(sys._getframe(3), self._shown.paths)


def _sides(site: DecisionSite, first: bool, second: bool, *, swap: bool = False) -> set[str]:
    one, other = reversed(site.sides) if swap else site.sides
    return {side for side, was in ((one, first), (other, second)) if was}
