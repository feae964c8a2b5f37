"""Which line something comes from, and what of its code is shown."""

from __future__ import annotations

from pathlib import Path

from onnx_gate.verify.source_lines import of_stack, place_of, shown


def test_a_line_that_only_opens_a_bracket_is_shown_with_what_stands_in_it(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("if (\n    cached and\n    n <= cached_length\n):\n    y = x[\n")
    assert shown(place_of(str(file), 1, tmp_path), "") == "`if (cached and` (m.py:1)"
    assert shown(place_of(str(file), 2, tmp_path), "") == "`cached and` (m.py:2)"
    assert shown(place_of(str(file), 5, tmp_path), "") == "`y = x[` (m.py:5)"


def test_a_stack_keeps_the_code_of_a_line_that_has_other_code_by_now(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("y = f(\n    x,\n)\n")
    same = of_stack(f'File "{file}", line 1, in forward\n    y = f(', tmp_path)
    other = of_stack(f'File "{file}", line 1, in forward\n    y = g(', tmp_path)
    assert same is not None
    assert (same.code, same.own) == ("y = f(x,", True)
    assert other is not None
    assert (other.code, other.own) == ("y = g(", False)
