"""``onnx-gate since``: which package of two files of requirements changed which answer."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from onnx_gate.errors import UserError
from onnx_gate.gate.answers import Against, open_answers
from onnx_gate.gate.select import select
from onnx_gate.manifest import Manifest, ModelSpec
from onnx_gate.report.io import read_report, to_json, write_text
from onnx_gate.report.layout import Layout
from onnx_gate.report.model import ModelResult, Report
from onnx_gate.report.model.since import Link, LinkAnswer, Package, Since
from onnx_gate.report.story.summary import first_line, worst
from onnx_gate.since.environments import CannotInstall, Installer
from onnx_gate.since.locks import changed, needed, read_pins, wanted
from onnx_gate.since.pytorch import compare
from onnx_gate.since.verified import verify
from onnx_gate.text import listed

Swapped = frozenset[str]
"""The packages that are the head's; all others are the base's."""

BASE: Swapped = frozenset()
# The kinds of error with which a run says that this link is where it ended.
_ENDS: Mapping[Link, tuple[str, ...]] = {"pytorch": ("build",), "export": ("export", "inspect")}
_PATH = re.compile(r"\S*/\S*")
LINKS: tuple[Link, ...] = ("pytorch", "export", "engine")


@dataclass
class LinkRuns:
    """The runs of the gate that links are asked with, each made once.

    ``base`` are the base's releases, ``packages`` those that differ. ``folder`` takes what is
    written down, ``output`` the head's report.
    """

    manifest: Manifest
    specs: tuple[ModelSpec, ...]
    base: dict[str, str]
    packages: tuple[Package, ...]
    installer: Installer
    folder: Path
    output: Path
    say: Callable[[str], None]
    count: int = 0
    _answers: dict[Swapped, tuple[Mapping[str, ModelResult], Against | None]] = field(
        default_factory=dict
    )
    _held: dict[tuple[Swapped, Swapped], Mapping[str, ModelResult]] = field(default_factory=dict)

    @property
    def head(self) -> Swapped:
        """The environment in which all packages are the head's."""
        return frozenset(each.name for each in self.packages)

    def answers(self, swapped: Swapped) -> tuple[Mapping[str, ModelResult], Against | None]:
        """Return the results in an environment, and PyTorch's answers; null where no model has any."""
        if swapped not in self._answers:
            folder = self.folder / f"answers-{len(self._answers)}"
            options = ["--manifest", str(self.manifest.path), "--remedies", "0"]
            options += ["--answers", str(folder)]
            output = self.output if swapped == self.head else None
            results = self._run(
                swapped, options, f"PyTorch and export with {self._named(swapped)}", output
            )
            try:
                carried = open_answers(folder)
            except UserError:
                carried = None
            self._answers[swapped] = results, carried
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
            self._held[made, run] = self._run(run, ["--against", str(carried.path)], what)
        return self._held[made, run]

    def _run(
        self, swapped: Swapped, options: list[str], what: str, output: Path | None = None
    ) -> Mapping[str, ModelResult]:
        self.say(what)
        self.count += 1
        releases = wanted(self.base, self.packages, swapped)
        command = self.installer.with_releases(releases).command
        return verify(command, options, [spec.name for spec in self.specs], output)

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
    before, after = runs.answers(BASE)[1], runs.answers(swapped)[1]
    if before is None or after is None or not runs.has_answers(name, BASE):
        return ModelResult(name=name, verdict="pass")
    return compare(spec, runs.manifest.path.resolve().parent, before, after)


def since(
    base: Path,
    head: Path,
    manifest: Manifest,
    models: tuple[str, ...],
    output: Path,
    packages: Installer,
    say: Callable[[str], None],
) -> Report:
    """Verify with the packages of ``head``, and say in the report what they changed since ``base``.

    The report is written into ``output``. Raises ``UserError``.
    """
    pins, theirs = read_pins(base, packages), read_pins(head, packages)
    differ = changed(pins, theirs)
    pins = needed(base, pins)
    specs = select(manifest.models, models)
    with tempfile.TemporaryDirectory(prefix="onnx-gate-since-") as folder:
        runs = LinkRuns(manifest, specs, pins, differ, packages, Path(folder), output, say)
        try:
            runs.answers(runs.head)
            answers = () if not differ else tuple(_answers(runs))
        except CannotInstall as error:
            raise UserError(f"the packages of {base} and {head}: {error}") from error
        report = read_report(Layout(output).report)
        found = Since(
            base_file=str(base),
            head_file=str(head),
            packages=differ,
            answers=answers,
            runs=runs.count,
        )
    report = report.model_copy(update={"since": found})
    write_text(Layout(output).report, to_json(report))
    return report


def _answers(runs: LinkRuns) -> list[LinkAnswer]:
    answers = []
    for spec in runs.specs:
        for link in LINKS:
            before, after = ask(link, spec, BASE, runs), ask(link, spec, runs.head, runs)
            if before is None or after is None or before.verdict == after.verdict == "error":
                continue  # of what errs on both sides nothing is known
            answer = _answer(link, before, after)
            if answer.changed:
                order = [each.name for each in runs.packages]
                ends = _state(before), _state(after)
                names, sure = attribute(order, ends, partial(_asked, link, spec, runs))
                answer = answer.model_copy(update={"packages": names, "sure": sure})
            answers.append(answer)
    return answers


def _asked(link: Link, spec: ModelSpec, runs: LinkRuns, swapped: Swapped) -> str:
    try:
        result = ask(link, spec, swapped, runs)
    except CannotInstall:
        return "cannot be installed"
    return "cannot be asked" if result is None else _state(result)


def _state(result: ModelResult) -> str:
    """Return the verdict, and of an error which one: but for paths, which every environment has."""
    if result.error is None:
        return result.verdict
    return f"{result.error.code} {_PATH.sub('', first_line(result.error.message))}"


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
    order: Sequence[str], ends: tuple[str, str], state: Callable[[Swapped], str]
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
