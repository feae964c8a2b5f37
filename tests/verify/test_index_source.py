"""What is computed of indices is known to come from them, however it is moved about."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from onnx_gate.verify.reference.index_source import Tracker

COMPUTED: dict[str, Callable[[Tensor], Tensor]] = {
    "row": lambda at: at // 6,
    "column": lambda at: at % 6,
    "floored": lambda at: torch.div(at, 6, rounding_mode="floor"),
    "shifted": lambda at: (at - 3) * 2,
    "moved": lambda at: (at.unsqueeze(-1) % 6).flip(1).transpose(0, 1),
    "cut": lambda at: (at // 6).split([2, 3], 1)[1],
}


def searched(search: str, maps: Tensor) -> Tensor:
    flat = maps.flatten(1)
    if search == "argmax":
        return flat.argmax(1, keepdim=True)
    return flat.topk(5, 1).indices if search == "topk" else flat.sort(1).indices[:, 3:8]


@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.parametrize("search", ["topk", "sort"])
def test_a_number_computed_of_an_index_leads_back_to_its_value(name: str, search: str) -> None:
    maps = torch.rand(3, 1, 4, 6)
    tracker = Tracker()
    with torch.no_grad(), tracker:
        at = searched(search, maps)
        output = COMPUTED[name](at)
    own, made = tracker.origins([at, output])
    assert own is not None
    assert own.derived is None
    assert made is not None
    assert made.derived is not None
    np.testing.assert_array_equal(made.derived.of[made.derived.places], output.numpy())
    values = maps.flatten(1).numpy()
    there = made.lanes(made.values)[made.lane_of(), made.derived.places.reshape(-1)]
    lanes = made.lane_of().reshape(output.shape)
    expected = [
        values[lane, place]
        for lane, place in zip(lanes.ravel(), made.derived.places.ravel(), strict=True)
    ]
    np.testing.assert_array_equal(there, expected)
    # Each search has as many numbers in the output as any other.
    assert len(set(np.bincount(lanes.ravel()).tolist())) == 1


@pytest.mark.parametrize(
    "compute",
    [
        lambda at, x: at // x.long()[:, 0, 0, :1],
        lambda at, x: at.float() % 6,
        lambda at, x: at + at,
    ],
)
def test_what_is_not_of_one_index_and_one_number_is_unknown(
    compute: Callable[[Tensor, Tensor], Tensor],
) -> None:
    maps = torch.rand(3, 1, 4, 6) + 1
    tracker = Tracker()
    with torch.no_grad(), tracker:
        output = compute(searched("topk", maps), maps)
    assert tracker.origins([output]) == [None]


def test_what_promises_the_first_of_equals_is_no_more_known_when_computed_of() -> None:
    tracker = Tracker()
    with torch.no_grad(), tracker:
        output = searched("argmax", torch.rand(3, 1, 4, 6)) % 6
    assert tracker.origins([output]) == [None]
