"""What a complaint says of sizes, kinds and axes is put right, whoever worded it."""

from __future__ import annotations

import pytest

from onnx_gate.init.facts import Attempt, Guess
from onnx_gate.init.repair import UNKNOWN_ROWS, repaired

IMAGE = Guess("float32", ("batch", 6, "height", "width"))
FLAT = Guess("float32", ("batch", 16))
SIDES = {"batch": 2, "height": 32, "width": 32}

CASES = {
    "two inputs share what a layer takes": (
        {"a": IMAGE, "b": IMAGE},
        SIDES,
        "weight of size [8, 6, 8, 8], expected input[2, 12, 32, 32] to have 6 channels, but got 12",
        {"a": ("batch", 3, "height", "width"), "b": ("batch", 3, "height", "width")},
        SIDES,
    ),
    "one input of two": (
        {"a": FLAT, "b": FLAT},
        {"batch": 2},
        "bilinear(): input2 size does not match weight size: got 16 but expected 7",
        {"a": ("batch", 16), "b": ("batch", 7)},
        {"batch": 2},
    ),
    "a square of another size": (
        {"a": IMAGE},
        SIDES,
        "mat1 and mat2 shapes cannot be multiplied (2x16384 and 1296x82)",
        {"a": IMAGE.shape},
        {"batch": 2, "height": 9, "width": 9},
    ),
    "a length": (
        {"a": Guess("float32", ("batch", "seq", 4))},
        {"batch": 2, "seq": 7},
        "Input sequence length (7) doesn't match model configuration (32).",
        {"a": ("batch", "seq", 4)},
        {"batch": 2, "seq": 32},
    ),
    "another axis": (
        {"a": FLAT},
        {"batch": 2},
        "not enough values to unpack (expected 3, got 2)",
        {"a": ("batch", "seq", 16)},
        {"batch": 2, "seq": 5},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_complaint_is_put_right(case: str) -> None:
    guesses, sizes, complaint, shapes, wanted = CASES[case]
    tried = [each for _, each in repaired(Attempt(guesses, sizes), complaint)]
    assert (shapes, wanted) in [
        ({name: guess.shape for name, guess in each.guesses.items()}, dict(each.sizes))
        for each in tried
    ]


def test_an_index_is_asked_for_and_then_bounded_by_what_it_points_into() -> None:
    points = Guess("float32", ("batch", "points", 3))
    attempt = Attempt({"x": points, "to": FLAT}, {"batch": 2, "points": 5})
    asked = repaired(attempt, "gather(): Expected dtype int32/int64 for index")
    index = next(each for _, each in asked if each.guesses["to"].dtype == "int64")
    assert index.guesses["to"].range == (0, UNKNOWN_ROWS)
    bounded = repaired(index, "index 9001 is out of bounds for dimension 1 with size 5")
    assert next(bounded)[1].guesses["to"].range == (0, "points - 1")


def test_nothing_grows_beyond_what_can_be_tried() -> None:
    complaint = "mat1 and mat2 shapes cannot be multiplied (2x3072 and 900000000x82)"
    assert list(repaired(Attempt({"a": IMAGE}, SIDES), complaint)) == []
