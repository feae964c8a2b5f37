"""Weights that others make up for are none that is wrong; a stale one that no input reaches is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor, nn

from onnx_gate.findings.finding import Finding
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.inspect.altered import altered_by
from onnx_gate.verify.inspect.exact import ExactWeights
from onnx_gate.verify.inspect.instead import Instead
from onnx_gate.verify.inspect.weights import account


class Scores(nn.Module):
    """Layers behind a norm, one of them dead behind its ReLU, and a square one that reads a zero."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.norm = nn.Embedding(100, 16), nn.LayerNorm(16)
        self.first, self.second = nn.Linear(16, hidden), nn.Linear(hidden, 16)
        self.dead, self.square = nn.Linear(16, 16), nn.Linear(16, 16)
        nn.init.zeros_(self.table.weight[:, 5])
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)
        nn.init.constant_(self.dead.bias, -100.0)

    def forward(self, ids: Tensor) -> Tensor:
        table = self.table(ids)
        x = self.norm(table)
        return self.second(self.first(x).relu()) + self.dead(x).relu() + self.square(table)


@torch.no_grad()
def scaled(module: Scores) -> None:
    module.first.weight.mul_(3.0)
    module.first.bias.mul_(3.0)
    module.second.weight.div_(3.0)


@torch.no_grad()
def permuted(module: Scores) -> None:
    order = torch.randperm(len(module.first.bias))
    module.first.weight.copy_(module.first.weight[order])
    module.first.bias.copy_(module.first.bias[order])
    module.second.weight.copy_(module.second.weight[:, order])


@torch.no_grad()
def folded(module: Scores) -> None:
    # Of what is dead nobody can say that it was folded.
    for layer in (module.first, module.dead):
        layer.bias.add_(layer.weight @ module.norm.bias)
        layer.weight.mul_(module.norm.weight)
    nn.init.ones_(module.norm.weight)
    nn.init.zeros_(module.norm.bias)


@torch.no_grad()
def unread(module: Scores) -> None:
    module.table.weight[77] *= 1.25


@torch.no_grad()
def stale(module: Scores) -> None:
    module.dead.bias.sub_(1.0)


@torch.no_grad()
def transposed(module: Scores) -> None:
    # It lies in the file the other way round, and what it is multiplied by is 0.
    module.square.weight[3, 5] *= 1.25


CHANGES: dict[Callable[[Scores], None], str] = {
    scaled: "",
    permuted: "",
    folded: "dead",
    unread: "table",
    stale: "dead",
    transposed: "square",
}


# Of vectors the exporter keeps the weights' names, and square ones may lie there either way.
@pytest.mark.parametrize(("hidden", "shape"), [(12, (6, 10)), (16, (60,))])
@pytest.mark.parametrize("change", CHANGES)
def test_what_others_make_up_for_is_not_wrong(
    change: Callable[[Scores], None], hidden: int, shape: tuple[int, ...], tmp_path: Path
) -> None:
    wrong, ids = CHANGES[change], torch.arange(60).reshape(shape)
    module, other = Scores(hidden).eval(), Scores(hidden).eval()
    change(other)
    path = tmp_path / "model.onnx"
    torch.onnx.export(other, (ids,), path, dynamo=False, input_names=["ids"], verbose=False)
    proto = onnx.load(path)
    expected = module(ids).detach().numpy()
    arrays = {"ids": ids.numpy()}

    def found(instead: Instead | None) -> list[Finding]:
        exact = ExactWeights(partial(altered_by, Eager(module, ["ids"]), arrays), True)
        return [
            f
            for f in account(proto, tmp_path, module, (), exact, instead)[1]
            if f.severity == "error"
        ]

    assert found(None) or change is permuted
    told = " ".join(f.message for f in found(Instead(path, arrays, [expected])))
    assert bool(told) == bool(wrong)
    assert wrong in told
    for name in ("table", "norm", "first", "second", "dead", "square"):
        assert name == wrong or f"{name}." not in told
