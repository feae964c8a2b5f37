"""The command line on a real terminal: its width, its colours, and no word cut in two."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.cells import cell_len

from onnx_gate.report.io import to_json, write_text
from onnx_gate.report.render.terminal import render
from tests.support.report.scenes import diverged

pytestmark = pytest.mark.process

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
COMMANDS = ("    replay: ", "    again: ")


def on_a_terminal(
    arguments: list[str], columns: int, folder: Path, settings: Mapping[str, str] = {}
) -> str:
    """Run the command line on a terminal of ``columns`` and return all that it writes there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    left_out = ("CI", "GITHUB_ACTIONS", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM")
    kept = {k: v for k, v in os.environ.items() if k not in left_out}
    process = subprocess.Popen(
        [sys.executable, "-m", "onnx_gate", *arguments],
        cwd=folder,
        env={**kept, "TERM": "xterm-256color", **settings},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:
            part = b""  # nobody has the other end open any more
        if not part:
            break
        written += part
    os.close(ours)
    process.wait(60)
    return written.decode().replace("\r\n", "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_text(tmp_path / "report.json", to_json(diverged()))
    return tmp_path


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_no_word_is_cut_at_any_width(folder: Path, columns: int) -> None:
    text = ESCAPE.sub("", on_a_terminal(["report", "report.json"], columns, folder))
    lines = [line for line in text.splitlines() if not line.startswith(COMMANDS)]
    for line in lines:
        assert cell_len(line.rstrip()) <= columns or len(line.split()) == 1, line
    # The same words as on a wide one: nothing is cut, and nothing is left out but two columns.
    words, wide = set(text.split()), set(render(diverged()).split())
    for word in (
        "edges/large/batch=2",
        "typical/batch=2/0",
        "models/gpt.py:7.",
        "onnx-gate.yml:31.",
    ):
        assert word in wide
        assert word in words or f"{word}:" in words
    assert text.startswith("3 of 6 models diverged")


@pytest.mark.parametrize(
    ("settings", "coloured"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ],
)
def test_colours_are_what_the_terminal_wants(
    folder: Path, settings: dict[str, str], coloured: bool
) -> None:
    text = on_a_terminal(["report", "report.json"], 100, folder, settings)
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]m", text)) == coloured


@pytest.mark.slow
def test_a_run_keeps_its_words_too(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "import torch\n\n\nclass Baked(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x * 2 if x.shape[0] > 4 else x + 1\n"
    )
    (tmp_path / "onnx-gate.yml").write_text(
        'version: 1\nmodels:\n  baked: {model: "m.py:Baked", inputs: {x: "float32[batch_of_rows, 3]"}, '
        "dims: {batch_of_rows: [2, 7]}, suites: [{edges: [zeros, ones]}]}\n"
    )
    text = ESCAPE.sub("", on_a_terminal(["run"], 60, tmp_path))
    progress, end = text.rsplit("baked: at batch_of_rows=7", 1)
    for part in (progress, end):
        assert "edges/zeros/batch_of_rows=7" in part or "edges/ones/batch_of_rows=7" in part
    for line in end.splitlines():
        fits = cell_len(line.rstrip()) <= 60 or len(line.split()) == 1
        assert fits or line.startswith(COMMANDS), line
