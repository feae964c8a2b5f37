"""Preprocessing inside the graph, with the channels the other way round.

Mistake: the committed file was exported from a copy of this model whose mean and deviation are in
blue, green, red order, as another image library would have them.
In production: a slight tint; a benchmark drops by a point or two, and nobody knows why.
Remedy: one definition of the preprocessing, in the model that is exported and trained.
``make_artifacts.py`` makes the file.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


class Preprocessed(nn.Module):
    """Scores of an image in [0, 1]: float32[batch, 3, 16, 16] -> float32[batch, 4]."""

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        mean: tuple[float, float, float] = MEAN,
        deviation: tuple[float, float, float] = DEVIATION,
    ) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation).view(3, 1, 1), persistent=False)
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.head = nn.Linear(8, 4)

    def forward(self, image: Tensor) -> Tensor:
        image = (image - self.mean) / self.deviation
        return self.head(torch.relu(self.conv(image)).mean(dim=(2, 3)))
