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


def conformer() -> nn.Module:
    from conformer import Conformer

    return Conformer(dim=32, depth=1, dim_head=8, heads=2).eval()


def mixer() -> nn.Module:
    from mlp_mixer_pytorch import MLPMixer

    return MLPMixer(image_size=32, channels=3, patch_size=8, dim=32, depth=2, num_classes=5).eval()


def gmlp() -> nn.Module:
    from g_mlp_pytorch import gMLPVision

    return gMLPVision(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2).eval()


def linear_attention() -> nn.Module:
    from linear_attention_transformer import LinearAttentionTransformerLM

    return LinearAttentionTransformerLM(
        num_tokens=200, dim=32, heads=2, depth=1, max_seq_len=64
    ).eval()
