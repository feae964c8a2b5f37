"""Files of requirements and locks of which the pull request's base has another text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onnx_gate.action.action_inputs import Inputs, inside
from onnx_gate.errors import UserError
from onnx_gate.github.client import Client
from onnx_gate.github.contents import read_file
from onnx_gate.github.run_context import RunContext
from onnx_gate.manifest import ManifestError
from onnx_gate.manifest.find import path_in_repository
from onnx_gate.manifest.load import load

LOCKS = (
    *("uv.lock", "poetry.lock", "pylock.toml"),
    *("constraints.txt", "requirements.txt", "pyproject.toml"),
)
"""What is looked for beside the manifest: what says most of releases first."""


@dataclass(frozen=True)
class ChangedPackages:
    """A file of the workspace, and what it was in the base."""

    head: Path
    base: bytes


def requirements_file(inputs: Inputs) -> Path | None:
    """Return the requirements file: the input's, else the manifest's; none where neither names one."""
    if inputs.requirements:
        return inputs.directory / inputs.requirements
    try:
        manifest = load(inputs.manifest_path)
    except ManifestError:
        return None
    named = manifest.requirements
    return inputs.manifest_path.parent / named if named is not None else None


def changed_packages(
    inputs: Inputs, context: RunContext, client: Client, workspace: Path
) -> Iterator[ChangedPackages]:
    """Yield the files that name packages and are others in the base; raises ``GitHubError``."""
    target = context.pull_request
    if target is None or not target.base_sha or not inputs.since:
        return
    installed = requirements_file(inputs)
    folders = dict.fromkeys((inputs.manifest_path.parent, workspace))
    locks = (folder / name for folder in folders for name in LOCKS)
    for path in dict.fromkeys((*([installed] if installed else ()), *locks)):
        # A link may lead to what is not the pull request's, and is quoted in an error.
        if not path.is_file() or path.is_symlink() or not inside(path, workspace):
            continue
        name = path_in_repository(path, workspace)
        try:
            base = read_file(client, context.repository, name, target.base_sha)
        except UserError:
            continue  # it is no text that anybody pins packages in
        if base is not None and base != path.read_bytes():
            yield ChangedPackages(path, base)
