"""Every rendering is a pure function of the report, and none of them can be broken out of."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_gate.errors import UserError
from onnx_gate.gate.run import count, overall, slug
from onnx_gate.report import html, junit, markdown, sarif, terminal
from onnx_gate.report.escape import fence, inline
from onnx_gate.report.io import json_schema, read_report, to_json, write_text
from onnx_gate.report.model import ModelResult, Report
from onnx_gate.report.summary import apart, number, percent
from tests.report.reports import report

GOLDEN = Path(__file__).parent / "golden.md"

_FENCE = re.compile(r"^(`{3,})\w*\n.*?^\1$", re.M | re.S)

HOSTILE = [
    "| a | b |",
    "<script>alert(1)</script>",
    "</summary></details>",
    "`code` ``` fence",
    "@everyone see #1 and GH-1",
    "[link](http://evil.example)",
    "![image](http://evil.example/x.png)",
    "**bold** _it_ ~~no~~",
    "line\nbreak\r\n# heading",
    "\x1b[31mred\x1b[0m",
    "\u202egnp.exe",
    "::error::forged",
    "&lt;b&gt; &#124;",
    "<!-- onnx-gate {} -->",
    "http://evil.example",
    "{{ 7 * 7 }} {% raw %}",
]


def test_markdown_is_what_it_was() -> None:
    """Rewrite tests/report/golden.md by hand where the template is meant to change."""
    assert markdown.render(report()) == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_changes_no_structure_of_the_markdown(text: str) -> None:
    plain = _FENCE.sub("", markdown.render(report("name", "text"))).splitlines()
    hostile = _FENCE.sub("", markdown.render(report(f"x{text}", f"x{text}")))
    tables = [line for line in hostile.splitlines() if line.startswith("|")]
    assert [line.count("|") for line in tables] == [
        line.count("|") for line in plain if line.startswith("|")
    ]
    for tag in ("<details", "</details>", "<summary>", "</summary>", "<sub>", "<script", "<!--"):
        assert hostile.count(tag) == "\n".join(plain).count(tag)
    for forbidden in ("@everyone", "](http", "\x1b", "\u202e", "#1 "):
        assert forbidden not in hostile


@settings(max_examples=60)
@given(st.text(max_size=60))
def test_inline_text_has_no_markup_left(text: str) -> None:
    shown = str(inline(text))
    assert not set(shown) & set("`*_[]()<>|~@\n\r") - {"@"}
    assert "@" not in shown.replace("@\u200b", "")


@given(st.text(alphabet="`ab\n", max_size=60))
def test_a_fence_is_longer_than_what_it_holds(text: str) -> None:
    lines = str(fence(text)).splitlines()
    marks = lines[0].removesuffix("text")
    assert lines[-1] == marks
    assert all(marks not in line for line in lines[1:-1])


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_changes_no_structure_of_the_page(text: str) -> None:
    def tags(name: str) -> list[str]:
        parser = _Tags()
        parser.feed(html.render(report(name, name)))
        return parser.seen

    assert tags(f"x{text}") == tags("name")


@pytest.mark.parametrize("text", ["plain", *HOSTILE])
def test_junit_and_sarif_are_well_formed(text: str) -> None:
    root = ET.fromstring(junit.render(report(f"x{text}", text)))
    assert root.get("failures") == "2"
    assert root.get("errors") == "0", "the model in error is not required"
    log = json.loads(sarif.render(report(f"x{text}", text)))
    assert log["version"] == "2.1.0"
    levels = [result["level"] for result in log["runs"][0]["results"]]
    assert levels == ["error", "error", "warning"]


def test_the_terminal_shows_worst_case_and_verdict() -> None:
    text = terminal.render(report())
    assert "edges/zeros/batch=2" in text
    assert "diverged: 1 of 3 models diverged, 1 of 3 could not be verified" in text
    assert "not shown" not in text


def test_a_report_survives_being_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "report.json"
    write_text(path, to_json(report()))
    assert to_json(read_report(path)) == to_json(report())
    found = read_report(path).models[0].checks[1]
    assert found.budget == math.inf
    assert found.worst is not None
    assert math.isnan(found.worst.actual)
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    jsonschema.validate(json.loads(path.read_text()), json_schema())
    assert [file.name for file in path.parent.iterdir()] == ["report.json"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 2}', '{"schema": 1, "extra": 1}', "\xff"]
)
def test_what_is_no_report_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match="not a report"):
        read_report(path)


def test_no_report_and_no_model_is_no_pass(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_report(tmp_path / "nowhere.json")
    assert overall([]) == "error"


def _model(verdict: str, required: bool) -> ModelResult:
    return ModelResult.model_validate({"name": "m", "verdict": verdict, "required": required})


@given(st.lists(st.tuples(st.sampled_from(["pass", "diverged", "error"]), st.booleans())))
def test_only_required_models_decide(verdicts: list[tuple[str, bool]]) -> None:
    models = [_model(verdict, required) for verdict, required in verdicts]
    found = overall(models)
    deciding = {verdict for verdict, required in verdicts if required}
    assert (found == "pass") == (bool(models) and deciding <= {"pass"})
    total = count(models).model_dump()
    assert sum(total.values()) == len(models)


@given(st.floats(), st.floats())
def test_two_numbers_never_look_alike(expected: float, actual: float) -> None:
    shown = apart(expected, actual)
    if expected != actual and not (math.isnan(expected) and math.isnan(actual)):
        assert shown[0] != shown[1]


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0.0, "0 %"), (0.004, "<1 %"), (0.5, "50 %"), (9.0, "900 %"), (41.2, "×41"), (math.inf, "∞")],
)
def test_shares_of_a_tolerance(share: float, shown: str) -> None:
    assert percent(share) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (1.234e-7, "1.2e-07"), (0.5, "0.5"), (123.4, "123"), (math.nan, "NaN")],
)
def test_numbers_have_two_digits(value: float, shown: str) -> None:
    assert number(value) == shown


@given(st.text(min_size=1, max_size=80), st.text(min_size=1, max_size=80))
def test_names_become_file_names_of_their_own(one: str, other: str) -> None:
    assert (slug(one) == slug(other)) == (one == other)
    assert "/" not in slug(one)
    assert slug(one) not in ("", ".", "..")


@pytest.mark.parametrize(
    "module", ["onnx_gate.report.markdown", "onnx_gate.manifest", "onnx_gate.gate.main"]
)
def test_reports_and_manifests_need_no_torch(module: str) -> None:
    code = (
        f"import sys, {module}\n"
        "print([m for m in ('torch', 'onnx', 'onnxruntime') if m in sys.modules])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert finished.stdout.strip() == "[]"


def test_the_report_is_a_value() -> None:
    assert report() == report()
    assert isinstance(report(), Report)
