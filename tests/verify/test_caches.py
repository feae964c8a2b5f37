"""Caches of transformers among inputs and outputs, and a decoder's step with the natural manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn

from onnx_gate.manifest.load import load
from onnx_gate.manifest.nesting import cache_tensors
from onnx_gate.runtimes.binding import bind
from onnx_gate.runtimes.outputs import describe, leaves
from onnx_gate.verify.context import Context
from onnx_gate.verify.verify import verify

transformers = pytest.importorskip("transformers")
cache_utils = pytest.importorskip("transformers.cache_utils")

KEYS = torch.arange(6.0).reshape(1, 1, 3, 2)


class Step(nn.Module):
    def forward(self, x: Any, past_key_values: cache_utils.Cache | None = None) -> Any:  # type: ignore[name-defined]
        assert past_key_values is not None
        own = getattr(past_key_values, "self_attention_cache", past_key_values)
        own.update(x, x, 0)
        return x, past_key_values


def _call(kind: str | None, layers: int = 2) -> Any:
    names = [each.name for each in cache_tensors("past_key_values", kind or "dynamic", layers)]
    binding = bind(Step(), ["x", *names], caches={"past_key_values": kind} if kind else None)
    values = dict.fromkeys(names, KEYS) | {"x": KEYS[:, :, :1]}
    args, kwargs = binding.split(values)
    again = binding.split(values)[1]["past_key_values"]
    assert again is not kwargs["past_key_values"]
    return binding, kwargs["past_key_values"], Step()(*args, **kwargs)


@pytest.mark.parametrize("kind", ["dynamic", None])
def test_a_cache_is_made_anew_at_every_call(kind: str | None) -> None:
    """Without a word in the manifest too, where the annotation says that it is one."""
    binding, cache, value = _call(kind)
    assert type(cache) is cache_utils.DynamicCache
    assert cache.get_seq_length() == 4
    # A layer that the module does not touch is what the manifest has put there.
    assert dict(leaves(cache))["1.value"] is KEYS
    _, fresh, _ = _call(kind)
    assert fresh.get_seq_length() == 4
    names = describe({"logits": KEYS, "past_key_values": value[1]}, None, binding.caches).names
    assert list(names.values()) == [
        "logits",
        *("present.0.key", "present.0.value", "present.1.key", "present.1.value"),
    ]


def test_an_encoder_has_left_its_half() -> None:
    _, cache, _ = _call("encoder_decoder", 1)
    assert type(cache) is cache_utils.EncoderDecoderCache
    assert cache.is_updated == {0: True}
    assert cache.self_attention_cache.get_seq_length() == 4
    assert cache.cross_attention_cache.get_seq_length() == 3
    assert [name for name, _ in leaves(cache)] == [
        *("0.decoder.key", "0.decoder.value", "0.encoder.key", "0.encoder.value")
    ]


MODELS = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

def llama():
    torch.manual_seed(0)
    sizes = dict(vocab_size=31, hidden_size=16, intermediate_size=16, num_hidden_layers=2)
    return LlamaForCausalLM(
        LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)).eval()

def gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=31, n_embd=16, n_layer=1, n_head=2)).eval()
"""
MANIFEST = """
version: 1
suites: {few: {random: normal, count: 1}}
defaults: {suites: [few], dims: {batch: [1, 2], past: [1, 7]}}
models:
  llama:
    model: models.py:llama
    call: {use_cache: true}
    inputs:
      input_ids: {dtype: int64, shape: [batch, 1], range: [0, 30]}
      attention_mask: {dtype: int64, shape: [batch, past + 1], range: [0, 1]}
      past_key_values: {cache: dynamic, layers: 2, shape: [batch, 2, past, 4]}
    outputs:
      logits: {where: attention_mask}
    export: {exporter: torchscript, example: {past: 16}}
  gpt2:
    model: models.py:gpt2
    inputs:
      input_ids: {dtype: int64, shape: [batch, 1], range: [0, 30]}
      past_key_values: {cache: dynamic, layers: 1, shape: [batch, 2, past, 8]}
    export: {exporter: dynamo, example: {past: 16}}
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "layers"), [("llama", 2), ("gpt2", 1)])
def test_a_step_of_a_decoder_passes(tmp_path: Path, name: str, layers: int) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    spec = next(each for each in load(tmp_path / "onnx-gate.yml").models if each.name == name)
    model = verify(spec, Context(tmp_path, tmp_path / "out"), lambda _: None)
    assert model.verdict == "pass", model
    present = {each.name for each in cache_tensors("present", "dynamic", layers)}
    assert {check.output for check in model.checks} == {"logits", *present}
    assert {check.sizes["past"] for check in model.checks} == {1, 7}
    masked = {check.output for check in model.checks if check.outside}
    assert masked == ({"logits"} if name == "llama" else set())
    inputs = [v.name for v in onnx.load(str(tmp_path / "out" / "model.onnx")).graph.input]
    order = [each.name for each in cache_tensors("past_key_values", "dynamic", layers)]
    assert [name for name in inputs if name.startswith("past")] == order


LATENT = """
import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM


def deepseek():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 16}
    ranks = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "v_head_dim": 12}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1}
    return DeepseekV3ForCausalLM(
        DeepseekV3Config(
            vocab_size=64, num_hidden_layers=1, first_k_dense_replace=1, max_position_embeddings=128,
            attn_implementation="eager", **sizes, **ranks, **heads, **experts,
        )
    )
"""
LATENT_MANIFEST = """
version: 1
suites: {few: {random: normal, count: 1}}
models:
  deepseek:
    model: models.py:deepseek
    call: {use_cache: true}
    dims: {batch: [1, 2], past: [3, 7]}
    suites: [few]
    inputs:
      input_ids: {dtype: int64, shape: [batch, 1], range: [0, 63]}
      past_key_values:
        {cache: dynamic, layers: 1, shape: [batch, HEADS, past, KEYS],
         value_shape: [batch, HEADS, past, VALUES]}
    export: {exporter: dynamo, example: {past: 5}}
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not hasattr(transformers, "DeepseekV3Config"), reason="it has no DeepSeek")
def test_a_latent_cache_has_values_of_another_size(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(LATENT)
    made: dict[str, Any] = {}
    exec(LATENT, made)
    # What is kept, the heads or what they are made of, the version of transformers says.
    ids = torch.zeros((1, 3), dtype=torch.int64)
    cache = made["deepseek"]().eval()(ids, use_cache=True).past_key_values
    (_, keys), (_, values) = leaves(cache)
    assert keys.shape[-1] != values.shape[-1]
    sizes = {"HEADS": keys.shape[1], "KEYS": keys.shape[-1], "VALUES": values.shape[-1]}
    text = LATENT_MANIFEST
    for name, size in sizes.items():
        text = text.replace(name, str(size))
    (tmp_path / "onnx-gate.yml").write_text(text)
    [spec] = load(tmp_path / "onnx-gate.yml").models
    model = verify(spec, Context(tmp_path, tmp_path / "out"), lambda _: None)
    assert model.verdict == "pass", model
    assert {check.output for check in model.checks} == {
        "logits",
        "present.0.key",
        "present.0.value",
    }
