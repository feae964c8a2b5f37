"""Tensor operators rather than layers: indexing, ordering, reductions, arithmetic, dtypes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from _common import ready
from torch import Tensor, nn


def build(name: str, *args: object, **kwargs: object) -> nn.Module:
    """The class of this file called ``name``, seeded and in evaluation mode."""
    return ready(lambda: globals()[name](*args, **kwargs))


class CumSum(nn.Module):
    """A running sum over a long axis: rounding grows with its length."""

    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(-1)


class LongSum(nn.Module):
    """One sum over 32,768 elements."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(-1)


class TopK(nn.Module):
    """Values and indices."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = x.topk(5, dim=-1)
        return values, indices


class Sort(nn.Module):
    """A sort, descending."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = x.sort(dim=1, descending=True)
        return values, indices


class ArgMax(nn.Module):
    """A classifier that returns the class and not the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(x)
        return logits, logits.argmax(-1)


class Gather(nn.Module):
    """Rows picked by an input of indices."""

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        return torch.gather(x, 1, index.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


class ScatterAdd(nn.Module):
    """Values added into bins."""

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        return x.new_zeros(x.shape[0], 10).scatter_add(1, index, x)


class IndexPut(nn.Module):
    """A slice assigned and a column copied, without touching the input."""

    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        y[:, 2:5] = 1.0 - x[:, 2:5]
        y[:, torch.tensor([0, 7])] = x[:, torch.tensor([7, 0])]
        return y.index_select(1, torch.tensor([3, 1, 4, 1, 5, 0, 7]))


class Where(nn.Module):
    """Masks made of comparisons."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = x.masked_fill(mask, -2.0)
        return torch.where((y > 0.5) | (y < -1.0), y * y, y.abs())


class Einsum(nn.Module):
    """Two contractions."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 8, 6))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.einsum("bnhd,hdk->bnhk", x, self.weight)
        return torch.einsum("bnhk,bmhk->bhnm", y, y)


class Softmaxes(nn.Module):
    """Softmax, log-softmax and logsumexp over different axes."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x.softmax(1), x.log_softmax(-1), x.logsumexp(-1)


class LargeLogits(nn.Module):
    """A softmax that is nearly one-hot."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(32, 50)

    def forward(self, x: Tensor) -> Tensor:
        return (self.head(x) * 40.0).softmax(-1)


class IntegerArithmetic(nn.Module):
    """Integers only: every result must be equal."""

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return a * b + 3, a // b, a % b, (a << 2) ^ b


class Booleans(nn.Module):
    """Outputs of type bool."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        positive = x > 0
        return positive, positive.any(-1), positive.logical_not().all(-1)


class ScalarMean(nn.Module):
    """An output without any dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(20, 20)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).tanh().mean()


class RegressionHead(nn.Module):
    """One number per example: a batch of 1 gives a one-element output."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(24, 48), nn.SiLU(), nn.Linear(48, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).squeeze(-1)


class DictOutput(nn.Module):
    """Two heads in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(16, 32)
        self.classes = nn.Linear(32, 5)
        self.boxes = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.body(x).relu()
        return {"logits": self.classes(hidden), "boxes": self.boxes(hidden).sigmoid()}


@dataclass
class Detection:
    """What ``DataclassOutput`` returns."""

    scores: Tensor
    boxes: Tensor


torch.export.register_dataclass(Detection, serialized_type_name="benchmarks.Detection")


class DataclassOutput(DictOutput):
    """The same two heads in a dataclass that is registered with torch.export."""

    def forward(self, x: Tensor) -> Detection:  # type: ignore[override]
        heads = super().forward(x)
        return Detection(scores=heads["logits"].softmax(-1), boxes=heads["boxes"])


class Moments(NamedTuple):
    """What ``NamedTupleOutput`` returns."""

    mean: Tensor
    std: Tensor


class NamedTupleOutput(nn.Module):
    """Outputs in a named tuple, one of them inside a list."""

    def forward(self, x: Tensor) -> tuple[Moments, list[Tensor]]:
        return Moments(x.mean(-1), x.std(-1)), [x.amax(-1), x.amin(-1)]


class SeveralInputs(nn.Module):
    """Four inputs of three dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(30, 8)
        self.items = nn.Embedding(40, 8)
        self.head = nn.Linear(8 * 2 + 6, 1)

    def forward(self, user: Tensor, item: Tensor, dense: Tensor, keep: Tensor) -> Tensor:
        features = torch.cat([self.users(user), self.items(item), dense], dim=-1)
        return self.head(features).squeeze(-1) * keep


