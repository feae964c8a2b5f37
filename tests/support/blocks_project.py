"""A small decoder whose checkpoint is in two shards, and faults that its export alone has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import torch
from safetensors.torch import load_file, save_file

from onnx_gate.manifest.load import load
from onnx_gate.manifest.spec import ModelSpec

MODEL = '''
import threading
import time

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, fault="", slow=0):
        super().__init__()
        self.fault, self.slow = fault, slow
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, places, mask=None):
        exporting = torch.compiler.is_exporting()
        eps = 1e-2 if self.fault == "eps" and exporting else 1e-5
        time.sleep(self.slow)
        y = F.layer_norm(x, self.norm.normalized_shape, self.norm.weight, self.norm.bias, eps) + places
        q, k, v = self.qkv(y).chunk(3, -1)
        if self.fault == "weight" and exporting:
            k = k + 0.1 * y[..., 3:4] * F.one_hot(torch.tensor(5), k.shape[-1])
        scores = q @ k.transpose(1, 2) / 4
        scores = scores if mask is None else scores + mask
        return x + self.out(scores.softmax(-1) @ v)


class Expert(nn.Module):
    def __init__(self, width, fault):
        super().__init__()
        self.up, self.down, self.fault = nn.Linear(width, 8 * width), nn.Linear(8 * width, width), fault

    def forward(self, x):
        wrong = self.fault and torch.compiler.is_exporting()
        return self.down(F.gelu(self.up(x), approximate="tanh" if wrong else "none"))


class Experts(nn.Module):
    """Four layers of which each row has two: all are computed, or each on its own rows."""

    def __init__(self, width, fault, chosen):
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(width), nn.Linear(width, 4)
        self.experts = nn.ModuleList(Expert(width, fault and n == 1) for n in range(4))
        self.chosen = chosen

    def forward(self, x, places, mask=None):
        rows = self.norm(x).flatten(0, 1)
        shares = self.gate(rows).softmax(-1)
        shares = shares * torch.zeros_like(shares).scatter(-1, shares.topk(2).indices, 1.0)
        made = torch.zeros_like(rows)
        for n, expert in enumerate(self.experts):
            at = torch.where(shares[:, n] > 0)[0] if self.chosen else slice(None)
            made = made.index_add(0, at, expert(rows[at]) * shares[at, n : n + 1]) if self.chosen else (
                made + expert(rows) * shares[:, n : n + 1]
            )
        return x + made.view_as(x)


class Lent(nn.Module):
    """A head that is given the module whose weight it reads."""

    def __init__(self, width, fault):
        super().__init__()
        self.dense, self.fault = nn.Linear(width, width), fault

    def forward(self, x, table):
        wrong = self.fault and torch.compiler.is_exporting()
        return F.linear(self.dense(x) * (1.01 if wrong else 1.0), table.weight)


class Decoder(nn.Module):
    """The mask is there in exports alone, as in transformers; the head reads the embedding's weight."""

    def __init__(self, fault="", at=0, state=False, order=False, slow=0, words=0, experts="", lent=False):
        super().__init__()
        self.fault, self.state, self.order = fault, state, order
        self.embed = nn.Embedding(50, 16)
        self.layers = nn.ModuleList(Layer(16, fault if n == at else "", slow) for n in range(3))
        if experts:
            self.layers[1] = Experts(16, fault == "expert", experts == "chosen")
        self.head = nn.Linear(16, words) if words else None
        self.lent = Lent(16, fault == "lent") if lent else None
        self.register_buffer("places", torch.linspace(-1, 1, 16), persistent=False)

    def forward(self, ids):
        x, places = self.embed(ids), self.places
        if self.fault == "places" and torch.compiler.is_exporting():
            places = places * 1.01
        mask = None
        if torch.compiler.is_exporting():
            mask = torch.zeros(ids.shape[1], ids.shape[1])
        layers = self.layers
        if self.order and not torch.compiler.is_exporting():
            layers = reversed(layers)
        if self.fault == "skip" and torch.compiler.is_exporting():
            layers = layers[:2]
        for layer in layers:
            x = layer(x, Held(places) if self.state else places, mask)
        if self.lent:
            return self.lent(x, self.embed)
        return self.head(x) if self.head else F.linear(x, self.embed.weight)


class Held:
    def __init__(self, value):
        self.value, self.lock = value, threading.Lock()

    def __radd__(self, other):
        return other + self.value


def loaded():
    model = Decoder()
    model.embed._parameters["weight"] = nn.Parameter(torch.zeros(50, 16))
    return model
'''


def project(
    folder: Path,
    *,
    model: str = "Decoder",
    dtype: torch.dtype = torch.bfloat16,
    more: str = "",
    **kwargs: object,
) -> ModelSpec:
    """Write a model whose checkpoint is in two shards, and its manifest; return its entry."""
    (folder / "model.py").write_text(MODEL)
    manifest = folder / "onnx-gate.yml"
    manifest.write_text(
        f"""
version: 1
models:
  decoder:
    model: model.py:{model}
    kwargs: {json.dumps(kwargs)}
    weights: model.safetensors.index.json
    verify: blocks
    inputs: {{ids: {{dtype: int64, shape: [batch, seq], range: [0, 49]}}}}
    dims: {{batch: [1, 2], seq: [2, 5]}}
    {more}
"""
    )
    names: dict[str, object] = {}
    exec(MODEL, names)
    torch.manual_seed(0)
    state = names["Decoder"](**kwargs).state_dict()  # type: ignore[operator]
    shards = {"a.safetensors": {}, "b.safetensors": {}}
    for name, tensor in state.items():
        shards["a.safetensors" if "layers.1" in name else "b.safetensors"][name] = tensor.to(dtype)
    for file, tensors in shards.items():
        save_file(tensors, folder / file)
    index = {name: file for file, tensors in shards.items() for name in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return load(manifest).models[0]


def committed(
    folder: Path, exporter: str, *, fault: str = "", at: int = 0, **kwargs: Any
) -> ModelSpec:
    """Write a project whose file is committed, with its weights beside it; return its entry."""
    (folder / "model.onnx").touch()
    spec = project(folder, more="onnx: model.onnx", dtype=torch.float32, **kwargs)
    names: dict[str, Any] = {}
    (folder / "faulty.py").write_text(MODEL)
    exec(compile(MODEL, str(folder / "faulty.py"), "exec"), names)
    model = names["Decoder"](fault, at, **kwargs).eval()
    state = {k: v for f in "ab" for k, v in load_file(folder / f"{f}.safetensors").items()}
    model.load_state_dict(state)
    ids = torch.arange(6).reshape(2, 3)
    dynamic = {"ids": {0: "batch", 1: "seq"}}
    options: dict[str, Any] = (
        {"dynamo": True, "dynamic_shapes": dynamic, "verbose": False}
        if exporter == "dynamo"
        else {"dynamo": False, "dynamic_axes": dynamic}
    )
    torch.onnx.export(model, (ids,), folder / "whole.onnx", input_names=["ids"], **options)
    proto = onnx.load(folder / "whole.onnx")
    onnx.save_model(
        proto,
        folder / "model.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=500,
    )
    return spec
