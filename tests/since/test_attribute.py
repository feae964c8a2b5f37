"""Which packages are said to have changed an answer, and in which words."""

from __future__ import annotations

from html import unescape
from itertools import combinations

import pytest

from onnx_gate.report.io import find_format
from onnx_gate.report.model.since import LinkAnswer, Package, Since
from onnx_gate.report.story.since import lines
from onnx_gate.since.since import State, Swapped, attribute
from tests.support.report.everything import everything

ORDER = tuple("abcdefg")
ENDS: tuple[State, State] = ("pass",), ("diverged",)
CHANGED = LinkAnswer(
    model="net", link="export", before="pass", verdict="diverged", share=41.0, share_before=0.5
)


@pytest.mark.parametrize("guilty", ORDER)
def test_the_one_that_changed_it_is_found(guilty: str) -> None:
    asked: list[Swapped] = []

    def state(swapped: Swapped) -> State:
        asked.append(swapped)
        return ENDS[guilty in swapped]

    assert attribute(ORDER, ENDS, state) == ((guilty,), True)
    assert len(asked) <= 4  # log2 of seven, and alone


@pytest.mark.parametrize("pair", list(combinations("bdf", 2)))
def test_two_that_only_change_it_together_are_named_with_those_before(
    pair: tuple[str, str],
) -> None:
    def state(swapped: Swapped) -> State:
        return ENDS[swapped >= set(pair)]

    names, sure = attribute(ORDER, ENDS, state)
    assert sure
    assert set(pair) <= set(names)
    assert names == ORDER[: ORDER.index(pair[1]) + 1]


def test_what_fails_otherwise_on_the_way_is_not_sure() -> None:
    names, sure = attribute(
        "ab", ENDS, lambda swapped: ("error",) if len(swapped) == 1 else ("pass",)
    )
    assert not sure
    assert names == ("a",)


PACKAGES = (
    Package(name="numpy", old="2.2", new="2.3"),
    Package(name="onnxscript", old="0.7.1", new="0.7.2"),
)
SAME = CHANGED.model_copy(update={"link": "pytorch", "verdict": "pass", "share": 0.1})
ENGINE = SAME.model_copy(update={"link": "engine"})


def said(*answers: LinkAnswer) -> tuple[str, ...]:
    return lines(Since(base_file="a", head_file="b", packages=PACKAGES, answers=answers))


def test_three_lines_say_what_by_how_much_and_where() -> None:
    found = CHANGED.model_copy(update={"packages": ("onnxscript",), "output": "y", "case": "one/0"})
    other = SAME.model_copy(update={"model": "lstm"})
    assert said(SAME, found, ENGINE, other) == (
        "onnxscript 0.7.1 to 0.7.2 changed the export of net; PyTorch and the engines answer as before",
        "by how much: net: pass to diverged, ×41 of the tolerance (y, one/0) where it was 50 %",
        "models: net (1 of 2)",
    )
    unsure = CHANGED.model_copy(update={"packages": ("numpy", "onnxscript"), "sure": False})
    assert said(unsure)[0].startswith(
        "one or more of numpy 2.2 to 2.3, onnxscript 0.7.1 to 0.7.2 ch"
    )


def test_nothing_changed_is_said_in_three_lines_too() -> None:
    assert said(SAME, ENGINE) == (
        "numpy 2.2 to 2.3, onnxscript 0.7.1 to 0.7.2: PyTorch and the engines answer as before",
        "by how much: no verdict is another one, 10 % of a tolerance used at most",
        "models: none of 1",
    )
    assert lines(Since(base_file="a", head_file="b")) == ("no package has another release",)
    assert lines(None) == ()


@pytest.mark.parametrize("name", ["markdown", "terminal", "html"])
def test_what_people_read_has_the_three_lines(name: str) -> None:
    report = everything()
    words = " ".join(unescape(find_format(name)(report)).split())
    assert report.since is not None
    for line in lines(report.since):
        assert line in words
