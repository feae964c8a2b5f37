"""The models' packages are installed beside the gate, and never over it."""

from __future__ import annotations

import os
import subprocess
import textwrap
import zipfile
from pathlib import Path

import pytest

from onnx_gate.action.requirements import MOST_LINES, install, why

pytestmark = pytest.mark.process

# What pip 26 printed of a package whose setup.py calls a compiler that is not there.
TAIL = """\
  error: subprocess-exited-with-error

  × Building wheel for fast (pyproject.toml) did not run successfully.
  │ exit code: 1
  ╰─> [7 lines of output]
      running bdist_wheel
      building 'fast' extension
      error: command 'gcc' failed: No such file or directory
      [end of output]

  note: This error originates from a subprocess, and is likely not a problem with pip.
  ERROR: Failed building wheel for fast
ERROR: Failed to build installable wheels for some pyproject.toml based projects (fast)
""".splitlines()


def wheel(folder: Path, name: str, module: str) -> str:
    file = folder / f"{name}-9.0-py3-none-any.whl"
    info = f"{name}-9.0.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{module}/__init__.py", "ORIGIN = 'a requirement'\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return f"./{file.name}"


def test_the_gate_that_verifies_is_never_one_of_the_requirements(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text(wheel(tmp_path, "helper", "helper") + "\n")
    shadow = wheel(tmp_path, "shadow", "onnx_gate")
    asked = tmp_path / "requirements.txt"
    asked.write_text(f"onnx_gate==99.0  # for developers\n-r more.txt\n{shadow}\n")
    said: list[str] = []
    (tmp_path / "run").mkdir()
    done = install(asked, tmp_path / "run/site", (), tmp_path, said.append)
    assert done.problem is None, done.tail
    code = "import helper; print(helper.ORIGIN)"
    ended = subprocess.run([done.python, "-c", code], capture_output=True, text=True)
    assert ended.stdout == "a requirement\n", ended.stderr
    assert not list((tmp_path / "run/site").rglob("onnx_gate*"))
    assert any("the image's own" in line for line in said)


def test_a_flood_of_lines_is_cut_and_its_end_is_shown(tmp_path: Path) -> None:
    package = tmp_path / "flood"
    package.mkdir()
    (package / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbackend-path = ["."]\nbuild-backend = "backend"\n'
    )
    (package / "backend.py").write_text(
        f"for number in range({4 * MOST_LINES}):\n    print('water', number)\nraise SystemExit('drowned')\n"
    )
    asked = tmp_path / "requirements.txt"
    asked.write_text("./flood\n")
    said: list[str] = []
    (tmp_path / "run").mkdir()
    done = install(asked, tmp_path / "run/site", (), tmp_path, said.append)
    assert done.problem is not None
    assert MOST_LINES < len(said) < MOST_LINES + 100
    assert any("more lines, the last of them:" in line for line in said)
    assert tuple(said[-len(done.tail) :]) == done.tail


def test_no_gate_is_removed_by_way_of_a_link(tmp_path: Path) -> None:
    """Whoever builds a package may put one into the environment that it is installed into."""
    precious = tmp_path / "vendor" / "site-packages" / "onnx_gate_precious"
    precious.mkdir(parents=True)
    source = tmp_path / "package"
    source.mkdir()
    backend = f"""
        import os
        import shutil

        def build_wheel(folder, settings=None, metadata=None):
            os.symlink({str(tmp_path / "vendor")!r}, {str(tmp_path / "run/site/lib/python9")!r})
            return shutil.copy({wheel(tmp_path, "helper", "helper")!r}, folder).split("/")[-1]
        """
    (source / "backend.py").write_text(textwrap.dedent(backend))
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "helper"\nversion = "9.0"\n'
    )
    os.rename(tmp_path / "helper-9.0-py3-none-any.whl", source / "helper-9.0-py3-none-any.whl")
    asked = tmp_path / "requirements.txt"
    asked.write_text("./package\n")
    (tmp_path / "run").mkdir()
    done = install(asked, tmp_path / "run/site", (), tmp_path, lambda _: None)
    assert done.problem is None, done.tail
    assert (tmp_path / "run/site/lib/python9").is_symlink()
    assert precious.is_dir()


def test_the_innermost_error_is_part_of_the_reason() -> None:
    said = why(1, TAIL)
    assert "Failed to build installable wheels" in said
    assert said.endswith("(command 'gcc' failed: No such file or directory)")
    assert "subprocess-exited" not in said
    assert why(1, ["      ModuleNotFoundError: No module named 'torch'"]).endswith("named 'torch')")
