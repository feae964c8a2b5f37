"""What goes wrong in the first hour with a model of one's own, each in a few lines."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor, nn

Export = Callable[[nn.Module, dict[str, Tensor], Path], None]


class Linear(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.a = nn.Linear(width, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


class OnCuda(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) + torch.ones(8, device="cuda")


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.kinds = nn.Embedding(100, 8), nn.Embedding(3, 8)

    def forward(self, ids: Tensor, kinds: Tensor) -> Tensor:
        return self.tokens(ids) + self.kinds(kinds)


class Training(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        self.train()
        return self.norm(self.a(x))


class Dropping(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 8), nn.Dropout(0.3))

    def train(self, mode: bool = True) -> Dropping:
        return super().train(True)


class Drawing(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) + torch.randn_like(x)


class Refusing(Linear):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 1:
            raise ValueError("one is not a number")
        return self.a(x)


class Compiled(Linear):
    @torch.compile
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.a(x))


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(8, 48), nn.Linear(12, 48)

    def forward(self, x: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, Tensor]:
        i, f, g, o = (self.x(x) + self.h(h0)).chunk(4, -1)
        c = torch.sigmoid(f) * c0 + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class ExchangedInputs(Cell):
    def forward(self, x: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(x, c0, h0)


class ExchangedOutputs(Cell):
    def forward(self, x: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, Tensor]:
        h, c = super().forward(x, h0, c0)
        return c, h


class Orthogonal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(8, 8)))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def _write(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    shapes = {name: {0: "batch"} for name in example}
    torch.onnx.export(
        module, (), path, kwargs=example, dynamo=True, dynamic_shapes=shapes, verbose=False
    )


def _as(kind: type[nn.Module]) -> Export:
    def export(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
        other = kind().eval()
        other.load_state_dict(module.state_dict())
        _write(other, example, path)

    return export


exchanged_inputs, exchanged_outputs = _as(ExchangedInputs), _as(ExchangedOutputs)


def half_weights(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    other = deepcopy(module)
    for parameter in other.parameters():
        parameter.data = parameter.data.half().float()
    _write(other, example, path)
