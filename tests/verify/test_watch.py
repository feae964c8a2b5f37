"""What a module's decisions were shown: recognised on real modules, without a change of their answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from onnx_gate.manifest.spec import ModelSpec
from onnx_gate.report.model import Weights
from onnx_gate.report.model.result import UnknownWeight
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reach.account import account
from onnx_gate.verify.reach.explore import Explorer, learn_computed
from onnx_gate.verify.reach.watcher import Watcher


class Decider(nn.Module):
    """Decides in modules, functions and tables."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.Hardswish()
        self.table = nn.Embedding(6, 4)
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.bounds: torch.Tensor
        self.register_buffer("bounds", torch.tensor([0.0, 0.25, 1.0]))

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> Any:
        y = self.act(x) + self.table(ids)
        y = torch.where(x > 0.5, y, -y)
        y = y / y.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        return self.encoder(y[None]), torch.bucketize(x, self.bounds)


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y.clamp(max=6.0), lambda y: y - 1, (x,))


class Refusing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 2:
            raise ValueError("too many")
        return x.relu_()


class Sized(nn.Module):
    """Compares with a number of its own, and with one that follows from a size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool((x > 0).sum() == x.numel()):
            return x
        return x.clamp(max=6.0)


def _seen(watcher: Watcher) -> dict[tuple[str, str, float | None], tuple[str, ...]]:
    return {(s.module, s.operator, s.limit): seen.left(s) for s, seen in watcher.seen.items()}


def test_sides_are_seen_where_the_inputs_show_them_and_answers_are_untouched() -> None:
    torch.manual_seed(0)
    eager = Eager(Decider().eval(), ("x", "ids"))
    watcher = Watcher(eager)
    x = np.linspace(-1, 1.5, 16, dtype=np.float32).reshape(4, 4)
    inputs: dict[str, Array] = {"x": x, "ids": np.arange(4)}
    watched, plain = watcher.run(inputs), eager.run(inputs)
    for one, other in zip(watched.arrays, plain.arrays, strict=True):
        assert np.array_equal(one, other)
    seen = _seen(watcher)
    assert seen["act", "hardswish", -3.0] == ("below",)
    assert seen["act", "hardswish", 3.0] == ("above",)
    assert seen["table", "embedding", 6.0] == ("rest",)
    assert seen["", "gt", 0.5] == ()
    assert seen["", "where", None] == ()
    assert seen["", "clamp_min", 1e-12] == ("below",)
    assert seen["", "bucketize", 4.0] == ()
    assert {0.5, 0.25, -3.0, 1e-12} <= watcher.constants.keys()
    line = next(site for site in watcher.seen if site.operator == "gt")
    assert line.file == __file__
    assert line.line == Decider.forward.__code__.co_firstlineno + 2

    watcher.run({"x": np.full((2, 4), 4, np.float32), "ids": np.array([4, 5])})
    watcher.run({"x": np.full((2, 4), -4, np.float32), "ids": np.array([4, 5])})
    seen = _seen(watcher)
    assert seen["act", "hardswish", 3.0] == seen["act", "hardswish", -3.0] == ()
    assert seen["table", "embedding", 6.0] == ()
    assert watcher.hulls == {"x": (-4.0, 4.0), "ids": (0.0, 5.0)}


def test_branches_of_a_condition_are_decisions_and_what_is_in_them() -> None:
    eager = Eager(Branching().eval(), ("x",))
    eager.run({"x": np.ones(3, np.float32)})  # a module has been called before it is watched
    watcher = Watcher(eager)
    watcher.run({"x": np.full(3, 9, np.float32)})
    assert _seen(watcher)["", "cond", None] == ("false",)
    assert _seen(watcher)["", "clamp", 6.0] == ("below",)
    watcher.run({"x": np.full(3, -1, np.float32)})
    assert _seen(watcher)["", "cond", None] == ()


class Bent(nn.Module):
    """Decides in Python, by numbers of tensors and by its own."""

    def __init__(self) -> None:
        super().__init__()
        self.most, self.parts = 4, 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean().item()
        if 0.25 < mean < 0.5:
            x = -x
        if self.parts > 1:
            x = x + 1
        if int(x.max()) >= self.most or x[0, 0].item() == 7:
            x = x * 2
        return x


def test_numbers_that_python_takes_are_decided_by_what_they_are_compared_with() -> None:
    watcher = Watcher(Eager(Bent(), ("x",)))
    for mean in (0.0, 0.3):
        watcher.run({"x": np.full((2, 3), mean, np.float32)})
    items = {(s.limit, s.kind): seen for s, seen in watcher.seen.items() if s.operator == "item"}
    assert items.keys() == {
        *((limit, "limit") for limit in (0.25, 0.5, 4.0)),
        (7.0, "equality"),
    }
    assert items[0.25, "limit"].sides >= {"below", "above"}
    assert items[0.5, "limit"].sides == {"below"}


def test_a_refusal_stays_one_and_shows_nothing() -> None:
    watcher = Watcher(Eager(Refusing().eval(), ("x",)))
    with pytest.raises(Refusal, match="too many"):
        watcher.run({"x": np.ones((3, 1), np.float32)})
    assert not watcher.seen
    assert not watcher.lost
    watcher.run({"x": np.ones((2, 1), np.float32)})
    assert _seen(watcher)["", "relu", 0.0] == ("below",)


def test_a_limit_that_follows_from_a_size_is_one_decision_and_no_number_of_the_module() -> None:
    watcher = Watcher(Eager(Sized().eval(), ("x",)))
    watcher.run({"x": np.full(14, -1, np.float32)})
    assert _seen(watcher)["", "eq", 14.0] == ("equal",)
    watcher.run({"x": np.full(5, -1, np.float32)})
    watcher.run({"x": np.full(7, 8, np.float32)})
    seen = _seen(watcher)
    assert {key[2]: left for key, left in seen.items() if key[1] == "eq"} == {None: ()}
    assert seen["", "clamp", 6.0] == ("above",)
    assert 6.0 in watcher.constants
    assert not watcher.constants.keys() & {14.0, 5.0, 7.0}


class Looked(nn.Module):
    """Reads rows by an input, by what it computes of that, by a choice among many, and by no input."""

    def __init__(self) -> None:
        super().__init__()
        self.route = nn.Linear(3, 128)
        self.given, self.hashed, self.chosen, self.placed = (nn.Embedding(128, 3) for _ in range(4))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = self.given(ids[:, 1:].int()) + self.hashed(ids[:, 1:] * 7 % 128)
        return (
            rows
            + self.chosen(self.route(rows).argmax(-1))
            + self.placed.weight[:3][torch.arange(3)]
        )


def test_rows_are_compared_with_their_weights_where_no_computing_says_which_are_read() -> None:
    watcher = Watcher(Eager(Looked().eval(), ("ids",)))
    ids = {"ids": np.arange(8, dtype=np.int64).reshape(2, 4)}
    watcher.run(ids)
    learn_computed(watcher, ids)
    told = account(watcher.seen, (), None, weights=Weights(total=3, same=3))
    tables = {site.module: seen.computed for site, seen in watcher.seen.items() if site.is_table}
    assert (tables["given"], tables["hashed"], tables["chosen"]) == (False, True, True)
    never = {each.module for each in told.never if each.operator == "embedding"}
    assert never == {"hashed", "chosen"}
    assert account(watcher.seen, (), None).compared == 0


def test_rows_that_nothing_has_read_are_said_where_a_weight_is_unexplained() -> None:
    watcher = Watcher(Eager(Looked().eval(), ("ids",)))
    watcher.run({"ids": np.arange(8, dtype=np.int64).reshape(2, 4)})
    explorer = Explorer(ModelSpec("net", "models.py:net", {}), watcher, weights=Weights(total=2))
    assert explorer.unread is None
    explorer.weights = Weights(total=2, unknown=(UnknownWeight(name="val_0"),))
    assert explorer.unread is not None
    assert "367 of 387 rows of the module's tables were read by no input" in explorer.unread
    assert "the file's val_0:" in explorer.unread
