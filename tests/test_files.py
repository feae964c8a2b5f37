"""Whatever a model leaves behind can be walked and removed, and nothing beside it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnx_gate.files import MAX_DEPTH, plain_files_only, remove_tree, size, walk

DEPTH = 3000


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tree"
    folder.mkdir()
    yield folder
    # pytest's own removal is recursive.
    subprocess.run(["chmod", "-R", "u+rwX", tmp_path], check=False, capture_output=True)
    subprocess.run(["rm", "-rf", folder], check=True)


def nest(top: Path, depth: int, name: str = "deep-folder") -> None:
    """Make folders within folders, whose path is longer than any path may be."""
    folder = os.open(top, os.O_RDONLY)
    for level in range(depth):
        os.mkdir(name, dir_fd=folder)
        inner = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
        if level % 500 == 0:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)


def test_a_tree_deeper_than_python_recurses_is_removed(tree: Path) -> None:
    nest(tree, DEPTH)
    nest(tree, 100, "other")
    assert remove_tree(tree)
    assert not tree.exists()


def test_links_are_removed_and_not_followed(tree: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("here")
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "link").symlink_to(kept)
    (tree / "a" / "b" / "link").symlink_to(kept, target_is_directory=True)
    (tree / "a" / ".onnx-gate-0").mkdir()
    (tree / ".onnx-gate-0" / "x").mkdir(parents=True)
    assert [str(entry.path) for entry in walk(tree) if entry.is_file] == []
    assert remove_tree(tree)
    assert (kept / "file").read_text() == "here"
    (tmp_path / "tree").symlink_to(kept)
    assert remove_tree(tmp_path / "tree")
    assert (kept / "file").read_text() == "here"


@pytest.mark.skipif(os.getuid() == 0, reason="nothing is closed to root")
def test_closed_folders_are_removed(tree: Path) -> None:
    (tree / "a" / "b" / "c").mkdir(parents=True)
    (tree / "a" / "b" / "file").touch()
    (tree / "a" / "b").chmod(0o000)
    (tree / "a").chmod(0o500)
    assert remove_tree(tree)


def test_what_is_not_there_is_removed(tmp_path: Path) -> None:
    assert remove_tree(tmp_path / "nothing")
    assert remove_tree(tmp_path / "no" / "folder")
    file = tmp_path / "file"
    file.touch()
    assert remove_tree(file)
    assert not file.exists()


def test_only_plain_files_stay_and_nothing_deep(tree: Path, tmp_path: Path) -> None:
    (tree / "a").mkdir()
    (tree / "a" / "file").write_bytes(b"12345")
    (tree / "a" / "link").symlink_to(tmp_path)
    os.mkfifo(tree / "pipe")
    nest(tree / "a", DEPTH)
    plain_files_only(tree)
    left = list(walk(tree))
    assert size(tree) == 5
    assert all(entry.is_file or entry.is_folder for entry in left)
    assert max(len(entry.path.parts) for entry in left) < MAX_DEPTH


def test_the_caller_may_remove_what_it_is_shown(tree: Path) -> None:
    for name in "abc":
        (tree / name / "inner").mkdir(parents=True)
    shown = []
    for entry in walk(tree):
        shown.append(str(entry.path))
        if entry.name == "inner":
            os.rmdir(entry.name, dir_fd=entry.parent)
    assert shown == ["a", "a/inner", "b", "b/inner", "c", "c/inner"]
    assert sorted(str(entry.path) for entry in walk(tree)) == ["a", "b", "c"]
