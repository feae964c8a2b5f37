"""The resolution that a pass states holds: whatever is three times as far off is refused."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn

from onnx_gate.manifest import load
from onnx_gate.report.model import ModelResult
from onnx_gate.verify.context import Context
from onnx_gate.verify.verify import verify

FACTOR = 3


class Scaled(nn.Module):
    """Quantities of very unlike size beside each other."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.tensor([1e5, 1.0, 1e-4, 30.0, 1e-2, 1.0, 1.0, 7.0])


class Cancelling(nn.Module):
    """One column that cancels beside columns that do not."""

    def forward(self, x: Tensor) -> Tensor:
        sums = (x + 100).sum(-1, keepdim=True) - 100.0 * x.shape[-1]
        return torch.cat([x.tanh(), sums], -1)


class Own(nn.Module):
    """A module of one function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def recurrent() -> nn.Module:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(8, 6, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.gru(x)[0]

    return Last()


FLAT, SERIES, IMAGE = (3, 8), (2, 5, 8), (2, 3, 8, 8)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 6)), FLAT),
    "softmax": (lambda: nn.Sequential(nn.Linear(8, 10), nn.Softmax(-1)), FLAT),
    "exponents": (lambda: Own(lambda x: torch.exp(3 * x)), FLAT),
    "scaled": (Scaled, FLAT),
    "cancelling": (Cancelling, FLAT),
    "norm": (lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 5)), SERIES),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), SERIES),
    "recurrent": (recurrent, SERIES),
    "cumulative": (lambda: Own(lambda x: x.cumsum(1)), SERIES),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3)),
        IMAGE,
    ),
    "pooled": (lambda: nn.Sequential(nn.BatchNorm2d(3), nn.AdaptiveAvgPool2d(2)), IMAGE),
    "resized": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE),
}


def seeded(proto: onnx.ModelProto, place: Mapping[int, int], share: float) -> onnx.ModelProto:
    """Return a graph whose first output is off by a share of itself at these indices of axes."""
    proto = onnx.ModelProto.FromString(proto.SerializeToString())
    graph, count = proto.graph, 0
    output = graph.output[0].name

    def node(op: str, *inputs: str, **attributes: Any) -> str:
        nonlocal count
        count += 1
        graph.node.append(helper.make_node(op, inputs, [f"seed_{count}"], **attributes))
        return f"seed_{count}"

    def constant(value: np.ndarray) -> str:
        nonlocal count
        count += 1
        graph.initializer.append(numpy_helper.from_array(value, f"seed_{count}"))
        return f"seed_{count}"

    def numbers(*values: int) -> str:
        return constant(np.array(values, np.int64))

    def off(value: str, left: list[tuple[int, int]]) -> str:
        if not left:
            return node("Mul", value, constant(np.array(1 + share, np.float32)))
        (axis, index), *rest = left
        ends = 0, index, index + 1, 2**62
        before, one, after = (
            node("Slice", value, numbers(low), numbers(high), numbers(axis))
            for low, high in itertools.pairwise(ends)
        )
        return node("Concat", before, off(one, rest), after, axis=axis)

    for each in graph.node:
        each.output[:] = ["before" if name == output else name for name in each.output]
        each.input[:] = ["before" if name == output else name for name in each.input]
    graph.node.append(helper.make_node("Identity", [off("before", list(place.items()))], [output]))
    return proto


def verified(name: str, folder: Path) -> ModelResult:
    """Verify the file of a folder as a manifest of one random suite would have it done."""
    module = MODELS[name][0]()
    given = next(iter(inspect.signature(module.forward).parameters))
    size = ", ".join(map(str, MODELS[name][1][1:]))
    lines = "from tests.e2e.test_resolution import built\n"
    (folder / "models.py").write_text(lines)
    (folder / "onnx-gate.yml").write_text(
        "version: 1\nsuites: {few: {random: normal, count: 2}}\nmodels:\n  m:\n"
        f"    model: models.py:built\n    args: [{name}]\n    onnx: file.onnx\n    suites: [few]\n"
        f'    inputs: {{{given}: "float32[batch, {size}]"}}\n    dims: {{batch: [3, 7]}}\n'
    )
    spec = load(folder / "onnx-gate.yml").models[0]
    return verify(spec, Context(folder, folder / "out", ("few/*",)), lambda _: None)


def built(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name][0]().eval()


def exported(module: nn.Module, shape: tuple[int, ...]) -> onnx.ModelProto:
    batch = torch.export.Dim("batch")
    example = torch.rand(5, *shape[1:])
    program = torch.onnx.export(
        module, (example,), dynamo=True, dynamic_shapes=({0: batch},), verbose=False
    )
    assert program is not None
    return program.model_proto


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_what_is_three_times_as_far_off_is_refused(name: str, tmp_path: Path) -> None:
    proto, path = exported(built(name), MODELS[name][1]), tmp_path / "file.onnx"
    onnx.save(proto, path)
    right = verified(name, tmp_path)
    assert right.verdict == "pass"
    (found,) = [check.resolution for check in right.checks if check.resolution is not None]
    rank = len(proto.graph.output[0].type.tensor_type.shape.dim)
    least = found.index if found.axis == 1 else 0
    kinds = {
        "element": (found.element, {1: least} | {axis: 0 for axis in range(rank) if axis != 1}),
        "row": (found.row, dict.fromkeys(range(rank - 1), 0)),
        "channel": (found.channel, {1: least}),
    }
    for size, place in kinds.values():
        assert size is not None
        onnx.save(seeded(proto, place, FACTOR * size), path)
        assert verified(name, tmp_path).verdict == "diverged", (size, place)
