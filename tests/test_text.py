from __future__ import annotations

from collections.abc import Sequence
from unicodedata import category, normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onnx_gate.runtimes.base import first_line
from onnx_gate.text import COMMAND_LIMIT, MAX_LINE, last_lines, plain, printed, workflow_command

SPITEFUL = st.text(max_size=40) | st.text(
    alphabet="#[:%\x1b\x9b\r\n\t ]0m\u200b\u0338=a", max_size=30
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("\x1b(Bplain\x1b", "plain"),
        ("a\tb\r\nc", "a b c"),
        ("naïve ✓ 漢", "naïve ✓ 漢"),
        ("x\ud800y\u200by", "xyy"),
        ("=\u200b\u0338", "\u2260"),
        ("no" + "\u00a0" * 2 + "\u3164break", "no   break"),
        ("\u202egnp.exe", "gnp.exe"),
        ("\u1fef", "`"),
        ("  at the start ", "at the start"),
        ("z" * 600, "z" * 499 + "…"),
    ],
)
def test_plain(text: str, shown: str) -> None:
    assert plain(text, MAX_LINE) == shown


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", ()),
        (b"a\n\n \nb\n", ("a", "b")),
        (b"1\n2\n3\n4", ("2", "3", "4")),
        (b"\r1 %\r50 %\r100 %\r\n", ("100 %",)),
        (b"\xff\x00bad", ("\ufffdbad",)),
    ],
)
def test_last_lines(data: bytes, lines: Sequence[str]) -> None:
    assert last_lines(data, 3) == lines


@given(SPITEFUL)
def test_no_text_is_more_than_one_line_of_visible_characters(text: str) -> None:
    shown = plain(text)
    assert all(character.isprintable() for character in shown)
    assert normalize("NFC", shown) == shown
    assert not shown or category(shown[0])[0] != "M"
    assert plain(shown) == shown


@example("0\xa00")
@given(SPITEFUL)
def test_a_runner_takes_no_text_for_a_command(text: str) -> None:
    assert "##[" not in printed(text)
    assert not any(word.startswith("::") for word in printed(text).split())
    command = workflow_command("error", text, {"file": text, "line": 0})
    assert all(c.isprintable() or c == "\t" or category(c) == "Zs" for c in command)
    assert len(command.splitlines()) == 1
    head, _, message = command.removeprefix("::error").partition("::")
    assert "line=" not in head
    assert ":" not in head
    assert "##[" not in command
    assert len(message) <= COMMAND_LIMIT


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("nor this")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("\n  half \ud83d a character\nmore"), "half ? a character"),
        (Mute(), "Mute"),
        (OSError("\udcff.npz"), "?.npz"),
    ],
)
def test_an_error_has_a_line_that_a_report_can_hold(error: Exception, line: str) -> None:
    assert first_line(error) == line
