"""Annotations are commands of ours alone, on lines of the pull request, the worst first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from unicodedata import category

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_gate.findings.finding import Finding
from onnx_gate.github.annotations import annotations, command
from onnx_gate.report.io import read_report
from onnx_gate.report.model import Change, ModelError, ModelResult, Problem
from onnx_gate.report.story.locations import Location
from onnx_gate.text import COMMAND_LIMIT as MESSAGE_LIMIT
from tests.support.gate import run_few
from tests.support.profiles import tries
from tests.support.report.everything import all_replaced, everything, free_paths, replaced
from tests.support.report.hostile import BLANK, HOSTILE, ids
from tests.support.report.reports import check
from tests.support.report.scenes import diverged, invalid, loosened, model, passing, whole

MANIFEST = "ml/onnx-gate.yml"
_STRIDE = 50  # no more than there are texts


@dataclass(frozen=True)
class Command:
    level: str
    properties: dict[str, str]
    message: str


def read(line: str) -> Command:
    """The runner's own reading of a line of output."""
    assert "##[" not in line, "an old command, anywhere in the line"
    assert line.startswith("::")
    end = line.index("::", 2)
    level, _, named = line[2:end].partition(" ")
    properties = {}
    for part in named.split(",") if named else []:
        name, _, value = part.partition("=")
        for escape, character in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n")):
            value = value.replace(escape, character)
        properties[name] = value.replace("%25", "%")
    message = line[end + 2 :].replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
    return Command(level, properties, message)


def safe(line: str) -> Command:
    assert all(c == "\t" or c.isprintable() or category(c) == "Zs" for c in line)
    found = read(line)
    assert found.level in ("error", "warning")
    assert set(found.properties) <= {"file", "line", "col", "title"}
    assert 0 < len(found.message) <= len(line.partition("::")[2]) <= MESSAGE_LIMIT + 1000
    written = line[line.index("::", 2) + 2 :]
    assert len(written.encode()) <= MESSAGE_LIMIT
    assert "\n" not in found.properties.get("title", "")
    assert len(found.properties.get("title", "")) <= 80
    file = found.properties.get("file", "a")
    assert not {"", ".", ".."} & set(file.split("/"))
    assert found.properties.get("line", "1").isdigit()
    return found


TEXTS = [*HOSTILE, *BLANK]


@pytest.mark.parametrize("text", TEXTS, ids=ids)
def test_hostile_text_is_only_text(text: str) -> None:
    like = [read(line) for line in annotations(everything(), MANIFEST)]
    for report in (all_replaced(text), all_replaced(f"x {text}\n{text}")):
        found = [safe(line) for line in annotations(report, MANIFEST)]
        assert [each.level for each in found] == [each.level for each in like]
    # Each place alone is tried with some text: all places with all texts are a million annotations.
    for path in free_paths()[TEXTS.index(text) % _STRIDE :: _STRIDE]:
        for line in annotations(replaced({path: text}), text):
            safe(line)


@settings(max_examples=tries(200))
@given(st.text(alphabet="%\n\r:,25ADa𝒜é\x1b#[", max_size=50), st.integers(1, 3000))
def test_a_message_arrives_whole_or_cut_within_no_character(text: str, times: int) -> None:
    line = command("error", text * times)
    written = line.removeprefix("::error::")
    assert len(written.encode()) <= MESSAGE_LIMIT
    read_back = read(line).message
    if read_back.endswith("…"):
        nearly_full = len((written + "%25𝒜").encode()) > MESSAGE_LIMIT
        assert nearly_full or len(text * times) > MESSAGE_LIMIT
    assert "%" not in written.replace("%25", "").replace("%0A", "")
    simple = "".join(c for c in text if c in "%25ADa𝒜é:,")
    assert read(command("error", f"<{simple}>")).message == f"<{simple}>"


def test_properties_hold_any_text() -> None:
    place = Location("a%3A,b::c.py", 3, 7)
    line = command("warning", "text", "100 %, a::b", place)
    expected = {"file": "a%3A,b::c.py", "line": "3", "col": "7", "title": "100 %, a::b"}
    assert read(line) == Command("warning", expected, "text")
    assert command("error", "text") == "::error::text", "no blank: some would print it as text"


