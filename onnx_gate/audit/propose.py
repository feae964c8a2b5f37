"""What would catch the survivors: changes of the manifest, each tried before it is proposed.

A change is proposed where the original still passes with it and a survivor does not. They are tried
in the order of what they cost their owner (a tolerance costs nothing, sizes and suites cost time), each on
top of those that are taken already, so that all of them together have been seen to pass. Which tolerance
to try follows from the checks themselves (``separate``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from onnx_gate.audit.edit import Edit
from onnx_gate.audit.explain import forgiven, outside, unseen
from onnx_gate.audit.separate import MARGIN, Scope, at_least, below, scopes, separating, usual
from onnx_gate.audit.trial import Trial, TrialBench
from onnx_gate.deadline import Deadline
from onnx_gate.errors import GateError
from onnx_gate.manifest import (
    BUILT_IN_SUITES,
    DEFAULT_SIZES,
    DEFAULT_SUITES,
    EdgesSuite,
    ModelSpec,
    RandomSuite,
)
from onnx_gate.manifest.change import KeyChange, changed, suite_of, tolerance_data
from onnx_gate.manifest.spec import DEFAULT_AUTO
from onnx_gate.report.model import Check
from onnx_gate.report.model.audit import Unseen
from onnx_gate.verify.checks import Checker, ModuleTally
from onnx_gate.verify.context import today
from onnx_gate.verify.waive import waive, waived_error, waiver_of


def wider(spec: ModelSpec) -> Iterator[KeyChange]:
    """Yield the changes that try what is tried where a manifest names nothing; pure."""
    for name, sizes in spec.dims.items():
        if not set(DEFAULT_SIZES) <= set(sizes):
            yield KeyChange(f"dims.{name}", sorted({*sizes, *DEFAULT_SIZES}))
    typical, edges = BUILT_IN_SUITES["typical"], BUILT_IN_SUITES["edges"]
    assert isinstance(typical, RandomSuite)
    assert isinstance(edges, EdgesSuite)
    suites = ({"random": typical.random, "count": typical.count}, {"edges": list(edges.edges)})
    known = (spec.suites or DEFAULT_SUITES).values()
    yield from (KeyChange("suites", each) for each in suites if suite_of(each) not in known)


@dataclass(frozen=True)
class _Seen:
    """What the checks of a survivor were beside the original's, on the bench of the time."""

    bench: TrialBench
    original: Trial
    trial: Trial


