"""A classifier of seven-segment digits, trained by ``make_weights.py``."""

from __future__ import annotations

from torch import Tensor, nn


class Digits(nn.Module):
    """Scores of the ten digits: float32[batch, 1, 12, 8] in [0, 1] -> float32[batch, 10]."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Linear(2 * width * 3 * 2, 10)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.features(image))
