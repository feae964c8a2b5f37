"""Random nodes are an error where an answer depends on what they draw, however little."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_gate.manifest.load import load
from onnx_gate.verify.context import Context
from onnx_gate.verify.verify import verify

MODELS = """
import numpy as np
import onnx
import torch

class Noisy(torch.nn.Module):
    '''Noise that is off, as a model of speech has for a deterministic answer.'''

    def __init__(self, scale=0.0):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("scale", torch.tensor(scale))

    def forward(self, x):
        y = self.linear(x)
        return y + torch.randn_like(y) * self.scale

class Quiet(torch.nn.Module):
    '''The same without noise.'''

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)

def _export(module, example, path):
    torch.onnx.export(module, tuple(example.values()), path, dynamo=False,
                      input_names=["x"], dynamic_axes={"x": {0: "batch"}})

def noise(scale):
    def export(module, example, path):
        noisy = Noisy(scale)
        noisy.linear = module.linear
        _export(noisy.eval(), example, path)
    return export

off, seen, unseen = noise(0.0), noise(0.1), noise(1e-12)

def tossed(module, example, path):
    '''One element of a milliard becomes another.'''
    _export(module, example, path)
    model = onnx.load(str(path))
    (answer,), make = model.graph.output, onnx.helper.make_node
    model.graph.node.extend([
        make("Mul", [answer.name, "none"], ["zeros"]),
        make("Add", ["zeros", "rarely"], ["chances"]),
        make("Bernoulli", ["chances"], ["tossed"]),
        make("Add", [answer.name, "tossed"], ["sum"]),
    ])
    for name, value in (("none", 0.0), ("rarely", 1e-9)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(value), name))
    answer.name = "sum"
    onnx.save(model, str(path))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "exporter", "verdict", "severity"),
    [
        ("Noisy", "torchscript", "pass", "warning"),
        ("Noisy", "dynamo", "pass", "warning"),
        ("Quiet", "models.py:off", "pass", "warning"),
        ("Quiet", "models.py:seen", "diverged", "error"),
        ("Quiet", "models.py:unseen", "diverged", "error"),
        ("Quiet", "models.py:tossed", "diverged", "error"),
    ],
)
def test_random_nodes_are_wrong_where_an_answer_depends_on_them(
    tmp_path: Path, model: str, exporter: str, verdict: str, severity: str
) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "onnx-gate.yml").write_text(
        f'version: 1\nmodels:\n  net: {{model: "models.py:{model}", '
        f'inputs: {{x: "float32[batch, 4]"}}, export: {{exporter: "{exporter}"}}}}\n'
    )
    spec = load(tmp_path / "onnx-gate.yml").models[0]
    result = verify(spec, Context(workspace=tmp_path, folder=tmp_path / "out"), lambda _: None)
    (found,) = (finding for finding in result.findings if finding.code == "OG114")
    assert (result.verdict, found.severity) == (verdict, severity), found.message
    assert ("no answer depends" in found.message) == (severity == "warning")
