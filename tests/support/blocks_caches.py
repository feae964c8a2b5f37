"""A small decoder whose layers write to a cache of transformers', and faults that its export alone has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import torch
from safetensors.torch import save_file

from onnx_gate.manifest.load import load
from onnx_gate.manifest.spec import ModelSpec
from onnx_gate.verify.context import Context
from onnx_gate.verify.verify import verify

MODEL = """
import torch
from torch import nn
from transformers.cache_utils import DynamicCache


class Layer(nn.Module):
    def __init__(self, number, fault):
        super().__init__()
        self.number, self.fault = number, fault
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def forward(self, x, cache=None):
        q, k, v = (each.unflatten(-1, (2, 8)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        if self.fault == "key" and torch.compiler.is_exporting():
            k = k * 1.01
        if self.fault == "late" and torch.compiler.is_exporting():
            length = torch.full((), cache.layers[self.number].keys.shape[2])
            k = k * (1 + 0.01 * (length > 4))
        k, v = cache.update(k, v, self.number)
        scores = (q @ k.transpose(-1, -2) / 3).softmax(-1)
        return x + self.out((scores @ v).transpose(1, 2).flatten(2)).tanh()


class Decoder(nn.Module):
    def __init__(self, fault="", at=0):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.layers = nn.ModuleList(Layer(n, fault if n == at else "") for n in range(3))
        self.head = nn.Linear(16, 50)

    def forward(self, ids, past_key_values=None):
        cache = DynamicCache() if past_key_values is None else past_key_values
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, cache)
        return {"logits": self.head(x), "past_key_values": cache}
"""
PAST = "past_key_values: {cache: dynamic, layers: 3, shape: [batch, 2, past, 8]}"


def cached(
    folder: Path,
    *,
    past: bool = True,
    sizes: str = "[2, 4]",
    verify: str = "blocks",
    more: str = "",
    **kwargs: object,
) -> ModelSpec:
    """Write a decoder with its weights and its manifest; return its entry.

    It is given a cache with ``past``, and makes one otherwise.
    """
    (folder / "model.py").write_text(MODEL)
    names: dict[str, object] = {}
    exec(MODEL, names)
    torch.manual_seed(0)
    state = names["Decoder"](**kwargs).state_dict()  # type: ignore[operator]
    save_file(state, folder / "model.safetensors")
    manifest = folder / "onnx-gate.yml"
    manifest.write_text(
        f"""
version: 1
suites: {{few: {{random: normal, count: 1}}}}
models:
  decoder:
    model: model.py:Decoder
    kwargs: {json.dumps(kwargs)}
    weights: model.safetensors
    verify: {verify}
    inputs:
      ids: {{dtype: int64, shape: [batch, {1 if past else "seq"}], range: [0, 49]}}
      {PAST if past else ""}
    dims: {{batch: [2], {"past" if past else "seq"}: {sizes}}}
    suites: [few]
    {more}
"""
    )
    return load(manifest).models[0]


def committed(folder: Path, *, past: bool = True, **kwargs: Any) -> ModelSpec:
    """Write a decoder whose file is committed, with a fault that it alone has; return its entry."""
    whole = cached(folder, past=past, verify="whole", **kwargs)
    verify(whole, Context(folder, folder / "first"), lambda _: None)
    onnx.save_model(
        onnx.load(folder / "first" / "model.onnx"),
        folder / "model.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=500,
    )
    return cached(folder, past=past, more="onnx: model.onnx")
