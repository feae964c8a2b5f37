"""Tiny decoders of transformers with random weights, as their owners would export them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

VOCABULARY, WIDTH, LAYERS, HEADS = 96, 32, 2, 4

_SIZES = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 64,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    # Configurations carry the special tokens of the trained models, which lie outside.
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 2, "head_dim": 8}

# Of each family: its model, its configuration, and what that is given.
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", _GROUPED),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {
            "n_embd": WIDTH,
            "n_layer": LAYERS,
            "n_head": HEADS,
            "n_positions": 64,
            "vocab_size": VOCABULARY,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _GROUPED),
    "opt": (
        "OPTForCausalLM",
        "OPTConfig",
        {**_SIZES, "ffn_dim": 64, "word_embed_proj_dim": WIDTH},
    ),
    "gpt-neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", _SIZES),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**_GROUPED, "sliding_window": 8}),
    "phi": ("PhiForCausalLM", "PhiConfig", {**_SIZES, "num_key_value_heads": HEADS}),
    "bloom": (
        "BloomForCausalLM",
        "BloomConfig",
        {
            "hidden_size": WIDTH,
            "n_layer": LAYERS,
            "n_head": HEADS,
            "vocab_size": VOCABULARY,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "falcon": (
        "FalconForCausalLM",
        "FalconConfig",
        {
            "hidden_size": WIDTH,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "vocab_size": VOCABULARY,
            "new_decoder_architecture": True,
            "num_kv_heads": 2,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", _GROUPED),
}


def pretrained(family: str) -> Any:
    """The model of a family, weights drawn with a seed and large enough to tell tokens apart."""
    import transformers

    name, config, options = FAMILIES[family]
    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, config)(**options))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
    return model.eval()


class Decoder(nn.Module):
    """Tokens and their mask to scores, without a cache. ``fault`` is what the file does wrong."""

    def __init__(self, family: str, fault: str = "") -> None:
        super().__init__()
        self.model = pretrained(family)
        self.fault = fault
        if fault == "weights":
            with torch.no_grad():
                self.model.get_output_embeddings().weight[5] *= -1

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask: Tensor | None = attention_mask
        if self.fault == "mask ignored":
            mask = torch.ones_like(attention_mask)
        if self.fault == "causal off by one":
            n = input_ids.shape[1]
            seen = torch.ones(n, n, dtype=torch.bool).tril(1)
            seen = seen & (attention_mask[:, None, None, :] > 0)
            mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)
        return self.model(input_ids=input_ids, attention_mask=mask, use_cache=False).logits


class Step(nn.Module):
    """One token behind a cache: keys and values of all layers in one tensor each."""

    def __init__(self, family: str, fault: str = "") -> None:
        super().__init__()
        self.model = pretrained(family)
        if family == "opt":
            # Its scaled-dot-product attention asks whether one size is another: no export has both.
            self.model.set_attn_implementation("eager")
        self.fault = fault

    def forward(
        self, input_ids: Tensor, past_mask: Tensor, past_k: Tensor, past_v: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer in range(LAYERS):
            cache.update(past_k[layer], past_v[layer], layer)
        visible = torch.ones_like(past_mask) if self.fault == "mask ignored" else past_mask
        mask = torch.cat([visible, torch.ones_like(input_ids)], 1)
        answer = self.model(
            input_ids=input_ids, attention_mask=mask, past_key_values=cache, use_cache=True
        )
        after = answer.past_key_values
        keys = [after.layers[layer].keys for layer in range(LAYERS)]
        values = [after.layers[layer].values for layer in range(LAYERS)]
        return answer.logits, torch.stack(keys), torch.stack(values)


def padded(seed: int, left: bool) -> Iterator[dict[str, np.ndarray]]:
    """Batches of texts of different lengths, as a tokenizer pads them."""
    rng = np.random.default_rng(seed)
    for batch, length in ((2, 5), (3, 9), (4, 16)):
        ids = rng.integers(3, VOCABULARY, (batch, length))
        count = rng.integers(1, length + 1, (batch, 1))
        count[0] = length
        at = np.arange(length)
        mask = (at >= length - count) if left else (at < count)
        yield {"input_ids": ids * mask, "attention_mask": mask.astype(np.int64)}


def left(inputs: Any, seed: int) -> Iterator[dict[str, np.ndarray]]:
    return padded(seed, left=True)


def right(inputs: Any, seed: int) -> Iterator[dict[str, np.ndarray]]:
    return padded(seed, left=False)
