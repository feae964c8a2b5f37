"""Exporters of one's own that work on a deep copy of a module with nested inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import torch
from pair import Net, Pair, mlp
from torch import Tensor, nn


class Fusion(Net):
    """A dictionary of two modalities to four scores."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.image, self.text = mlp(12, 24, 8), mlp(6, 24, 8)
        self.norm, self.head = nn.BatchNorm1d(16), nn.Linear(16, 4)
        self.norm.running_mean.data += torch.rand(16)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        h = torch.cat([self.image(batch["image"]), self.text(batch["text"])], -1)
        return self.head(torch.tanh(self.norm(h)))


class Listed(Net):
    """A list of two states, each with weights of its own, to a list of two."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, states: list[Tensor], x: Tensor) -> list[Tensor]:
        return [torch.tanh(self.a(states[0]) + x), torch.tanh(self.b(states[1]) - x)]


def write(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    with torch.no_grad():
        torch.onnx.export(
            module,
            tuple(example.values()),
            str(path),
            input_names=list(example),
            dynamo=False,
            dynamic_axes={name: {0: "batch"} for name in example},
        )


def changed(module: nn.Module, change: Callable[[Tensor], Tensor]) -> nn.Module:
    own = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.copy_(change(parameter))
    return own


def kept(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    write(copy.deepcopy(module), example, path)


def zeroed(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    write(changed(module, torch.zeros_like), example, path)


def rounded(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    write(changed(module, lambda p: p.bfloat16().float()), example, path)


def pruned(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    write(changed(module, lambda p: p * (p.abs() > 0.5 * p.abs().mean())), example, path)


def folded(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    own = copy.deepcopy(module)
    for part in own.modules():
        if isinstance(part, nn.BatchNorm1d) and part.running_mean is not None:
            part.running_mean.zero_()
    write(own, example, path)


BATCH = {"batch.image": "float32[batch, 12]", "batch.text": "float32[batch, 6]"}
STATES = {
    "states.0": "float32[batch, 8]",
    "states.1": "float32[batch, 8]",
    "x": "float32[batch, 8]",
}


def pair(name: str, what: str, model: Callable[..., nn.Module], exporter: str) -> Pair:
    """A pair whose faulty file the exporter of that name writes."""
    return Pair(
        name,
        what,
        model,
        BATCH if model is Fusion else STATES,
        gate_exports_fault=True,
        faulty_entry={"export": {"exporter": f"noise_shipped.py:{exporter}"}},
        twin_entry={"export": {"exporter": "noise_shipped.py:kept"}},
    )


PAIRS = [
    pair("copy-of-zeros", "the copy that is exported has weights of 0", Fusion, "zeroed"),
    pair("copy-rounded", "the copy is rounded to bfloat16", Fusion, "rounded"),
    pair("copy-pruned", "the copy is pruned of a third of its weights", Fusion, "pruned"),
    pair("copy-folded", "the copy's norm loses its running mean", Fusion, "folded"),
    pair("copy-of-states-pruned", "the copy of a module with a list is pruned", Listed, "pruned"),
]
