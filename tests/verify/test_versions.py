"""Versions of packages that the gate is not known to work with, and what old ones of torch cannot do."""

from __future__ import annotations

from importlib import metadata

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from onnx_gate.manifest import InputSpec, ModelSpec
from onnx_gate.verify.export.constraints import FailedTrace, constraint
from onnx_gate.verify.export.failures import export_error
from onnx_gate.verify.export.specialising import Stacks
from onnx_gate.verify.versions import version_findings


def test_a_version_outside_of_the_range_is_named_with_what_to_install() -> None:
    installed = metadata.version("onnx")
    (finding,) = version_findings(
        ["onnx<1.0,>=0.9", "numpy>=1", "pyyaml>=99", "torch>=99; extra == 'x'"]
    )
    assert finding.code == "OG214"
    assert finding.message.startswith(f"onnx {installed} is installed")
    assert "pip install 'onnx>=0.9,<1.0'" in finding.message


def test_what_is_installed_here_is_in_the_ranges() -> None:
    assert list(version_findings()) == []


@pytest.mark.parametrize(
    ("kind", "name"), [(nn.LSTM, "nn.LSTM"), (nn.GRU, "nn.GRU"), (nn.RNN, "nn.RNN")]
)
def test_a_recurrent_layer_of_an_old_torch_is_named(kind: type[nn.LSTM], name: str) -> None:
    """Up to torch 2.11 what was traced has the length as a number, and inputs without names."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(3, 4, batch_first=True)

        def forward(self, signal: Tensor) -> Tensor:
            return self.layer(signal)[0]

    example = (torch.rand(2, 5, 3),)
    program = torch.export.export(Recurrent(), example, dynamic_shapes=({0: Dim.DYNAMIC},))
    text = (
        "Constraints violated (L['signal'].size()[1])! For more information ...\n"
        "  - You marked L['signal'].size()[1] as dynamic but your code specialized it to be a constant (5)."
    )
    spec = ModelSpec(
        name="m", model="m.py:M", inputs={"signal": InputSpec("float32", ("batch", "seq", 3))}
    )
    tied = constraint(text, spec, FailedTrace([program.graph_module], Stacks(), None), None)
    assert tied is not None
    assert f"{name} (test_versions.py:" in tied.message
    assert "is unrolled at the example's size 5" in tied.message
    assert "exporter: torchscript" in tied.remedy
    assert "tied to" not in tied.message


def test_a_failure_of_the_optimiser_says_how_to_do_without() -> None:
    code = compile("None.ndim", "/site-packages/onnxscript/optimizer/_constant_folding.py", "exec")
    with pytest.raises(AttributeError) as caught:
        exec(code)
    spec = ModelSpec(name="m", model="m.py:M", inputs={"x": InputSpec("float32", ("batch",))})
    error = export_error(caught.value, spec)
    assert error.code == "OG207"
    assert "export: {optimize: false}" in error.remedy
    assert "'NoneType' object has no attribute 'ndim'" in error.message
