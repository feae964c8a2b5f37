"""Blocks that are given other modules of the model, whose parameters they read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from onnx_gate.report.model import ModelResult
from onnx_gate.verify.blocks.staged import Reached, Staged, Unfit
from onnx_gate.verify.context import Context
from onnx_gate.verify.verify import verify
from tests.support.blocks_project import committed, project


class Caller(nn.Module):
    """Hands a module to its head: its own table, or one that nobody knows."""

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.table, self.head, self.own = nn.Embedding(2, 2), nn.Identity(), own

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.head(x, self.table if self.own else nn.Embedding(2, 2))
        return made


def test_only_modules_of_the_model_itself_are_handed_on() -> None:
    for own, reason in ((True, Reached), (False, Unfit)):
        caller = Caller(own)
        staged = Staged(caller, ["head"])
        with staged.answered([], ["head"]), pytest.raises(reason):
            caller(torch.ones(2))
        assert staged.read_by("head")[1:] == ((caller.table,) if own else ())


@pytest.mark.slow
@pytest.mark.parametrize("file", [False, True])
@pytest.mark.parametrize("fault", ["", "lent"])
def test_a_block_is_given_a_module_of_the_model(tmp_path: Path, file: bool, fault: str) -> None:
    spec = (
        committed(tmp_path, "dynamo", lent=True, fault=fault)
        if file
        else project(tmp_path, lent=True, fault=fault)
    )
    result: ModelResult = verify(spec, Context(tmp_path, tmp_path / "out"), lambda _: None)
    assert result.verdict == ("diverged" if fault else "pass"), result.error
    compared = {c.output for c in result.checks if c.block == "lent" and c.compared}
    assert "lent" in compared
    wrong = {c.block for c in result.checks if c.verdict == "diverged" and c.block}
    assert wrong == ({"lent"} if fault else set())
