"""The comment, read in three seconds: the sentence, the line to look at, what to type; the rest folded."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from onnx_gate.report.model import Problem, Resolution
from onnx_gate.report.render.markdown import render
from tests.support.report.page import page
from tests.support.report.pages import drawn, several_runtimes
from tests.support.report.reports import check
from tests.support.report.scenes import VIEW, diverged, model, passing, whole


def rows(text: str) -> list[list[str]]:
    """Return the cells of the first table, without their markup."""
    table = text[text.index("\n| ") :].split("\n\n", 1)[0]
    bare = re.sub(r"\]\([^)]*\)|[*\[]|</?code>", "", table)
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in bare.strip().splitlines()]


def test_the_sentence_comes_first_and_the_line_beside_the_model() -> None:
    text = render(diverged(), VIEW)
    assert text.splitlines()[2].startswith(
        "**<code>whisper</code>**: the model could not be exported"
    )
    head, _, *table = rows(text)
    assert head[:3] == ["", "Model", "Where"]
    assert [row[1:4] for row in table[:2]] == [
        ["whisper", "onnx-gate.yml:31", "export, OG201"],
        ["tiny_bert", "attention.py:88", "pooled"],
    ]


def test_why_there_is_no_number_is_said_in_the_column_of_the_tolerance() -> None:
    refused = {"refused": ("runtime",), "reason": "onnxruntime refuses: the size of x is 7, not 2"}
    nothing = {"deviation": None, "metrics": None, "worst": None, "budget": None}
    bad = check("typical/0", "diverged", **nothing, **refused)
    text = render(whole(model("net", bad, verdict="diverged"), model("other")), VIEW)
    head, _, row, *_ = rows(text)
    shown = dict(zip(head, row, strict=True))
    assert (shown["Error"], shown["Allowed"], shown["Of tolerance"]) == ("", "", "refused")


def test_the_commands_of_a_model_stand_in_one_block() -> None:
    section = (
        render(drawn(), replace(VIEW, run_id=17301))
        .split("<code>gpt</code>: ")[-1]
        .split("<details><summary>❌")[0]
    )
    blocks = re.findall(r"```console\n(.*?)```", section, re.S)
    assert blocks == [
        "$ gh run download 17301 --name onnx-gate-report --dir onnx-gate-report\n"
        "$ onnx-gate replay onnx-gate-report/repro/gpt/typical-0\n"
        "$ onnx-gate run --manifest ml/onnx-gate.yml --model gpt --case typical/0\n"
    ]


def test_a_problem_of_the_run_leaves_each_model_its_sentence() -> None:
    lost = diverged().model_copy(update={"problems": (Problem(message="shard 2 is lost"),)})
    text = render(lost, VIEW)
    assert "shard 2 is lost" in text.splitlines()[2]
    assert text.count("the model could not be exported") == 1
    assert render(diverged(), VIEW).count("the model could not be exported") == 1


def test_several_runtimes_are_columns() -> None:
    head, _, *table = rows(render(several_runtimes(), VIEW))
    assert head == ["", "Model", "Where", "What", "Error", "Allowed", "onnxruntime", "openvino"]
    assert [(row[1], *row[-2:]) for row in table] == [
        ("refused", "40 %", "diverged refused"),
        ("far", "40 %", "diverged ×41"),
        ("1 more", "", ""),
    ]
    assert {len(row) for row in table} == {len(head)}
    passed = render(several_runtimes(), VIEW).split("agrees with PyTorch")[1]
    assert "| onnxruntime" in re.sub(r"</?code>", "", passed)


@pytest.mark.parametrize("word", ["tiny_bert", "ml/models/attention.py:88", "edges/large/batch=2"])
def test_names_and_paths_are_spelled_as_they_are(word: str) -> None:
    assert word in render(diverged(), VIEW)


def test_a_pass_is_short_and_says_how_sharp_it_was() -> None:
    fine = check("typical/0").model_copy(update={"resolution": Resolution(element=1e-6)})
    text = render(whole(model("resnet18", fine)), VIEW)
    assert text.startswith("## ✅ ONNX gate: resnet18 agrees\n")
    assert "An error of 1.0e-06 of an element, row or channel would have been caught." in text
    assert len(render(passing(), VIEW).splitlines()) < 30
    blunt = check("typical/0").model_copy(update={"resolution": Resolution(element=348.0)})
    text = render(whole(model("resnet18", blunt)), VIEW)
    assert "Of some element, row or channel an error of up to 348 times its size may pass." in text


@pytest.mark.parametrize(
    "name", ["|", "`", "</details>", "<!-- x", "[x](https://evil.example)", "@a"]
)
def test_the_name_of_a_runtime_is_text(name: str) -> None:
    harmless, hostile = (
        page(render(several_runtimes(other), VIEW)) for other in ("openvino", name)
    )
    assert hostile.elements == harmless.elements
    assert hostile.unbalanced == []
    assert set(hostile.links) == set(harmless.links)


def test_no_check_stands_twice_in_a_fold() -> None:
    # A case is run once more without the runtime's optimisations, which is no runtime of the manifest's.
    on = ("onnxruntime", "onnxruntime:cpu:off")
    twice = [check("few/0", "diverged", runtime=name, budget=3.0) for name in on]
    text = render(whole(model("tiny_bert", verdict="diverged", checks=tuple(twice))), VIEW)
    shown = [line for line in text.splitlines() if "few/0" in line and line.startswith("| <code>")]
    assert len(shown) == len(set(shown)) == 2
