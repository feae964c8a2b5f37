"""A repository with one model for each way of reading a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FILES = {
    "models/common.py": "WIDTH = 5\n",
    "models/plain.py": """
from torch import nn
from models.common import WIDTH

class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.body(x).tanh()
""",
    "models/alone.py": """
from torch import nn

class Alone(nn.Module):
    def forward(self, x):
        return x.exp() + 1

class Diverging(nn.Module):
    def forward(self, x):
        return x / 3
""",
    "models/readers.py": """
import pyclbr
import glob
import os
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

HERE = Path(__file__).parent.parent

class Scaled(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float32))

    def forward(self, x):
        return x * self.scale

def native():
    return Scaled(load_file(HERE / "weights" / "native.safetensors")["scale"])

def by_other_means():
    # Neither Python nor a wrapper of ours sees this.
    import ctypes
    libc = ctypes.CDLL(None)
    fd = libc.open(os.fsencode(HERE / "weights" / "raw.bin"), os.O_RDONLY)
    return Scaled(float(os.read(fd, 1).decode()))

def configured():
    return Scaled(float(os.environ.get("SCALE_OF_MODEL", "2")))

def switched():
    return Scaled(3.0 if (HERE / "switch").exists() else 2.0)

def counted():
    return Scaled(float(len(glob.glob(str(HERE / "parts" / "*.txt")))))

def outside():
    # Not in the repository but in the temporary folder, which others may write to.
    path = (HERE / "outside.txt").read_text()
    return Scaled(torch.load(path, weights_only=True)["scale"])

def scratching():
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scale.txt"
        path.write_text("2")
        return Scaled(float(path.read_text()))

def chatty():
    import socket
    try:
        socket.create_connection(("127.0.0.1", 9), timeout=0.2)
    except OSError:
        pass
    return Scaled(2.0)

def restless():
    path = HERE / "counter.txt"
    path.write_text("7")
    return Scaled(float(path.read_text()))
""",
    "models/limits.py": "def worst(expected, actual):\n    return abs(expected - actual).max() + 0.0\n",
    "make.py": """
import numpy as np, torch
from safetensors.torch import save_file
save_file({"scale": torch.tensor(2.0)}, "weights/native.safetensors")
torch.save({"scale": torch.tensor(2.0)}, open("outside.txt").read())
save_file({"scale": torch.tensor(2.0)}, "weights/declared.safetensors")
np.savez("data/case.npz", x=np.ones((2, 5), np.float32))
""",
    "weights/raw.bin": "2",
    "parts/a.txt": "",
    "parts/b.txt": "",
    "data/.keep": "",
    "onnx-gate.yml": """
version: 1
suites: {real: {files: "data/*.npz"}}
models:
  plain: {model: "models/plain.py:Plain", inputs: {x: "float32[batch, 5]"}}
  alone: {model: "models/alone.py:Alone", inputs: {x: "float32[batch, 5]"}}
  native: {model: "models/readers.py:native", inputs: {x: "float32[batch, 5]"}}
  other: {model: "models/readers.py:by_other_means", inputs: {x: "float32[batch, 5]"}}
  configured: {model: "models/readers.py:configured", inputs: {x: "float32[batch, 5]"}}
  switched: {model: "models/readers.py:switched", inputs: {x: "float32[batch, 5]"}}
  counted: {model: "models/readers.py:counted", inputs: {x: "float32[batch, 5]"}}
  outside: {model: "models/readers.py:outside", inputs: {x: "float32[batch, 5]"}}
  scratching: {model: "models/readers.py:scratching", inputs: {x: "float32[batch, 5]"}}
  declared:
    model: "models/readers.py:Scaled"
    args: [1.0]
    weights: weights/declared.safetensors
    inputs: {x: "float32[batch, 5]"}
  filed:
    model: "models/alone.py:Alone"
    inputs: {x: "float32[batch, 5]"}
    suites: [real]
  measured:
    model: "models/alone.py:Alone"
    inputs: {x: "float32[batch, 5]"}
    tolerance: {metric: "models/limits.py:worst", max: 1.0}
  waived:
    model: "models/alone.py:Diverging"
    inputs: {x: "float32[batch, 5]"}
    tolerance: {atol: 1.0e-30, rtol: 0}
    waivers: [{check: "*", until: 2999-01-01, reason: "known"}]
  diverging:
    model: "models/alone.py:Alone"
    inputs: {x: "float32[batch, 5]"}
    tolerance: {atol: 1.0e-30, rtol: 0}
  chatty: {model: "models/readers.py:chatty", inputs: {x: "float32[batch, 5]"}}
  restless: {model: "models/readers.py:restless", inputs: {x: "float32[batch, 5]"}}
""",
}

EVERY = {
    *("plain", "alone", "native", "other", "configured", "switched", "counted", "declared"),
    *("filed", "measured", "waived", "diverging", "outside", "scratching"),
}
"""The models of which a verdict can be kept."""


def outside(folder: Path) -> Path:
    """Return the file beside the repository that one of its models reads."""
    return folder.parent / f"{folder.name}-outside.pt"


def write_project(folder: Path) -> None:
    """Write the repository into ``folder``."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    # A repository, though an empty one: without any, CI could not tell what a commit brought.
    (folder / ".git").mkdir()
    (folder / "outside.txt").write_text(str(outside(folder)))
    subprocess.run([sys.executable, "make.py"], cwd=folder, check=True, timeout=300)
    (folder / "make.py").unlink()
