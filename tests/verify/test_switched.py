"""A call may switch an attribute for good: what is compared is not the module as it was built."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from onnx_gate.manifest.load import load
from onnx_gate.report.model import ModelResult
from onnx_gate.verify.context import Context
from onnx_gate.verify.switched import changes, plain, told_of
from onnx_gate.verify.verify import verify

MODELS = """
import torch

class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kind = "sparse"

    def forward(self, x):
        return x if self.kind == "full" else x * 1.01


class Switched(torch.nn.Module):
    '''A short input makes it compute another thing for good.'''

    def __init__(self):
        super().__init__()
        self.part = Part()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if x.shape[1] <= 8:
            self.part.kind = "full"
        return self.part(x).cumsum(1)


class Swapped(Switched):
    '''The part itself becomes another one, which the old attributes do not fit.'''

    def forward(self, x):
        if x.shape[1] <= 8 and self.part is not None:
            self.part = None
            self.kind = "full"
        return (x if self.part is None else self.part(x)).cumsum(1)


class Late(Switched):
    '''What is switched matters at long inputs, of which the export's example is none.'''

    def forward(self, x):
        if x.shape[1] <= 8:
            self.part.kind = "full"
        return self.part(x).cumsum(1) if x.shape[1] > 20 else x.cumsum(1)


class Chosen(torch.nn.Module):
    '''Another way to the same values.'''

    def __init__(self):
        super().__init__()
        self.kind = "sum"

    def forward(self, x):
        if x.shape[1] <= 8:
            self.kind = "cumsum"
        return x.sum(1) if self.kind == "sum" else x.cumsum(1)[:, -1]


class Growing(torch.nn.Module):
    '''A counter that nobody reads, a table that grows, and what is set up once.'''

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.calls, self.length, self.table, self.ready = 0, 0, None, False

    def forward(self, x):
        self.calls += 1
        if not self.ready:
            self.weight.data.mul_(2)
            self.ready = True
        if x.shape[1] > self.length:
            self.length = x.shape[1]
            self.table = torch.arange(self.length).float()
        return x * self.table[: x.shape[1]] * self.weight
"""


def _result(folder: Path, model: str, sizes: str, example: int) -> ModelResult:
    (folder / "models.py").write_text(MODELS)
    (folder / "onnx-gate.yml").write_text(
        f'version: 1\nmodels:\n  net: {{model: "models.py:{model}", dims: {{seq: {sizes}}}, '
        'inputs: {x: "float32[2, seq]"}, '
        f"export: {{exporter: torchscript, example: {{seq: {example}}}}}}}\n"
    )
    spec = load(folder / "onnx-gate.yml").models[0]
    return verify(spec, Context(workspace=folder, folder=folder / "out"), lambda _: None)


@pytest.mark.parametrize("model", ["Switched", "Swapped"])
def test_a_switch_at_the_first_call_is_told(tmp_path: Path, model: str) -> None:
    """Both sides compute ``full`` in every case, and agree."""
    result = _result(tmp_path, model, "[4, 40]", 4)
    assert result.error is not None
    assert (result.error.code, result.error.kind) == ("OG106", "unverified")
    assert "on the inputs of" in result.error.message
    assert "seq=4/" not in result.error.message
    assert "kind " in result.error.message
    assert "'full'" in result.error.message
    assert "calls" not in result.error.message.partition("switched")[2]
    assert "choose kind in __init__" in result.error.remedy


def test_the_part_is_named_with_what_it_was(tmp_path: Path) -> None:
    result = _result(tmp_path, "Switched", "[4, 40]", 4)
    assert result.error is not None
    assert "part.kind was 'sparse' and is 'full'" in result.error.message


def test_a_switch_at_a_later_case_is_told(tmp_path: Path) -> None:
    """The export's example is long, and the short case comes after it."""
    result = _result(tmp_path, "Switched", "[40, 4]", 40)
    assert result.error is not None
    assert result.error.code == "OG106"
    assert "part.kind was 'sparse' and is 'full'" in result.error.message


def test_a_switch_that_the_example_does_not_show_is_told(tmp_path: Path) -> None:
    result = _result(tmp_path, "Late", "[12, 4, 40]", 12)
    assert result.error is not None
    assert "as it was built" in result.error.message
    assert "part.kind was 'sparse' and is 'full'" in result.error.message


@pytest.mark.parametrize("model", ["Growing", "Chosen"])
def test_what_answers_as_before_is_no_alarm(tmp_path: Path, model: str) -> None:
    result = _result(tmp_path, model, "[4, 40]", 40 if model == "Growing" else 4)
    told = [f.code for f in result.findings if f.code in ("OG106", "OG109")]
    message = result.error.message if result.error is not None else ""
    assert message == ""
    assert told == (["OG109"] if model == "Growing" else [])  # the weight, which is doubled once


def test_changes_are_of_plain_values_and_switches_come_first() -> None:
    module = torch.nn.Sequential(torch.nn.ReLU())
    module.count, module.table, module.kind = 0, None, "a"
    module[0].inplace, module.limit = False, float("nan")
    before = plain(module)
    assert changes(before, module) == ()
    module.count, module.table, module.kind, module[0].inplace = 1, torch.ones(2), "b", True
    module.limit, module.late, module.training = float("nan"), 3.0, False
    assert {str(change) for change in changes(before, module)} == {
        "kind was 'a' and is 'b'",
        "table was None and is a Tensor",
        "0.inplace was False and is True",
        "late was not there and is 3.0",
        "count was 0 and is 1",
    }
    assert [change.name for change in changes(before, module)][-1] == "count"
    assert told_of(before, module) == " (kind was 'a' and is 'b', 0.inplace was False and is True)"