def test_each_is_where_it_can_be_mended() -> None:
    found = [safe(line) for line in annotations(diverged(), MANIFEST)]
    assert [(each.level, each.properties["title"]) for each in found] == [
        ("error", "whisper could not be verified"),
        ("error", "tiny_bert diverged"),
        ("error", "gpt diverged"),
        ("warning", "detector diverged"),
    ]
    assert [each.properties.get("line") for each in found] == ["31", "88", "7", None]
    assert [each.properties["file"] for each in found] == [
        MANIFEST,
        "ml/models/attention.py",
        "ml/models/gpt.py",
        MANIFEST,
    ]
    first, *rest = found[0].message.splitlines()
    assert first.startswith(
        "whisper: the model could not be exported: aten::foo has no translation, "
    )
    again = "again: onnx-gate run --manifest ml/onnx-gate.yml --model whisper"
    assert rest == ["export: OG201", "x", "it passed in the baseline", again]
    assert found[1].message.splitlines()[1] == "2 of 2 checks diverged"
    mistake = safe(annotations(invalid(), MANIFEST)[0])
    assert mistake.properties | {"title": ""} == {
        "file": MANIFEST,
        "line": "12",
        "col": "7",
        "title": "",
    }
    assert mistake.message.startswith("models.resnet18.tolerance: unknown key 'atoll'")
    looser = [safe(line) for line in annotations(loosened(), MANIFEST)]
    assert [each.level for each in looser] == ["warning", "warning"]
    assert looser[0].properties["line"] == "9"
    warned = safe(annotations(passing(), MANIFEST)[0])
    assert (warned.level, warned.properties["title"]) == ("warning", "tiny_bert: OG103")


def test_only_the_ten_worst_of_each_level() -> None:
    def bad(name: str, budget: float, required: bool = True) -> ModelResult:
        found = Finding(code="OG102", severity="error", message="m", file=f"{name}.py", line=1)
        return model(
            name,
            check("case", "diverged", budget=budget),
            verdict="diverged",
            required=required,
            findings=(found, found.model_copy(update={"line": 2})),
        )

    error = ModelError(kind="memory", code="OG503", message="too much")
    report = whole(
        *[bad(f"m{budget}", float(budget)) for budget in range(1, 20)],
        *[bad(f"optional{budget}", float(budget), required=False) for budget in range(1, 20)],
        ModelResult(name="crashed", verdict="error", error=error),
        problems=[Problem(message="shard 3 of 4 left no report")],
        changes=[Change(kind="other", message=f"change {number}") for number in range(4)],
    )
    found = [read(line) for line in annotations(report, MANIFEST)]
    errors = [each for each in found if each.level == "error"]
    warnings = [each for each in found if each.level == "warning"]
    assert errors[0].message == "shard 3 of 4 left no report"
    assert [each.properties["title"].split()[0] for each in errors[1:]] == [
        "crashed",
        *[f"m{budget}" for budget in range(19, 11, -1)],
    ]
    assert [each.message for each in warnings[:4]] == [f"change {n}" for n in range(4)]
    assert [each.properties["title"].split()[0] for each in warnings[4:]] == [
        f"optional{budget}" for budget in range(19, 13, -1)
    ]


MODELS = """import torch
from torch import nn


def broken():
    raise RuntimeError("no weights here")


def leaves():
    raise SystemExit(3)


class Untranslated(nn.Module):
    def forward(self, x):
        y = x + 1
        return torch.linalg.qr(y)[0]


class Branch(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x
"""
NAMED = {
    "broken": ("models.py:broken", 6),
    "leaves": ("models.py:leaves", 10),
    "untranslated": ("models.py:Untranslated", 16),
    "branch": ("models.py:Branch", 21),
    "syntax": ("syntax.py:f", 2),
}


@pytest.mark.process
@pytest.mark.slow
def test_an_error_is_annotated_at_the_line_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "syntax.py").write_text("import torch\ndef f(:\n")
    entry = 'model: "{}", inputs: {{x: "float32[4, 4]"}}'
    entries = {name: entry.format(model) for name, (model, _) in NAMED.items()}
    entries["nothing"] = entry.format("models.py:Nothing")
    models = run_few(tmp_path, MODELS, entries)
    report = read_report(tmp_path / "onnx-gate-report" / "report.json")
    found = {
        each.properties["title"].split()[0]: (each.properties["file"], each.properties["line"])
        for each in map(safe, annotations(report, MANIFEST))
    }
    for name, (where, line) in NAMED.items():
        file = where.partition(":")[0]
        assert f"{file}:{line}" in models[name].error.message
        assert found[name] == (f"ml/{file}", str(line))
    # What is wrong in the manifest is annotated there.
    assert found["nothing"] == (MANIFEST, str(models["nothing"].line))
