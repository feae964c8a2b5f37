"""Red models of kinds that ``examples/broken`` has not, each with the mistake in one line or setting."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn.utils.parametrizations import orthogonal


class Wide(nn.Module):
    """A step in float64, for which ONNX Runtime has no kernel, and which no digit needs."""

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x.double(), 0.5).float()


class Shifted(nn.Module):
    """Bits shifted in signed integers, which ONNX has of unsigned ones only."""

    def forward(self, x: Tensor) -> Tensor:
        return (x >> 2) + 1


class Scored(nn.Module):
    """A distribution that looks at its parameters before it takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return Normal(self.mean(x), 0.5 + x.abs()).log_prob(x)


class Turned(nn.Module):
    """A weight that is computed anew at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = orthogonal(nn.Linear(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        return self.turn(x)


class Limited(nn.Module):
    """A limit that is a number of Python's."""

    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(max=x.mean().item())


class Scaled(nn.Module):
    """A scale that is a number of Python's."""

    def forward(self, x: Tensor) -> Tensor:
        return x / float(x.abs().max())


class Chosen(nn.Module):
    """A branch on values in an expression."""

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2 if x.sum() > 0 else x - 1
        return torch.tanh(y)


class Returned(nn.Module):
    """A branch on values that returns."""

    def forward(self, x: Tensor) -> Tensor:
        if x.max() > 1.5:
            return x / x.abs().max()
        return x


class Otherwise(nn.Module):
    """A branch on values with two sides."""

    def forward(self, x: Tensor) -> Tensor:
        if x.mean() < 0:  # noqa: SIM108
            y = x.exp()
        else:
            y = x * 0.5
        return y + 1


class Averaged(nn.Module):
    """A length asked of Python."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(0, keepdim=True) / len(x)


class Halved(nn.Module):
    """A size that is divided by Python."""

    def forward(self, x: Tensor) -> Tensor:
        half = int(x.shape[1]) // 2
        return x[:, :half].sum(1)


class Product(nn.Module):
    """An operator that came with opset 12."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 5))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bi,ij->bj", x, self.weight)


class Table(nn.Module):
    """A table of forty rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(40, 4)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids)


class Inverted(nn.Module):
    """A mask that is taken from one, which PyTorch refuses of booleans."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return x * (1.0 - mask)


class Spectrum(nn.Module):
    """An operator that the TorchScript exporter has not."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.rfft(x).abs()


class Projected(nn.Module):
    """What export scripts of their owners export."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.norm.running_mean = torch.linspace(-1, 1, 6)
        self.layer = nn.Linear(6, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.drop(self.norm(x)))


class Reused(nn.Module):
    """Words of a small table where all of them are in it, which refuses the others."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = nn.Embedding(10, 4), nn.Embedding(40, 4)

    def forward(self, ids: Tensor) -> Tensor:
        return self.near(ids) if ids.max() < 10 else self.far(ids)


class Smoothed(nn.Module):
    """A state in the module, changed in place and set."""

    level: Tensor
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("level", torch.ones(6))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.level.mul_(0.5).add_(self.layer(x).mean(0))
        return x + self.level * self.calls


class Strided(nn.Module):
    """Every length that is a multiple of eight, of which the defaults have none."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x.reshape(x.shape[0], -1, 24))


class Few(nn.Module):
    """A branch on the batch, of which the manifest's sizes all take the other side than its example."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=0) if x.shape[0] > 4 else x * 2


class Leaky(nn.Module):
    """A state that another method reads too: as an input of ``forward`` alone it is another model."""

    level: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("level", torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x) * self.decay()
        self.level = self.level * 0.5 + y.mean(0)
        return y

    def decay(self) -> Tensor:
        """Return what an answer is multiplied by."""
        return self.level + 1


class Grown(nn.Module):
    """A loop that is as long as an input: no exporter here keeps it."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(x.shape[0]):
            x = x * 1.5
        return x


class Sharpened(nn.Module):
    """Float64 where it is needed: in float32 the answer is another one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        far = x.double() + 1e8
        near = F.conv1d(far - 1e8, self.weight.double())
        return near.float()


class Truncated(nn.Module):
    """``int`` that rounds down, which is not the size itself."""

    def forward(self, x: Tensor) -> Tensor:
        return x * int(x.mean().item() * 10)


class Cut(nn.Module):
    """A branch on values whose sides are of different sizes: one operator has both at once."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:1] if x.sum() > 0 else x


class Noisy(nn.Module):
    """No two answers agree."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5)


def static(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    """Write a file of the example's sizes."""
    torch.onnx.export(module, (), path, kwargs=example, dynamo=True, verbose=False)


def halved(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    """Write a file whose weights were rounded to float16."""
    for parameter in module.parameters():
        parameter.data = parameter.data.half().float()
    _export(module, example, path)


def untrained(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    """Write a file of other weights."""
    torch.manual_seed(1)
    _export(type(module)().eval(), example, path)


def unnormed(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    """Write a file without the norm."""
    module.norm = nn.Identity()
    _export(module, example, path)


def _export(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    shapes = {name: {0: "batch"} for name in example}
    torch.onnx.export(
        module, (), path, kwargs=example, dynamo=True, dynamic_shapes=shapes, verbose=False
    )
