"""Diverges, and tries to have the finished report say that it passed."""

import os
import shutil

import torch


class Forger(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_exporting():
            for name in ("logs", "models", "report.json"):
                try:
                    path = os.path.join("onnx-gate-report", name)
                    os.rename(path, path + ".old")
                    shutil.rmtree(path, ignore_errors=True)
                    print(f"MOVED {name}")
                except OSError as error:
                    print(f"KEPT {name} {error}")
            return x * 3
        return x * 2


def build():
    return Forger()
