"""What was compared, in one line: each number apart, none of them passed off as another."""

from __future__ import annotations

from typing import Any

import pytest

from onnx_gate.report.model.result import UnknownWeight, Weights
from onnx_gate.report.story.extent import describe
from onnx_gate.report.story.summary import used_sentence
from tests.support.report.reports import check
from tests.support.report.scenes import model


def test_each_number_stands_apart() -> None:
    checks = [
        check(
            "typical/0",
            sizes={"batch": 2},
            compared=600,
            resolution={"element": 1e-4, "row": 4e-5, "channel": 2e-5},
        ),
        check("typical/1", sizes={"batch": 7}, compared=28, open=12, causes=["order of equals"]),
        check("edges/0", "refused", sizes={"batch": 32}, refused=["pytorch", "runtime"]),
        check("edges/nan", advice=True, sizes={"batch": 64}, resolution={"element": 1e-9}),
    ]
    assert describe(model("m", *checks)) == (
        "2 compared, 1 refused, 1 advice; 12 of 640 elements open (order of equals); batch=2,7; "
        "would have caught 0.01 % of an element, 0.004 % of a row, 0.002 % of a channel"
    )


def test_the_least_protected_part_is_named_beside_the_others() -> None:
    few = {"element": 0.02, "row": 1e-6, "channel": 0.01, "others": 3e-6}
    few |= {"axis": 1, "index": 7, "size": 1e-4}
    sharp = {"element": 1e-6}
    checks = [check("a", resolution=few), check("a", output="sharp", resolution=sharp)]
    assert describe(model("m", *checks)).endswith(
        "would have caught 3.0e-06 of an element, 1.0e-06 of a row, 1 % of a channel; but 2 % of an "
        "element in logits[:, 7] (1.0e-04 times as large as is usual)"
    )


def test_a_divergence_has_no_resolution_to_boast_of() -> None:
    bad = check("typical/0", "diverged", resolution={"element": 1e-4, "row": 4e-5, "channel": 2e-5})
    assert describe(model("m", bad, verdict="diverged")) == "1 compared"
    assert describe(model("m").model_copy(update={"checks": ()})) == ""


def test_a_hostile_report_makes_no_long_line() -> None:
    many = [check(f"x/{n}", sizes={"d" * 500 + str(n): 10**5000}) for n in range(100)]
    assert len(describe(model("m", *many))) < 1000


@pytest.mark.parametrize(
    ("unknown", "said"),
    [
        ((), "all weights accounted for"),
        ((UnknownWeight(name="w"),), "1 of 3 weights not accounted for"),
    ],
)
def test_weights_are_accounted_for_in_few_words(
    unknown: tuple[UnknownWeight, ...], said: str
) -> None:
    known = Weights(total=3, same=3 - len(unknown), unknown=unknown)
    passed = model("m", check("typical/0")).model_copy(update={"weights": known})
    assert describe(passed).endswith(f"; {said}")


def test_only_what_is_equal_is_called_so() -> None:
    nothing: dict[str, Any] = {"budget": 0.0, "tolerance": {"top1": 0.9}}
    numbers = {"elements": 640, "max_rel": 0.0}
    same, apart = ({**numbers, "max_abs": off, "rms": off} for off in (0.0, 0.5))
    assert used_sentence(check("a", metrics=same, **nothing)) == "all equal"
    assert used_sentence(check("a", metrics=apart, **nothing)) == "0 % of the tolerance used"
    opened = check("a", metrics=apart, open=3, causes=["rounding"], **nothing)
    assert used_sentence(opened) == "equal where the answer is not open"
