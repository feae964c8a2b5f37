"""Small models, right and wrong, for tests that run the whole gate."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Mlp(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(8, width),
            nn.GELU(),
            nn.Dropout(0.5),
            nn.LayerNorm(width),
            nn.Linear(width, 4),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def evaluated() -> nn.Module:
    return Mlp().eval()


def in_training_mode() -> nn.Module:
    return Mlp().train()


INSTANCE = Mlp().eval()


@dataclass
class Answer:
    logits: Tensor
    hidden: tuple[Tensor, Tensor]
    cache: Tensor | None = None


class Structured(nn.Module):
    """Returns a dataclass that torch.export does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Answer:
        h = torch.tanh(self.a(x))
        return Answer(self.b(h), (h, {"scaled": h * 2}["scaled"]))


class Pair(nn.Module):
    """Two outputs of one shape."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.a(x), self.b(x)


class Indices(nn.Module):
    """Integer outputs that tie on constant inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 20)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.linear(x)
        values, places = torch.topk(y, 3)
        return {
            "values": values,
            "places": places,
            "best": y.argmax(-1),
            "order": torch.sort(x, -1)[1][:, :4],
            "large": y > 0.3,
        }


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0, 1, 6))

    def forward(self) -> Tensor:
        return self.weight * 2


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, ids: Tensor, padding: Tensor) -> Tensor:
        return self.encoder(self.embed(ids), src_key_padding_mask=padding)


class Attention(nn.Module):
    """PyTorch answers 0 where a row masks everything, the exported graph the mean."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        heads = x[:, None]
        return F.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask[:, None, None, :])


class Scalar(nn.Module):
    """One number out of thirty layers: PyTorch's own error on it is a sample of one."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(30)))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).sum(-1).mean()


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.InstanceNorm2d(8, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(x)))


class Mixed(nn.Module):
    """Positional and keyword inputs, an optional one that is not fed, an exact integer output."""

    def forward(self, x: Tensor, ids: Tensor, scale: Tensor, bias: Tensor | None = None) -> tuple:
        y = x * scale if bias is None else x * scale + bias
        return y, ids * 3 - 1


def half() -> nn.Module:
    return Mlp().half().eval()


def brain() -> nn.Module:
    return Mlp().to(torch.bfloat16).eval()


def double() -> nn.Module:
    return Scalar().double().eval()


# What must not pass ------------------------------------------------------------------------------


class Counter(nn.Module):
    """Python state in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


class LateCounter(nn.Module):
    """State that shows only after some calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * (2 if self.calls > 6 else 1)


class Buffered(nn.Module):
    """A buffer that moves."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.mean


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.from_numpy(np.random.normal(size=8).astype(np.float32))


class LiveDropout(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.3)


class InPlace(nn.Module):
    """Changes its input; the result is right."""

    def forward(self, x: Tensor) -> Tensor:
        x.mul_(2)
        return x + 1


class Guarded(nn.Module):
    """Another computation above a size."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 4:
            return x * 2
        return x + 1


class Fixed(nn.Module):
    """A reshape to the example's batch."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(3, -1, 8).sum(1)


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x
        return -x


class Raising(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("no luck today")


class Sorted(nn.Module):
    """Returns a string, which nothing can compare."""

    def forward(self, x: Tensor) -> object:
        return x, object()


def not_a_module() -> dict[str, int]:
    return {"a": 1}


def exploding() -> nn.Module:
    raise ValueError("missing config")


@dataclasses.dataclass(frozen=True)
class Config:
    width: int = 16


def configured(config: int, *, bias: bool) -> nn.Module:
    assert bias
    return Mlp(Config(config).width).eval()
