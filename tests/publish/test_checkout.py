"""A job with the base's rights runs no commit but the base's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from onnx_gate.action.checkout import head_of, untrusted_checkout
from onnx_gate.github.run_context import RunContext

GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b")


def commit(folder: Path, text: str) -> str:
    (folder / "model.py").write_text(text)
    for arguments in (("add", "-A"), ("commit", "-qm", text)):
        subprocess.run([*GIT, *arguments], cwd=folder, check=True)
    return git(folder, "rev-parse", "HEAD")


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [*GIT, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-qb", "main")
    return tmp_path


def why(event: str, head: str, base: str, *folders: Path) -> str | None:
    context = RunContext(event, "a/b", head, 1, 1, "https://github.com", "", default_branch="main")
    return untrusted_checkout(context, base, [folder / ".git" for folder in folders])


@pytest.mark.parametrize("event", ["pull_request_target", "workflow_run"])
@pytest.mark.parametrize("detached", [False, True])
def test_the_heads_commit_is_refused_and_the_bases_is_not(
    event: str, detached: bool, repository: Path
) -> None:
    base = commit(repository, "base")
    git(repository, "checkout", "-qb", "feature")
    head = commit(repository, "head")
    for name, commit_id in (("main", base), ("feature", head)):
        git(repository, "checkout", "-q", *(["--detach"] if detached else []), name)
        git(repository, "pack-refs", "--all")
        assert head_of(repository / ".git") == commit_id
        refused = why(event, head, base, repository)
        assert (refused is None) == (name == "main")
        assert why("pull_request", head, base, repository) is None
    # A run of a push is of the very commit that is checked out.
    assert why(event, head, head, repository) is None


def test_a_second_checkout_beside_the_base_and_an_unknown_one_are_refused(
    repository: Path,
) -> None:
    base = commit(repository, "base")
    other = repository / "pr"
    git(repository, "clone", "-q", ".", "pr")
    head = commit(other, "head")
    assert why("pull_request_target", head, base, repository) is None
    assert why("pull_request_target", head, base, repository, other) is not None
    assert why("pull_request_target", head, base) is not None
    (repository / ".git/HEAD").write_text("ref: ../../etc/passwd\n")
    assert why("pull_request_target", head, base, repository) is not None


def test_the_merge_of_a_pull_request_is_refused_wherever_it_lies(repository: Path) -> None:
    """Neither the base's commit nor the head's is checked out, and the code is the head's."""
    base = commit(repository, "base")
    other = repository / "pr"
    git(repository, "clone", "-q", ".", "pr")
    git(other, "checkout", "-qb", "feature")
    head = commit(other, "head")
    git(other, "checkout", "-q", "--detach", "main")
    git(other, "merge", "-q", "--no-ff", "-m", "merge", "feature")
    assert why("pull_request_target", head, base, repository, other) is not None
    assert why("pull_request_target", head, base, other) is not None
    # Nor a commit before the head, nor a repository that nothing is known of.
    before, last = head, commit(other, "more")
    git(other, "checkout", "-q", before)
    assert why("pull_request_target", last, base, repository, other) is not None


def test_what_the_bases_branch_has_by_now_is_the_bases(repository: Path) -> None:
    base = commit(repository, "base")
    moved = commit(repository, "moved on")
    other = repository / "now"
    git(repository, "clone", "-q", ".", "now")
    for url, known in (
        ("https://github.com/a/b", True),
        ("https://github.com/A/b.git", True),
        ("https://github.com/stranger/b", False),
        ("https://example.com/a/b", False),
    ):
        git(other, "remote", "set-url", "origin", url)
        refused = why("pull_request_target", "0" * 40, base, other)
        assert (refused is None) == known, url
    git(other, "remote", "set-url", "origin", "https://github.com/a/b")
    # The head of a pull request from a branch of the repository's own is a head all the same.
    assert why("pull_request_target", moved, base, other) is not None
    git(other, "checkout", "-q", "--detach")
    assert why("workflow_run", "0" * 40, base, other) is None
    commit(other, "of nobody")
    assert why("workflow_run", "0" * 40, base, other) is not None


def test_a_submodule_is_the_bases_at_the_commit_that_the_base_names(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    inner = tmp_path_factory.mktemp("inner")
    git(inner, "init", "-qb", "main")
    commit(inner, "inner")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")
    base = commit(repository, "base")
    assert why("workflow_run", "0" * 40, base, repository, repository / "sub") is None
    commit(repository / "sub", "another")
    assert why("workflow_run", "0" * 40, base, repository, repository / "sub") is not None
