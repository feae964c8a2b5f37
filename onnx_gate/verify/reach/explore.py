"""Cases that show what the model's own have not: made once these have been tried, within a budget."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.roles import roles
from onnx_gate.report.model import Weights
from onnx_gate.report.model.decisions import Decisions
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.tensors import to_tensor
from onnx_gate.text import listed
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.sizes import elements
from onnx_gate.verify.reach.account import account, both_ways
from onnx_gate.verify.reach.drawn import DrawnInputs
from onnx_gate.verify.reach.every_size import Answers
from onnx_gate.verify.reach.file_sides import DecidingFile
from onnx_gate.verify.reach.purse import LARGEST, Purse, count, measure, pairs_of
from onnx_gate.verify.reach.search import CaseSearch
from onnx_gate.verify.reach.shown import Limits
from onnx_gate.verify.reach.sites import DecisionSite
from onnx_gate.verify.reach.size_search import domains_at
from onnx_gate.verify.reach.watch import Watch
from onnx_gate.verify.reach.watcher import Watcher
from onnx_gate.verify.reference.operator_mode import tensors_of

_COPIES = frozenset(("_to_copy", "clone", "contiguous"))
# Looking for what was not seen may cost this share of what the run itself does.
SHARE = 0.2
_KEPT = 3
_NAMED = 3


@dataclass
class Explorer:
    """Makes further cases for a module from what ``watcher`` has seen of it.

    ``numbers`` are those that its export names of sizes, ``lengths`` those at which its types end.
    ``bases`` are cases of its own to start from.
    ``weights`` are the file's: the rows of those that are not the module's are all to be read.
    ``other_tables``: the file has tables that another file, which it is held against, has not.
    ``opened``: rounding has left elements open in cases that were reached. ``besides`` tells of the
    limits that the file alone has, from the values of a case, ``tables`` are what it stores, ``told``
    the rows that it tells apart. ``files`` are those whose decisions nothing watches. ``answers`` are
    what the file says, asked for where it ``computes_sizes``.
    """

    spec: ModelSpec
    watcher: Watcher
    numbers: Sequence[int] = ()
    lengths: Sequence[int] = ()
    bases: list[Case] = field(default_factory=list)
    made: dict[str, Case] = field(default_factory=dict)
    tried: int = 0
    weights: Weights | None = None
    other_tables: bool = False
    opened: bool = False
    besides: Callable[[Watcher, Mapping[str, Array]], Limits] | None = None
    tables: Callable[[], Sequence[Array]] = tuple
    told: Callable[[Mapping[str, Array]], Sequence[tuple[str, Array]]] = lambda arrays: ()
    files: Callable[[Mapping[str, Array]], Iterable[DecidingFile]] = lambda arrays: ()
    answers: Answers | None = None
    computes_sizes: bool = False
    _before: frozenset[DecisionSite] | None = None

    def __post_init__(self) -> None:
        self.watcher.axes = self._inputs.row_axes

    @cached_property
    def _inputs(self) -> DrawnInputs:
        return DrawnInputs(self.spec)

    def account(
        self, workspace: Path, compared: Collection[tuple[DecisionSite, str]] = ()
    ) -> Decisions | None:
        """Return what the model's decisions were shown, ``None`` where it cannot be watched."""
        if self.watcher.lost or not self.watcher.seen:
            return None
        seen = self.watcher.seen
        before = both_ways(seen) if self._before is None else self._before
        return account(seen, before, workspace.resolve(), compared, self.weights)

    @property
    def unread(self) -> str | None:
        """Which rows that may be others in the file no input has read, as a sentence."""
        names = [each.name for each in self.weights.unknown] if self.weights is not None else []
        tables = {site: s.rows for site, s in self.watcher.seen.items() if site.is_table}
        rows = [each for each in tables.values() if each is not None]
        left = sum(int((~each).sum()) for each in rows)
        if not names or not left:
            return None
        return (
            f"{left} of {sum(map(len, rows))} rows of the module's tables were read by no input, and "
            f"nothing explains the file's {listed(names, _NAMED, 'weights')}: what it has in their place "
            "was not compared"
        )

    @property
    def doubted(self) -> frozenset[DecisionSite]:
        """The decisions that may have been shown in open elements alone, which were not compared."""
        if not self.opened or self._before is None:
            return frozenset()
        return both_ways(self.watcher.seen) - self._before

    def learn(self, case: Case) -> None:
        """Take note of a case that counts and that the module answers."""
        self.tried += 1
        if len(self.bases) < _KEPT or self._rank(case) < self._rank(self.bases[-1]):
            small = elements(self.spec.inputs, case.sizes) <= LARGEST if case.sizes else True
            if small:
                self.bases = [*self.bases[: _KEPT - 1], case]

    @property
    def base(self) -> Case:
        """The case that others begin with."""
        return min(self.bases, key=lambda each: (*self._rank(each), count(each.arrays)))

    def _rank(self, case: Case) -> tuple[bool, bool]:
        """Order cases: along an axis of one there is nothing that elements do to each other."""
        lengths = (d for d, role in roles(self.spec.inputs).items() if role != "batch")
        return case.is_edge, any(case.sizes.get(dim) == 1 for dim in lengths)

    def forget(self) -> None:
        """Begin anew, with what the watcher has seen as well."""
        self.bases, self.tried = [], 0
        self.watcher.forget()

    def cases(self) -> Iterator[Case]:
        """Yield the cases; each shows something, or stands for values that the module names.

        What the module refuses, or answers with numbers that are no longer finite, is none of them.
        """
        if self.watcher.lost or not self.bases:
            return
        self._before = both_ways(self.watcher.seen)
        base = self.base
        try:
            cost = measure(self.watcher.eager, base.arrays)
        except Refusal:
            return
        doubled = partial(self._inputs.draw, {}, key=("twice",), way=None)
        of = partial(pairs_of, self.spec, self.watcher.eager, base, cost, doubled)
        left = SHARE * cost.run(self.tried)
        purse = Purse(left, cost, self.spec.inputs, base, of(batch=True), of(batch=False))
        if self.besides is not None:
            self.watcher.besides = self.besides(self.watcher, base.arrays)
        learn_computed(self.watcher, base.arrays)
        search = CaseSearch(
            self.spec,
            self.watcher,
            self._inputs,
            purse,
            domains_at(self.spec, self.watcher, base.sizes),
            self.numbers,
            self.lengths,
            self.other_tables or (self.weights is not None and bool(self.weights.unknown)),
            self.made.keys(),
            self.tables(),
            self.told(base.arrays),
            partial(self.files, base.arrays),
            self.answers if self.computes_sizes else None,
        )
        for draft in search.cases():
            if draft.id not in self.made:
                self.made[draft.id] = draft
                yield draft


