"""Parameters that are widened as they are read: the same numbers, and no more of them than are read."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reference import float64
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.widened import Widened, widened_as_read

_AT = torch.tensor([4, 1, 4])

# By rows, or as a whole.
ROWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "index": lambda w: w[_AT],
    "mask": lambda w: w[torch.tensor([True, False, True, False, False, True])],
    "turned and index": lambda w: w.transpose(1, 2)[_AT],
    "flat and index": lambda w: w.view(6, -1)[_AT],
    "index_select": lambda w: w.index_select(0, _AT),
    "embedding": lambda w: F.embedding(_AT, w[:, 0]),
    "one": lambda w: F.linear(torch.ones(2, 5), w[3]),
    "one turned": lambda w: torch.ones(2, 4) @ w[3],
    "some": lambda w: w[1:3].sum(0),
    "one after the other": lambda w: torch.stack([each.sum() for each in w]),
    "einsum": lambda w: torch.einsum("bi,bio->bo", torch.ones(3, 4), w[_AT]),
}
WHOLE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "bmm": lambda w: torch.bmm(torch.ones(6, 2, 4), w),
    "turned": lambda w: torch.bmm(torch.ones(6, 2, 5), w.transpose(1, 2)),
    "bits": lambda w: w.view(torch.int32),
    "written": lambda w: w.mul_(2)[1],
    "array": lambda w: torch.from_numpy(w.numpy()),
    "numbers": lambda w: torch.tensor(w.tolist()),
    "copy": lambda w: copy.deepcopy(w),
    "data": lambda w: w.data,
}


def _stack() -> tuple[torch.Tensor, Widened]:
    torch.manual_seed(0)
    stored = torch.randn(6, 4, 5).bfloat16()
    parameter = widened_as_read(stored, torch.float32)
    assert isinstance(parameter, nn.Parameter)
    assert isinstance(parameter, Widened)
    return stored.float(), parameter


@pytest.mark.parametrize("name", [*ROWS, *WHOLE])
def test_what_is_read_is_what_a_wider_copy_has(name: str) -> None:
    wide, parameter = _stack()
    function = {**ROWS, **WHOLE}[name]
    with torch.no_grad():
        made = function(parameter)
        assert torch.equal(made, function(wide))
        assert made.dtype == (torch.int32 if name == "bits" else torch.float32)
        # Behind a read of all it is read from there, and by rows as well.
        assert (parameter.read is None) == (name in ROWS)
        _ = parameter + 0
        again, first = parameter[2], wide[2]
        assert torch.equal(again + 0, first)


def test_other_values_are_read_once_they_are_put_there() -> None:
    wide, parameter = _stack()
    kept = parameter.data
    parameter.data = kept.double() * 3
    assert parameter[_AT].dtype == torch.float64
    assert torch.equal(parameter[_AT], wide.double()[_AT] * 3)
    parameter.data = kept
    assert torch.equal(parameter[_AT], wide[_AT])


class Chosen(nn.Module):
    """Rows of a stack, as experts are chosen, beside a layer."""

    def __init__(self, stack: nn.Parameter) -> None:
        super().__init__()
        self.stack, self.out = stack, nn.Linear(5, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        at = x.argmax(-1)
        return self.out(torch.bmm(x.unsqueeze(1), self.stack[at])).squeeze(1)


@pytest.mark.parametrize("lazy", [True, False])
def test_a_run_in_float64_widens_the_rows_alone(
    monkeypatch: pytest.MonkeyPatch, lazy: bool
) -> None:
    torch.manual_seed(1)
    wide, parameter = _stack()
    model = Chosen(nn.Parameter(wide, requires_grad=False)).eval()
    inputs = {"x": torch.randn(3, 4).numpy()}
    expected = Float64Reference(Eager(model, ("x",))).run(inputs)
    monkeypatch.setattr(float64, "DOUBLED_BYTES", -1 if lazy else 1 << 30)
    model.stack = parameter  # type: ignore[assignment]
    found = Float64Reference(Eager(model, ("x",))).run(inputs)
    assert expected is not None
    assert found is not None
    assert (found[0] == expected[0]).all()
    assert (parameter.read is None) == lazy
    assert torch.equal(parameter + 0, wide)
