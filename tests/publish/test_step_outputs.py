"""What is written to the runner's file is what the runner reads from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_gate.github.step_outputs import append_outputs, format_output, outputs_of
from tests.support.report.scenes import diverged

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,10}", fullmatch=True)
values = st.text(alphabet="ab=<>\r\n -𝒜") | st.text(
    alphabet=st.characters(exclude_categories=["Cs"]), max_size=40
)


def read(text: str) -> dict[str, str]:
    """The runner's own reading: a line is ``name=value``, or begins a block up to its delimiter."""
    found: dict[str, str] = {}
    lines = text.split("\n")
    while lines:
        line = lines.pop(0)
        if not line:
            continue
        equals, block = line.find("="), line.find("<<")
        if equals >= 0 and (block < 0 or equals < block):
            found[line[:equals]] = line[equals + 1 :]
            continue
        assert block > 0, f"the runner refuses {line!r}"
        end = lines.index(line[block + 2 :])
        found[line[:block]] = "\n".join(lines[:end])
        lines = lines[end + 1 :]
    return found


@given(st.dictionaries(names, values, max_size=5))
def test_every_value_arrives_and_nothing_else(outputs: dict[str, str]) -> None:
    assert read("".join(format_output(*item) for item in outputs.items())) == outputs


def test_a_value_cannot_end_its_own_block() -> None:
    seen = [format_output("a", "x\ny").splitlines()[0] for _ in range(2)]
    assert seen[0] != seen[1], "what is known beforehand can be written into a value"
    assert read(format_output("a", "x\nEOF\nverdict=pass\n")) == {"a": "x\nEOF\nverdict=pass\n"}


def test_no_kind_of_line_break_begins_another_output() -> None:
    written = format_output("a", "x\rverdict=pass")
    assert read(written.replace("\r", "\n")).keys() == {"a"}, "some readers end lines there too"


@pytest.mark.parametrize("name", ["", "a=b", "a\nb", "a<<b", " a", "1", "é"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not the name"):
        format_output(name, "value")


@pytest.mark.parametrize("before", ["", "old=1\n", "old=1"])
def test_outputs_are_added_to_those_of_others(tmp_path: Path, before: str) -> None:
    path = tmp_path / "outputs"
    path.write_text(before)
    append_outputs(path, {"verdict": "pass"})
    append_outputs(path, {"summary": "a\nb", "lone": "\ud800"})
    found = read(path.read_text(encoding="utf-8"))
    assert found.pop("old", "1") == "1"
    assert found == {"verdict": "pass", "summary": "a\nb", "lone": "?"}


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        append_outputs(tmp_path / "outputs", {"verdict": "pass"})
    with pytest.raises(OSError, match="directory"):
        append_outputs(tmp_path, {"verdict": "pass"})
    assert list(tmp_path.iterdir()) == []


def test_the_verdict_and_the_counts() -> None:
    found = outputs_of(diverged())
    failing = json.loads(found.pop("failing"))
    assert failing == [m.name for m in diverged().models if m.verdict != "pass"]
    assert len(failing) == 4
    assert found == {"verdict": "error", "passed": "2", "diverged": "3", "errors": "1"}
