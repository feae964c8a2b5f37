"""What a report says of an audit: a sentence for each reason, the useful survivors first."""

from __future__ import annotations

from typing import get_args

import pytest

from onnx_gate.report.model.audit import Audit, ManifestChange, Mutant, Share, Site, Unseen, Why
from onnx_gate.report.story import audited


def unseen(why: str, **facts: object) -> Unseen:
    known = {
        "why": why,
        "runtime": "openvino",
        "case": "typical/3",
        "output": "logits",
        "key": "outputs.logits",
        "tolerance": {"auto": 7.0},
        "budget": 0.31,
        "original": 0.42,
        "subject": "attention_mask",
    }
    return Unseen.model_validate(known | facts)


@pytest.mark.parametrize("why", get_args(Why))
def test_every_reason_is_a_sentence_of_its_own(why: str) -> None:
    sentence = audited.reason(unseen(why), "PyTorch")
    others = {audited.reason(unseen(each), "PyTorch") for each in get_args(Why) if each != why}
    assert sentence not in others
    assert sentence[0].isupper()
    assert "None" not in sentence
    if why not in ("rounding", "operator", "time"):
        assert "typical/3, output logits, openvino" in sentence
    if why in ("granted", "original", "margin"):
        assert "outputs.logits: {auto: 7}" in sentence
    if why in ("waiver", "where", "open"):
        assert "attention_mask" in sentence


@pytest.mark.parametrize(
    ("original", "words"),
    [
        (None, "does not pass with it"),
        (0.84, "uses 84% of that"),
        (0.2, "correct files of other models"),
    ],
)
def test_why_a_tolerance_is_not_proposed(original: float | None, words: str) -> None:
    sentence = audited.reason(unseen("margin", original=original), "PyTorch")
    assert sentence.startswith("Not proposed: outputs.logits: {auto: 7} would catch it")
    assert words in sentence


def mutant(moved: float, change: int | None = None, why: str | None = None) -> Mutant:
    return Mutant(
        id=f"{moved}",
        fault="pads",
        kind="operators",
        words=f"fault {moved:g}",
        site=Site(name="node", op_type="Conv"),
        fate="survived",
        moved=moved,
        change=change,
        unseen=None if why is None else unseen(why),
    )


def test_what_can_be_caught_comes_first_and_what_is_rounding_last() -> None:
    audit = Audit(
        sites=9,
        score=Share(name="all", caught=5, of=8),
        mutants=(mutant(0.5, why="rounding"), mutant(8.0, why="floor"), mutant(3.0, 0)),
        changes=(ManifestChange(key="runtimes.openvino", value={"atol": 0.5}, catches=1),),
        changes_tried=1,
        changes_left=2,
    )
    lines = list(audited.lines(audit, "the reference"))
    assert [line for line in lines if line.startswith("survived")] == [
        "survived: Conv node: fault 3; the outputs move by 3 × the reference's own rounding. "
        "Caught with runtimes.openvino: {atol: 0.5}",
        "survived: Conv node: fault 8; the outputs move by 8 × the reference's own rounding. "
        + audited.reason(unseen("floor"), "the reference"),
        "survived: Conv node: fault 0.5; the outputs move by 0.5 × the reference's own rounding. "
        "No tolerance catches it: the reference's own rounding moves the outputs further",
    ]
    assert "--write puts in: runtimes.openvino: {atol: 0.5} (catches 1)" in lines
    assert lines[-1].endswith(
        "1 change of the manifest tried for the survivors, 2 more not for want of time"
    )
