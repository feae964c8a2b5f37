"""``onnx-gate since``: which package of two files of requirements changed which answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path

from onnx_gate.deadline import Deadline, OutOfTime
from onnx_gate.errors import UserError
from onnx_gate.gate.answers_folder import Against, open_answers
from onnx_gate.gate.options import Options
from onnx_gate.gate.outcome import result_of
from onnx_gate.gate.select import select
from onnx_gate.gate.tasks import HELD_PRELOAD
from onnx_gate.manifest import Manifest, ModelSpec
from onnx_gate.report.layout import OF_EACH, Layout
from onnx_gate.report.model import ModelResult, Report
from onnx_gate.report.model.since import Link, LinkAnswer, Package, Since
from onnx_gate.report.story.summary import first_line, worst
from onnx_gate.since.environments import CannotInstall, Installer
from onnx_gate.since.locks import ChangedPins, wanted
from onnx_gate.since.verified import results, verify
from onnx_gate.text import listed
from onnx_gate.workers.pool import run_tasks
from onnx_gate.workers.task import Task

Swapped = frozenset[str]
"""The packages that are the head's; all others are the base's."""

BASE: Swapped = frozenset()
State = tuple[str, ...]
"""What a link answers, told apart from other answers: the verdict, and of an error which one."""

WORKER = "onnx_gate.since.pytorch:work"
# The kinds of error with which a run says that this link is where it ended.
_ENDS: Mapping[Link, tuple[str, ...]] = {"pytorch": ("build",), "export": ("export", "inspect")}
LINKS: tuple[Link, ...] = ("pytorch", "export", "engine")


@dataclass
class LinkRuns:
    """The runs of the gate that links are asked with, each made once.

    ``base`` are the base's releases, ``packages`` those that differ. ``options`` say how the models'
    code is started; ``folder`` takes what is written down, and ``options.output`` the head's logs.
    After the ``deadline`` no run but the first is begun: ``OutOfTime`` is raised instead.
    """

    manifest: Manifest
    base: dict[str, str]
    packages: tuple[Package, ...]
    installer: Installer
    options: Options
    folder: Path
    say: Callable[[str], None]
    deadline: Deadline = field(default_factory=lambda: Deadline(inf))
    reports: list[Report] = field(default_factory=list)
    _answers: dict[Swapped, tuple[Mapping[str, ModelResult], Against | None]] = field(
        default_factory=dict
    )
    _held: dict[tuple[Swapped, Swapped], Mapping[str, ModelResult]] = field(default_factory=dict)
    _compared: dict[Swapped, Mapping[str, ModelResult]] = field(default_factory=dict)

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        """The models that are asked about."""
        return select(self.manifest.models, self.options.models)

    @property
    def head(self) -> Swapped:
        """The environment in which all packages are the head's."""
        return frozenset(each.name for each in self.packages)

    def answers(self, swapped: Swapped) -> tuple[Mapping[str, ModelResult], Against | None]:
        """Return the results in an environment, and PyTorch's answers; null where no model has any."""
        if swapped not in self._answers:
            folder = self.folder / f"answers-{len(self._answers)}"
            options = replace(self.options, answers=folder)
            if swapped != self.head:
                options = replace(options, output=self.folder / OF_EACH)
            found = self._run(
                self.manifest, options, swapped, f"PyTorch and export with {self._named(swapped)}"
            )
            try:
                carried = open_answers(folder)
            except UserError:
                carried = None
            self._answers[swapped] = found, carried
        return self._answers[swapped]

    def has_answers(self, name: str, swapped: Swapped) -> bool:
        """Whether PyTorch's answers of a model are there, and its file."""
        carried = self.answers(swapped)[1]
        return carried is not None and name in carried.given and not carried.given[name].trouble

    def digest(self, name: str, swapped: Swapped) -> str:
        """Return what tells a model's file and PyTorch's answers from others, empty without any."""
        carried = self.answers(swapped)[1]
        return carried.given[name].sha256 if carried is not None and name in carried.given else ""

    def held(self, made: Swapped, run: Swapped) -> Mapping[str, ModelResult]:
        """Return the results of the files of one environment on the engines of another."""
        if (made, run) not in self._held:
            carried = self.answers(made)[1]
            assert carried is not None
            what = f"the files with {self._named(made)} on engines with {self._named(run)}"
            options = replace(self.options, against=carried, output=self.folder / OF_EACH)
            self._held[made, run] = self._run(carried.manifest, options, run, what)
        return self._held[made, run]

    def compared(self, swapped: Swapped) -> Mapping[str, ModelResult]:
        """Return PyTorch's answers in an environment, judged against the base's."""
        if swapped not in self._compared:
            self.deadline.check()
            before, after = self.answers(BASE)[1], self.answers(swapped)[1]
            assert before is not None
            assert after is not None
            specs = [
                s for s in self.specs if all(self.has_answers(s.name, e) for e in (BASE, swapped))
            ]
            workspace = self.manifest.path.resolve().parent
            outcomes = run_tasks(
                [
                    Task(
                        spec.name,
                        (spec, workspace, before.given[spec.name], after.given[spec.name]),
                        spec.timeout,
                        spec.memory,
                        Layout(self.folder / OF_EACH).log(spec.name),
                    )
                    for spec in specs
                ],
                WORKER,
                jobs=1,
                on_event=lambda *_: None,
                preload=HELD_PRELOAD,
                launch=replace(self.options.launch, python=None),
            )
            self._compared[swapped] = {
                spec.name: result_of(spec, outcomes[spec.name], "") for spec in specs
            }
        return self._compared[swapped]

    def _run(
        self, manifest: Manifest, options: Options, swapped: Swapped, what: str
    ) -> Mapping[str, ModelResult]:
        if self.reports:
            self.deadline.check()
        self.say(what)
        releases = wanted(self.base, self.packages, swapped)
        report = verify(manifest, options, self.installer.with_releases(releases))
        self.reports.append(report)
        return results(report)

    def _named(self, swapped: Swapped) -> str:
        if swapped in (BASE, self.head):
            return "the head's packages" if swapped else "the base's packages"
        return f"the head's {listed(sorted(swapped), 3, 'packages')}"


