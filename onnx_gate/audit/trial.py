"""One faulty model before the manifest's own judge: the same cases, PyTorch's answers as they are.

A trial ends at the first check that would have failed the model, and otherwise with what all checks
together say. What the faulty model answered is remembered as a digest, and how far that is from the
original's answers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from onnx_gate.audit.edit import Feed
from onnx_gate.audit.files import is_large
from onnx_gate.errors import GateError
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.numerics.scaled import scale_error
from onnx_gate.report.model import Check
from onnx_gate.runtimes.base import Array, Session, ValueInfo
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.compared import Asked
from onnx_gate.verify.context import today
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.key_hash import KeyHash
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.sessions import Sessions, without_optimisations
from onnx_gate.verify.waive import waive

_PACKING_OFF = "session.disable_prepacking"
# A run that takes so many times as long as the original's slowest, and this many seconds at least, hangs.
_TIMES, _LEAST_SECONDS = 20.0, 10.0
Answers = dict[tuple[str, str], list[Array]]


@dataclass(frozen=True)
class Trial:
    """What became of a faulty model.

    ``caught`` is the check that failed it; ``refused``: in the words of the runtime that would not
    load or run it, without any comparison. ``digest`` is equal for equal answers in the same cases.
    ``moved`` is how far its answers are from the original's, by case: relative to ``|a| + rms(a)``.
    ``checks`` are those that count, of a model that passes all of them.
    """

    caught: Check | None
    refused: str
    digest: str
    moved: Mapping[str, float] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()

    @property
    def survived(self) -> bool:
        """Whether the gate was green."""
        return self.caught is None and not self.refused


class FaultySession:
    """A session whose inputs pass through a fault, and whose answers are kept until the next."""

    def __init__(self, session: Session, feed: Feed | None) -> None:
        self._session, self._feed = session, feed
        self.inputs: tuple[ValueInfo, ...] = session.inputs
        self.outputs: tuple[ValueInfo, ...] = session.outputs
        self.answers: list[Array] | None = None
        self.seconds = 0.0

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Run once on what the fault makes of the inputs."""
        self.answers = None
        if self._feed is not None:
            feeds = self._feed(feeds)
        begin = time.perf_counter()
        self.answers = [np.asarray(output) for output in self._session.run(feeds)]
        self.seconds = max(self.seconds, time.perf_counter() - begin)
        return self.answers

    def limit(self, seconds: float) -> None:
        """End runs that take longer, where the engine can."""
        if hasattr(self._session, "seconds"):
            self._session.seconds = seconds

    def close(self) -> None:
        """Give back what the session holds."""
        self._session.close()


class TrialBench:
    """The cases of a model, PyTorch's answers, and the original's, for any number of trials.

    Sessions have the options of a run, with one exception. ONNX Runtime copies the weights of
    products into the layout of its kernels when it opens a file, which takes longer than the few
    cases of a trial, and as much memory again. Large weights it is asked to read where they lie in
    the file that all sessions share, unless the original does not pass so.
    """

    def __init__(
        self, checker: Checker, answered: Sequence[tuple[Case, Asked[CaseReference]]]
    ) -> None:
        self.checker = checker
        self.answered = [(c, a) for c, a in answered if not c.advice]
        self.original: Answers = {}
        self._packed = False
        self._slowest = 0.0

    def learn(self, path: Path) -> Trial:
        """Try the original, and remember what it answers."""
        trial = self._try(path, None, self.original)
        if not trial.survived and is_large(path.parent):
            self._packed = True
            trial = self._try(path, None, self.original)
        return trial

    def trial(self, path: Path, feed: Feed | None = None) -> Trial:
        """Try a faulty model, or a fault of what the original is fed."""
        return self._try(path, feed, None)

    def _try(self, path: Path, feed: Feed | None, keep: Answers | None) -> Trial:
        digest = KeyHash()
        moved: dict[str, float] = {}
        judged: list[Check] = []
        settled = self.checker.settled
        settled(())
        for runtime, answered in self._plan():
            label, clock = runtime.label, self.checker.tally.clock
            opened = runtime if self._packed or not is_large(path.parent) else _unpacked(runtime)
            try:
                with Sessions(path, (opened,), self.checker.setting.threads, clock) as sessions:
                    watched = FaultySession(sessions.pop(opened.label), feed)
                    sessions[label] = watched
                    if keep is None:
                        watched.limit(max(_LEAST_SECONDS, _TIMES * self._slowest))
                    for case, asked in answered:
                        checks = self.checker.recheck(case, asked, sessions)
                        if label in sessions.failures:
                            return Trial(None, sessions.failures[label].message, "", moved)
                        key = (label, case.id)
                        if watched.answers is None:
                            digest.add(key, "refuses")
                        elif keep is not None:
                            keep[key] = watched.answers
                        else:
                            digest.add(key, *watched.answers)
                            apart = _distance(watched.answers, self.original.get(key))
                            moved[case.id] = max(moved.get(case.id, 0.0), apart)
                        judged += checks
                        wrong = (
                            None
                            if self.checker.setting.by_steps
                            else _wrong(self._counting(checks))
                        )
                        if wrong is not None:
                            return _ended(wrong, digest.hex, moved)
                    if keep is not None:
                        self._slowest = max(self._slowest, watched.seconds)
            except GateError as error:
                return Trial(None, error.message, "", moved)
        counting = self._counting(settled(judged))
        wrong = _wrong(counting)
        if wrong is not None:
            return _ended(wrong, digest.hex, moved)
        return Trial(None, "", digest.hex, moved, counting)

    def _counting(self, checks: Sequence[Check]) -> tuple[Check, ...]:
        waived = waive(self.checker.setting.spec, tuple(checks), today())[0]
        return tuple(check for check in waived if not check.advice)

    def _plan(self) -> list[tuple[RuntimeSpec, list[tuple[Case, Asked[CaseReference]]]]]:
        """Every runtime with all cases, and the first case without optimisations, as in a run."""
        runtimes = self.checker.setting.spec.runtimes
        plan = [(runtime, self.answered) for runtime in runtimes]
        plain = without_optimisations(runtimes)
        return [*plan, *([(plain, self.answered[:1])] if plain is not None else [])]


def _wrong(checks: Sequence[Check]) -> Check | None:
    return next((check for check in checks if check.verdict == "diverged"), None)


def _unpacked(runtime: RuntimeSpec) -> RuntimeSpec:
    """Return a runtime that leaves weights as they lie in the file, where it can."""
    if not runtime.engine.plain or runtime.processor != "cpu":
        return runtime
    return replace(runtime, session_options={_PACKING_OFF: "1", **runtime.session_options})


def _ended(check: Check, digest: str, moved: Mapping[str, float]) -> Trial:
    if "runtime" in check.refused:
        return Trial(None, check.reason, digest, moved)
    return Trial(check, "", digest, moved)


def _distance(answers: Sequence[Array], original: Sequence[Array] | None) -> float:
    if original is None or len(answers) != len(original):
        return float("inf")
    return max(
        (
            scale_error(a, o)
            if o.dtype.kind not in "OSU"
            else (0.0 if np.array_equal(a, o) else float("inf"))
            for a, o in zip(answers, original, strict=True)
        ),
        default=0.0,
    )
