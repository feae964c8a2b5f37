"""Write the files that the manifests name: weights, stored inputs and outputs, an exported model."""

from __future__ import annotations

from pathlib import Path

import models
import numpy as np
import torch
from safetensors.torch import save_file


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    torch.manual_seed(5)
    mlp = models.Mlp()
    save_file(mlp.state_dict(), folder / "mlp.safetensors")
    torch.save({"state_dict": mlp.state_dict()}, folder / "mlp.pt")
    save_file(models.Mlp(8).state_dict(), folder / "other.safetensors")
    x = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    with torch.no_grad():
        y = mlp.eval()(torch.from_numpy(x)).numpy()
    np.savez(folder / "stored.npz", x=x, output_0=y)
    torch.onnx.export(
        mlp,
        (torch.zeros(3, 8),),
        str(folder / "mlp.onnx"),
        dynamo=True,
        verbose=False,
        dynamic_shapes=({0: "batch"},),
    )


if __name__ == "__main__":
    main(Path(__file__).parent / "data")