def learn_computed(watcher: Watcher, arrays: Mapping[str, Array]) -> None:
    """Learn from a case which decisions are about what is computed of the inputs, not their own values.

    That a table is the module's to the bit says what a row holds, and nothing of which one is read: an
    index that is an input is the same on both sides, and one that is computed may be another in the file.
    """
    tensors = {name: to_tensor(array) for name, array in arrays.items()}
    watch = _Computed(watcher, tensors)
    try:
        watcher.eager.run_prepared(tensors, mode=watch)
    except Refusal:
        return
    watcher.take(watch)


class _Computed(Watch):
    """Knows of each tensor that depends on an input whether it is computed."""

    def __init__(self, watcher: Watcher, inputs: Mapping[str, torch.Tensor]) -> None:
        super().__init__(watcher)
        self._made: MutableMapping[torch.Tensor, bool] = WeakTensorKeyDictionary()
        self._made.update(dict.fromkeys(inputs.values(), False))

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator, and note what it has made."""
        given = [x for x in tensors_of((args, kwargs)) if x in self._made]
        result = super().run(name, func, args, kwargs)
        if given:
            computed = any(map(self._is_computed, given))
            alias = any(r.alias_info is not None for r in func._schema.returns)
            passed = not func._schema.is_mutable and (alias or name in _COPIES)
            for made in tensors_of(result):
                rounded = given[0].is_floating_point() and not made.is_floating_point()
                self._made[made] = computed or not passed or rounded
        return result

    def _is_computed(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and self._made.get(value, False)
