"""What is checked out where the event gives a job more rights than a pull request may have.

``pull_request_target`` and ``workflow_run`` run with the base's token and secrets. A checkout of
the head then puts a stranger's code beside them, and the sandbox would be all that is in between.
The base's own commit is what such a job is started with (``GITHUB_SHA``); anything else is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onnx_gate.cache.git_index import directory_of
from onnx_gate.github.run_context import RunContext

PRIVILEGED = ("pull_request_target", "workflow_run")


def untrusted_checkout(context: RunContext, sha: str, git: Sequence[Path]) -> str | None:
    """Return why this job may not run models, ``None`` where it may.

    ``sha`` is the commit that the job was started with, ``git`` are the ``.git`` entries of the
    workspace, the topmost first.
    """
    if context.event not in PRIVILEGED:
        return None
    found = [head_of(entry) for entry in git]
    if found and sha and found[0] == sha and context.sha not in {*found} - {sha}:
        return None
    what = found[0][:7] if found and found[0] else "no commit that is known"
    return (
        f"{context.event} with {what} checked out, which is not the base's own commit: models of a "
        "pull request would run beside the base's token and secrets; verify in a workflow on "
        "pull_request, or set allow-untrusted-checkout: true where nobody but you opens pull requests"
    )


def head_of(git: Path) -> str:
    """Return the commit that a repository has checked out, empty where that cannot be read."""
    folder = directory_of(git)
    try:
        head = (folder / "HEAD").read_text(encoding="ascii").strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        if ".." in name.split("/") or name.startswith("/"):
            return ""
        loose = folder / name
        if loose.is_file():
            return loose.read_text(encoding="ascii").strip()
        packed = (folder / "packed-refs").read_text(encoding="ascii").splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), "")
    except (OSError, UnicodeDecodeError):
        return ""
