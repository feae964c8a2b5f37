"""One small model for each finding that the other projects of the tests do not bring about."""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Plain(nn.Module):
    """Nothing is wrong with it; what exports it is."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class Caching(nn.Module):
    """Counts its calls, and nobody reads the count."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * 2


class Hushed(nn.Module):
    """Adds noise that is off."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("volume", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 + torch.randn_like(x) * self.volume


class Drawing(nn.Module):
    """Draws a number and throws it away."""

    def forward(self, x: Tensor) -> Tensor:
        np.random.normal()
        return x * 2


class Unused(nn.Module):
    """Takes an input that the output does not depend on."""

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return x * 2


class Scaled(nn.Module):
    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return x * scale


class TinyConstant(nn.Module):
    """Divides by a norm that may be zero, but for a constant that the exporter drops."""

    def forward(self, x: Tensor) -> Tensor:
        return x / (x.norm(dim=-1, keepdim=True) + 1e-12)


class TinyArgument(nn.Module):
    """Gumbel noise of a uniform number that may be zero: the root of no norm is in it."""

    def forward(self, u: Tensor) -> Tensor:
        return -torch.log(-torch.log(u + 1e-10) + 1e-10)


class LogSigmoid(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.logsigmoid(x)


class Offset(nn.Module):
    """Normalises numbers that differ in their last digits only."""

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x + 1e6, [64])


class Unseen(nn.Module):
    """The first query has no key that it may see."""

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(-1)
        heads = x[:, None]
        return F.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)


class Logarithm(nn.Module):
    """NaN wherever its input is negative."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(x)


class Threshold(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x > 100).to(x.dtype)


class Couples(nn.Module):
    """Takes an even number of rows."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(-1, 2, 8).sum(1)


class Wide(nn.Module):
    """A NumPy array without a dtype makes everything behind it float64."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.from_numpy(np.linspace(0, 1, 8))


class Decomposed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.qr(x)[0]


class Resampled(nn.Module):
    def forward(self, x: Tensor, grid: Tensor) -> Tensor:
        return F.grid_sample(x, grid, align_corners=False)


class Tied(nn.Module):
    """Adds a parameter that has the batch of the example."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(3, 8))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.RNN(8, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(8, 4, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths, batch_first=True, enforce_sorted=False
        )
        return self.layer(packed)[1][0]


class Grouped(nn.Module):
    """Cuts the sequence into blocks of eight."""

    def forward(self, x: Tensor) -> Tensor:
        batch, length = x.shape
        return x.view(batch, length // 8, 8).sum(-1)


class Parity(nn.Module):
    """Another computation at odd sizes."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] % 2 == 0 else x + 1


