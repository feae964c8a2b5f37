"""What is checked out where the event gives a job more rights than a pull request may have.

``pull_request_target`` and ``workflow_run`` run with the base's token and secrets. A checkout of
the head then puts a stranger's code beside them, and the sandbox would be all that is in between.
So everything that is checked out has to be known to be the base's own: the commit that such a job is
started with (``GITHUB_SHA``), what its branch has by now, or a submodule as one of these names it.
Whatever else there may be (the head, GitHub's merge of it, a commit that was fetched) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from onnx_gate.cache.git_index import directory_of, submodules
from onnx_gate.github.run_context import RunContext

PRIVILEGED = ("pull_request_target", "workflow_run")
_ORIGIN = re.compile(r'^\[remote "origin"\]\n(?:[ \t].*\n)*?[ \t]+url = (.*)$', re.MULTILINE)


def untrusted_checkout(context: RunContext, sha: str, git: Sequence[Path]) -> str | None:
    """Return why this job may not run models, ``None`` where it may.

    ``sha`` is the commit that the job was started with, ``git`` are the ``.git`` entries of the
    workspace, the topmost first.
    """
    if context.event not in PRIVILEGED:
        return None
    found = {entry: head_of(entry) for entry in git}
    # A submodule is at a commit that the base names, if what it belongs to is the base's.
    named = {
        entry.parent / path / ".git": commit
        for entry in git
        for path, commit in submodules(entry).items()
    }
    unknown = [
        head
        for entry, head in found.items()
        if not head
        or (
            head not in (sha, named.get(entry))
            and (head == context.sha or head not in _branches(entry, context))
        )
    ]
    if found and not unknown:
        return None
    what = unknown[0][:7] if unknown and unknown[0] else "no commit that is known"
    return (
        f"{context.event} with {what} checked out, which is not known to be the base's own: models of a "
        "pull request would run beside the base's token and secrets; verify in a workflow on "
        "pull_request, or set allow-untrusted-checkout: true where nobody but you opens pull requests"
    )


def _branches(git: Path, context: RunContext) -> set[str]:
    """Return the commits of the base's branches, where a repository was fetched from the base's."""
    folder = directory_of(git)
    try:
        origin = _ORIGIN.search((folder / "config").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return set()
    # With a token in it, or by SSH, it may be written otherwise: then it is not known.
    url = origin[1].strip().removesuffix(".git").lower() if origin is not None else ""
    if url != context.repository_url.lower():
        return set()
    pull = context.pull_request
    names = (pull.base_ref if pull is not None else "", context.default_branch or "")
    return {_commit_of(folder, f"refs/remotes/origin/{name}") for name in names if name} - {""}


def head_of(git: Path) -> str:
    """Return the commit that a repository has checked out, empty where that cannot be read."""
    folder = directory_of(git)
    try:
        head = (folder / "HEAD").read_text(encoding="ascii").strip()
        if not head.startswith("ref: "):
            return head
        return _commit_of(folder, head.removeprefix("ref: "))
    except (OSError, UnicodeDecodeError):
        return ""


def _commit_of(folder: Path, name: str) -> str:
    if ".." in name.split("/") or name.startswith("/"):
        return ""
    try:
        loose = folder / name
        if loose.is_file():
            return loose.read_text(encoding="ascii").strip()
        packed = (folder / "packed-refs").read_text(encoding="ascii").splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), "")
    except (OSError, UnicodeDecodeError):
        return ""
