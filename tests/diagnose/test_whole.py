"""What is wrong with a file as a whole, where no node of it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor

from onnx_gate.diagnose.localize.localize import Located
from onnx_gate.diagnose.whole import of_the_whole
from tests.support.diverging import Of, make, normal


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x: x.half().sum(-1), True),
        (lambda x: x.half().float().sum(-1).half(), False),
    ],
)
def test_an_output_that_the_exporter_leaves_in_float32_is_to_be_computed_in_it(
    tmp_path: Path, function: Callable[[Tensor], Tensor], told: bool
) -> None:
    subject = make(tmp_path, Of(function), normal(3, 5))
    check = subject.check.model_copy(update={"form": "dtype"})
    cause = of_the_whole(replace(subject, check=check), Located(None), 60.0)
    assert (cause is not None) == told
    if cause is not None:
        assert "`.float()` in front" in cause.remedy
        assert "`.half()` behind" in cause.remedy
