"""The action's inputs, checked: all mistakes at once, each with its remedy."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from onnx_gate.errors import UserError
from onnx_gate.github.comment_policy import CommentPolicy
from onnx_gate.manifest.find import NAMES, usual_manifest
from onnx_gate.text import did_you_mean, quote

Mode = Literal["all", "verify", "publish", "plan", "report"]
SandboxChoice = Literal["auto", "require", "off"]
Protect = Literal["off", "warn", "fail"]
Switch = Literal["true", "false"]

_COMMENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Inputs:
    """What the workflow asked for. Paths are relative to ``directory``, which is absolute."""

    directory: Path
    manifest: str = NAMES[0]
    models: tuple[str, ...] = ()
    mode: Mode = "all"
    token: str = field(default="", repr=False)
    comment: CommentPolicy = "changes"
    comment_id: str = "default"
    baseline: str = "auto"
    shard: str = ""
    requirements: str = ""
    output: str = "onnx-gate-report"
    cache: str = ""
    audit: bool = False
    audit_min_score: float | None = None
    attest: bool = False
    remedies: bool = True
    since: bool = True
    since_minutes: float = 30.0
    sandbox: SandboxChoice = "auto"
    protect_manifest: Protect = "warn"
    allow_untrusted_checkout: bool = False

    @property
    def manifest_path(self) -> Path:
        """The manifest's absolute path."""
        return self.directory / self.manifest

    @property
    def output_path(self) -> Path:
        """The absolute path of the folder for the report."""
        return self.directory / self.output

    @property
    def cache_path(self) -> Path | None:
        """The absolute path of the folder of the cache; null without one."""
        return self.directory / self.cache if self.cache else None


