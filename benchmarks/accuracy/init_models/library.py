"""Models of libraries, made as their users make them."""

from _torchvision import torchvision  # first: it makes torchvision importable for timm
from torch import nn


def timm_model(name: str) -> nn.Module:
    import timm

    return timm.create_model(name).eval()


def torchvision_model(name: str) -> nn.Module:
    return torchvision.models.get_model(name, weights=None, weights_backbone=None).eval()


def torchvision_classifier(name: str) -> nn.Module:
    return torchvision.models.get_model(name, weights=None).eval()


def unet() -> nn.Module:
    from diffusers import UNet2DModel

    return UNet2DModel(
        sample_size=16,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
    ).eval()


def conditional_unet() -> nn.Module:
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(32, 64),
        layers_per_block=1,
        cross_attention_dim=32,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
    ).eval()


def autoencoder() -> nn.Module:
    from diffusers import AutoencoderKL

    return AutoencoderKL(block_out_channels=(32,), norm_num_groups=8, sample_size=32).eval()
