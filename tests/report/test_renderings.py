"""Every rendering is a pure function of the report, and none of them can be broken out of."""

from __future__ import annotations

import fnmatch
import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_gate.errors import UserError
from onnx_gate.github.annotations import annotations
from onnx_gate.report.io import json_schema, read_report, to_json, write_text
from onnx_gate.report.join.verdict import count, overall
from onnx_gate.report.layout import slug
from onnx_gate.report.model import ModelResult, Report
from onnx_gate.report.render import html, junit, markdown, sarif, terminal
from onnx_gate.report.render.escape import fence, inline
from onnx_gate.report.story.locations import inside
from onnx_gate.report.story.shell import run_command
from onnx_gate.report.story.summary import distinct_digits, headline, percent
from onnx_gate.report.story.versus import factor
from onnx_gate.report.story.view import View
from onnx_gate.text import number
from tests.support.profiles import tries
from tests.support.report.everything import all_replaced, everything
from tests.support.report.hostile import HOSTILE, ids
from tests.support.report.page import page
from tests.support.report.reports import check, report
from tests.support.report.scenes import SCENES, diverged, invalid, loosened, unsandboxed

HERE = Path(__file__).parent
Golden = Callable[[Path, str], None]


def test_markdown_is_what_it_was(golden: Golden) -> None:
    golden(HERE / "golden.md", markdown.render(report()))


@pytest.mark.parametrize("name", SCENES)
def test_scenes_are_what_they_were(name: str, golden: Golden) -> None:
    make, view = SCENES[name]
    rendered = markdown.render(make(), view)
    assert page(rendered).unbalanced == []
    golden(HERE / "golden" / f"{name}.md", rendered)


FORMATS = {
    "txt": terminal.render,
    "html": html.render,
    "xml": junit.render,
    "sarif": sarif.render,
    "log": lambda shown: "\n".join(annotations(shown, "ml/onnx-gate.yml")) + "\n",
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("scene", ["compared", "timed"])
def test_other_formats_are_what_they_were(scene: str, format: str, golden: Golden) -> None:
    golden(HERE / "golden" / f"{scene}.{format}", FORMATS[format](SCENES[scene][0]()))


@settings(max_examples=tries(60))
@given(st.text(max_size=60))
def test_inline_text_has_no_markup_left(text: str) -> None:
    shown = str(inline(text))
    assert not set(shown) & set("`*[]<>|~@\n\r") - {"@"}
    assert not re.search(r"(?<![^\W_])_|_(?![^\W_])|^[()'+=-]", shown)
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


def tags(shown: Report) -> list[str]:
    parser = _Tags()
    parser.feed(html.render(shown))
    return parser.seen


@pytest.mark.parametrize("text", HOSTILE, ids=ids)
@pytest.mark.slow
def test_hostile_text_changes_no_structure_of_the_page(text: str) -> None:
    assert tags(all_replaced(text)) == tags(everything())


@pytest.mark.parametrize("text", ["plain", *HOSTILE], ids=ids)
def test_junit_and_sarif_are_well_formed(text: str) -> None:
    root = ET.fromstring(junit.render(report(f"x{text}", text)))
    assert root.get("failures") == "2"
    assert root.get("errors") == "0", "the model in error is not required"
    ET.fromstring(junit.render(all_replaced(text)))
    log = json.loads(sarif.render(report(f"x{text}", text)))
    assert log["version"] == "2.1.0"
    levels = [result["level"] for result in log["runs"][0]["results"]]
    assert levels == ["error", "error", "warning", "note"], "the last one is waived"
    for result in json.loads(sarif.render(all_replaced(text)))["runs"][0]["results"]:
        assert "](" not in result["message"]["text"]
        for location in result.get("locations", ()):
            uri = location["physicalLocation"]["artifactLocation"]["uri"]
            assert not urlsplit(uri).scheme
            assert not {"", ".", ".."} & set(unquote(uri).split("/"))


def test_what_is_about_no_model_is_in_every_rendering() -> None:
    root = ET.fromstring(junit.render(invalid()))
    assert root.get("errors") == "2"
    cases = root.findall("testsuite[@name='manifest']/testcase")
    message = "onnx-gate.yml:12:7: models.resnet18.tolerance: unknown key 'atoll'"
    assert [str(case[0].get("message")).startswith(message) for case in cases] == [True, False]
    result = json.loads(sarif.render(invalid()))["runs"][0]["results"][0]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert (result["level"], region) == ("error", {"startLine": 12, "startColumn": 7})
    assert message in terminal.render(invalid())
    for text in (terminal.render(loosened()), html.render(loosened()), junit.render(loosened())):
        assert "resnet18: atol: 1e-4" in text
    for text in (terminal.render(unsandboxed()), html.render(unsandboxed())):
        assert "sandbox: partial, missing seccomp" in text
    for text in (terminal.render(diverged()), html.render(diverged()), junit.render(diverged())):
        assert "▲ ×8 000" in text


@pytest.mark.parametrize(
    ("now", "before", "shown"),
    [
        (3.9e-2, 4.9e-6, "▲ ×8 000"),
        (1.0, 1.0, "±0"),
        (1.04, 1.0, "±0"),
        (1.5, 1.0, "▲ ×1.5"),
        (1e-3, 1e-2, "▼ ×0.1"),
        (1e9, 1.0, "▲ ×1.0e+09"),
        (1e-9, 1.0, "▼ ×1.0e-09"),
        (0.0, 1.0, "▼ to 0"),
        (1.0, 0.0, "▲ from 0"),
        (0.0, 0.0, "±0"),
        (math.inf, 1.0, "▲ ×∞"),
        (1e308, 1e-308, "▲ ×∞"),
        (1.0, math.inf, "▼ from ∞"),
        (math.inf, math.inf, "±0"),
        (math.nan, 1.0, "?"),
    ],
)
def test_a_change_against_the_baseline(now: float, before: float, shown: str) -> None:
    assert factor(now, before) == shown


LOST = {"problems": [{"message": "lost"}], "verdict": "error"}


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"counts": {"pass": 3}, "verdict": "pass"}, "all 3 models agree"),
        ({"counts": {"pass": 2, "diverged": 1}}, "1 of 3 models diverged"),
        ({"counts": {"error": 3}}, "3 of 3 models could not be verified"),
        (
            {"counts": {"pass": 2, "diverged": 1}, "verdict": "pass"},
            "1 of 3 models diverged, none of them required",
        ),
        ({"counts": {"pass": 3}, **LOST}, "1 problem with the run, 3 models agree"),
        ({"models": (), "counts": {}, "verdict": "error"}, "no model was verified"),
        ({"models": (), "counts": {}, **LOST}, "nothing was verified"),
        ({"counts": {}, "verdict": "error"}, "the run failed"),
    ],
)
def test_the_headline_never_says_more_than_the_verdict(
    changes: dict[str, object], shown: str
) -> None:
    assert headline(Report.model_validate(report().model_dump(by_alias=True) | changes)) == shown


