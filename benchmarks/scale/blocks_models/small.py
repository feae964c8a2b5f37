"""Small models of several architectures, with the tensors that a checkpoint of each has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

TOKENS = {"dtype": "int64", "shape": ["batch", "seq"], "range": [0, 99]}
IMAGE = "float32[batch, 3, 32, 32]"
_SMALL: dict[str, Any] = {"num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=32, num_key_value_heads=2, vocab_size=100, **_SMALL)
    return LlamaForCausalLM(config)


def mixtral() -> nn.Module:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(  # type: ignore[call-arg]
        hidden_size=32,
        num_key_value_heads=2,
        vocab_size=100,
        num_local_experts=4,
        # transformers' default for experts has no translation to ONNX.
        experts_implementation="batched_mm",
        **_SMALL,
    )
    return MixtralForCausalLM(config)


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_embd=32,
        n_layer=3,
        n_head=4,
        vocab_size=100,
        n_positions=80,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(hidden_size=32, vocab_size=100, max_position_embeddings=80, **_SMALL)
    return BertForSequenceClassification(config)


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(hidden_size=32, image_size=32, patch_size=8, **_SMALL)
    )


def t5() -> nn.Module:
    from transformers import T5Config, T5Model

    return T5Model(T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=100))


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.two = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.two(F.relu(self.norm(self.one(x))))


class convnet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.first = nn.Sequential(Residual(16), Residual(16))
        self.down = nn.Conv2d(16, 32, 3, 2, 1)
        self.second = nn.Sequential(Residual(32), Residual(32))
        self.head = nn.Linear(32, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.second(self.down(self.first(self.stem(image))))
        return self.head(x.mean((2, 3)))


class unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.high = Residual(8)
        self.down = nn.Conv2d(8, 16, 3, 2, 1)
        self.low = Residual(16)
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.joined = Residual(16)
        self.out = nn.Conv2d(16, 3, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        high = self.high(self.stem(image))
        low = self.low(self.down(high))
        return self.out(self.joined(torch.cat([high, self.up(low)], 1)))


class repeated(nn.Module):
    """Layers that are called twice, and a head that reads the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 16)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(2)
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in (*self.layers, *self.layers):
            x = layer(x)
        return F.linear(x, self.embed.weight)


_IDS = {"inputs": {"input_ids": TOKENS}, "call": {"use_cache": False}}
ENTRIES: Mapping[str, Mapping[str, Any]] = {
    "llama": _IDS,
    "mixtral": _IDS,
    "gpt2": _IDS,
    "bert": {"inputs": {"input_ids": TOKENS, "attention_mask": {**TOKENS, "range": [0, 1]}}},
    "vit": {"inputs": {"pixel_values": IMAGE}},
    "t5": {
        "inputs": {
            "input_ids": TOKENS,
            "decoder_input_ids": {**TOKENS, "shape": ["batch", "words"]},
        },
        "call": {"use_cache": False},
    },
    "convnet": {"inputs": {"image": IMAGE}},
    "unet": {"inputs": {"image": IMAGE}},
    "repeated": {"inputs": {"ids": TOKENS}},
}


def built(name: str) -> dict[str, torch.Tensor]:
    """Return the state of a model with random weights, what is tied once."""
    state: dict[str, torch.Tensor] = {}
    held: set[int] = set()
    for key, tensor in globals()[name]().state_dict().items():
        if tensor.data_ptr() not in held or not tensor.numel():
            held.add(tensor.data_ptr())
            state[key] = tensor.contiguous()
    return state
