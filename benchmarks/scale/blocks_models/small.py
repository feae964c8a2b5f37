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


def from_config(config: str, model: str, **kwargs: Any) -> nn.Module:
    """Return a model of transformers with random weights."""
    import transformers

    made: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**kwargs))
    return made


def faulty(at: str, factory: str, *args: Any, **kwargs: Any) -> nn.Module:
    """Return a model of which one part answers otherwise, by a hundredth, in its export alone."""
    model: nn.Module = globals()[factory](*args, **kwargs)
    part = model.get_submodule(at)
    original = part.forward

    def forward(*given: Any, **named: Any) -> Any:
        answer = original(*given, **named)
        if not torch.compiler.is_exporting():
            return answer
        return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t * 1.01, answer)

    part.forward = forward
    return model


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


_GROUPED = {"num_key_value_heads": 2}


def _of(config: str, model: str, inputs: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
    return {
        "model": "small.py:from_config",
        "args": [config, model],
        "kwargs": kwargs,
        "inputs": inputs,
    }


def _decoder(family: str, **kwargs: Any) -> dict[str, Any]:
    sizes = {"hidden_size": 32, "vocab_size": 100, **_SMALL, **kwargs}
    made = _of(f"{family}Config", f"{family}ForCausalLM", {"input_ids": TOKENS}, **sizes)
    return {**made, "call": {"use_cache": False}}


def _cached(family: str, **more: Any) -> dict[str, Any]:
    """Return a decoder that takes one more token and the keys and values of those before it."""
    made = _decoder(family, **_GROUPED)
    token = {**TOKENS, "shape": ["batch", 1]}
    past = {"cache": "dynamic", "layers": 3, "shape": ["batch", 2, "past", 8]}
    inputs = {"input_ids": token, "past_key_values": past}
    return {**made, "inputs": inputs, "call": {"use_cache": True}, **more}


def _encoder(family: str, **kwargs: Any) -> dict[str, Any]:
    inputs = {"input_ids": TOKENS, "attention_mask": {**TOKENS, "range": [0, 1]}}
    model = f"{family}ForSequenceClassification"
    return _of(f"{family}Config", model, inputs, vocab_size=100, **kwargs)


def _both(family: str, **kwargs: Any) -> dict[str, Any]:
    inputs = {"input_ids": TOKENS, "decoder_input_ids": {**TOKENS, "shape": ["batch", "words"]}}
    made = _of(f"{family}Config", f"{family}Model", inputs, vocab_size=100, **kwargs)
    return {**made, "call": {"use_cache": False}}


def _vision(family: str, **kwargs: Any) -> dict[str, Any]:
    return _of(
        f"{family}Config",
        f"{family}ForImageClassification",
        {"pixel_values": IMAGE},
        image_size=32,
        **kwargs,
    )


_BERT = {"hidden_size": 32, "max_position_embeddings": 80, **_SMALL}
ENTRIES: Mapping[str, Mapping[str, Any]] = {
    "llama": _decoder("Llama", **_GROUPED),
    "mistral": _decoder("Mistral", **_GROUPED),
    "qwen2": _decoder("Qwen2", **_GROUPED),
    "qwen3": _decoder("Qwen3", head_dim=8, **_GROUPED),
    "olmo": _decoder("Olmo"),
    "stablelm": _decoder("StableLm", **_GROUPED),
    "neox": _decoder("GPTNeoX"),
    # transformers' default for experts has no translation to ONNX.
    "mixtral": _decoder(
        "Mixtral", num_local_experts=4, experts_implementation="batched_mm", **_GROUPED
    ),
    "gpt2": {
        **_of(
            "GPT2Config",
            "GPT2LMHeadModel",
            {"input_ids": TOKENS},
            n_embd=32,
            n_layer=3,
            n_head=4,
            vocab_size=100,
            n_positions=80,
            bos_token_id=0,
            eos_token_id=0,
        ),
        "call": {"use_cache": False},
    },
    "llama-cached": _cached("Llama"),
    "qwen2-steps": _cached(
        "Qwen2",
        steps={
            "count": 4,
            "carry": {"past_key_values": "present"},
            "feed": {"input_ids": "argmax(logits)"},
        },
    ),
    "bert": _encoder("Bert", **_BERT),
    "roberta": _encoder("Roberta", **_BERT),
    "electra": _encoder("Electra", embedding_size=32, **_BERT),
    "distilbert": _encoder("DistilBert", dim=32, n_layers=3, n_heads=4, hidden_dim=64),
    "t5": _both("T5", d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4),
    "vit": _vision("ViT", hidden_size=32, patch_size=8, **_SMALL),
    "deit": _vision("DeiT", hidden_size=32, patch_size=8, **_SMALL),
    "convnext": _vision("ConvNext", hidden_sizes=[16, 24, 32, 40], depths=[1, 1, 2, 1]),
    "convnet": {"model": "small.py:convnet", "inputs": {"image": IMAGE}},
    "unet": {"model": "small.py:unet", "inputs": {"image": IMAGE}},
    "repeated": {"model": "small.py:repeated", "inputs": {"ids": TOKENS}},
}

# What is wrong, the part of which model, and the blocks that show it.
FAULTS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "rotary table": (
        *("llama", "model.rotary_emb"),
        ("model.layers.0", "model.layers.1", "model.layers.2"),
    ),
    "expert": ("mixtral", "model.layers.1.mlp.experts", ("model.layers.1",)),
    "tied head": ("gpt2", "lm_head", ("lm_head",)),
    "attention": ("bert", "bert.encoder.layer.2.attention.self", ("bert.encoder.layer.2",)),
    "norm": ("vit", "vit.layernorm", ("vit.layernorm",)),
    "convolution": ("unet", "low.one", ("low",)),
}


def with_fault(name: str) -> dict[str, Any]:
    """Return the entry of a model with one of the faults."""
    model, at, _ = FAULTS[name]
    entry = ENTRIES[model]
    factory = entry["model"].partition(":")[2]
    return {**entry, "model": "small.py:faulty", "args": [at, factory, *entry.get("args", ())]}


def built(name: str) -> dict[str, torch.Tensor]:
    """Return the state of a model with random weights, what is tied once."""
    entry = ENTRIES[name]
    factory = globals()[entry["model"].partition(":")[2]]
    model = factory(*entry.get("args", ()), **entry.get("kwargs", {}))
    state: dict[str, torch.Tensor] = {}
    held: set[int] = set()
    for key, tensor in model.state_dict().items():
        if tensor.data_ptr() not in held or not tensor.numel():
            held.add(tensor.data_ptr())
            state[key] = tensor.contiguous()
    return state
