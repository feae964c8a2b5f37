"""Every code: a page, an entry, and a real model that brings it about with the words of its page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from onnx_gate.errors import UserError
from onnx_gate.findings import CATALOGUE, Explanation, explanation
from onnx_gate.findings.explain import WIDTH, plain
from onnx_gate.report.model import ModelResult
from onnx_gate.report.story.sentence import of_model
from tests.support.gate import ROOT, Run
from tests.support.triggers import (
    APPEARS_ELSEWHERE,
    ELSEWHERE,
    MERGED,
    OPTIONAL,
    RUNS,
    TRIGGERS,
)

_MESSAGE = re.compile(r"^```text\n(.*?)\n```$", re.M | re.S)
_NUMBER = re.compile(r"\d[\d.]*(?:e[+-]?\d+)?")


def said(model: ModelResult) -> Iterator[tuple[str, str, str]]:
    """Yield code, appearance and first line of everything that a result says."""
    if model.error is not None:
        error = model.error
        yield error.code, f"error of kind {error.kind}", error.message.splitlines()[0]
    for finding in model.findings:
        yield finding.code, f"finding of severity {finding.severity}", finding.message


def message_of(entry: Explanation) -> str:
    """Return a message as the gate words it: the example's first block of plain text."""
    found = _MESSAGE.search(entry.example)
    return found[1] if found is not None else ""


def like(message: str) -> re.Pattern[str]:
    """Match a message of a page with other numbers; an ellipsis stands for anything."""
    parts = [_NUMBER.split(part) for part in message.split("…")]
    return re.compile(".*".join(r"\d[\d.e+-]*".join(map(re.escape, part)) for part in parts) + "$")


def test_every_code_has_a_trigger_an_entry_and_a_page() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "findings").glob("OG*.md")}
    assert set(TRIGGERS) | set(MERGED) | set(OPTIONAL) == set(CATALOGUE) == pages
    assert set(ELSEWHERE) <= set(CATALOGUE)
    assert all(code in (ROOT / test).read_text() for code, test in OPTIONAL.items())


@pytest.mark.parametrize("code", TRIGGERS)
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_real_model_brings_it_about(code: str, run_of: Callable[[str], Run]) -> None:
    entry = CATALOGUE[code]
    found: list[str] = []
    for run, name in TRIGGERS[code]:
        own = [text for each, _, text in said(run_of(run).model(name)) if each == code]
        assert own, f"{run}.{name} says {list(said(run_of(run).model(name)))}"
        found += own
    message = message_of(entry)
    assert any(like(message).match(text) for text in found), "\n".join((message, *found))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_codes_appear_as_their_pages_say(run_of: Callable[[str], Run]) -> None:
    seen: dict[str, set[str]] = {code: set() for code in TRIGGERS}
    for run in RUNS:
        for model in run_of(run).report.models:
            for code, appearance, _ in said(model):
                seen[code].add(appearance)
    for code, (appearances, _) in APPEARS_ELSEWHERE.items():
        seen[code] |= appearances
    assert seen == {code: set(CATALOGUE[code].appears.split("; ")) for code in TRIGGERS}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("run", RUNS)
