"""Write the files that findings.yml and hints.yml name."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import torch
from models import Plain

torch.manual_seed(0)
model = Plain()
torch.save({f"module.{name}": tensor for name, tensor in model.state_dict().items()}, "parallel.pt")
torch.save(model, "pickled.pt")
Path("pointer.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
torch.save(model.state_dict(), "plain.pt")
torch.onnx.export(
    Plain().eval(),
    (torch.randn(3, 8),),
    "stale.onnx",
    dynamo=True,
    verbose=False,
    dynamic_shapes=({0: "batch"},),
)
shutil.copy("stale.onnx", "twin.onnx")
np.savez("halves.npz", x=(np.arange(24, dtype=np.float32) / 2).reshape(3, 8))
