"""Thirty further models, by signature rather than by modality: what ``forward`` takes is odd in each."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def decoder_layer() -> nn.Module:
    return nn.TransformerDecoderLayer(32, 4, 64, dropout=0.0, batch_first=True).eval()


def gru() -> nn.Module:
    return nn.GRU(10, 16, num_layers=2).eval()


def attention() -> nn.Module:
    return nn.MultiheadAttention(32, 4, batch_first=True).eval()


def bilinear() -> nn.Module:
    return nn.Bilinear(5, 7, 3).eval()


def tab_transformer() -> nn.Module:
    from rtdl_revisiting_models import FTTransformer

    return FTTransformer(
        n_cont_features=4,
        cat_cardinalities=[10, 5, 6],
        d_out=2,
        n_blocks=1,
        d_block=16,
        attention_n_heads=2,
        attention_dropout=0.0,
        ffn_d_hidden_multiplier=2.0,
        ffn_dropout=0.0,
        residual_dropout=0.0,
    ).eval()


def efficientnet() -> nn.Module:
    from efficientnet_pytorch import EfficientNet

    return EfficientNet.from_name("efficientnet-b0", num_classes=10).eval()


def temporal() -> nn.Module:
    from pytorch_tcn import TCN

    return TCN(num_inputs=6, num_channels=[8, 8], kernel_size=3).eval()


def linformer() -> nn.Module:
    from linformer import LinformerLM

    return LinformerLM(num_tokens=90, dim=32, seq_len=64, depth=1, heads=2, k=16).eval()


class FieldSegmenter(nn.Module):
    """Bytes of a camera, channels last, in two views."""

    def __init__(self, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(6, 16, 3, padding=1)
        self.out = nn.Conv2d(16, classes, 1)

    def forward(self, rgb: Tensor, nir: Tensor):
        both = torch.cat([rgb, nir], dim=-1).permute(0, 3, 1, 2).to(torch.float32) / 255.0
        return self.out(F.relu(self.stem(both)))


@dataclass
class Clip:
    frames: Tensor
    audio: Tensor


class ClipTagger(nn.Module):
    """Its one argument is a dataclass of tensors."""

    def __init__(self):
        super().__init__()
        self.see = nn.Linear(24, 16)
        self.hear = nn.Linear(10, 16)
        self.tags = nn.Linear(32, 5)

    def forward(self, clip: Clip):
        seen, heard = self.see(clip.frames).mean(1), self.hear(clip.audio).mean(1)
        return self.tags(torch.cat([seen, heard], -1))


class PriceModel(nn.Module):
    """Its one argument is a dict of columns."""

    def __init__(self):
        super().__init__()
        self.district = nn.Embedding(24, 6)
        self.body = nn.Linear(6 + 3, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, features: dict[str, Tensor]):
        x = torch.cat([self.district(features["district"]), features["numeric"]], dim=-1)
        return self.out(torch.tanh(self.body(x))).squeeze(-1)


class NestedState(nn.Module):
    """A cell whose state is a tuple in a tuple."""

    def __init__(self, width=12):
        super().__init__()
        self.inner = nn.LSTMCell(8, width)
        self.outer = nn.GRUCell(width, width)

    def forward(self, x: Tensor, state: tuple[tuple[Tensor, Tensor], Tensor]):
        (h, c), top = state
        h, c = self.inner(x, (h, c))
        top = self.outer(h, top)
        return top, ((h, c), top)


class CachedAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, cache):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(b, t, d)), (k, v)


class MelodyDecoder(nn.Module):
    """One step at a time, behind a list of caches, one pair for each layer."""

    def __init__(self, notes=88, width=32, heads=4, layers=2):
        super().__init__()
        self.notes = nn.Embedding(notes, width)
        self.layers = nn.ModuleList(CachedAttention(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, notes)

    def forward(self, note: Tensor, caches: list[tuple[Tensor, Tensor]]):
        x = self.notes(note)
        kept = []
        for layer, cache in zip(self.layers, caches, strict=True):
            y, cache = layer(x, cache)
            x = x + y
            kept.append(cache)
        return self.head(x), kept


class Matcher(nn.Module):
    """Keywords only."""

    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.words = nn.EmbeddingBag(300, 16)

    def forward(self, *, image: Tensor, caption: Tensor):
        return F.cosine_similarity(self.image(image), self.words(caption))


class SpeechCounter(nn.Module):
    """Frames, and how many of each row are real."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(40, 24, batch_first=True)
        self.out = nn.Linear(24, 10)

    def forward(self, fbank, fbank_lengths):
        hidden, _ = self.gru(fbank)
        real = torch.arange(fbank.shape[1])[None, :] < fbank_lengths[:, None]
        pooled = (hidden * real[..., None]).sum(1) / fbank_lengths[:, None]
        return self.out(pooled)


