"""``onnx-gate init`` as a user starts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from onnx_gate.manifest.load import load
from tests.support.gate import gate

pytestmark = pytest.mark.process

NET = """
import torch
from torch import nn

class Ranker(nn.Module):
    def __init__(self, vocabulary, width=8):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.head = nn.Linear(width, 3)

    def forward(self, tokens, weights, scale=1.0, extra=None):
        weighted = self.embed(tokens) * weights[:, 1:].unsqueeze(-1) * scale
        return self.head(weighted.sum(1))
"""
INFER = """
import torch
from net import Ranker

model = Ranker(500, width=4).eval()
for batch, length in ((1, 5), (3, 9), (2, 12)):
    model(torch.randint(3, 400, (batch, length)), weights=torch.rand(batch, length + 1), scale=0.5)
"""
MANIFEST = (
    "version: 1\nmodels: # ours\n  old: {model: net.py:Ranker, args: [9], inputs: {}} # kept\n"
)


def files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and not {".git", "__pycache__", "onnx-gate-report"} & set(path.parts)
    }


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "infer.py").write_text(INFER)
    return tmp_path


@pytest.mark.slow
def test_a_recorded_model_is_added_to_a_manifest_and_verified(repository: Path) -> None:
    (repository / "onnx-gate.yml").write_text(MANIFEST)
    done = gate("init", "net.py:Ranker", "--record", f"{sys.executable} infer.py", cwd=repository)
    assert done.returncode == 0, done.stdout + done.stderr
    text = (repository / "onnx-gate.yml").read_text()
    assert text.startswith(MANIFEST.rstrip("\n"))
    spec = next(each for each in load(repository / "onnx-gate.yml").models if each.name == "ranker")
    assert (spec.args, spec.kwargs, spec.call) == ((500,), {"width": 4}, {"scale": 0.5})
    assert {name: (each.dtype, each.shape, each.range) for name, each in spec.inputs.items()} == {
        "tokens": ("int64", ("batch", "seq"), (0, 499)),
        "weights": ("float32", ("batch", "seq + 1"), (0, 1)),
    }
    assert list(spec.suites) == ["typical", "edges", "ranker-calls"]
    assert files(repository) == {
        *("net.py", "infer.py", "onnx-gate.yml", ".gitignore", ".github/workflows/onnx-gate.yml"),
        *("onnx-gate/ranker/call-0.npz", "onnx-gate/ranker/call-1.npz"),
    }
    for words in ("after 3 recorded calls", "seq + 1, in every call", "ranker-calls", "pass"):
        assert words in done.stdout + text


@pytest.mark.slow
def test_a_side_that_the_export_fixes_is_fixed_in_the_manifest(repository: Path) -> None:
    (repository / "net.py").write_text(
        "from torch import nn\n\ndef gru():\n    return nn.GRU(10, 16, num_layers=2)\n"
    )
    done = gate("init", "net.py:gru", cwd=repository)
    assert done.returncode == 0, done.stdout + done.stderr
    (spec,) = load(repository / "onnx-gate.yml").models
    assert spec.inputs["input"].shape == (7, "batch", 10)
    assert "the export fixes seq at 7" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["net.py"], "name what builds the model, net.py:Ranker"),
        (["net.py:Ranker", "--name", "a/b"], "'a/b' cannot be a name"),
        (["net.py:Ranker", "--manifest", "below/onnx-gate.yml"], "--manifest onnx-gate.yml"),
        (["gone.py:Net"], "gone.py: no such file"),
        (["/etc/net.py:Net"], "no such file"),
        (["net.py:Ranker", "--arg", "width"], "write KEY=VALUE"),
        (["net.py:Ranker", "--input", "tokens"], "write NAME=DTYPE[SHAPE]"),
        (["net.py:Ranker", "--input", "tokens=int46[batch]"], "did you mean 'int64'?"),
        (["net.py:Ranker", "--input", "tokens=int64[batch] in 0..x"], "--input 'tokens=int64"),
        (["net.py:Ranker", "--name", "old"], "has a model 'old' on line 3"),
        (["net.py:Missing"], "has no attribute 'Missing'"),
    ],
)
def test_what_cannot_be_begun_writes_nothing(
    arguments: list[str], words: str, repository: Path
) -> None:
    (repository / "onnx-gate.yml").write_text(MANIFEST)
    before = files(repository)
    done = gate("init", *arguments, cwd=repository)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert files(repository) == before
    assert (repository / "onnx-gate.yml").read_text() == MANIFEST


def test_a_manifest_with_mistakes_is_shown_before_anything_is_tried(repository: Path) -> None:
    (repository / "onnx-gate.yml").write_text("version: 2\nmodels: {}\n")
    done = gate("init", "net.py:Ranker", cwd=repository)
    assert done.returncode == 2
    assert "onnx-gate.yml:1:" in done.stderr
