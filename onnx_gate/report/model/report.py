"""The whole of ``report.json``, the one source of every rendering."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from pydantic import AwareDatetime, Field, PrivateAttr

from onnx_gate.findings.finding import Frozen
from onnx_gate.report.model.result import ModelResult, Verdict
from onnx_gate.report.model.since import Since

MAX_SHARDS = 256
"""GitHub runs no more jobs of one matrix."""


_R = TypeVar("_R", bound="Report")


class Counts(Frozen):
    """Models by verdict."""

    passed: int = Field(default=0, alias="pass")
    diverged: int = 0
    error: int = 0


class ManifestInfo(Frozen):
    """Which manifest was verified: its ``path`` from the root of its repository."""

    path: str
    sha256: str


class Problem(Frozen):
    """A mistake in the manifest, or a word on why nothing could be verified.

    ``path`` is the dotted key; ``line`` and ``column`` start at 1 and are null where the mistake
    has no place in a file. ``tail`` are the last lines that a program printed before it failed.
    """

    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    path: str = ""
    tail: tuple[str, ...] = ()


_ChangeKind = Literal[
    "manifest", "model", "subject", "tolerance", "suites", "dims", "required", "waiver", "other"
]


class Change(Frozen):
    """One way in which a pull request asks less of a model than its base does.

    With the kind ``subject`` it verifies something else under the model's name. ``line`` is in the
    pull request's manifest, null where what it is about is gone.
    """

    kind: _ChangeKind
    model: str | None = None
    message: str
    line: int | None = None


class Baseline(Frozen):
    """The run that the report is compared with: its commit, its workflow run's id, its verdict."""

    sha: str | None = None
    run: int | None = None
    verdict: Verdict | None = None


class DividedModel(Frozen):
    """A model whose blocks several shards share, and which of them one has: ``index`` of ``count``."""

    name: str
    index: int = Field(ge=1)
    count: int = Field(ge=2)


class Shard(Frozen):
    """Which part of a manifest's models a report covers: ``index`` of ``count``, from 1.

    ``members`` are the names of the models of a part that was planned by durations, null where all
    parts are alike; ``divided`` says of which of them it has some blocks alone. ``plan`` tells the plan
    that it is a part of from others, null where nothing was verified.
    """

    index: int = Field(ge=1)
    count: int = Field(ge=1)
    members: tuple[str, ...] | None = Field(default=None, min_length=1)
    divided: tuple[DividedModel, ...] = ()
    plan: str | None = None


class Run(Frozen):
    """The workflow run that made a report, and the commit that its verdict is about."""

    id: int = Field(ge=0)
    attempt: int = Field(ge=0)
    sha: str = Field(pattern=r"^[0-9A-Za-z]{0,64}$")


class Commit(Frozen):
    """The commit that was checked out, and when it was made."""

    sha: str = Field(pattern=r"^[0-9a-f]{7,64}$")
    time: AwareDatetime | None = None


class Held(Frozen):
    """The report whose answers of PyTorch the runtimes were held against, on another machine or day.

    ``sha256`` is that of the file, ``environment`` what it says of where PyTorch has run.
    """

    sha256: str
    verdict: Verdict
    created: AwareDatetime | None = None
    commit: Commit | None = None
    environment: dict[str, Any] = {}


class Sandbox(Frozen):
    """What the models' code was kept from.

    ``level`` is ``full`` (own uid, Landlock and seccomp), ``partial`` (own uid, and not both of
    the others), ``none`` (nothing could be had) or ``off`` (nothing was asked for). ``landlock``
    is the kernel's ABI, 0 without it.
    """

    level: Literal["full", "partial", "none", "off"]
    uid: int | None = None
    landlock: int = 0
    seccomp: bool = False
    missing: tuple[str, ...] = ()


class Report(Frozen):
    """The whole of ``report.json``.

    ``verdict`` is that of the required models: ``error`` where one could not be verified, else
    ``diverged`` where one diverged, else ``pass``. No model at all is an ``error``, and
    ``problems`` then says why: an invalid manifest, a missing shard. ``changes`` are what the pull
    request loosened in the manifest. ``notes`` are remarks on the run as a whole. ``seconds`` is
    what the run took on the wall's clock, of merged shards the longest one, and ``created`` when it
    began. ``commit`` is what was checked out, where the command line was called in a repository.
    ``held`` is whose answers of PyTorch the runtimes were held against, null where it ran here.
    ``since`` is what other releases of packages made of the answers, null where nobody has asked.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    verdict: Verdict
    counts: Counts
    environment: dict[str, Any] = {}
    manifest: ManifestInfo
    models: tuple[ModelResult, ...]
    problems: tuple[Problem, ...] = ()
    changes: tuple[Change, ...] = ()
    baseline: Baseline | None = None
    shard: Shard | None = None
    run: Run | None = None
    sandbox: Sandbox | None = None
    notes: tuple[str, ...] = ()
    seconds: float | None = None
    created: AwareDatetime | None = None
    commit: Commit | None = None
    held: Held | None = None
    since: Since | None = None

    @property
    def sha(self) -> str:
        """The commit that the verdict is about, empty where nobody knows."""
        if self.run is not None and self.run.sha:
            return self.run.sha
        return self.commit.sha if self.commit is not None else ""

    @property
    def folder(self) -> str:
        """The folder that its logs and reproductions are in."""
        return self._folder

    # Where its paths of logs and reproductions start: not a part of it, since it can be moved.
    _folder: str = PrivateAttr("onnx-gate-report")

    def located(self: _R, folder: str) -> _R:
        """Return the same report, with the folder that its logs and reproductions are in."""
        report = self.model_copy()
        report._folder = folder
        return report
