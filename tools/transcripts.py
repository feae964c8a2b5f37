"""Pages that somebody can follow: their files written, their commands run, their output kept true.

A fence with a title is a file, ``console`` is a shell: a line that begins with ``$`` is a command, what
follows it is the output that it had. ``python -m tools.transcripts`` follows pages from the top and writes
the output anew; tests/test_transcripts.py follows them and compares. Of the README only what verifies
the examples is run, and compared with the report of a run that other tests need too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "docs" / "tutorial.md", ROOT / "docs" / "init.md")
README = ROOT / "README.md"
EXAMPLES = "--manifest examples/"
_FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)
_NUMBER = re.compile(r"[-×]?\d[\d.,  ]*(?:e[+-]?\d+)?\+?")
_TIMES = re.compile(
    r"^(?:stages: |slowest: |\d[^\n]*? s on the clock|report: |.*for want of time).*\n"
    r"|\(start \d.*? s\)",
    re.M,
)
# Which of the cases is the nearest to its limit depends on the processor's last bits.
_CASE = re.compile(r"\b(?:typical|random|edges|reached)[/_][^\s;:,]+(?:,\w+=[^\s;:,]+)*")
_SECONDS = 300


@dataclass(frozen=True)
class Fence:
    """A block of a page: ``title`` is the path of a file, ``start`` and ``end`` those of its text."""

    language: str
    title: str
    text: str
    start: int
    end: int


def fences(page: str) -> Iterator[Fence]:
    """Yield the blocks of a page, from the top."""
    for match in _FENCE.finditer(page):
        yield Fence(match[1], match[2] or "", match[3], *match.span(3))


def follow(page: str, folder: Path, only: str = "") -> str:
    """Do what a page says, in ``folder``; return the page with the output of today.

    Of the commands, those in a block that has ``only`` in it.
    """
    written: list[str] = []
    last = 0
    for fence in fences(page):
        if fence.title:
            file = folder / fence.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(fence.text, encoding="utf-8")
        elif fence.language == "console" and only in fence.text:
            written += [page[last : fence.start], _played(fence.text, folder)]
            last = fence.end
    return "".join(written) + page[last:]


def samples(page: str) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield the manifest, the models and the output of each block that verifies examples."""
    for fence in fences(page):
        if fence.language == "console" and EXAMPLES in fence.text:
            output = fence.text[fence.text.index("\nModel ") :]
            models = tuple(re.findall(r"--model (\S+)", fence.text.partition("\n\n")[0]))
            yield re.findall(r"--manifest (\S+)", fence.text)[0], models, output


def alike(text: str) -> str:
    """Return a page without what differs between machines: numbers, cases, how lines are filled."""
    text = _CASE.sub("case", _TIMES.sub("", text))
    text = re.sub(r"# ?%", "#", _NUMBER.sub("#", text))
    return re.sub(r"\s+", " ", re.sub(r" ?-{3,}", "", text))


def _played(text: str, folder: Path) -> str:
    shown: list[str] = []
    for command in re.findall(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)", text, re.M):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
        )
        lines = [line.rstrip() for line in done.stdout.splitlines()]
        shown += [f"$ {command}", *lines, *([""] if lines else [])]
    return "\n".join(shown).rstrip() + "\n"


def _environment() -> Mapping[str, str]:
    """A person's shell: neither CI nor somebody's settings of git."""
    kept = {k: v for k, v in os.environ.items() if k not in ("CI", "GITHUB_ACTIONS", "COLUMNS")}
    git = {
        f"GIT_{who}_{what}": "you@example.org"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**kept, **git, "PATH": path, "GIT_CONFIG_GLOBAL": os.devnull, "COLUMNS": "120"}


def main() -> None:
    """Write the output of the pages anew."""
    for page in (*PAGES, README):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "examples").symlink_to(ROOT / "examples")
            only = EXAMPLES if page == README else ""
            text = follow(page.read_text(encoding="utf-8"), Path(folder), only)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
