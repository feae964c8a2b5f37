"""Small networks of every kind that is exported in practice, as a user's repository has them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(12, 24)
        self.square = nn.Linear(24, 24)
        self.down = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.up(x))
        x = F.leaky_relu(self.square(x), 0.1)
        return torch.tanh(self.down(x)).clamp(-0.3, 0.3)


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.wide = nn.Conv2d(8, 8, 3, padding=2, dilation=2)
        self.norm2 = nn.BatchNorm2d(8)
        self.pool = nn.AvgPool2d(3, 2, 1, count_include_pad=False)
        self.narrow = nn.MaxPool2d(2)
        self.head = nn.Linear(8 * 4 * 4, 6)

    def forward(self, image: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(image)))
        x = F.hardswish(self.norm2(self.wide(x)))
        x = self.narrow(self.pool(x))
        return self.head(x.flatten(1))


class Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Conv2d(before, after, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1)
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2), Block(16, 16, 1))
        self.head = nn.Linear(16, 4)

    def forward(self, image: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.stem(image)))
        return self.head(x.mean(dim=(2, 3)))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.proj = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], -1e4)
        mixed = scores.softmax(dim=-1) @ v
        return self.proj(mixed.transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attn(self.norm1(x), mask)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    """Tokens and learned positions through two layers; the hidden states are an output too."""

    def __init__(self, width: int = 16, masked: bool = True) -> None:
        super().__init__()
        self.masked = masked
        self.tokens = nn.Embedding(50, width)
        self.positions = nn.Embedding(32, width)
        self.layers = nn.ModuleList(Layer(width, 4) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 7)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        mask = tokens != 0 if self.masked else None
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, mask)
        hidden = self.norm(x)
        return hidden, self.head(hidden[:, 0])


class Tagger(nn.Module):
    """An embedding, a bidirectional LSTM and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(40, 10)
        self.lstm = nn.LSTM(10, 8, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(16, 5)

    def forward(self, words: Tensor) -> Tensor:
        states, _ = self.lstm(self.words(words))
        return F.log_softmax(self.tags(states), dim=-1)


class Gru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(6, 6)
        self.gru = nn.GRU(6, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        states, last = self.gru(torch.sigmoid(self.scale(x)))
        return self.out(states), last


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1 = nn.Conv2d(2, 6, 3, padding=1)
        self.down2 = nn.Conv2d(6, 12, 3, padding=1)
        self.bottom = nn.Conv2d(12, 12, 3, padding=1)
        self.up = nn.ConvTranspose2d(12, 6, 3, stride=2, padding=1, output_padding=1)
        self.merge = nn.Conv2d(12, 6, 3, padding=1)
        self.last = nn.Conv2d(6, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        image = F.pad(image, (1, 1, 1, 1), mode="reflect")[:, :, 1:-1, 1:-1]
        skip = F.elu(self.down1(image))
        x = F.relu(self.down2(F.max_pool2d(skip, 2)))
        x = F.relu(self.bottom(F.max_pool2d(x, 2)))
        x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        x = F.relu(self.up(x))
        x = self.merge(torch.cat([skip, x], dim=1))
        return self.last(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Bilinear(nn.Module):
    """Attention by einsum with a scale and a bias of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Parameter(torch.randn(8, 4, 8) * 0.3)
        self.right = nn.Parameter(torch.randn(8, 4, 8) * 0.3)
        self.mix = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q = torch.einsum("bsd,dhe->bhse", x, self.left)
        k = torch.einsum("bsd,dhe->bhse", x, self.right)
        weights = torch.softmax(torch.einsum("bhse,bhte->bhst", q, k) * 0.25, dim=-1)
        return self.mix(torch.einsum("bhst,btd->bsd", weights, x))


class Mha(nn.Module):
    """torch's own multi-head attention in a pre-norm block."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.out = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        mixed, _ = self.attention(y, y, y, need_weights=False)
        return self.out(F.silu(x + mixed))


class Retrieval(nn.Module):
    """The best three of the entries, their scores and the entry itself."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = nn.Parameter(torch.randn(20, 8))
        self.query = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scores = F.normalize(self.query(x), dim=-1) @ F.normalize(self.entries, dim=-1).T
        best, places = scores.topk(3, dim=-1)
        chosen = self.entries[scores.argmax(dim=-1)]
        return best, places, chosen


class Sequence(nn.Module):
    """Cumulative sums, masks made of positions, and a slice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        total = self.inner(x).cumsum(dim=1)
        length = x.shape[1]
        places = torch.arange(length)
        near = (places[:, None] - places[None, :]).abs() <= 2
        scores = torch.where(near, total @ total.transpose(1, 2), torch.tensor(-30.0))
        mixed = torch.sigmoid(scores) @ x
        return torch.roll(mixed, 1, dims=1)[:, 1:] - total[:, :-1].mean(dim=1, keepdim=True)


class Buckets(nn.Module):
    """Integer arithmetic: bucketed positions look up a bias, rounded prices look up a price."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Embedding(16, 5)
        self.dense = nn.Linear(5, 5)

    def forward(self, places: Tensor, price: Tensor) -> Tensor:
        bucket = (places // 3).clamp(-8, 7) + 8
        x = self.dense(self.bias(bucket))
        steps = torch.round(price * 4) / 4
        rest = torch.remainder(places, 5).float()
        return x * steps[..., None] + rest[..., None]


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-2) * self.weight


class Gated(nn.Module):
    """A gated feed-forward net behind a hand-written norm, with rotary positions."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = RmsNorm(8)
        self.gate = nn.Linear(8, 16, bias=False)
        self.up = nn.Linear(8, 16, bias=False)
        self.down = nn.Linear(16, 8, bias=False)
        self.register_buffer("frequency", 1.0 / 100 ** (torch.arange(4) / 4))

    def forward(self, x: Tensor) -> Tensor:
        angle = torch.arange(x.shape[1])[:, None] * self.frequency
        a, b = x.chunk(2, dim=-1)
        x = torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Norms(nn.Module):
    """Group norm and instance norm behind a one-dimensional convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 3, padding=1)
        self.group = nn.GroupNorm(2, 8)
        self.instance = nn.InstanceNorm1d(8, affine=True)
        self.pool = nn.AvgPool1d(2, 2, ceil_mode=True)

    def forward(self, x: Tensor) -> Tensor:
        x = F.softplus(self.group(self.conv(x)))
        return self.pool(self.instance(x))


class Switch(nn.Module):
    """One of two branches, chosen by the data."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.loud = nn.Linear(6, 6)
        self.quiet = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)

        def when_loud(y: Tensor) -> Tensor:
            return torch.tanh(self.loud(y)) * 2.0

        def when_quiet(y: Tensor) -> Tensor:
            return torch.sigmoid(self.quiet(y)) + 1.0

        return torch.cond(x.sum() > 0, when_loud, when_quiet, (y,)) - 0.5


class Gain(nn.Module):
    """A branch in Python on the data, which tracing bakes in."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, audio: Tensor) -> Tensor:
        x = self.inner(audio)
        if float(audio.abs().max()) > 3.0:
            x = x * 0.25
        if float(audio.abs().max()) <= 3.0:
            x = torch.tanh(x)
        return F.softmax(x, dim=-1)


class ItemScale(nn.Module):
    """A number read from the data in Python, which tracing bakes in."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.inner(x))
        scale = y.max().item() / 127
        return torch.round(y / scale) * 0.5


class BakedLength(nn.Module):
    """A length read through NumPy, which tracing bakes in."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, frames: Tensor) -> Tensor:
        length = float(frames.numpy().shape[1]) if not torch.jit.is_tracing() else _length(frames)  # type: ignore[attr-defined]
        return self.inner(frames).sum(dim=1) / length


def _length(frames: Tensor) -> float:
    return float(int(frames.shape[1]))


@torch.jit.script
def _decay(x: Tensor, count: int) -> Tensor:
    state = torch.zeros_like(x)
    for _ in range(count):
        state = state * 0.5 + torch.tanh(x + state)
    return state


class Looped(nn.Module):
    """A scripted loop inside a traced module."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(-_decay(self.inner(x), x.shape[1]))


class Poolings(nn.Module):
    """Pools whose two sides treat NaN otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, image: Tensor) -> Tensor:
        return self.pool(self.conv(image)) * 2


class Parts(nn.Module):
    """Values split, reduced and scattered: several outputs of one operator."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(12, 12)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b, c = self.inner(x).split([3, 4, 5], dim=-1)
        deviation, mean = torch.std_mean(c, dim=-1, keepdim=True)
        peak, place = b.max(dim=-1, keepdim=True)
        scaled = (a - mean) / (deviation + 0.1) * peak
        return scaled, b.gather(-1, (place + 1) % 4)


class Stack(nn.Module):
    """Deep enough that an error is inherited many times: eight equal layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 12))
            for _ in range(8)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


class Detector(nn.Module):
    """Boxes from a grid of anchors, clipped and scored."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3, 2, 1)
        self.boxes = nn.Conv2d(8, 4, 1)
        self.scores = nn.Conv2d(8, 3, 1)
        self.register_buffer("anchors", torch.rand(1, 64, 2) * 16)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = F.mish(self.body(image))
        boxes = self.boxes(x).permute(0, 2, 3, 1).reshape(image.shape[0], -1, 4)
        centres = boxes[..., :2].sigmoid() * 2 - 0.5 + self.anchors
        sizes = torch.exp(boxes[..., 2:].clamp(max=2.0)) * 4
        corners = torch.cat([centres - sizes / 2, centres + sizes / 2], dim=-1).clamp(0, 16)
        return corners, self.scores(x).flatten(2).softmax(dim=1).amax(dim=1)


class TiedEncoder(nn.Module):
    """torch's own encoder layers, read out with the transposed embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(30, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.encoder(self.tokens(tokens) * 4.0)
        return x @ self.tokens.weight.T


class Half(nn.Module):
    """A layer in float16 between two in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(8, 8)
        self.inner = nn.Linear(8, 8).half()
        self.after = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(self.before(x).half()).float()
        return self.after(F.relu(y))


def build(name: str) -> nn.Module:
    """Return a network by the name of its class, with seeded weights and busy norms."""
    generator = torch.Generator().manual_seed(1)
    torch.manual_seed(1)
    module: nn.Module = globals()[name]()
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d | nn.ConvTranspose2d):
                nn.init.kaiming_normal_(part.weight, nonlinearity="linear", generator=generator)
            if isinstance(part, nn.LayerNorm | nn.BatchNorm2d | nn.GroupNorm | nn.InstanceNorm1d):
                part.weight.uniform_(0.6, 1.4, generator=generator)
                part.bias.normal_(0.0, 0.2, generator=generator)
            if isinstance(part, nn.BatchNorm2d):
                part.running_mean.normal_(0.0, 0.3, generator=generator)
                part.running_var.uniform_(0.5, 2.0, generator=generator)
    return module.eval()
