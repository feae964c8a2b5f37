"""Single layers of ``torch.nn``, each a module of its own."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from _common import noise, ready
from torch import Tensor, nn


def build(name: str, *args: object, **kwargs: object) -> nn.Module:
    """The class of this file called ``name``, seeded and in evaluation mode."""
    return ready(lambda: globals()[name](*args, **kwargs))


def linear() -> nn.Module:
    return ready(lambda: nn.Linear(64, 32))


def conv1d() -> nn.Module:
    return ready(lambda: nn.Conv1d(8, 16, 5, stride=2, dilation=2, padding=3))


def conv2d_groups() -> nn.Module:
    return ready(lambda: nn.Conv2d(16, 32, 3, groups=4, padding=1, padding_mode="reflect"))


def conv3d() -> nn.Module:
    return ready(lambda: nn.Conv3d(3, 8, (3, 3, 2), stride=(1, 2, 1), padding=1))


def conv_transpose1d() -> nn.Module:
    return ready(lambda: nn.ConvTranspose1d(8, 4, 4, stride=2, padding=1))


def conv_transpose2d() -> nn.Module:
    return ready(lambda: nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1))


def depthwise_separable() -> nn.Module:
    return ready(
        lambda: nn.Sequential(
            nn.Conv2d(12, 12, 3, padding=1, groups=12), nn.ReLU6(), nn.Conv2d(12, 24, 1)
        )
    )


def batchnorm1d() -> nn.Module:
    return ready(lambda: nn.Sequential(nn.Linear(16, 24), nn.BatchNorm1d(24)), noise(64, 16))


def batchnorm_net() -> nn.Module:
    def make() -> nn.Module:
        sizes = [3, 16, 32, 32]
        blocks: list[nn.Module] = []
        for before, after in pairwise(sizes):
            blocks += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        return nn.Sequential(*blocks)

    return ready(make, noise(8, 3, 16, 16))


def layernorm() -> nn.Module:
    return ready(lambda: nn.LayerNorm(96))


def groupnorm() -> nn.Module:
    return ready(lambda: nn.GroupNorm(4, 16))


def instancenorm() -> nn.Module:
    return ready(lambda: nn.InstanceNorm2d(8, affine=True))


def rmsnorm() -> nn.Module:
    return ready(lambda: nn.RMSNorm(64, eps=1e-6))


def local_response_norm() -> nn.Module:
    return ready(lambda: nn.LocalResponseNorm(3))


def embedding() -> nn.Module:
    return ready(lambda: nn.Embedding(100, 16, padding_idx=0))


def embedding_bag() -> nn.Module:
    return ready(lambda: nn.EmbeddingBag(50, 16, mode="mean"))


def prelu() -> nn.Module:
    return ready(lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.PReLU(8)))


def gelu(approximate: str) -> nn.Module:
    return ready(
        lambda: nn.Sequential(nn.Linear(32, 64), nn.GELU(approximate=approximate), nn.Linear(64, 8))
    )


def bilinear() -> nn.Module:
    return ready(lambda: nn.Bilinear(12, 9, 5))


def pixel_shuffle() -> nn.Module:
    return ready(lambda: nn.Sequential(nn.Conv2d(4, 36, 3, padding=1), nn.PixelShuffle(3)))


def max_pool() -> nn.Module:
    return ready(lambda: nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True))


def avg_pool() -> nn.Module:
    return ready(lambda: nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False))


def adaptive_pool() -> nn.Module:
    return ready(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d((3, 5))))


def lp_pool() -> nn.Module:
    return ready(lambda: nn.LPPool2d(2, 3, stride=2))


def weight_norm() -> nn.Module:
    return ready(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(24, 12)))


class LargeOffsetLayerNorm(nn.Module):
    """A layer norm of values that sit far from zero, where float32 itself is poor."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + 1.0e4)


class HandWrittenLayerNorm(nn.Module):
    """The same formula spelt out: runtimes fuse it, and fusing changes its rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(48))
        self.bias = nn.Parameter(torch.zeros(48))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        centred = x - mean
        variance = centred.pow(2).mean(-1, keepdim=True)
        return centred / torch.sqrt(variance + 1e-5) * self.weight + self.bias


class SelfAttention(nn.Module):
    """``nn.MultiheadAttention`` with a padding mask, where True hides a key."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        # The first key is always visible: a row without any visible key is NaN by definition.
        first = torch.arange(x.shape[1], device=x.device) == 0
        return self.attention(x, x, x, key_padding_mask=padding & ~first)


