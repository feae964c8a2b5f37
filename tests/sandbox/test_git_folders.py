"""What the models may open of a workspace: all of it but for ``.git``, and what nobody looked into."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_gate.files import remove_tree
from onnx_gate.sandbox.git_folders import survey


def plant(top: Path, paths: Iterable[str]) -> None:
    for path in paths:
        (top / path).mkdir(parents=True, exist_ok=True)
        (top / path / "file").write_text("")


def names(top: Path, paths: Iterable[Path | str]) -> set[str]:
    return {Path(path).relative_to(top).as_posix() for path in paths}


def covered(top: Path, rest: Iterable[str]) -> set[str]:
    """Every file that can be opened where the paths of ``rest`` stand for all beneath them."""
    found: set[str] = set()
    for path in map(Path, rest):
        files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        found |= names(top, files)
    return found


def test_a_workspace_without_git_is_one_path(tmp_path: Path) -> None:
    plant(tmp_path, ["models", "data/deep"])
    assert survey(tmp_path).rest == (str(tmp_path),)


def test_every_git_folder_is_left_out_wherever_it_is(tmp_path: Path) -> None:
    plant(tmp_path, [".git", "models", "vendor/lib/.git/objects", "vendor/lib/src"])
    (tmp_path / "worktree").mkdir()
    (tmp_path / "worktree" / ".git").write_text("gitdir: /elsewhere")
    (tmp_path / "vendor" / "link").symlink_to("lib/.git")
    found = survey(tmp_path)
    assert names(tmp_path, found.git) == {".git", "vendor/lib/.git", "worktree/.git"}
    assert covered(tmp_path, found.rest) == {"models/file", "vendor/lib/src/file"}
    assert found.unknown == ()


@pytest.mark.parametrize(("most", "deepest"), [(3, 99), (99, 2)])
def test_what_was_not_looked_into_is_left_out_as_if_it_were_git_s(
    most: int, deepest: int, tmp_path: Path
) -> None:
    plant(tmp_path, ["a/b/c/.git", "a/b/d", "z/y/x/.git"])
    found = survey(tmp_path, most, deepest)
    assert found.unknown
    open_files = covered(tmp_path, found.rest)
    assert not [path for path in open_files if ".git" in path]
    assert not any(
        Path(path).is_relative_to(unknown) for path in open_files for unknown in found.unknown
    )


def test_folders_as_deep_as_a_path_is_long_are_no_recursion(tmp_path: Path) -> None:
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        for _ in range(1500):
            os.mkdir("d")
            os.chdir("d")
        os.mkdir(".git")
        found = survey(tmp_path)
    finally:
        os.chdir(here)
        # pytest's own removal recurses.
        remove_tree(tmp_path / "d")
    assert len(found.unknown) == 1
    assert not found.git


@given(st.sets(st.lists(st.sampled_from(["a", "b", ".git"]), min_size=1, max_size=4).map("/".join)))
def test_what_is_open_is_exactly_what_is_not_below_git(
    tmp_path_factory: pytest.TempPathFactory, paths: set[str]
) -> None:
    top = tmp_path_factory.mktemp("workspace")
    plant(top, paths)
    files = {f"{path}/file" for path in paths}
    expected = {path for path in files if ".git" not in path.split("/")}
    assert covered(top, survey(top).rest) == expected
