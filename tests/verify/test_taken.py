"""Inputs that the manifest has wrong: what ``forward`` takes is found by trying."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.taken import what_it_takes


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(100, 4), nn.Embedding(30, 4)
        self.head = nn.Linear(9, 1)

    def forward(self, user: Tensor, item: Tensor, dense: Tensor) -> Tensor:
        return self.head(torch.cat([self.users(user), self.items(item), dense], 1))


class Refusing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("never")


def given(item: int = 29, dtype: str = "float32") -> dict[str, Array]:
    return {
        "user": np.array([99, 0]),
        "item": np.array([0, item]),
        "dense": np.ones((2, 1), dtype),
    }


@pytest.mark.parametrize(
    ("module", "arrays", "told"),
    [
        (
            Recommender(),
            given(item=40),
            ("inputs.item reaches 40, and the table items has rows 0 to 29", "range: [0, 29]"),
        ),
        (
            Recommender(),
            given(dtype="float64"),
            ("inputs.dense: the manifest says float64, and forward", "float32 in inputs.dense"),
        ),
        (Refusing(), {"x": np.ones(2, np.float32)}, None),
    ],
)
def test_what_is_wrong_with_an_input_is_told(
    module: nn.Module, arrays: dict[str, Array], told: tuple[str, str] | None
) -> None:
    eager = Eager(module, tuple(arrays), None, {})
    with pytest.raises(Refusal) as refused:
        eager.run(arrays)
    found = what_it_takes(eager, arrays, refused.value)
    if told is None:
        assert found is None
        return
    assert found is not None
    assert found.wrong.startswith(told[0])
    assert told[1] in found.remedy