class CausalAttention(nn.Module):
    """Scaled dot-product attention with the causal flag."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 96)
        self.out = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(-2))


class CrossAttention(nn.Module):
    """Attention over a memory of another length, with a float mask added to the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(24, 3, kdim=16, vdim=16, batch_first=True)

    def forward(self, x: Tensor, memory: Tensor, bias: Tensor) -> Tensor:
        return self.attention(x, memory, memory, attn_mask=bias, need_weights=False)[0]


class Encoder(nn.Module):
    """``nn.TransformerEncoder`` with a padding mask."""

    def __init__(self, norm_first: bool = False, activation: str = "gelu") -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            32, 4, 64, activation=activation, norm_first=norm_first, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        first = torch.arange(x.shape[1], device=x.device) == 0
        return self.encoder(x, src_key_padding_mask=padding & ~first)


class Decoder(nn.Module):
    """``nn.TransformerDecoder`` with a causal mask over the target."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(32, 2, 48, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, 2)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        length = x.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        return self.decoder(x, memory, tgt_mask=future, tgt_is_causal=True)


class Recurrent(nn.Module):
    """A recurrent stack; returns the sequence and the last state."""

    def __init__(self, kind: str, layers: int = 1, bidirectional: bool = False) -> None:
        super().__init__()
        self.core = getattr(nn, kind)(
            12, 20, num_layers=layers, bidirectional=bidirectional, batch_first=True
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        sequence, state = self.core(x)
        return sequence, state[0] if isinstance(state, tuple) else state


class LastStep(nn.Module):
    """A GRU of which only the last step is used, as in a forecaster."""

    def __init__(self) -> None:
        super().__init__()
        self.core = nn.GRU(6, 24, num_layers=2, batch_first=True)
        self.head = nn.Linear(24, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.core(x)[0][:, -1])


class CellLoop(nn.Module):
    """A cell unrolled over a fixed number of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, 16)

    def forward(self, x: Tensor) -> Tensor:
        hidden = x.new_zeros(x.shape[0], 16)
        memory = x.new_zeros(x.shape[0], 16)
        for step in range(6):
            hidden, memory = self.cell(x[:, step], (hidden, memory))
        return hidden


class Activations(nn.Module):
    """Every activation of ``torch.nn.functional`` that has a name of its own."""

    names = (
        "relu",
        "relu6",
        "elu",
        "selu",
        "celu",
        "leaky_relu",
        "gelu",
        "silu",
        "mish",
        "softplus",
        "softsign",
        "tanhshrink",
        "hardtanh",
        "hardswish",
        "hardsigmoid",
        "sigmoid",
        "tanh",
        "hardshrink",
        "softshrink",
    )

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {f"out_{name}": getattr(F, name)(x) for name in self.names}


class Interpolate(nn.Module):
    """Resize by a factor or to a size, in one of PyTorch's modes."""

    def __init__(self, mode: str, align: bool | None = None, size: list[int] | None = None) -> None:
        super().__init__()
        self.mode, self.align = mode, align
        self.size = None if size is None else tuple(size)

    def forward(self, x: Tensor) -> Tensor:
        scale = None if self.size else 2.5
        return F.interpolate(
            x, size=self.size, scale_factor=scale, mode=self.mode, align_corners=self.align
        )


class Pad(nn.Module):
    """Four ways to pad, one after another."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (1, 2, 0, 1), value=0.5)
        x = F.pad(x, (2, 1, 1, 2), mode="reflect")
        x = F.pad(x, (1, 1, 2, 0), mode="replicate")
        return F.pad(x, (2, 1, 1, 1), mode="circular")


class Unfold(nn.Module):
    """Patches out of an image, weighted, and folded back."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(27, 27)

    def forward(self, x: Tensor) -> Tensor:
        patches = F.unfold(x, 3, padding=1, stride=2)
        patches = self.mix(patches.transpose(1, 2)).transpose(1, 2)
        return F.fold(patches, (16, 16), 3, padding=1, stride=2)