class Panoptic(nn.Module):
    """Images with the mask of their padding, as DETR takes them."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Conv2d(3, 32, 16, 16)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.boxes = nn.Linear(32, 4)

    def forward(self, pixel_values, pixel_mask):
        features = self.backbone(pixel_values)
        seen = F.interpolate(pixel_mask[:, None].float(), size=features.shape[-2:])[:, 0] > 0.5
        tokens = features.flatten(2).transpose(1, 2)
        tokens = self.encoder(tokens, src_key_padding_mask=~seen.flatten(1))
        return self.boxes(tokens).sigmoid()


class BiasedAttention(nn.Module):
    """An additive mask for pairs of places."""

    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(24, 3, batch_first=True)

    def forward(self, x, attn_mask):
        return self.attend(x, x, x, attn_mask=attn_mask, need_weights=False)[0]


class NeighbourCloud(nn.Module):
    """Points, and for each the rows of its neighbours."""

    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(3, 16)
        self.out = nn.Linear(32, 8)

    def forward(self, xyz, neighbors):
        features = self.lift(xyz)
        b, n, k = neighbors.shape
        rows = neighbors.reshape(b, n * k, 1).expand(-1, -1, features.shape[-1])
        around = features.gather(1, rows).view(b, n, k, -1).amax(2)
        return self.out(torch.cat([features, around], -1))


class DigitGenerator(nn.Module):
    """From noise and a label to an image."""

    def __init__(self, latent_dim=20, num_classes=10):
        super().__init__()
        self.label = nn.Embedding(num_classes, latent_dim)
        self.project = nn.Linear(latent_dim, 16 * 7 * 7)
        self.up = nn.Sequential(
            *(nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1))
        )

    def forward(self, z, y):
        x = self.project(z * self.label(y))
        return torch.tanh(self.up(x.view(-1, 16, 7, 7)))


class Scan(nn.Module):
    """A volume."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv3d(1, 8, 3, stride=2, padding=1)
        self.last = nn.ConvTranspose3d(8, 2, 2, 2)

    def forward(self, volume):
        return self.last(F.relu(self.first(volume)))


class EegNet(nn.Module):
    """Electrodes and time, of 128 samples for each window."""

    def __init__(self, electrodes=22, samples=128):
        super().__init__()
        self.temporal = nn.Conv2d(1, 8, (1, 33), padding=(0, 16), bias=False)
        self.spatial = nn.Conv2d(8, 16, (electrodes, 1), groups=8, bias=False)
        self.pool = nn.AvgPool2d((1, 8))
        self.classify = nn.Linear(16 * (samples // 8), 4)

    def forward(self, eeg):
        x = self.spatial(self.temporal(eeg.unsqueeze(1)))
        return self.classify(self.pool(F.elu(x)).flatten(1))


class Molecule(nn.Module):
    """Atoms and bonds of several molecules in one graph, and which atom is of which."""

    def __init__(self):
        super().__init__()
        self.atoms = nn.Embedding(119, 16)
        self.message = nn.Linear(16, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, z, edge_index, batch):
        x = self.atoms(z)
        x = x + torch.zeros_like(x).index_add(0, edge_index[1], self.message(x)[edge_index[0]])
        return torch.zeros(8, 1).index_add(0, batch, self.out(F.silu(x)))


class FlowField(nn.Module):
    """Two frames at odd sizes: a stride of eight has to divide them."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(6, 16, 8, 8)
        self.up = nn.Sequential(nn.Conv2d(16, 2 * 64, 1), nn.PixelShuffle(8))

    def forward(self, frame1, frame2):
        both = torch.cat([frame1, frame2], 1)
        return self.up(F.gelu(self.down(both)))


class GoNet(nn.Module):
    """A board of one size: policy and value."""

    def __init__(self, size=9):
        super().__init__()
        self.body = nn.Conv2d(17, 16, 3, padding=1)
        self.policy = nn.Linear(16 * size * size, size * size + 1)
        self.value = nn.Linear(16 * size * size, 1)

    def forward(self, board):
        x = F.relu(self.body(board)).flatten(1)
        return self.policy(x), self.value(x).tanh()
