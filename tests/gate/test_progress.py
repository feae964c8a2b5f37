from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from onnx_gate.gate.progress import LiveProgress, PlainProgress, ProgressDisplay, make_progress

HOSTILE = [
    "::error file=x::forged",
    "  ::add-mask::x",
    "##[error]forged",
    "#\x00#\x1b[0m[group]forged",
    "\x1b]0;title\x07\x1b[2Jgone",
    "a\r::error::b\n::error::c",
    "a\u2028::error::d",
    "[bold red]markup[/] :smile: [/nothing]",
    "\u202egnp.exe",
]


def terminal(width: int = 100) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)


def pipe(width: int = 40) -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=width)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def obeyed(text: str) -> list[str]:
    """What a GitHub runner would take for commands, as it reads a log."""
    found: list[str] = []
    resume: str | None = None
    for line in re.split(r"[\r\n\u2028\u2029]", text):
        command = line.strip()
        if resume is not None:
            if command == f"::{resume}::":
                resume = None
        elif command.startswith("::stop-commands::"):
            resume = command.removeprefix("::stop-commands::")
        elif command.startswith("::") or "##[" in line:
            found.append(line)
    return found


@pytest.mark.parametrize(
    ("console", "ci", "github", "kind"),
    [
        (terminal(), False, False, LiveProgress),
        (terminal(), True, False, PlainProgress),
        (terminal(), False, True, PlainProgress),
        (pipe(), False, False, PlainProgress),
    ],
)
def test_the_display_suits_the_console(
    console: Console, ci: bool, github: bool, kind: type[ProgressDisplay]
) -> None:
    progress = make_progress(console, 1, ci=ci, github_actions=github)
    progress.close()
    assert type(progress) is kind


def test_plain_lines() -> None:
    console = pipe()
    progress = make_progress(console, 12, ci=True)
    progress.started("a")
    progress.stage("a", "export")
    progress.finished(
        "a", "pass", "24 checks, 9 % of the tolerance, and more words than fit a line"
    )
    progress.finished("b", "diverged", "")
    progress.finished("c", "error", "killed by SIGSEGV", ["one", "", "two"])
    progress.aside("trying what makes 2 models green")
    progress.close()
    assert written(console).splitlines() == [
        "[ 1/12] pass      a  24 checks, 9 % of the tolerance, and more words than fit a line",
        "[ 2/12] diverged  b",
        "[ 3/12] error     c  killed by SIGSEGV",
        "  | one",
        "  | ",
        "  | two",
        "trying what makes 2 models green",
    ]


def test_log_is_grouped_and_fenced_on_github() -> None:
    console = pipe()
    progress = make_progress(console, 1, ci=True, github_actions=True)
    progress.finished("net 50%", "error", "crashed", ["::error::x", "y"])
    summary, group, fence, *lines, unfence, end = written(console).splitlines()
    assert summary == "[1/1] error     net 50%  crashed"
    assert group == "::group::net 50%25"
    assert lines == ["  | ::error::x", "  | y"]
    token = fence.removeprefix("::stop-commands::")
    assert re.fullmatch(r"[0-9a-f]{32}", token)
    assert (unfence, end) == (f"::{token}::", "::endgroup::")


def test_no_group_without_a_log_and_no_token_twice() -> None:
    console = pipe()
    progress = make_progress(console, 3, ci=True, github_actions=True)
    progress.finished("a", "pass", "fine")
    assert "::" not in written(console)
    progress.finished("b", "error", "x", ["log"])
    progress.finished("c", "error", "x", ["log"])
    tokens = re.findall("::stop-commands::(.*)", written(console))
    assert len(set(tokens)) == 2


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("github", [True, False])
def test_no_text_of_a_model_is_obeyed(text: str, github: bool) -> None:
    console = pipe(20)
    progress = make_progress(console, 1, ci=True, github_actions=github)
    progress.started(text)
    progress.stage(text, text)
    progress.finished(text, "error", text, [text, text * 50])
    progress.close()
    commands = [line.partition("::")[2].partition("::")[0] for line in obeyed(written(console))]
    assert commands == (["group", "endgroup"] if github else [])
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u2028\u2029\u202e]", written(console))
    assert all(len(line) < 1200 for line in written(console).split("\n"))


def test_markup_is_shown_as_it_is() -> None:
    console = pipe()
    make_progress(console, 1, ci=True).finished("[bold]a[/x]", "pass", ":smile:", ["[red]"])
    assert written(console) == "[1/1] pass      [bold]a[/x]  :smile:\n  | [red]\n"


def live_text(progress: LiveProgress) -> str:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(progress._render())
    return written(console)


def test_live_table() -> None:
    time = 100.0
    console = terminal()
    progress = LiveProgress(console, 3, clock=lambda: time)
    try:
        progress.started("resnet")
        progress.stage("resnet", "build")
        time = 100.25
        progress.stage("resnet", "export")
        progress.stage("unknown", "export")
        time = 175.9
        progress.started("[b]bert[/b]\n\x1b[2J")
        lines = live_text(progress).splitlines()
        assert [line.split()[1:] for line in lines[:2]] == [
            ["resnet", "build", "0.2,", "export", "1:15", "1:15"],
            ["[b]bert[/b]", "0:00"],
        ]
        assert lines[2:] == ["0/3 models, 1:15"]
        progress.finished("resnet", "diverged", "[i]6 times[/i] the tolerance", ["[red]log\x07"])
        assert "resnet" not in live_text(progress)
        assert "1/3 models" in live_text(progress)
    finally:
        progress.close()
        progress.close()
    assert "[1/3] diverged  resnet  [i]6 times[/i] the tolerance" in written(console)
    assert "  | [red]log\n" in written(console).replace("\r", "")


@pytest.mark.parametrize("text", HOSTILE)
def test_live_display_passes_no_escapes_on(text: str) -> None:
    console = terminal()
    progress = LiveProgress(console, 1)
    try:
        progress.started(text)
        progress.stage(text, text)
        live = live_text(progress)
        progress.finished(text, "error", text, [text])
    finally:
        progress.close()
    for output in (live, written(console)):
        assert not re.search(r"\x1b\]|\x1b\[2J|\x07|\x00|\u202e|\u2028", output)