@given(st.text(max_size=200) | st.sampled_from(HOSTILE), st.text(min_size=1, max_size=200))
def test_the_command_finds_what_it_is_about(name: str, case: str) -> None:
    found = ModelResult(name=name, verdict="diverged")
    failing = [check("x", "diverged").model_copy(update={"case": case})]
    line = run_command("ml/onnx-gate.yml", found, failing, View())
    assert line.isprintable()
    assert "`" not in line
    words = shlex.split(line)
    assert words[:4] == ["onnx-gate", "run", "--manifest", "ml/onnx-gate.yml"]
    given_name, given_case = _values(words[4:])
    assert fnmatch.fnmatchcase(name, given_name)
    assert fnmatch.fnmatchcase(case, given_case)


def _values(words: list[str]) -> list[str]:
    """The values of options that are written ``--name value`` or ``--name=value``."""
    found = []
    while words:
        name, equals, value = words[0].partition("=")
        assert name in ("--model", "--case")
        found.append(value if equals else words[1])
        words = words[1:] if equals else words[2:]
    return found


@given(
    st.text(alphabet="ab./\\\n %#", max_size=12)
    | st.sampled_from(["../x", "a/../../b", "/etc/passwd", "C:\\x", "a//b", "./a.py", "a b.py"])
)
def test_a_path_of_a_report_stays_in_the_repository(path: str) -> None:
    found = inside(path)
    if found is None:
        return
    resolved = Path("/repository", found).resolve()
    assert resolved.is_relative_to("/repository/")
    assert resolved != Path("/repository")
    assert resolved == Path("/repository", path).resolve()


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
    shown = distinct_digits(expected, actual)
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


@pytest.mark.process
@pytest.mark.parametrize(
    "module", ["onnx_gate.report.render.markdown", "onnx_gate.manifest", "onnx_gate.gate.deliver"]
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
