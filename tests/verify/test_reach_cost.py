"""What a case of more rows or of longer ones costs: what grows with pairs, and what does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onnx_gate.manifest import InputSpec, ModelSpec
from onnx_gate.manifest.roles import default_sizes
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.sizes import Sizes
from onnx_gate.verify.reach.explore import Explorer
from onnx_gate.verify.reach.purse import measure, pairs_of
from onnx_gate.verify.reach.watcher import Watcher

INPUTS = {"x": InputSpec("float32", ("batch", "seq", 8), None)}
SPEC = ModelSpec("m", "m.py:m", INPUTS, dims=default_sizes(INPUTS))


class Of(nn.Module):
    """A function, with a layer for it."""

    def __init__(self, function: Callable[[nn.Linear, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(8, 8), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer, x)


def _attention(layer: nn.Linear, x: Tensor) -> Tensor:
    y: Tensor = layer(x)
    return (y @ y.transpose(1, 2)).softmax(-1) @ y


def _apart(layer: nn.Linear, x: Tensor) -> Tensor:
    y = x.flatten(1)
    return (y[:, None] - y).square().sum(-1) + layer(x).mean()


@pytest.mark.parametrize(
    ("function", "batch", "lengths"),
    [
        (lambda layer, x: layer(x).relu() + x, False, False),
        (lambda layer, x: nn.functional.conv1d(x.mT, layer.weight[..., None]), False, False),
        (_attention, False, True),
        (lambda layer, x: nn.functional.scaled_dot_product_attention(*[x[None]] * 3), False, True),
        (_apart, True, False),
    ],
    ids=("elementwise", "convolution", "attention", "kernel of attention", "distances"),
)
def test_what_grows_with_pairs_is_measured(
    function: Callable[[nn.Linear, Tensor], Tensor], batch: bool, lengths: bool
) -> None:
    eager = Eager(Of(function).eval(), ("x",))

    def drawn(sizes: Sizes) -> Mapping[str, Array]:
        return {"x": np.ones((sizes["batch"], sizes["seq"], 8), np.float32)}

    sizes = {"batch": 4, "seq": 16}
    base = Case("typical", "base", "random", drawn(sizes), sizes)
    cost = measure(eager, base.arrays)
    for grows, of_batch in ((batch, True), (lengths, False)):
        share = pairs_of(SPEC, eager, base, cost, drawn, batch=of_batch)
        assert (share > 0.2) == grows, (share, of_batch)
        assert grows or share < 0.02


def test_a_layer_that_is_one_kernel_costs_what_its_operators_do() -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True).eval()
    x = {"src": np.ones((2, 5, 32), np.float32)}
    kernel = measure(Eager(layer, ("src",)), x)
    before = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        plain = measure(Eager(layer, ("src",)), x)
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    assert kernel.products == plain.products > 0
    assert kernel.forward() == pytest.approx(plain.forward(), rel=0.5)


class Normed(nn.Module):
    """Normalises a large weight before it is used."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2000, 8))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(self.weight, dim=1)[:8] @ x


def test_what_is_computed_of_weights_alone_costs_the_same_whatever_the_size() -> None:
    eager = Eager(Normed().eval(), ("x",))
    one, other = (measure(eager, {"x": np.ones((8, n), np.float32)}) for n in (2, 20))
    assert one.fixed == other.fixed > 10 * one.work > 0
    assert other.work > 5 * one.work
    assert other.forward() < one.forward(10.0) * (1 + 1e-6)


def test_a_module_without_inputs_to_move_is_left_as_it_is() -> None:
    """An input of random bits has no domain to look for neighbours in."""
    inputs = {"x": InputSpec("bool", ("batch", 4), None)}
    spec = ModelSpec("m", "m.py:m", inputs, dims=default_sizes(inputs))

    class Both(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return ((x[:, 0] & x[:, 1]) | x[:, 2]).float()

    explorer = Explorer(spec, Watcher(Eager(Both().eval(), ("x",))))
    x = np.array([[1, 1, 0, 0]], bool)
    case = Case("typical", "base", "random", {"x": x}, {"batch": 1})
    explorer.watcher.run(case.arrays)
    explorer.learn(case)
    assert all(each.arrays["x"].dtype == bool for each in explorer.cases())
    assert explorer.watcher.met


def test_a_case_that_was_tried_is_not_run_again_to_be_asked_about() -> None:
    calls: list[int] = []

    def counted(layer: nn.Linear, x: Tensor) -> Tensor:
        calls.append(len(x))
        y: Tensor = layer(x)
        return y

    watcher = Watcher(Eager(Of(counted).eval(), ("x",)))
    tried, other = (np.full((rows, 8), 0.5, np.float32) for rows in (2, 3))
    answered = watcher.run({"x": tried}, keeps=lambda _: True)
    assert watcher.run({"x": tried}) is answered
    assert calls == [2]
    watcher.run({"x": tried})  # once it was asked about, nothing is kept
    watcher.run({"x": other}, keeps=lambda _: True)
    watcher.run({"x": other.copy()})  # others, for all that is known of them
    watcher.run({"x": other}, keeps=lambda _: False)
    watcher.run({"x": other})
    assert calls == [2, 2, 3, 3, 3, 3]
