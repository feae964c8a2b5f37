"""From Python: the same verdicts as from a manifest, on objects that no manifest could name."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from onnx_gate import ParityError, assert_parity, check_parity
from onnx_gate.errors import UserError
from onnx_gate.report.io import parse_report, to_json

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Guarded(torch.nn.Module):
    """Decides by the size of the batch, which the export bakes in."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 4:
            return self.layer(x) * 2
        return self.layer(x)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[1])


def test_the_package_itself_is_light() -> None:
    code = "import sys, onnx_gate; dir(onnx_gate); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_right_model_passes_and_is_left_alone() -> None:
    """A closure, which cannot be pickled, in training mode, after this process has used its threads."""
    factor = torch.ones(4)

    class Local(torch.nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) * factor

    module = Local(4, 4)
    torch.randn(300, 300) @ torch.randn(300, 300)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    report = assert_parity(module, {"input": torch.rand(2, 4)}, dynamic={"input": {0: "batch"}})
    assert report.verdict == "pass"
    cases = {check.case for check in report.models[0].checks}
    assert {"given/0", "typical/batch=7/0"} <= cases
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert repr(report) == "<Report pass: Local agrees>"
    written = to_json(report)
    assert to_json(parse_report(written.encode(), "report.json")) == written
    html = report._repr_html_()
    assert "agrees" in html
    assert "<script" not in html


def test_a_wrong_one_is_an_assertion_with_the_line(tmp_path: Path) -> None:
    dynamic = {"x": {0: torch.export.Dim("batch")}}
    with pytest.raises(ParityError) as caught:
        assert_parity(Guarded().eval(), torch.rand(2, 4), dynamic=dynamic, output=tmp_path)
    text, report = str(caught.value), caught.value.report
    line = inspect.getsourcelines(Guarded.forward)[1] + 1
    assert f"tests/test_api.py:{line}" in text
    assert "a size is baked into it" in text
    assert report.models[0].diagnosis is not None
    assert (tmp_path / str(report.models[0].diagnosis.repro) / "model.onnx").is_file()
    assert f"onnx-gate replay {tmp_path}/repro/" in text
    assert "again:" not in text
    assert "<pre " in report._repr_html_()


def test_functions_stand_where_a_manifest_names_one(tmp_path: Path) -> None:
    """A suite, a metric and an exporter; and a file from anywhere that is older than the module."""
    module = torch.nn.Embedding(10, 3).eval()
    path = tmp_path / "old.onnx"
    ids = {"input": torch.tensor([[1, 2, 9]])}

    def exported(module: torch.nn.Module, example: Mapping[str, Any], path: Path) -> None:
        torch.onnx.export(
            module, tuple(example.values()), str(path), dynamo=False, opset_version=17
        )

    def few(inputs: object, seed: int) -> Iterator[dict[str, torch.Tensor]]:
        yield {"input": torch.tensor([[0, 1, 2]])}

    def farthest(expected: Any, actual: Any) -> float:
        return float(abs(expected - actual).max())

    report = assert_parity(
        module,
        ids,
        export={"exporter": exported},
        suites=[few],
        tolerance={"metric": farthest, "max": 1e-6},
    )
    assert {check.suite for check in report.models[0].checks} == {"given", "few-1", "reached"}
    exported(module, ids, path)
    with torch.no_grad():
        module.weight += 0.1
    stale = check_parity(module, ids, onnx=path, suites=[])
    assert stale.verdict == "diverged"
    assert stale.models[0].diagnosis is not None
    assert stale.models[0].diagnosis.blame == "stale artifact"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dynamic": {"y": {0: "batch"}}}, "no input is called 'y'"),
        ({"dynamic": {"x": {2: "batch"}}}, "x has 2 dimensions, and none is 2"),
        ({"tolerence": {"atol": 1}}, "unknown key 'tolerence'; did you mean 'tolerance'?"),
        ({"atol": 1.0, "tolerance": {"auto": 3}}, "leave out tolerance"),
        ({"onnx": "nowhere.onnx"}, "nowhere.onnx: no such file"),
        ({"suites": ["typicl"]}, "did you mean 'typical'?"),
        ({"runtimes": ["onnxruntme"]}, "did you mean 'onnxruntime'?"),
        ({"call": {"mask": object()}}, "nothing that a manifest can hold"),
    ],
)
def test_a_wrong_call_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        check_parity(Guarded(), {"x": torch.rand(2, 4)}, **arguments)
    assert words in str(caught.value)


def test_a_name_that_is_nearly_right_is_a_slip() -> None:
    class Scaled(torch.nn.Module):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return image * 2

    with pytest.raises(UserError, match="no parameter 'imag'; did you mean 'image'"):
        check_parity(Scaled(), {"imag": torch.ones(2)})
