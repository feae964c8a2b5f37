"""What a code is stands in one place, and nothing else raises, names or compares one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnx_gate.findings import CATALOGUE, codes
from onnx_gate.findings.finding import Finding
from tests.support.gate import PACKAGES, ROOT

CATALOGUED = ROOT / "onnx_gate" / "findings" / "codes.py"
_CODE = re.compile(r"OG\d{3}")
_MADE_BY_CODES = ("Finding", "GateError")


def breaches(source: str) -> Iterator[str]:
    """Yield where some code is spelled as a text, or a finding or an error made without its code."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if _CODE.fullmatch(node.value):
                yield f"line {node.lineno} spells {node.value}"
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in _MADE_BY_CODES:
            yield f"line {node.lineno} makes a finding or an error by hand"


@pytest.mark.parametrize(
    "path",
    [p for name in PACKAGES for p in (ROOT / name).rglob("*.py") if p != CATALOGUED],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_only_codes_raises(path: Path) -> None:
    assert list(breaches(path.read_text(encoding="utf-8"))) == []


def test_a_breach_is_seen() -> None:
    spelled = 'if finding.code == "OG102":\n    raise GateError("build", "OG104", "x")\n'
    assert len(list(breaches(spelled))) == 3


def test_every_code_has_a_text() -> None:
    assert codes.ALL.keys() == CATALOGUE.keys()
    assert all(code.severities or code.kinds for code in codes.ALL.values())


def test_a_code_appears_only_as_it_may() -> None:
    assert codes.OG102.finding("m").severity == "error"
    assert codes.OG102.finding("m", severity="note").severity == "note"
    with pytest.raises(ValueError, match="never a finding of severity warning"):
        codes.OG102.finding("m", severity="warning")
    assert codes.OG208.error("m", kind="inspect").kind == "inspect"
    with pytest.raises(ValueError, match="never an error of kind build"):
        codes.OG208.error("m", kind="build")


def test_findings_with_data_are_told_apart_and_counted_once() -> None:
    first = codes.OG116.finding("m", severity="note", data={"sizes": [2, 4]})
    again = Finding.model_validate_json(first.model_dump_json())
    assert list(dict.fromkeys([first, again])) == [first]
    assert again.data == {"sizes": [2, 4]}
