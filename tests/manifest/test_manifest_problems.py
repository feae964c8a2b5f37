"""Problems as objects, and files, paths and numbers of problems that are out of the ordinary."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from onnx_gate.manifest import ManifestError, ManifestProblem, load, lookup, validate
from onnx_gate.pages import page
from onnx_gate.text import plain

Complaints = Callable[[str | bytes], list[str]]

TOP = "version: 1\nmodels:\n  m: {model: 'a:b', inputs: {}}\n"


def test_a_problem_names_the_file(workspace: Path) -> None:
    path = workspace / "onnx-gate.yml"
    path.write_text("version: 1\n")
    with pytest.raises(ManifestError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:1:1: the key 'models' is missing")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.problems, str(copy)) == (caught.value.problems, str(caught.value))


def test_a_problem_reads_like_a_compilers() -> None:
    problem = ManifestProblem(
        "onnx-gate.yml", 12, 7, "models.resnet18.tolerance", "unknown key 'atoll'"
    )
    assert str(problem) == "onnx-gate.yml:12:7: models.resnet18.tolerance: unknown key 'atoll'"


def test_no_message_has_a_line_break_or_an_escape(complaints: Complaints) -> None:
    found = complaints(TOP + '"a\\nb\\e[31m": 1\ntolerances: {"\\u202e": {auto: "\\e\\n"}}\n')
    assert len(found) == 3
    for line in found:
        assert line.isprintable()


def test_many_problems_are_cut(complaints: Complaints) -> None:
    found = complaints(TOP + "".join(f"key{index}: 1\n" for index in range(5000)))
    assert len(found) == 101
    assert found[-1].endswith(": only the first 100 problems are shown; fix these first")


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (validate, "".join(f"key{index}: 1\n" for index in range(3000))),
        (lookup, "defaults:\n  suites:\n" + "".join(f"    - s{index}\n" for index in range(3000))),
    ],
    ids=["keys", "suites"],
)
def test_the_time_for_many_problems_is_bounded(
    complaints: Complaints, monkeypatch: pytest.MonkeyPatch, module: ModuleType, text: str
) -> None:
    asked = []

    def count(name: str, known: object) -> str:
        asked.append(name)
        return ""

    monkeypatch.setattr(module, "did_you_mean", count)
    assert len(complaints(TOP + text)) == 101
    assert len(asked) <= 101


def test_a_link_out_of_the_workspace(complaints: Complaints, workspace: Path) -> None:
    (workspace / "models/outside.py").symlink_to(__file__)
    (workspace / "models/inside.py").symlink_to("resnet.py")
    (workspace / "loop.py").symlink_to("loop.py")
    assert complaints(TOP.replace("a:b", "models/outside.py:f")) == [
        "3:14: models.m.model: 'models/outside.py' leads out of the manifest's folder; "
        "keep the file inside it"
    ]
    assert "models.m.model" in complaints(TOP.replace("a:b", "loop.py:f"))[0]
    assert complaints(TOP.replace("a:b", "models/inside.py:f") + "x: 1\n") != []


@pytest.mark.parametrize("text", ["a" * 900 + ".py:f", "a/" * 400 + "b.py:f"])
def test_paths_that_no_file_system_takes(complaints: Complaints, text: str) -> None:
    (line,) = complaints(TOP.replace("a:b", text))
    assert line.startswith("3:14: models.m.model: no such file: 'a")


def test_files_that_cannot_be_read(workspace: Path) -> None:
    def complaint(path: Path) -> str:
        with pytest.raises(ManifestError) as caught:
            load(path)
        (problem,) = caught.value.problems
        return str(problem).partition(plain(path))[2]

    missing = workspace / "none.yml"
    assert complaint(missing) == f":1:1: no such file; write one: {page('manifest.md')}"
    assert complaint(workspace) == ":1:1: this is a folder; name the manifest in it"
    assert "no such file" in complaint(workspace / "models/resnet.py/x.yml")
    assert "no such file" in complaint(Path("a\0b"))
    os.mkfifo(workspace / "pipe")
    assert complaint(workspace / "pipe") == ":1:1: this is not a regular file; name a manifest"
    large = workspace / "large.yml"
    large.write_bytes(b"#" * (2**20 + 1))
    assert complaint(large) == ":1:1: larger than 1048576 bytes; split the manifest"
    latin = workspace / "latin.yml"
    latin.write_bytes(b"version: 1\n# caf\xe9\n")
    assert complaint(latin) == ":2:6: this is not UTF-8 text; save the file as UTF-8"
