"""Rows that rounding keeps or drops: the noise of those that PyTorch has kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onnx_gate.manifest.values.tolerances import Tolerance
from onnx_gate.runtimes.file_module import FileModule
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.carried import packed, unpacked
from onnx_gate.verify.compared import Asked
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.judge.judge import judge
from onnx_gate.verify.judge.judgement import Rules
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.oracle import RUNS, CaseReference


def nonzero(kept: Tensor) -> Tensor:
    return torch.nonzero(kept)[:, 0]


def in_place(kept: Tensor) -> Tensor:
    return torch.nonzero((~kept).logical_not_())[:, 0]


class Rows(nn.Module):
    """Describes the rows whose score, computed in two ways, is not the smaller one in the first."""

    def __init__(self, select: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.describe, self.select = nn.Linear(16, 8), select
        self.limit = 0.0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        score = x[:, 0].abs() + 1
        kept = self.select(score / 3 * 3 >= (score * 7) / 7)
        described = self.describe(x).tanh().index_select(0, kept)
        return described / described.norm(dim=1, keepdim=True), kept


class ByItem(Rows):
    """Takes as many rows as it has counted, as a number of Python."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        score = x[:, 0].abs() + 1
        count = int((score / 3 * 3 >= (score * 7) / 7).sum().item())
        return self.describe(x)[:count], torch.arange(count)


class Nucleus(nn.Module):
    """Leaves out the least likely, whichever of equals these are, and takes the first of the best."""

    def forward(self, x: Tensor) -> Tensor:
        likely, places = torch.sort(x)
        drop = likely.softmax(-1).cumsum(-1) <= 0.1
        return x.masked_fill(drop.scatter(1, places, drop), -torch.inf).argmax(-1)


class Otherwise(Rows):
    """Goes another way where a number of Python, which is not kept, is moved."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = (x[:, 0].abs() + 1) / 3
        above = float((scores * 7 - scores * 3 - scores * 4).sum())
        rows = self.describe(x).tanh() if above > self.limit else self.describe(x)[:-1].exp()
        return rows, torch.arange(len(rows))


def reference_of(module: nn.Module, x: np.ndarray) -> CaseReference:
    eager = Eager(module, ["x"])
    return CaseReference(eager, Float64Reference(eager), {"x": x}, eager.run({"x": x}))


@pytest.mark.parametrize("module", [Rows(nonzero), Rows(in_place), ByItem(nonzero)])
def test_rows_that_rounding_drops_have_a_noise_of_their_own(module: nn.Module) -> None:
    x = np.random.default_rng(0).standard_normal((200, 16)).astype(np.float32)
    reference = reference_of(module.eval(), x)
    own, output = reference.outputs.arrays[0], reference.output(0)
    assert output.reshaped(), "rounding decides how many rows there are"
    runs = output.rounding(RUNS)
    assert len(runs) == RUNS
    assert all(run.shape == own.shape for run in runs)
    moves = np.max([np.abs(run - own) for run in runs], axis=0)
    # Numbers move by what rounding does, all rows of them, and no row is another one.
    assert np.all(moves > 0)
    assert moves.max() < 1e-5
    assert all(
        np.array_equal(run, reference.outputs.arrays[1])
        for run in reference.output(1).rounding(RUNS)
    )


def test_a_row_is_held_to_its_noise_and_no_other() -> None:
    x = np.random.default_rng(0).standard_normal((200, 16)).astype(np.float32)
    module = Rows(nonzero).eval()
    reference = reference_of(module, x)
    own = reference.outputs.arrays[0]
    rules = Rules(Tolerance(auto=10.0))
    wrong = own.copy()
    wrong[7, 3] *= 1.0001
    right = own + (np.random.default_rng(1).uniform(-1, 1, own.shape) * 2e-7).astype(np.float32)
    assert judge(right, own, rules, reference.output(0)).holds
    assert not judge(wrong, own, rules, reference.output(0)).holds


def test_a_choice_is_open_where_an_unstable_sort_may_leave_out_others() -> None:
    x, rules = np.zeros((7, 30), np.float32), Rules(Tolerance())
    reference = reference_of(Nucleus().eval(), x)
    own = reference.outputs.arrays[0]
    first, last = np.full_like(own, 2), np.full_like(own, 29)  # of a stable sort, and of none
    assert (own != first).all()
    judged = judge(first, own, rules, reference.output(0))
    assert judged.holds
    assert judged.open == 7
    assert "order of equals" in judged.causes
    assert not judge(last, own, rules, reference.output(0)).holds


def test_a_run_that_goes_another_way_cannot_follow() -> None:
    x = np.random.default_rng(0).standard_normal((200, 16)).astype(np.float32)
    module, scores = Otherwise(nonzero).eval(), (torch.from_numpy(x)[:, 0].abs() + 1) / 3
    module.limit = float((scores * 7 - scores * 3 - scores * 4).sum()) - 1e-30
    output = reference_of(module, x).output(0)
    assert output.reshaped()
    assert len(output.rounding(RUNS)) + len(output.reshaped()) == RUNS


def test_runs_of_other_shapes_are_carried(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((200, 16)).astype(np.float32)
    reference = reference_of(Rows(nonzero).eval(), x)
    case = Case(suite="random", id="random/0", kind="random", arrays={"x": x}, sizes={})
    about, data = packed(case, Asked(reference, None, False, (None, None)), "0.npz")
    (tmp_path / "0.npz").write_bytes(data)
    carried = unpacked(about, tmp_path / "0.npz")[1].reference
    assert carried is not None
    for ask in (lambda output: output.rounding(RUNS), lambda output: output.reshaped()):
        there, here = ask(carried.output(0)), ask(reference.output(0))
        assert len(there) == len(here) > 0
        assert all(map(np.array_equal, there, here))


def test_a_file_decides_the_same_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.onnx"
    x = np.random.default_rng(0).standard_normal((200, 16)).astype(np.float32)
    program = torch.onnx.export(
        Rows(nonzero).eval(), (torch.from_numpy(x),), dynamo=True, input_names=["x"]
    )
    assert program is not None
    program.save(path)
    reference = reference_of(FileModule(path, {"x": "x"}), x)
    output = reference.output(0)
    assert output.reshaped()
    assert len(output.rounding(RUNS)) == RUNS
