"""Tiny configurations of transformers' architectures, with random weights."""

from __future__ import annotations

import os

import _torchvision  # noqa: F401  (transformers looks for torchvision)
import torch
from _common import ready
from torch import Tensor, nn

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
_TEXT = {**_SIZES, "vocab_size": 120, "max_position_embeddings": 64}
_DECODER = {**_TEXT, "num_key_value_heads": 2, "use_cache": False}


def build(model: str, config: str, **options: object) -> nn.Module:
    """``transformers.<model>(transformers.<config>(**options))``, seeded, in evaluation mode."""
    import transformers

    settings = getattr(transformers, config)(**options)
    return ready(lambda: getattr(transformers, model)(settings))


def text_encoder(model: str, config: str, **options: object) -> nn.Module:
    """A BERT-like encoder of two layers over 120 tokens."""
    return build(model, config, **{**_TEXT, **options})


def decoder(model: str, config: str, **options: object) -> nn.Module:
    """A causal language model of two layers, without a cache."""
    return build(model, config, **{**_DECODER, **options})


def vision(model: str, config: str, **options: object) -> nn.Module:
    """A vision transformer of two layers over images of 32 by 32 pixels."""
    sizes = {**_SIZES, "image_size": 32, "patch_size": 8}
    return build(model, config, **{**sizes, **options})


class Masked(nn.Module):
    """Keeps one result of a model with a padding mask.

    The first token is always visible. A row in which nothing is visible is zero in PyTorch and the
    mean of the values in the exported graph: a fault of the exporter, and none of this corpus.
    """

    def __init__(self, model: nn.Module, result: str) -> None:
        super().__init__()
        self.model = model
        self.result = result

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        visible = torch.cat([torch.ones_like(attention_mask[:, :1]), attention_mask[:, 1:]], dim=1)
        return getattr(self.model(input_ids=input_ids, attention_mask=visible), self.result)


def masked_encoder(model: str, config: str, **options: object) -> nn.Module:
    """An encoder behind ``Masked``."""
    return Masked(text_encoder(model, config, **options), "last_hidden_state").eval()


def masked_decoder(model: str, config: str, **options: object) -> nn.Module:
    """A causal language model behind ``Masked``."""
    return Masked(decoder(model, config, **options), "logits").eval()


class Seq2Seq(nn.Module):
    """Encoder and decoder in one graph, logits only."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor) -> Tensor:
        result = self.model(
            input_ids=input_ids, decoder_input_ids=decoder_input_ids, use_cache=False
        )
        return result.logits


def seq2seq(model: str, config: str, **options: object) -> nn.Module:
    """A translation model behind ``Seq2Seq``."""
    return Seq2Seq(build(model, config, **options)).eval()


class WhisperEncoder(nn.Module):
    """The audio side of Whisper: mel features to hidden states."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import WhisperConfig, WhisperModel

        settings = WhisperConfig(
            d_model=32,
            encoder_layers=2,
            decoder_layers=1,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            num_mel_bins=16,
            max_source_positions=30,
            vocab_size=120,
            pad_token_id=0,
        )
        self.encoder = WhisperModel(settings).encoder

    def forward(self, input_features: Tensor) -> Tensor:
        return self.encoder(input_features).last_hidden_state


def whisper_encoder() -> nn.Module:
    return ready(WhisperEncoder)


def detr() -> nn.Module:
    """Set prediction with a ResNet of transformers as its backbone."""
    from transformers import ResNetConfig

    backbone = ResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32],
        depths=[1, 1],
        layer_type="basic",
        out_features=["stage2"],
    )
    return build(
        "DetrForObjectDetection",
        "DetrConfig",
        backbone_config=backbone,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_queries=6,
        num_labels=5,
    )
