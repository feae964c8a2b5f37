"""Pages that somebody follows say what happens: every block is run, every sample is of today."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
import yaml

from onnx_gate.manifest.load import load
from onnx_gate.report.join.verdict import count, overall
from onnx_gate.report.render import terminal
from onnx_gate.report.story.view import View
from tests.support.gate import ROOT, Run, gate
from tools.transcripts import PAGES, README, alike, fences, follow, samples

pytestmark = pytest.mark.process

HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
# Of each kind one that is cheap: texts and masks, indices, missing values, files and generators.
RUN = ("graphs", "real-data", "tabular")


@pytest.fixture(scope="session")
def how_to(once: Callable[..., Path]) -> Path:
    """The files of all how-tos, as somebody would copy them."""

    def fill(folder: Path) -> None:
        for page in HOW_TO:
            for fence in fences(page.read_text(encoding="utf-8")):
                if fence.title:
                    file = folder / fence.title
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(fence.text, encoding="utf-8")
        (folder / "tests" / "data").mkdir()

    return once("how-to", fill)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_that_is_followed_says_what_happens(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    languages = {fence.language for fence in fences(text) if not fence.title}
    assert languages <= {"console", "sh"}
    installs = [f.text for f in fences(text) if f.language == "sh"]
    assert installs == ["pip install onnx-gate\n"]
    # What is tried of remedies in a share of the run's seconds hangs on who else has the cores.
    folders = [tmp_path / name for name in ("once", "again")]
    for folder in folders:
        folder.mkdir()
        made = alike(follow(text, folder))
        if made == alike(text):
            break
    assert made == alike(text), "python -m tools.transcripts"


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_the_manifests_of_a_how_to_have_no_mistakes(page: Path, how_to: Path) -> None:
    for fence in fences(page.read_text(encoding="utf-8")):
        if fence.title.endswith(".yml") and not fence.title.startswith("."):
            assert load(how_to / fence.title).models


@pytest.mark.slow
def test_the_models_of_how_tos_pass(how_to: Path, tmp_path: Path) -> None:
    shutil.copytree(how_to, tmp_path, dirs_exist_ok=True)
    subprocess.run([sys.executable, "tests/store.py"], cwd=tmp_path, check=True, timeout=60)
    together: dict[str, Any] = {"version": 1, "suites": {}, "models": {}}
    for name in RUN:
        manifest = yaml.safe_load((tmp_path / f"{name}.yml").read_text(encoding="utf-8"))
        together["suites"] |= manifest.get("suites", {})
        together["models"] |= manifest["models"]
    (tmp_path / "together.yml").write_text(yaml.safe_dump(together), encoding="utf-8")
    done = gate("run", "--quiet", "--manifest", "together.yml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("clock", ["49.5 s", "1 min 02 s", "1 h 00 min 02 s"])
def test_how_long_a_run_takes_makes_no_other_sample(clock: str) -> None:
    assert alike(f"good: 3 compared\n{clock} on the clock, 9 s of work\npass") == alike(
        "good: 3 compared\npass"
    )


def test_another_processor_makes_no_other_sample_and_another_sentence_does() -> None:
    here = "[1/1] pass m 60 % of the tolerance used\nclosest: edges/zeros/batch=7 at -1.5\n"
    there = "[1/1] pass m 8.1 % of the tolerance used\nclosest: typical/batch=1,seq=2/0 at 2.25\n"
    assert alike(here) == alike(there)
    assert alike(here) != alike(here.replace("closest", "worst"))


@pytest.mark.slow
def test_the_samples_of_the_readme_are_of_today(verify_manifest: Callable[..., Run]) -> None:
    shown = list(samples(README.read_text(encoding="utf-8")))
    assert len(shown) == 1
    for manifest, names, output in shown:
        whole = verify_manifest(str(ROOT / manifest)).report
        models = tuple(model for model in whole.models if model.name in names)
        assert len(models) == len(names)
        part = {"models": models, "counts": count(models), "verdict": overall(models)}
        view = View(manifest_path=manifest, options=f"--manifest {manifest}")
        today = terminal.render(whole.model_copy(update=part), view)
        today = today[today.index("\nModel ") :]
        assert alike(output).strip() == alike(today).strip(), "python -m tools.transcripts"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_notebook_shows_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(ROOT / "docs" / "how-to" / "notebook.ipynb", as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=200, resources=resources).execute()
    shown = notebook.cells[2].outputs[-1].data
    assert shown["text/plain"] == "<Report diverged: Ranker diverged>"
    assert "a size is baked into it" in shown["text/html"]
    assert "<table>" in shown["text/html"]
    assert notebook.cells[3].outputs[-1].data["text/plain"] == "'pass'"


def test_the_site_is_built_strictly(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "tutorial" / "index.html").read_text(encoding="utf-8")
    assert '<script src="http' not in page
    assert "fonts.googleapis" not in page
