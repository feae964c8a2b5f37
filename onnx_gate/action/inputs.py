"""The action's inputs, checked: all mistakes at once, each with its remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from onnx_gate.errors import UserError
from onnx_gate.github.comment_policy import CommentPolicy
from onnx_gate.text import did_you_mean, quote

Mode = Literal["all", "verify", "publish", "plan", "report"]
SandboxChoice = Literal["auto", "require", "off"]
Protect = Literal["off", "warn", "fail"]

_COMMENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Inputs:
    """What the workflow asked for. Paths are relative to ``directory``, which is absolute."""

    directory: Path
    manifest: str = "onnx-gate.yml"
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
    sandbox: SandboxChoice = "auto"
    protect_manifest: Protect = "warn"

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

    def inside(name: str, default: str, within: Path) -> str:
        value = text(name, default)
        if value and not _inside(within / value, workspace):
            mistakes.append(
                f"input '{name}': {quote(value)} leads out of the workspace; "
                "name a path inside the repository"
            )
            return default
        return value

    directory = workspace / inside("working-directory", ".", workspace)
    comment_id = text("comment-id", "default")
    if not _COMMENT_ID.fullmatch(comment_id):
        mistakes.append(
            f"input 'comment-id': {quote(comment_id)} is not an id; use at most 64 letters, "
            "digits, '.', '_' and '-'"
        )
    values = {
        "mode": one_of("mode", Mode, "all"),
        "comment": one_of("comment", CommentPolicy, "changes"),
        "sandbox": one_of("sandbox", SandboxChoice, "auto"),
        "protect_manifest": one_of("protect-manifest", Protect, "warn"),
    }
    inputs = Inputs(
        directory=directory.resolve(),
        manifest=inside("manifest", "onnx-gate.yml", directory),
        models=tuple(filter(None, re.split(r"\s*[,\n]\s*", text("models", "")))),
        token=text("github-token", ""),
        comment_id=comment_id,
        baseline=_baseline(text("baseline", "auto"), inside, directory),
        shard=text("shard", ""),
        requirements=inside("requirements", "", directory),
        output=inside("output", "onnx-gate-report", directory),
        cache=inside("cache", "", directory),
        **values,  # type: ignore[arg-type]
    )
    if not inputs.directory.is_dir() and inputs.mode != "publish":
        mistakes.append(
            f"input 'working-directory': {quote(text('working-directory', '.'))} is no folder; "
            "has the repository been checked out before this step?"
        )
    output = inputs.output_path.resolve()
    if output == inputs.directory or output in inputs.manifest_path.resolve().parents:
        mistakes.append(
            f"input 'output': {quote(inputs.output)} holds the repository's own files, and what is "
            "in it is replaced; give the report a folder of its own"
        )
    cache = inputs.cache_path.resolve() if inputs.cache_path is not None else None
    if cache is not None and (
        cache in (inputs.directory, *inputs.manifest_path.resolve().parents)
        or cache == output
        or output in cache.parents
        or cache in output.parents
    ):
        mistakes.append(
            f"input 'cache': {quote(inputs.cache)} holds other files than the cache's; give the "
            "cache a folder of its own, such as .onnx-gate-cache"
        )
    if inputs.shard and inputs.mode not in ("verify", "plan"):
        mistakes.append(
            f"input 'shard': has no meaning with mode: {inputs.mode}; a shard is verified with "
            "mode: verify, and the shards are joined with mode: report"
        )
    if mistakes:
        raise UserError("\n".join(mistakes))
    return inputs


def _baseline(value: str, inside: Callable[[str, str, Path], str], directory: Path) -> str:
    return value if value in ("auto", "off") else inside("baseline", "auto", directory)


def _inside(path: Path, workspace: Path) -> bool:
    try:
        resolved = path.resolve()
    except (OSError, RuntimeError, ValueError):
        return False
    if resolved != workspace and workspace not in resolved.parents:
        return False
    # A link into git's folder would have the gate read credentials, and quote them in an error.
    return ".git" not in resolved.relative_to(workspace).parts
