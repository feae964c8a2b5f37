"""An ONNX file that is older than its checkpoint.

Mistake: the model was trained on, the checkpoint was committed, the ONNX file was not.
In production: last month's model.
Remedy: export in the release, or let the gate verify the committed file against the checkpoint, as
here. ``make_artifacts.py`` makes both files.
"""

from __future__ import annotations

from torch import Tensor, nn


class Spam(nn.Module):
    """The score of a message: float32[batch, 20] -> float32[batch, 2]."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, features: Tensor) -> Tensor:
        return self.body(features)
