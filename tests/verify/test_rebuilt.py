"""A factory need not make the same weights twice: the build that is compared is the one exported."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_gate.manifest.load import load
from onnx_gate.verify.context import Context
from onnx_gate.verify.verify import verify

MODELS = """
import torch

BUILDS = []

class Net(torch.nn.Module):
    '''Keeps what it has met, so that the gate exports one that was never called.'''

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.linear(x)

def build():
    '''Each build is off by a hundred units in the last place, as where least squares fit its weights.'''
    net = Net().eval()
    BUILDS.append(net)
    with torch.no_grad():
        net.linear.weight *= 1 + len(BUILDS) * 1e-5
    return net

def _export(module, example, path):
    torch.onnx.export(module, tuple(example.values()), path, dynamo=False,
                      input_names=["x"], dynamic_axes={"x": {0: "batch"}})

def of_its_own(module, example, path):
    '''Of weights that nobody compares.'''
    _export(build(), example, path)

def changing(module, example, path):
    '''A row is off, in place.'''
    with torch.no_grad():
        module.linear.weight[1] += 1e-3
    _export(module, example, path)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exporter", "verdict", "wrong"),
    [
        ("dynamo", "pass", []),
        ("torchscript", "pass", []),
        ("models.py:_export", "pass", []),
        ("models.py:of_its_own", "diverged", ["linear.weight"]),
        ("models.py:changing", "diverged", ["linear.weight"]),
    ],
)
def test_the_build_that_is_compared_is_the_one_that_is_exported(
    tmp_path: Path, exporter: str, verdict: str, wrong: list[str]
) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "onnx-gate.yml").write_text(
        'version: 1\nmodels:\n  net: {model: "models.py:build", '
        f'inputs: {{x: "float32[batch, 4]"}}, export: {{exporter: "{exporter}"}}}}\n'
    )
    spec = load(tmp_path / "onnx-gate.yml").models[0]
    result = verify(spec, Context(workspace=tmp_path, folder=tmp_path / "out"), lambda _: None)
    named = [f.data["parameters"] for f in result.findings if f.code == "OG417"]
    assert (result.verdict, [name for each in named for name in each]) == (verdict, wrong)