@torch.library.custom_op("gate_tests::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("gate_tests::thrice", mutates_args=())
def thrice(x: Tensor) -> Tensor:
    return x * 3


class Custom(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return twice(x)


class Untraceable(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return thrice(x)


class Fragile(nn.Module):
    """Takes its process down on NaN, which it asks no operator about."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_exporting() and np.isnan(x.tolist()).any():
            os._exit(7)
        return x * 2


class Rounded(nn.Module):
    """Weights and values of bfloat16 inside."""

    def forward(self, x: Tensor) -> Tensor:
        return x.bfloat16().float()


class Missing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        import a_package_that_nobody_has  # noqa: F401

    def forward(self, x: Tensor) -> Tensor:
        return x


class FileReader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        with open("vocabulary.txt") as file:
            self.size = len(file.read())

    def forward(self, x: Tensor) -> Tensor:
        return x


class Unexportable(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            raise ValueError("not while exporting")
        return x * 2


# What written.py writes down otherwise -----------------------------------------------------------


class Remainder(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.fmod(x, 3)


class Quotient(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x // 3


class HalfUp(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.floor(x + 0.5)


class Enlarged(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)


class Squared(nn.Module):
    """ONNX Runtime computes float16 in float32 on a CPU, where the square has room."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * 300).square() / 300


class Normalised(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, [8])


class Standardised(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, torch.zeros(8), torch.ones(8))


class Activated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x)


class Best(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.argmax(-1)


class Peak(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool1d(x, 2)


class Averaged(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool1d(x, 3, stride=2, padding=1)


class Accumulated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(1)


class Rooted(nn.Module):
    """A square that a file takes for a root; with a clamp in front the file would lack that."""

    def forward(self, x: Tensor) -> Tensor:
        return x**2


class Wrapped(nn.Module):
    """Takes any number for an index into ten rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(10, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.table[x % 10]


class Bytes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.int32)


class Attended(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(-1)


class Far(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cdist(x, x)


def strict() -> nn.Module:
    warnings.simplefilter("error")
    return Attended()


class Untrained(nn.Module):
    """Has a branch behind a scale that begins at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.branch = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16))
        self.scale = nn.Parameter(torch.zeros(16))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return y + self.scale * self.branch(y)


class Unscaled(nn.Module):
    """Is exported without its scale, which is one everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if not torch.onnx.is_in_onnx_export():
            y = self.scale * y
        return self.last(y)


class Selected(nn.Module):
    """Keeps what is above a threshold."""

    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0.5]


class Quantised(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127)


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(8, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class Masked(nn.Module):
    """Weights by a softmax over -inf where the mask is false."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        heads = x[:, None]
        return F.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask[:, None, None, :])


class Largest(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.amax(2)


class Branching(nn.Module):
    """Reads a value while it is traced."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class SmoothGelu(nn.Module):
    """A GELU with its root of two cut short, which ONNX Runtime takes for the exact one."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(8):
            x = x - 0.5 * (x * 0.5 * (1.0 + torch.erf(x / 1.4142)))
        return x


class Counted(nn.Module):
    """A number that is a constant of the graph."""

    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        return x * 2, 2


class Oversized(nn.Module):
    """Says that it has 400 TB of weights; all of them are one number."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1).expand(10**14))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale[0]


@dataclass
class Batch:
    """What Nested takes."""

    image: Tensor
    mask: Tensor


class Nested(nn.Module):
    """Takes several tensors in one argument."""

    def forward(self, batch: Batch) -> Tensor:
        return batch.image * batch.mask[:, None]


class Doubling(nn.Module):
    """Means something where the mask is not 0."""

    def forward(self, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
        return {"y": x * 2, "length": mask.sum(-1)}


class Cached(nn.Module):
    """Takes a cache."""

    def forward(self, past: object) -> object:
        return past


def without_transformers() -> nn.Module:
    """Where the package cannot be imported."""
    sys.modules["transformers"] = None  # type: ignore[assignment]
    return Cached()


class Choosing(nn.Module):
    """One of two tokens that are as good as equal, and room for nine of them."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, token: Tensor, past: Tensor) -> dict[str, Tensor]:
        score = torch.tanh(past.sum(1, keepdim=True) + token[:, None] + 0.5)
        present = torch.cat([past, score], 1)
        if present.shape[1] > 9:
            raise ValueError("there is no room for another")
        return {"logits": torch.cat([score, self.factor * score], 1), "present": present}


def beside_old_packages() -> nn.Module:
    """Where another onnxscript is installed than the gate asks for."""
    sys.path.insert(0, str(Path(__file__).parent / "older"))
    return Plain()


class Killing(nn.Module):
    """Kills the engines that run in processes of their own."""

    def forward(self, x: Tensor) -> Tensor:
        for child in psutil.Process().children():
            if any("onnx_gate.runtimes.host" in part for part in child.cmdline()):
                child.kill()
        return x * 2


class DeadUnit(nn.Module):
    """A unit that never fires, so that no input shows its bias."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 8)
        self.gate.bias.data[0] = -1e4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.gate(x)) + x


class Guarded(nn.Module):
    """A row is divided by its norm, which is never near zero."""

    def __init__(self) -> None:
        super().__init__()
        self.eps = 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.abs() + 1
        return y / y.norm(dim=-1, keepdim=True).clamp_min(self.eps)
