"""What makes NaN or an infinity of numbers is named, and nothing that hands it on or has it written in."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from onnx_gate.diagnose.nonfinite import first_nonfinite, told_of_nonfinite
from onnx_gate.report.model import Worst
from tests.support.diverging import Of, make


def overflown(x: Tensor) -> Tensor:
    return (x * 100).exp().sum(1).log()


def quotient(x: Tensor) -> Tensor:
    # What a Where does not choose is not what the output has.
    return torch.where(x > 0.5, (x - 1) / (x - 1), 1 / (x - x))


def masked(x: Tensor) -> Tensor:
    return torch.softmax(x.masked_fill(x > -9, -math.inf), -1) * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "made", "told"),
    [
        (overflown, math.inf, "Exp of the file makes inf of 100"),
        (quotient, math.nan, "Div of the file makes nan of 0 and 0"),
        (masked, math.nan, "Softmax of the file makes nan of -inf"),
    ],
)
def test_the_first_node_that_makes_it_of_numbers_is_named(
    function: Callable[[Tensor], Tensor], made: float, told: str, tmp_path: Path
) -> None:
    subject = make(tmp_path, Of(function), np.ones((1, 1), np.float32))
    worst = Worst(index=(0,), expected=1.0, actual=made)
    check = subject.check.model_copy(update={"worst": worst})
    found = first_nonfinite(dataclasses.replace(subject, check=check))
    assert found is not None
    assert told_of_nonfinite(found) == told