class Proposals:
    """Tries changes for one model.

    ``taken`` are those that catch something, in order, of ``tried`` in all; ``untried`` were left for
    want of time. ``caught`` says which of them catches which survivor. ``faulty`` writes the graph of
    a survivor.
    """

    def __init__(
        self,
        bench: TrialBench,
        original: Path,
        faulty: Callable[[str], tuple[Path, Edit]],
        deadline: Deadline,
    ) -> None:
        self._bench, self._path, self._faulty, self._deadline = bench, original, faulty, deadline
        self.taken: list[KeyChange] = []
        self.tried = self.untried = 0
        self.caught: dict[str, int] = {}
        self._left: list[str] = []
        self._visible: set[str] = set()  # no tolerance tells the others from PyTorch's rounding
        self._original: Trial | None = None
        self._trials: dict[str, Trial] = {}
        self._seen: dict[str, _Seen] = {}

    def catch(self, survivors: Mapping[str, float | None]) -> dict[str, Unseen]:
        """Try what could catch the survivors, and return why the others are still none.

        The values are by how much each moves the outputs, in units of PyTorch's own rounding.
        """
        self._left = list(survivors)
        self._visible = {each for each, moved in survivors.items() if moved is None or moved > 1}
        self._sharpen()
        for change in wider(self._spec):
            self._try(change)
        self._sharpen()
        spec = self._spec
        if spec.tolerance.indices != "exact" and self._has_indices():
            exact = {**tolerance_data(spec.tolerance), "indices": "exact"}
            self._try(KeyChange("tolerance", exact))
        return {each: why for each in self._left if (why := self._why(each, survivors[each]))}

    @property
    def _spec(self) -> ModelSpec:
        return self._bench.checker.setting.spec

    def _sharpen(self) -> None:
        """Try the tolerances that lie between the original and the survivors."""
        for key in [scope.key for scope in self._scopes()]:
            for scope in self._scoped(key):
                if scope.tolerance.auto is None or scope.tolerance.auto > DEFAULT_AUTO:
                    self._try(KeyChange(key, tolerance_data(usual(scope.tolerance))))
            while self._sharper(key):
                pass
        self._forgive_less()

    def _sharper(self, key: str) -> bool:
        """Return whether another tolerance was taken in the place of one: the next is made of that."""
        for scope in self._scoped(key):
            checks = [trial.checks for trial in self._visible_trials()]
            for sharper in separating(scope, self._unchanged.checks, checks) if checks else ():
                if self._try(KeyChange(key, tolerance_data(sharper))):
                    return True
        return False

    def _forgive_less(self) -> None:
        """Try ceilings for waivers that forgive what survivors do, and the original does not."""
        for number in range(len(self._spec.waivers)):
            errors = [
                _error(_waived(self._spec, number, trial)) for trial in self._visible_trials()
            ]
            if not errors:
                return
            least = MARGIN * _error(_waived(self._spec, number, self._unchanged))
            worse = [error for error in errors if least < error < math.inf]
            widest = below(min(worse), 2) if worse else 0.0
            if widest > least or (least and max(errors) > least):
                ceiling = widest if widest > least else at_least(least)
                self._try(KeyChange(f"waivers.{number}.ceiling", ceiling))

    def _scopes(self) -> list[Scope]:
        return list(scopes(self._spec, self._outputs()))

    def _scoped(self, key: str) -> list[Scope]:
        """Return the scope of a key, which is none any more where a change has divided it."""
        return [scope for scope in self._scopes() if scope.key == key]

    def _visible_trials(self) -> list[Trial]:
        """Return the trials of those that a tolerance could tell; none when time is over."""
        visible = [each for each in self._left if each in self._visible]
        return [trial for each in visible if (trial := self._trial(each)) is not None]

    def _outputs(self) -> tuple[str, ...]:
        answered = (a.reference for _, a in self._bench.answered if a.reference is not None)
        return next((reference.outputs.names for reference in answered), ())

    def _has_indices(self) -> bool:
        return any(
            array.dtype.kind in "iu"
            for _, asked in self._bench.answered[:1]
            if asked.reference is not None
            for array in asked.reference.outputs.arrays
        )

    @property
    def _unchanged(self) -> Trial:
        if self._original is None:
            self._original = self._bench.learn(self._path)
        return self._original

    def _trial(self, survivor: str) -> Trial | None:
        """Return the trial of a survivor as the manifest is by now; ``None`` when time is over."""
        if survivor not in self._trials and not self._deadline.passed():
            path, edit = self._faulty(survivor)
            self._trials[survivor] = self._bench.trial(path, edit.feed)
            self._seen[survivor] = _Seen(self._bench, self._unchanged, self._trials[survivor])
        return self._trials.get(survivor)

    def _try(self, change: KeyChange) -> bool:
        """Take a change where the original passes with it and a survivor does not; return whether."""
        spec = changed(self._spec, change)
        survivors = [each for each in self._left if each in self._visible or not change.judges]
        if not survivors or spec == self._spec:
            return False
        if self._deadline.passed():
            self.untried += 1
            return False
        self.tried += 1
        bench = self._with(spec, change)
        if bench is None:
            return False
        now = []
        for survivor in survivors:
            if self._deadline.passed():
                break
            path, edit = self._faulty(survivor)
            if not bench.trial(path, edit.feed).survived:
                now.append(survivor)
        if not now:
            return False
        self.caught |= dict.fromkeys(now, len(self.taken))
        self.taken.append(change)
        every = {case.id: (case, a) for case, a in self._bench.answered + bench.answered}
        self._bench = TrialBench(bench.checker, list(every.values()))
        self._left = [each for each in self._left if each not in now]
        self._original, self._trials = None, {}
        return True

    def _with(self, spec: ModelSpec, change: KeyChange) -> TrialBench | None:
        """Return a bench of what the change adds; ``None`` where the original does not pass it."""
        setting = replace(self._bench.checker.setting, spec=spec, path=self._path, keeps=True)
        if change.judges:
            known = ModuleTally(experience=self._bench.checker.tally.experience)
            bench = TrialBench(Checker(setting, known), self._bench.answered)
            passes = bench.learn(self._path).survived
            wrong = any(finding.severity == "error" for finding in bench.checker.tally.findings)
            return bench if passes and not wrong else None
        if change.adds and self._spec.suites:
            # Else the default suites become named ones, of which more is asked.
            before = self._spec.suites
            added = {name: suite for name, suite in spec.suites.items() if name not in before}
            setting = replace(setting, spec=replace(spec, suites=added))
        try:
            tally = Checker(setting).run()
        except GateError:
            return None
        if any(
            c.verdict == "diverged" and not c.advice for c in waive(spec, tally.checks, today())[0]
        ):
            return None
        bench = TrialBench(Checker(replace(setting, spec=spec), tally), tally.answered)
        return bench if any(asked.reference is not None for _, asked in tally.answered) else None

    def _why(self, survivor: str, moved: float | None) -> Unseen | None:
        """Return why a survivor is still one, with the changes that were taken when it was tried."""
        if moved is not None and moved <= 1:
            return Unseen(why="rounding")
        seen = self._seen.get(survivor)
        if seen is None:
            return Unseen(why="time")
        spec = seen.bench.checker.setting.spec
        for number in range(len(spec.waivers)):
            mine, own = (_waived(spec, number, each) for each in (seen.trial, seen.original))
            if _error(mine) > _error(own):
                return forgiven(spec, number, mine)
        hidden = self._outside(seen.bench, survivor) if spec.where else None
        if hidden is not None:
            return outside(spec, hidden)
        every = tuple(scopes(spec, self._outputs()))
        why = unseen(every, seen.original.checks, seen.trial.checks)
        if why is None or why.why != "margin":
            return why
        if self._deadline.passed():
            return Unseen(why="time")
        # What a sharper tolerance does not allow is held against PyTorch's other answers first.
        fails = self._fails(seen.bench, survivor, why)
        return why if fails else why.model_copy(update={"why": "granted"})

    def _fails(self, bench: TrialBench, survivor: str, why: Unseen) -> bool:
        """Return whether a survivor is caught by a tolerance that is not proposed."""
        spec = changed(bench.checker.setting.spec, KeyChange(why.key, why.tolerance))
        path, edit = self._faulty(survivor)
        sharper = TrialBench(bench.checker.of(spec), bench.answered)
        return not sharper.trial(path, edit.feed).survived

    def _outside(self, bench: TrialBench, survivor: str) -> Check | None:
        """Return the check that a survivor would fail if no mask of the manifest's left it out."""
        everywhere = []
        for case, asked in bench.answered:
            nothing = tuple(None for _ in asked.selected)
            everywhere.append((case, replace(asked, selected=nothing)))
        unmasked = TrialBench(bench.checker, everywhere)
        path, edit = self._faulty(survivor)
        caught = unmasked.trial(path, edit.feed).caught
        return caught if caught is not None and unmasked.learn(self._path).survived else None


def _waived(spec: ModelSpec, number: int, trial: Trial) -> list[Check]:
    """Return the checks that a waiver forgives."""
    waived = [c for c in trial.checks if c.verdict == "waived"]
    return [c for c in waived if waiver_of(spec, c, today()) == number]


def _error(checks: Iterable[Check]) -> float:
    return max(map(waived_error, checks), default=0.0)
