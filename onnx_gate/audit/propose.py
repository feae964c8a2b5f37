"""What would catch the survivors: changes of the manifest, each tried before it is proposed.

A change is proposed where the original still passes with it and a survivor does not. They are tried
in the order of what they cost their owner (a tolerance costs nothing, sizes and suites cost time), each on
top of those that are taken already, so that all of them together have been seen to pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from onnx_gate.audit.edit import Edit
from onnx_gate.audit.trial import Bench
from onnx_gate.deadline import Deadline
from onnx_gate.errors import GateError
from onnx_gate.manifest import BUILT_IN_SUITES, DEFAULT_SIZES, ModelSpec
from onnx_gate.manifest.change import Change, changed, suite_name
from onnx_gate.manifest.spec import DEFAULT_AUTO, EdgesSuite, RandomSuite, Tolerance
from onnx_gate.verify.asked import Asked
from onnx_gate.verify.conclude import waive
from onnx_gate.verify.context import today
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.draw import FLOATS
from onnx_gate.verify.stopwatch import Clock

# Correct exports were measured at up to 2.9 times PyTorch's own error (docs/evidence.md).
TIGHT_AUTO = 4.0
# Sizes at which loops over blocks and caches behave otherwise than at 1, 2 and 7.
_LARGER = 33
# Beyond this an activation saturates that inputs of a normal distribution leave alone.
_WIDE = (-8.0, 8.0)


def possible(spec: ModelSpec) -> Iterator[Change]:
    """Yield the changes that could make a manifest sharper, the cheapest first; pure."""
    usual = Tolerance(auto=DEFAULT_AUTO, indices=spec.tolerance.indices)
    if spec.tolerance != usual and not _tighter(spec.tolerance):
        yield Change("tolerance", {"auto": DEFAULT_AUTO})
    if not _tighter(spec.tolerance):
        yield Change("tolerance", {"auto": TIGHT_AUTO})
    for name, sizes in spec.dims.items():
        if not set(DEFAULT_SIZES) <= set(sizes):
            yield Change(f"dims.{name}", sorted({*sizes, *DEFAULT_SIZES}))
    for suite in _suites():
        if suite.get("random") != "normal" or spec.suites:
            yield Change("suites", suite)
    for name, sizes in spec.dims.items():
        if max(sizes) < _LARGER:
            yield Change(f"dims.{name}", sorted({*sizes, *DEFAULT_SIZES, _LARGER}))
    for name, given in spec.inputs.items():
        if given.dtype in FLOATS and not given.has_range:
            yield Change(f"inputs.{name}.range", list(_WIDE))


def _tighter(tolerance: Tolerance) -> bool:
    return tolerance.auto is not None and tolerance.auto <= TIGHT_AUTO


def _suites() -> Iterator[dict[str, object]]:
    typical, edges = BUILT_IN_SUITES["typical"], BUILT_IN_SUITES["edges"]
    assert isinstance(typical, RandomSuite)
    assert isinstance(edges, EdgesSuite)
    yield {"random": typical.random, "count": typical.count}
    yield {"edges": list(edges.edges)}
    yield {"random": "lognormal", "count": 3}
    yield {"random": "uniform", "count": 3}
    yield {"random": "normal", "count": 8, "seed": 1}
    yield {"edges": ["large"]}
    yield {"edges": ["tiny"]}


class Proposals:
    """Tries changes for one model; ``taken`` are those that catch something, in order."""

    def __init__(self, bench: Bench, original: Path) -> None:
        self._bench, self._original = bench, original
        self.taken: list[Change] = []

    def catch(
        self,
        survivors: Sequence[str],
        faulty: Callable[[str], tuple[Path, Edit]],
        deadline: Deadline,
    ) -> dict[str, int]:
        """Return which of the ``taken`` changes catches which survivor.

        ``faulty`` writes the graph of a survivor. Nothing further is tried once the time is over.
        """
        caught: dict[str, int] = {}
        left = list(survivors)
        spec = self._bench.checker.spec
        for change in possible(spec):
            if not left or deadline.passed():
                break
            bench = self._with(changed(spec, change), change)
            if bench is None:
                continue
            now = []
            for survivor in left:
                path, edit = faulty(survivor)
                if not bench.trial(path, edit.feed).survived:
                    now.append(survivor)
            if now:
                caught |= dict.fromkeys(now, len(self.taken))
                self.taken.append(change)
                spec = changed(spec, change)
                every = {case.id: (case, a) for case, a in self._bench.answered + bench.answered}
                self._bench = Bench(bench.checker, list(every.values()))
                left = [each for each in left if each not in now]
        return caught

    def _with(self, spec: ModelSpec, change: Change) -> Bench | None:
        """Return a bench of what the change adds; ``None`` where the original does not pass it."""
        checker = replace(
            self._bench.checker,
            spec=spec,
            path=self._original,
            measured=[],
            findings=[],
            clock=Clock(),
            experience={},
            without_any=(),
            runtimes=(),
            answered=[],
        )
        if change.key == "tolerance":
            known = self._bench.checker.experience
            bench = Bench(replace(checker, experience=known), self._bench.answered)
            return bench if bench.learn(self._original).survived else None
        if change.key == "suites":
            name = suite_name(self._bench.checker.spec.suites, change.value)
            checker = replace(checker, spec=replace(spec, suites={name: spec.suites[name]}))
        try:
            checks = checker.run()
        except GateError:
            return None
        if any(c.verdict == "diverged" and not c.advice for c in waive(spec, checks, today())[0]):
            return None
        answered: list[tuple[Case, Asked]] = checker.answered or []
        bench = Bench(replace(checker, spec=spec), answered)
        return bench if any(asked.reference is not None for _, asked in answered) else None
