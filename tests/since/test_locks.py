"""Which releases each kind of file names, asked of uv and of pip, with wheels in a folder as the index."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from onnx_gate.errors import UserError
from onnx_gate.since.environments import Installer, installer
from onnx_gate.since.locks import needed, read_pins
from onnx_gate.since.releases import parse_range, releases
from tests.support.wheels import wheel

pytestmark = pytest.mark.process

LOCKED = """version = 1

[[{0}]]
{1} = "{2}"
{3} = "{4}"
source = {{}}

[[{0}]]
name = "b"
version = "3"
dependencies = [{{ name = "c" }}]

[[{0}]]
name = "here"
source = {{ virtual = "." }}

[[{0}]]
name = "onnx-gate"
version = "0"
"""
LISTED = "Torch_Vision[x]==0.1 ; python_version > '3'  # why\n\nb==3 \\\n    --hash=sha256:0\n"
PROJECT = """[project]
name = "mine"
version = "7"
dependencies = ["torch-vision<0.2", "b==3"]
"""
FILES = {
    "requirements.txt": LISTED,
    "constraints.txt": LISTED,
    "open.txt": "torch-vision<0.2\n-r more.in\n",
    "uv.lock": LOCKED.format("package", "name", "Torch.Vision", "version", "0.1"),
    # Whoever formats a lock anew changes nothing of what it says.
    "poetry.lock": LOCKED.format("package", "version", "0.1", "name", "torch-vision"),
    "pylock.toml": LOCKED.format("packages", "name", "torch-vision", "version", "0.1"),
    "pyproject.toml": PROJECT,
}


@pytest.fixture(params=["uv", "pip"])
def packages(request: pytest.FixtureRequest, tmp_path: Path) -> Installer:
    for version in ("0.1", "0.2"):
        wheel(tmp_path / "wheels", "torch_vision", version, "", needs=["c"])
    for version in ("3", "4"):
        wheel(tmp_path / "wheels", "b", version, "")
    found = installer([tmp_path / "wheels"], no_index=True)
    if request.param == "uv" and found.uv is None:
        pytest.skip("needs uv")
    uv = found.uv if request.param == "uv" else None
    return replace(found, uv=uv, cache=tmp_path / "cache")


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_names_its_releases(
    tmp_path: Path, name: str, packages: Installer
) -> None:
    (tmp_path / "more.in").write_text("b!=4\n")
    (tmp_path / name).write_text(FILES[name])
    assert read_pins(tmp_path / name, packages) == {"torch-vision": "0.1", "b": "3"}


def test_what_is_left_open_is_as_it_is_here_where_it_may_be(packages: Installer) -> None:
    assert packages.named(["b"], {"b": "3"}) == {"b": "3"}
    assert packages.named(["b>3"], {"b": "3"}) == {"b": "4"}


def test_what_comes_before_a_release_is_none(tmp_path: Path, packages: Installer) -> None:
    wheel(tmp_path / "wheels", "b", "5.0.dev1", "")
    found, _ = releases("b", parse_range("3..5"), packages)
    assert [str(each) for each in found] == ["3", "4"]


def test_an_environment_has_its_own_release_and_those_of_here(packages: Installer) -> None:
    environment = packages.environment({"b": "3"})
    code = "from importlib.metadata import version as v; import b, onnx_gate; print(v('b'), v('torch'))"
    done = subprocess.run(
        [environment.python, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["3", metadata.version("torch")]
    assert packages.environment({"b": "3"}) == environment


@pytest.mark.parametrize("name", ["uv.lock", "pylock.toml", "constraints.txt"])
def test_a_lock_needs_of_what_it_names_what_is_here(name: str) -> None:
    pins = {"numpy": "1", "nothing-of-that-name": "1"}
    assert needed(Path(name), pins) == {"numpy": "1"}
    assert needed(Path("requirements.txt"), pins) == needed(Path("pyproject.toml"), pins) == pins


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("requirements.txt", "nothing-of-that-name>=1\n", "what it asks for cannot be told"),
        ("uv.lock", "[[package]\n", r"uv.lock: .*line 1.*name a file of requirements, or a lock"),
        ("pyproject.toml", "[tool.poetry]\n", "names no release of any package"),
    ],
)
def test_a_file_that_says_nothing_is_refused(
    tmp_path: Path, name: str, text: str, says: str, packages: Installer
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=says):
        read_pins(tmp_path / name, packages)
