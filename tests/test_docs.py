"""The pages say what the code says, and their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onnx_gate.findings import CATALOGUE
from tests.support.gate import PACKAGES, ROOT, gate
from tools.generate import generated

pytestmark = pytest.mark.process

PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/**/README.md")]
    if not {".venv", "onnx-gate-report", "node_modules"} & set(page.parts)
)
_FENCE = re.compile(r"^(`{3,}).*?^\1", re.M | re.S)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


# Files that a run makes, and the one that a recipe makes up.
_OF_USERS = {"report.json", "report.html", "onnx_gate/findings/texts/OG123.md"}


def _own(path: Path) -> bool:
    return not {".venv", ".git", "__pycache__", "node_modules"} & set(path.parts)


def _anchors(page: Path) -> set[str]:
    """GitHub's anchors: lower case, punctuation dropped, spaces as hyphens."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+\s+(.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_is_dead(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    dead = []
    for target in _LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in _anchors(file)):
            dead.append(target)
    assert dead == []


def test_what_the_pages_for_contributors_name_is_there() -> None:
    """Paths in backticks, which say where from the folder that is spoken of or from the root."""
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if _own(path)}
    for page in ("ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md"):
        text = _FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
        named = set(re.findall(r"`([\w./-]+(?:/|\.(?:py|md|toml|yml|json)))`", text)) - _OF_USERS
        gone = {
            n for n in named if not any(f"/{each}".endswith(f"/{n.rstrip('/')}") for each in files)
        }
        assert gone == set(), page


GENERATED = generated()


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_generated_files_are_current(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == GENERATED[path], "run make docs"


def test_every_code_of_the_catalogue_is_raised_somewhere() -> None:
    used: set[str] = set()
    for file in (p for name in PACKAGES for p in (ROOT / name).rglob("*.py")):
        if "findings" not in file.parts:
            used |= set(re.findall(r"\bcodes\.(OG\d{3})\b", file.read_text(encoding="utf-8")))
    assert used == set(CATALOGUE)


@pytest.mark.parametrize("code", ["OG102", "og102"])
def test_explain(code: str, tmp_path: Path) -> None:
    finished = gate("explain", code, cwd=tmp_path)
    assert finished.returncode == 0
    assert "baked into the graph" in finished.stdout
    assert "How to fix it" in finished.stdout


def test_explain_an_unknown_code(tmp_path: Path) -> None:
    finished = gate("explain", "OG1O2", cwd=tmp_path)
    assert finished.returncode == 2
    assert "did you mean OG1" in finished.stderr


def test_the_readme_names_every_command(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\W*(\w+)  ", gate("--help", cwd=tmp_path).stdout, re.M)
    commands = {"run", "check", "report", "explain", "schema"}
    assert commands <= set(listed)
    for command in commands:
        assert f"onnx-gate {command}" in readme


def test_the_index_names_every_page_once() -> None:
    docs = ROOT / "docs"
    linked = re.findall(r"\(([\w/.-]+\.md)\)", (docs / "index.md").read_text(encoding="utf-8"))
    pages = {str(path.relative_to(docs)) for path in docs.glob("*.md")}
    pages |= {str(path.relative_to(docs)) for path in docs.glob("how-to/*.md")}
    assert sorted(linked) == sorted(pages - {"index.md"})