class Unchanged(nn.Module):
    """Returns its input as it is, beside a result."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x * 2.0 + 1.0


class UnusedInput(nn.Module):
    """Takes a mask and ignores it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.head(x)


class Trigonometry(nn.Module):
    """Transcendental functions."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        unit = torch.tanh(x)
        return {
            "sin": x.sin(),
            "cos": x.cos(),
            "tan": unit.tan(),
            "asin": (unit * 0.9).asin(),
            "atan": x.atan(),
            "sinh": x.sinh(),
            "erf": x.erf(),
        }


class Exponentials(nn.Module):
    """Exponentials, logarithms, roots and powers of positive numbers."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        positive = x.abs() + 0.1
        return {
            "exp": x.exp(),
            "log": positive.log(),
            "log1p": positive.log1p(),
            "sqrt": positive.sqrt(),
            "rsqrt": positive.rsqrt(),
            "power": positive.pow(1.7),
            "reciprocal": positive.reciprocal(),
        }


class CosineSimilarity(nn.Module):
    """Normalised embeddings against each other."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).transpose(-1, -2)


class Reductions(nn.Module):
    """Reductions with and without the reduced axis."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {
            "variance": x.var(dim=1),
            "deviation": x.std(dim=(1, 2), unbiased=False),
            "norm": x.norm(dim=-1, keepdim=True),
            "product": (x * 0.5 + 1.0).prod(dim=-1),
            "spread": x.amax(1) - x.amin(1),
        }


class PairwiseDistance(nn.Module):
    """Euclidean distances by the expanded square, which cancels."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        squares = x.pow(2).sum(-1)[:, :, None] + y.pow(2).sum(-1)[:, None, :]
        return (squares - 2.0 * x @ y.transpose(1, 2)).clamp(min=1e-6).sqrt()


class Shuffle(nn.Module):
    """Data movement only: the result is exact."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.roll(x, (1, -2), (2, 3)).flip(-1)
        y = y.permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4)
        return torch.cat([y[:, ::2], y[:, 1::2].repeat_interleave(2, dim=1)], dim=1)


class OneHot(nn.Module):
    """Labels to a table of probabilities."""

    def forward(self, label: Tensor) -> Tensor:
        return F.one_hot(label, 12).to(torch.float32) * 0.9 + 0.1 / 12


class GridSample(nn.Module):
    """A spatial transformer: the grid is predicted."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Linear(3 * 12 * 12, 6)

    def forward(self, x: Tensor) -> Tensor:
        theta = self.theta(x.flatten(1)).view(-1, 2, 3) * 0.1
        theta = theta + torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        steps = torch.linspace(-1.0, 1.0, 12)
        rows, columns = torch.meshgrid(steps, steps, indexing="ij")
        points = torch.stack([columns, rows, torch.ones_like(rows)], dim=-1)
        grid = torch.einsum("hwk,bck->bhwc", points, theta)
        return F.grid_sample(x, grid, mode="bilinear", align_corners=True)


class Round(nn.Module):
    """Fake quantisation: a rounding boundary under every element."""

    def forward(self, x: Tensor) -> Tensor:
        return ((x / 0.05).round().clamp(-128, 127) * 0.05).floor()


class Casts(nn.Module):
    """From uint8 pixels to normalised floats and back."""

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
        pixels = (image.to(torch.float32) / 255.0 - mean) / 0.226
        return pixels, (pixels.clamp(-1, 1) * 127.0).to(torch.int32)


class SinusoidalTime(nn.Module):
    """The time embedding of a diffusion model."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(32, 16)

    def forward(self, step: Tensor) -> Tensor:
        frequencies = torch.exp(torch.arange(16) * (-math.log(10000.0) / 16))
        angles = step[:, None].to(torch.float32) * frequencies
        return self.project(torch.cat([angles.sin(), angles.cos()], dim=-1))


class Triangle(nn.Module):
    """Lower triangles of a batch of matrices."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.tril(), x.diagonal(dim1=1, dim2=2).clone()
