"""What is wrong with a file as a whole, where no node of it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor, nn

from onnx_gate.diagnose.blame.blame_result import BlameResult
from onnx_gate.diagnose.diagnose import rewritten
from onnx_gate.diagnose.localize.localize import Located
from onnx_gate.diagnose.whole import of_the_whole
from onnx_gate.manifest import InputSpec
from onnx_gate.report.model.diagnosis import Evidence
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.export.exported import Exported
from tests.support.diverging import Of, make, normal
from tests.support.gate import run_few


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x: x.half().sum(-1), True),
        (lambda x: x.half().float().sum(-1).half(), False),
    ],
)
def test_an_output_that_the_exporter_leaves_in_float32_is_to_be_computed_in_it(
    tmp_path: Path, function: Callable[[Tensor], Tensor], told: bool
) -> None:
    subject = make(tmp_path, Of(function), normal(3, 5))
    check = subject.check.model_copy(update={"form": "dtype"})
    cause = of_the_whole(replace(subject, check=check), Located(None), 60.0)
    assert (cause is not None) == told
    if cause is not None:
        assert "`.float()` in front" in cause.remedy
        assert "`.half()` behind" in cause.remedy


class _Two(nn.Module):
    """Two outputs; as the file has them, exchanged, where every value is negative."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x.abs()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "told"),
    [(lambda x: (x.abs(), x), True), (lambda x: (x.abs(), -x.abs()), False)],
)
def test_two_outputs_are_exchanged_where_they_are_in_an_ordinary_case_too(
    tmp_path: Path, function: Callable[[Tensor], tuple[Tensor, Tensor]], told: bool
) -> None:
    def write(_: nn.Module, x: Tensor, path: Path) -> None:
        torch.onnx.export(Of(function).eval(), (x,), path, dynamo=True, verbose=False)

    subject = make(tmp_path, _Two(), -abs(normal(3, 5)), exporter=write)
    cause = of_the_whole(subject, Located(None), 60.0)
    assert (cause is not None) == told
    if cause is not None:
        assert "belongs" in cause.told
        # The manifest's names are the module's own there, which the file has to have.
        assert cause.remedy == "exchange them in mine:export"


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x, mask: x + 0 * mask, True),
        (lambda x, mask: x * (mask >= 0), False),
        (lambda x, mask: x * math.nan + mask, False),
    ],
)
def test_an_input_that_the_file_does_not_depend_on_is_named(
    tmp_path: Path, function: Callable[[Tensor, Tensor], Tensor], told: bool
) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return x * (mask > 0)

    class Written(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return function(x, mask)

    path = tmp_path / "old.onnx"
    x, mask = normal(3, 5), normal(3, 5, seed=1)
    names = ["x", "mask"]
    torch.onnx.export(
        Written().eval(),
        tuple(map(torch.from_numpy, (x, mask))),
        path,
        dynamo=True,
        input_names=names,
        verbose=False,
    )
    subject = make(tmp_path, Of(lambda x: x), x)
    spec = replace(
        subject.spec, inputs={n: InputSpec("float32", (3, 5)) for n in names}, onnx="old.onnx"
    )
    subject = replace(
        subject,
        spec=spec,
        eager=Eager(Model().eval(), ("x", "mask")),
        exported=Exported(path, "file", onnx.load(str(path))),
        graph_inputs={n: n for n in names},
        arrays={"x": x, "mask": mask},
    )
    cause = of_the_whole(subject, Located(None), 60.0)
    expected = "the file's output does not depend on 'mask', and PyTorch's does"
    assert (cause.told if cause else "") == expected * told


TIME_FIRST = """
import torch

class Time(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(8, 4)

    def forward(self, x):
        return self.lstm(x)[0]
"""


@pytest.mark.slow
def test_a_shape_of_the_exporter_s_optimiser_is_told_as_its(tmp_path: Path) -> None:
    """No line of the module's has fixed the time of a recurrent layer, and the program has not."""
    entry = 'model: models.py:Time, inputs: {x: "float32[seq, batch, 8]"}'
    entries = {"time": entry, "without": f"{entry}, export: {{optimize: false}}"}
    found = run_few(tmp_path, TIME_FIRST, entries)
    diagnosis = found["time"].diagnosis
    assert diagnosis is not None
    assert "made the shape of Reshape a constant, [7, -1, 4]" in diagnosis.cause
    # The experiment could not be made here.
    assert diagnosis.remedy == "try it without that optimiser, `export: {optimize: false}`"
    assert found["without"].verdict == "pass"


def test_an_optimiser_that_was_left_out_in_vain_is_not_advised_against(tmp_path: Path) -> None:
    subject = make(tmp_path, Of(lambda x: x.reshape(4, 2)), normal(2, 4))
    node = next(n for n in subject.exported.proto.graph.node if n.op_type == "Reshape")
    node.metadata_props.add(key="pkg.onnxscript.rewriter.rule_name", value="Materialize")
    located = Located(proto=node)
    remedies = dict[bool | None, str]()
    for agrees in (None, False):
        tried = Evidence(kind="fresh export", experiment="", outcome="", agrees=agrees)
        cause = rewritten(subject, located, BlameResult("exporter", None, evidence=(tried,)))
        assert cause is not None
        remedies[agrees] = cause.remedy
    assert remedies == {
        None: "try it without that optimiser, `export: {optimize: false}`",
        False: "",
    }
