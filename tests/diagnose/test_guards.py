"""A guard that the module has and the file has not is missed in the file, not advised in the module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from onnx_gate.diagnose.hints.hints import explaining
from onnx_gate.diagnose.localize.localize import localize
from onnx_gate.report.model import Worst
from onnx_gate.report.model.diagnosis import Diagnosis
from tests.support.diverging import make

Guarded = Callable[[Tensor, bool], Tensor]


def root(x: Tensor, guard: bool) -> Tensor:
    length = x.square().sum(-1, keepdim=True)
    return x / (length.clamp(min=1e-6) if guard else length).sqrt()


def logarithm(x: Tensor, guard: bool) -> Tensor:
    x = x.relu()
    return (x.clamp_min(1e-6) if guard else x).log()


def attention(x: Tensor, guard: bool) -> Tensor:
    shares = x.masked_fill(x <= 0, -torch.inf).softmax(-1)
    shares = torch.where((x > 0).any(-1, keepdim=True), shares, 0.0) if guard else shares
    return shares @ x


def quotient(x: Tensor, guard: bool) -> Tensor:
    length = x.norm(dim=-1, keepdim=True)
    return x / (length + 1e-3 if guard else length)


class Guarding(nn.Module):
    """A function with its guard, and for whoever exports it without."""

    def __init__(self, function: Guarded) -> None:
        super().__init__()
        self.function, self.guard = function, True

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.guard)


def without(module: nn.Module, x: Tensor, path: Path) -> None:
    module.guard = False  # type: ignore[assignment]
    program = torch.onnx.export(module, (x,), dynamo=True, input_names=["x"], verbose=False)
    assert program is not None
    program.save(str(path))
    module.guard = True  # type: ignore[assignment]


def as_it_is(module: nn.Module, x: Tensor, path: Path) -> None:
    program = torch.onnx.export(module, (x,), dynamo=True, input_names=["x"], verbose=False)
    assert program is not None
    path.write_bytes(program.model_proto.SerializeToString())


def other_limit(module: nn.Module, x: Tensor, path: Path) -> None:
    """The guard is there, with another limit: that is what is wrong, and nothing is missing."""
    as_it_is(module, x, path)
    proto = onnx.load(str(path))
    node = next(node for node in proto.graph.node if node.op_type == "Clip")
    proto.graph.initializer.append(onnx.helper.make_tensor("low", 1, (), [0.0]))
    node.input[1] = "low"
    onnx.save(proto, str(path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "lacking", "beside", "code"),
    [
        (root, "Clip", "Sqrt", "OG712"),
        (logarithm, "Clip", "Log", "OG712"),
        (quotient, "Add", "Div", "OG712"),
        (attention, "Where", "MatMul", "OG705"),
    ],
)
def test_a_guard_that_an_exporter_left_out_is_missing_in_the_file(
    function: Guarded, lacking: str, beside: str, code: str, tmp_path: Path
) -> None:
    x = np.zeros((4, 4), np.float32)
    subject = make(tmp_path, Guarding(function), x, exporter=without)
    located = localize(subject)
    assert located.node is not None
    assert located.beside is not None, located
    assert (located.node.op_type, located.beside.op_type) == (lacking, beside)
    worst = Worst(index=(0, 0), expected=0.0, actual=float("nan"))
    check = subject.check.model_copy(update={"worst": worst, "edge": "masks"})
    diagnosis = Diagnosis(
        runtime=check.runtime,
        case=check.case,
        output=check.output,
        blame="exporter",
        node=located.beside.model_copy(
            update={"op_type": "Softmax" if code == "OG705" else beside}
        ),
    )
    # The advice to put one in is for the module that has none.
    assert [f.code for f in explaining(diagnosis, subject.exported.proto, check)] == [code]
    lacks = diagnosis.model_copy(update={"node": located.node, "beside": diagnosis.node})
    assert not explaining(lacks, subject.exported.proto, check)


@pytest.mark.slow
def test_a_guard_with_another_limit_is_not_missing(tmp_path: Path) -> None:
    x = np.zeros((4, 4), np.float32)
    located = localize(make(tmp_path, Guarding(root), x, exporter=other_limit))
    assert located.node is not None
    assert located.beside is None
    assert located.node.op_type == "Clip"