def test_messages_are_short_sentences(run: str, run_of: Callable[[str], Run]) -> None:
    finished = run_of(run)
    # Of a model, in its log, there may be one; of the gate itself there is none.
    assert not re.search(r"^Traceback", finished.output, re.MULTILINE)
    for model in finished.report.models:
        for code, _, text in said(model):
            assert 10 < len(text) < 600, (code, text)
        if model.error is not None:
            assert model.error.message.count("\n") <= 4, model.error.message


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "code", "place"),
    [
        ("wide", "OG103", "np.linspace(0, 1, 8)"),
        ("tiny_constant", "OG124", "+ 1e-12"),
        ("log_sigmoid", "OG126", "F.logsigmoid(x)"),
        ("parity", "OG116", "% 2 == 0"),
        ("parity", "OG102", "% 2 == 0"),
        ("grouped", "OG116", "length // 8"),
    ],
)
def test_findings_name_the_line(
    name: str, code: str, place: str, run_of: Callable[[str], Run]
) -> None:
    model = run_of("findings").model(name)
    finding = next(finding for finding in model.findings if finding.code == code)
    source = (ROOT / "tests" / "findings" / "project" / "models.py").read_text().splitlines()
    assert finding.file == "models.py"
    assert finding.line is not None
    assert place in source[finding.line - 1]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tied", ("`return x + self.bias`", 'x: "float32[3, 8]"')),
        ("recurrent", ("nn.RNN", "exporter: torchscript")),
        ("bounded", ("'seq' must be a multiple of 8", "dims: {seq: [8, 16]}", "exporters.py:")),
        ("packed", ("packs sequences", "models.py:")),
        ("custom", ("gate_tests::twice", "custom_translation_table")),
        ("untraceable", ("gate_tests::thrice", "register_fake")),
        (
            "untranslated",
            ("cannot follow aten::fake_quantize_per_tensor_affine", "exporter: torchscript"),
        ),
        ("far", ("aten::_cdist_forward", "exporter: torchscript")),
        ("decomposed", ("aten::linalg_qr", "at any opset", "models.py:")),
        ("resampled", ("opset 14", "opset 16")),
        ("unexportable", ("not while exporting", "models.py:")),
        ("missing", ("a_package_that_nobody_has", "requirements")),
        ("file_reader", ("vocabulary.txt", "Path(__file__).parent")),
        ("pickled", ("state_dict()",)),
        ("pointer", ("git lfs pull",)),
        ("missing_weights", ("'body.0.weight'", "'weights.bin'")),
        ("unknown_domain", ("Twice", "'com.example'")),
        ("named_twice", ("two values are called 'x'",)),
    ],
)
def test_errors_name_the_cause_and_the_remedy(
    name: str, words: tuple[str, ...], run_of: Callable[[str], Run]
) -> None:
    error = run_of("findings").model(name).error
    assert error is not None
    for word in words:
        assert word in f"{error.message} {error.remedy}"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_warnings_that_a_model_makes_errors_stop_no_export(run_of: Callable[[str], Run]) -> None:
    assert run_of("findings").model("strict").error is None


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_hints_are_in_the_diagnosis(run_of: Callable[[str], Run]) -> None:
    for model in run_of("hints").report.models:
        notes = [f for f in model.findings if f.severity == "note"]
        hinted = {f.code for f in notes if not f.message.startswith("possible:")} - {
            "OG116",
            "OG304",
            "OG404",
            "OG406",  # an advisory case had no time: the machine was busy
            "OG415",
        }
        if model.diagnosis is not None:
            assert set(model.diagnosis.hints) == hinted, model.name


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_where_pytorchs_own_infinity_begins_is_said(run_of: Callable[[str], Run]) -> None:
    model = run_of("findings").model("logarithm")
    (lost,) = (finding for finding in model.findings if finding.code == "OG418")
    assert lost.data["first"].startswith("log (models.py:")
    assert "first at log" in str(of_model(model, "findings.yml"))


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=lambda entry: entry.code)
def test_texts_read_well_in_a_terminal(entry: Explanation) -> None:
    text = plain(entry)
    assert "```" not in text
    assert entry.title[0] not in ".ABCDEFGHIJKLMPQRSTUVWXYZ" or entry.title.startswith("NaN")
    assert message_of(entry)
    prose = plain(entry).replace("onnx-gate says:", "").split("Example")[0]
    assert all(len(line) <= WIDTH for line in prose.splitlines())


def test_explain_names_the_nearest_code() -> None:
    assert explanation("og102").startswith("OG102: ")
    with pytest.raises(UserError, match="did you mean OG10"):
        explanation("OG1O2")