def ask(link: Link, spec: ModelSpec, swapped: Swapped, runs: LinkRuns) -> ModelResult | None:
    """Return what a link of a model answers with some packages swapped, all else the base's.

    PyTorch is held against the base's PyTorch; a file of these packages against PyTorch with the
    same, on the base's engines; and the base's file (or else the head's) on engines of these
    packages. Null where it cannot be asked.
    """
    name = spec.name
    if link == "engine":
        made = next((each for each in (BASE, runs.head) if runs.has_answers(name, each)), None)
        return runs.held(made, swapped)[name] if made is not None else None
    if not runs.has_answers(name, swapped):
        result = runs.answers(swapped)[0][name]
        ended = result.error.kind if result.error is not None else None
        return result if ended in _ENDS[link] else None
    if link == "export":
        same = runs.digest(name, swapped) == runs.digest(name, BASE)
        return runs.held(BASE if same else swapped, BASE)[name]
    if not runs.has_answers(name, BASE):
        return ModelResult(name=name, verdict="pass")
    return runs.compared(swapped)[name]


def since(
    files: ChangedPins,
    manifest: Manifest,
    options: Options,
    packages: Installer,
    folder: Path,
    say: Callable[[str], None],
    seconds: float = inf,
) -> Report:
    """Verify with the head's packages, and say in the report what they changed since the base.

    Logs are written into ``options.output``, and all that the other runs leave into ``folder``.
    After so many ``seconds`` no further run is begun, and what was found by then is said.
    Raises ``UserError``.
    """
    deadline = Deadline(seconds)
    runs = LinkRuns(
        manifest, files.needed, files.packages, packages, options, folder, say, deadline
    )
    answers: list[LinkAnswer] = []
    out_of_time = False
    try:
        runs.answers(runs.head)
        answers.extend(_answers(runs) if files.packages else ())
    except OutOfTime:
        out_of_time = True
    except CannotInstall as error:
        raise UserError(f"the packages of {files.base} and {files.head}: {error}") from error
    found = Since(
        base_file=str(files.base),
        head_file=str(files.head),
        packages=files.packages,
        answers=tuple(answers),
        runs=len(runs.reports),
        out_of_time=out_of_time,
    )
    return runs.reports[0].model_copy(update={"since": found})


def _answers(runs: LinkRuns) -> Iterator[LinkAnswer]:
    for spec in runs.specs:
        for link in LINKS:
            before, after = ask(link, spec, BASE, runs), ask(link, spec, runs.head, runs)
            if before is None or after is None or before.verdict == after.verdict == "error":
                continue  # of what errs on both sides nothing is known
            answer = _answer(link, before, after)
            if answer.changed:
                order = [each.name for each in runs.packages]
                ends = _state(before), _state(after)
                try:
                    names, sure = attribute(order, ends, partial(_asked, link, spec, runs))
                except OutOfTime:
                    yield answer.model_copy(update={"packages": tuple(order), "sure": False})
                    raise
                answer = answer.model_copy(update={"packages": names, "sure": sure})
            yield answer


def _asked(link: Link, spec: ModelSpec, runs: LinkRuns, swapped: Swapped) -> State:
    try:
        result = ask(link, spec, swapped, runs)
    except CannotInstall:
        return ("cannot be installed",)
    return ("cannot be asked",) if result is None else _state(result)


def _state(result: ModelResult) -> State:
    if result.error is None:
        return (result.verdict,)
    where = result.error.source
    return (result.verdict, result.error.code, *((where.file, str(where.line)) if where else ()))


def _answer(link: Link, before: ModelResult, after: ModelResult) -> LinkAnswer:
    check, was = worst(after), worst(before)
    reason = first_line(after.error.message) if after.error is not None else ""
    return LinkAnswer(
        model=after.name,
        link=link,
        before=before.verdict,
        verdict=after.verdict,
        share=check.budget if check is not None else None,
        share_before=was.budget if was is not None else None,
        output=check.output if check is not None else "",
        case=check.case if check is not None else "",
        reason=reason or (check.reason if check is not None else ""),
    )


def attribute(
    order: Sequence[str], ends: tuple[State, State], state: Callable[[Swapped], State]
) -> tuple[tuple[str, ...], bool]:
    """Return the packages that changed an answer, and whether they were seen to, without others.

    The packages become the head's one after the other: after the first ones of them the answer is
    the base's, after one more it is not. That one is then tried alone. ``ends`` are base's and head's.
    """
    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        if state(frozenset(order[:middle])) == ends[0]:
            low = middle
        else:
            high = middle
    found, together = order[high - 1], tuple(order[:high])
    if state(frozenset({found})) == ends[1]:
        return (found,), True
    return together, state(frozenset(together)) == ends[1]
