"""Architectures of torchvision and timm with random weights, by name."""

from __future__ import annotations

from typing import Any

import _torchvision
from _common import noise, ready
from torch import Tensor, nn


def torchvision(name: str, size: int = 64, **kwargs: Any) -> nn.Module:
    """A classifier of torchvision with ten classes, calibrated on images of this size."""
    models = _torchvision.torchvision.models
    options = {"num_classes": 10, **kwargs}
    return ready(lambda: models.get_model(name, weights=None, **options), noise(8, 3, size, size))


def segmentation(name: str, size: int = 64) -> nn.Module:
    """A segmentation network of torchvision: a dict of maps."""
    models = _torchvision.torchvision.models.segmentation

    def make() -> nn.Module:
        return getattr(models, name)(weights=None, weights_backbone=None, num_classes=5)

    return ready(make, noise(4, 3, size, size))


def video(name: str) -> nn.Module:
    """A video classifier of torchvision, over eight frames."""
    models = _torchvision.torchvision.models.video
    return ready(lambda: getattr(models, name)(weights=None, num_classes=8), noise(2, 3, 8, 32, 32))


def transformer(kind: str) -> nn.Module:
    """A vision transformer of torchvision, of its own construction but with few, narrow layers."""
    models = _torchvision.torchvision.models

    def make() -> nn.Module:
        if kind == "vit":
            return models.VisionTransformer(32, 8, 3, 4, 96, 192, num_classes=10)
        if kind == "swin":
            return models.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=10)
        return models.MaxVit(
            (64, 64),
            stem_channels=16,
            partition_size=4,
            block_channels=[16, 32],
            block_layers=[1, 2],
            head_dim=8,
            stochastic_depth_prob=0.0,
            num_classes=10,
        )

    size = 32 if kind == "vit" else 64
    return ready(make, noise(8, 3, size, size))


class Features(nn.Module):
    """The stages of a ResNet as a feature pyramid, its hidden values tapped by name."""

    def __init__(self) -> None:
        super().__init__()
        from torchvision.models.feature_extraction import create_feature_extractor
        from torchvision.ops import FeaturePyramidNetwork

        backbone = _torchvision.torchvision.models.resnet18(weights=None)
        nodes = {f"layer{i}": f"stage{i}" for i in (2, 3, 4)}
        self.backbone = create_feature_extractor(backbone, nodes)
        self.pyramid = FeaturePyramidNetwork([128, 256, 512], 32)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return self.pyramid(self.backbone(x))


def feature_pyramid() -> nn.Module:
    return ready(Features, noise(4, 3, 64, 64))


def timm(name: str, size: int = 64, **kwargs: Any) -> nn.Module:
    """An architecture of timm with ten classes, calibrated on images of this size."""
    import timm as library

    options = {"num_classes": 10, **kwargs}
    return ready(
        lambda: library.create_model(name, pretrained=False, **options), noise(8, 3, size, size)
    )
