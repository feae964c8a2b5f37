"""A one-stage detector: anchors, box decoding and the best few boxes, all inside the graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def make_anchors(size: int, stride: int, scales: tuple[float, ...]) -> Tensor:
    """Return float32[n, 4]: centre x, centre y, width, height in pixels, row by row."""
    centres = (torch.arange(size // stride) + 0.5) * stride
    y, x = torch.meshgrid(centres, centres, indexing="ij")
    boxes = [
        torch.stack([x, y, torch.full_like(x, scale), torch.full_like(x, scale)], dim=-1)
        for scale in scales
    ]
    return torch.stack(boxes, dim=2).reshape(-1, 4)


class Detector(nn.Module):
    """Find objects in float32[batch, 3, size, size].

    Returns a dict of ``boxes`` float32[batch, top, 4] (corners, pixels), ``scores``
    float32[batch, top] (descending), ``labels`` int64[batch, top] and ``anchors``
    int64[batch, top] (which anchor each box comes from).
    """

    anchors: Tensor

    def __init__(self, size: int = 64, classes: int = 6, top: int = 10) -> None:
        super().__init__()
        self.top = top
        self.classes = classes
        scales = (12.0, 24.0)
        self.register_buffer("anchors", make_anchors(size, 8, scales))
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Conv2d(32, len(scales) * (4 + 1 + classes), 1)
        # What each anchor is worth before the image is seen. It also orders the anchors of a
        # blank image, where equal scores would leave the choice of the best to chance.
        self.prior = nn.Parameter(torch.linspace(0.5, -0.5, len(self.anchors)))
        nn.init.normal_(self.head.weight, std=1.0)  # a fresh head hardly looks at the image

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        raw = self.head(self.backbone(image)).permute(0, 2, 3, 1)
        raw = raw.reshape(image.shape[0], len(self.anchors), 5 + self.classes)
        offset, scale, objectness, classes = raw.split([2, 2, 1, self.classes], dim=-1)

        logits, best = torch.topk(objectness.squeeze(-1) + self.prior, self.top, dim=1)
        centre = self.anchors[:, :2] + offset.tanh() * self.anchors[:, 2:]
        half = self.anchors[:, 2:] * scale.tanh().exp() / 2
        boxes = torch.cat([centre - half, centre + half], dim=-1)
        return {
            "boxes": boxes.gather(1, best.unsqueeze(-1).expand(-1, -1, 4)),
            "scores": logits.sigmoid(),
            "labels": classes.argmax(-1).gather(1, best),
            "anchors": best,
        }