def read_inputs(environ: Mapping[str, str]) -> Inputs:
    """Return the inputs that a runner passes as ``INPUT_NAME`` (blanks as ``_``, hyphens kept).

    Raises ``UserError`` with a line for each mistake.
    """
    mistakes: list[str] = []
    workspace = Path(environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()

    def text(name: str, default: str) -> str:
        # Some runners put an underscore for the hyphen as well.
        key = f"INPUT_{name.upper()}"
        value = environ.get(key) or environ.get(key.replace("-", "_")) or ""
        return value.strip() or default

    def one_of(name: str, choices: object, default: str) -> str:
        value, known = text(name, default), get_args(choices)
        if value not in known:
            hint = did_you_mean(value, known)
            mistakes.append(f"input '{name}': {quote(value)} is not known{hint}")
            return default
        return value

    def number(name: str, highest: float, meant: str) -> float | None:
        value = text(name, "")
        try:
            number = float(value) if value else None
        except ValueError:
            number = math.nan
        if number is not None and not 0 <= number <= highest:
            mistakes.append(f"input '{name}': {quote(value)} is no {meant}")
        return number

    share = "share; give a number from 0 to 1, such as 0.9"
    minutes = "number of minutes; give one from 0 to 360, such as 30"
    since_minutes = number("since-minutes", 360, minutes)

    values = {
        "mode": one_of("mode", Mode, "all"),
        "comment": one_of("comment", CommentPolicy, "changes"),
        "sandbox": one_of("sandbox", SandboxChoice, "auto"),
        "protect_manifest": one_of("protect-manifest", Protect, "warn"),
    }
    directory = workspace / text("working-directory", ".")
    manifest = text("manifest", NAMES[0])
    inputs = Inputs(
        directory=directory,
        manifest=usual_manifest(directory) if manifest == NAMES[0] else manifest,
        models=tuple(filter(None, re.split(r"\s*[,\n]\s*", text("models", "")))),
        token=text("github-token", ""),
        comment_id=text("comment-id", "default"),
        baseline=text("baseline", "auto"),
        shard=text("shard", ""),
        requirements=text("requirements", ""),
        output=text("output", "onnx-gate-report"),
        cache=text("cache", ""),
        audit=one_of("audit", Switch, "false") == "true",
        audit_min_score=number("audit-min-score", 1, share),
        attest=one_of("attest", Switch, "false") == "true",
        remedies=one_of("remedies", Switch, "true") == "true",
        since=one_of("since", Switch, "true") == "true",
        since_minutes=Inputs.since_minutes if since_minutes is None else since_minutes,
        allow_untrusted_checkout=one_of("allow-untrusted-checkout", Switch, "false") == "true",
        **values,  # type: ignore[arg-type]
    )
    return checked(inputs, workspace, mistakes)


def checked(inputs: Inputs, workspace: Path, mistakes: Sequence[str] = ()) -> Inputs:
    """Return inputs whose paths stay in the ``workspace``, the directory resolved.

    Raises ``UserError`` with a line for each mistake, the given ones first.
    """
    every = [*mistakes, *_mistakes(inputs, workspace)]
    if every:
        raise UserError("\n".join(every))
    return replace(inputs, directory=inputs.directory.resolve())


def _mistakes(inputs: Inputs, workspace: Path) -> Iterator[str]:
    if not _COMMENT_ID.fullmatch(inputs.comment_id):
        yield (
            f"input 'comment-id': {quote(inputs.comment_id)} is not an id; use at most 64 letters, "
            "digits, '.', '_' and '-'"
        )
    if inputs.shard and inputs.mode not in ("verify", "plan"):
        yield (
            f"input 'shard': has no meaning with mode: {inputs.mode}; a shard is verified with "
            "mode: verify, and the shards are joined with mode: report"
        )
    if inputs.audit and inputs.mode not in ("all", "verify"):
        yield (
            f"input 'audit': has no meaning with mode: {inputs.mode}; faults are seeded where models "
            "are verified, with mode: all or mode: verify"
        )
    if inputs.attest and inputs.mode not in ("all", "verify"):
        yield (
            f"input 'attest': has no meaning with mode: {inputs.mode}; what was verified is attested "
            "where models are verified, with mode: all or mode: verify"
        )
    if inputs.audit_min_score is not None and not inputs.audit:
        yield "input 'audit-min-score': there is no score without an audit; add 'audit: true'"
    outside = [
        f"input '{name}': {quote(path)} leads out of the workspace; "
        "name a path inside the repository"
        for name, path in _paths(inputs)
        if path and not inside(inputs.directory / path, workspace)
    ]
    yield from outside
    if not outside:
        yield from _clashes(inputs)


def _paths(inputs: Inputs) -> Iterator[tuple[str, str]]:
    yield "working-directory", str(inputs.directory)
    yield "manifest", inputs.manifest
    yield "baseline", inputs.baseline if inputs.baseline not in ("auto", "off") else ""
    yield "requirements", inputs.requirements
    yield "output", inputs.output
    yield "cache", inputs.cache


def _clashes(inputs: Inputs) -> Iterator[str]:
    """What is wrong with folders that are all inside the workspace."""
    directory = inputs.directory.resolve()
    if not directory.is_dir() and inputs.mode != "publish":
        yield (
            f"input 'working-directory': {quote(inputs.directory.name)} is no folder; "
            "has the repository been checked out before this step?"
        )
    above = inputs.manifest_path.resolve().parents
    output = inputs.output_path.resolve()
    if output == directory or output in above:
        yield (
            f"input 'output': {quote(inputs.output)} holds the repository's own files, and what is "
            "in it is replaced; give the report a folder of its own"
        )
    cache = inputs.cache_path.resolve() if inputs.cache_path is not None else None
    if cache is not None and (
        cache in (directory, *above, output) or output in cache.parents or cache in output.parents
    ):
        yield (
            f"input 'cache': {quote(inputs.cache)} holds other files than the cache's; give the "
            "cache a folder of its own, such as .onnx-gate-cache"
        )


def inside(path: Path, workspace: Path) -> bool:
    """Return whether a path, links resolved, is in the workspace and not git's."""
    try:
        resolved = path.resolve()
    except (OSError, RuntimeError, ValueError):
        return False
    if resolved != workspace and workspace not in resolved.parents:
        return False
    # A link into git's folder would have the gate read credentials, and quote them in an error.
    return ".git" not in resolved.relative_to(workspace).parts
