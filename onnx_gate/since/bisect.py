"""``onnx-gate bisect``: the first release of a package with which a model's verdict is another one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

from onnx_gate.errors import UserError
from onnx_gate.gate.answers_folder import Against, open_answers
from onnx_gate.gate.options import Options
from onnx_gate.gate.select import select
from onnx_gate.manifest import Manifest
from onnx_gate.manifest.engines import engine_of_package
from onnx_gate.report.model import ModelResult
from onnx_gate.since.environments import CannotInstall, Installer
from onnx_gate.since.releases import ReleaseRange, releases
from onnx_gate.since.verified import results, told, verify
from onnx_gate.text import counted, listed, quote

Say = Callable[[str], None]


@dataclass(frozen=True)
class Query:
    """What of a package is held against which models: ``models`` are globs (none: all).

    ``against`` is a folder of ``run --answers``, null where it is written first.
    """

    package: str
    range: ReleaseRange
    models: tuple[str, ...]
    against: Path | None = None


@dataclass
class ReleaseRuns:
    """Verifies one release at a time, and no release twice; ``count`` is how often it did."""

    of: Callable[[Version], Mapping[str, ModelResult]]
    done: dict[Version, Mapping[str, ModelResult]] = field(default_factory=dict)

    def __call__(self, version: Version) -> Mapping[str, ModelResult]:
        """Return each model's result with a release; raises ``CannotInstall``."""
        if version not in self.done:
            self.done[version] = self.of(version)
        return self.done[version]


def bisect(asked: Query, manifest: Manifest | None, packages: Installer, say: Say) -> bool:
    """Say of each model which release changed its verdict; return whether one did.

    ``manifest`` is null where ``asked`` names the answers of another run. Raises ``UserError``.
    """
    versions, left_out = releases(asked.package, asked.range, packages)
    say(f"{asked.package}: {len(versions)} releases from {versions[0]} to {versions[-1]}")
    if left_out:
        say(f"skipped: {left_out}")
    with _verifying(asked, manifest, say) as (held, options, names):

        def of(version: Version) -> Mapping[str, ModelResult]:
            own = canonicalize_name(asked.package)
            environment = packages.with_releases({own: str(version)})
            found = results(verify(held, options, environment))
            others = [f"{each} {v}" for each, v in environment.pins.items() if each != own]
            along = f" (with it {listed(others, 5, 'packages')})" if others else ""
            say(f"{asked.package} {version}{along}")
            for name in names:
                say(f"  {name}: {told(found[name])}")
            return found

        runs = ReleaseRuns(of)
        low, high = _ends(versions, runs, say)
        said = []
        for name in names:
            said.append(_said(asked.package, name, versions, low, high, runs, say))
        more = len(runs.done) - 2
        say(f"{counted(more, 'run')} beyond the two ends")
        for _, lines in said:
            for line in lines:
                say(line)
    return any(changed for changed, _ in said)


def _said(
    package: str,
    name: str,
    versions: list[Version],
    low: Version,
    high: Version,
    runs: ReleaseRuns,
    say: Say,
) -> tuple[bool, list[str]]:
    """Return whether a model's verdict changed, and the lines that say when."""
    first, last = runs(low)[name], runs(high)[name]
    if first.verdict == last.verdict:
        same = f"{name}: {first.verdict} with {package} {low} and with {high}: nothing to look for"
        return False, [same, f"  {low}: {told(first)}", f"  {high}: {told(last)}"]
    before, after = search(versions, low, high, name, runs, say)
    what = "bad" if last.verdict != "pass" else "good"
    return True, [
        f"{name}: {package} {after} is the first {what} version",
        f"  {before}: {told(runs(before)[name])}",
        f"  {after}: {told(runs(after)[name])}",
    ]


def search(
    versions: list[Version], low: Version, high: Version, name: str, runs: ReleaseRuns, say: Say
) -> tuple[Version, Version]:
    """Return the neighbours between which a model's verdict changes; what cannot be had is skipped.

    ``versions`` loses what is skipped. Good and bad are told apart where the ends are one of each,
    or else the ends' two ways of being bad.
    """
    ends = runs(low)[name].verdict, runs(high)[name].verdict

    def like_the_first(version: Version) -> bool:
        verdict = runs(version)[name].verdict
        if "pass" in ends:
            return (verdict == "pass") == (ends[0] == "pass")
        return verdict == ends[0]

    while between := [v for v in versions if low < v < high]:
        middle = between[len(between) // 2]
        try:
            low, high = (middle, high) if like_the_first(middle) else (low, middle)
        except CannotInstall as error:
            _skip(versions, middle, error, say)
    return low, high


def _ends(versions: list[Version], runs: ReleaseRuns, say: Say) -> tuple[Version, Version]:
    """Return the first and the last release that can be installed, both verified."""
    while len(versions) > 1:
        for end in (versions[0], versions[-1]):
            try:
                runs(end)
            except CannotInstall as error:
                _skip(versions, end, error, say)
                break
        else:
            return versions[0], versions[-1]
    raise UserError("fewer than two of the releases can be installed for this Python")


def _skip(versions: list[Version], version: Version, error: CannotInstall, say: Say) -> None:
    versions.remove(version)
    say(f"skipped: {version} cannot be installed: {error}")


@contextmanager
def _verifying(
    asked: Query, manifest: Manifest | None, say: Say
) -> Iterator[tuple[Manifest, Options, Sequence[str]]]:
    """Yield what each run verifies, how, and the models: of an engine, files are held fast."""
    engine = engine_of_package(canonicalize_name(asked.package))
    if asked.against is not None and engine is None:
        raise UserError(
            f"--against holds engines against answers, and {quote(asked.package)} is none: leave it out"
        )
    with tempfile.TemporaryDirectory(prefix="onnx-gate-answers-") as folder:
        answers, output = asked.against, Path(folder, "report")
        options = Options(output=output, models=asked.models)
        if engine is None or answers is None:
            assert manifest is not None
            names = [spec.name for spec in select(manifest.models, asked.models)]
            if engine is None:
                yield manifest, options, names
                return
            answers = Path(folder, "answers")
            say("writing down the files and PyTorch's answers")
            verify(manifest, replace(options, answers=answers, runtimes=(engine,)), None)
        carried = open_answers(answers)
        options = replace(options, against=carried, runtimes=(engine,))
        yield carried.manifest, options, _carried(carried, asked.models)


def _carried(answers: Against, models: tuple[str, ...]) -> list[str]:
    names = [spec.name for spec in select(answers.manifest.models, models)]
    for name in names:
        if answers.given[name].trouble:
            raise UserError(answers.given[name].trouble)
    return names
