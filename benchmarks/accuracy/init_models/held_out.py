"""Models that nothing in ``onnx_gate.init`` was written for, as people write them, of every modality."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


class PaddedEncoder(nn.Module):
    """A transformer of torch with its boolean padding mask: True is what it does not see."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(120, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 5)

    def forward(self, tokens, padding_mask):
        hidden = self.encoder(self.embed(tokens), src_key_padding_mask=padding_mask)
        return self.head(hidden[:, 0])


class StatefulLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(24, 32, num_layers=2, batch_first=True)
        self.out = nn.Linear(32, 24)

    def forward(self, x, h0, c0):
        y, (hn, cn) = self.lstm(x, (h0, c0))
        return self.out(y), hn, cn


class AtariNet(nn.Module):
    """Four frames as bytes, channels last, and a head for pictures of one size."""

    def __init__(self, actions=6):
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(4, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.Flatten())
        )
        self.head = nn.Linear(32 * 9 * 9, actions)

    def forward(self, frames):
        return self.head(self.features(frames.permute(0, 3, 1, 2).float() / 255))


@dataclass
class GptConfig:
    vocab_size: int = 150
    block_size: int = 48
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 32


class CausalBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.n_head
        self.norm1, self.norm2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.proj = nn.Linear(config.n_embd, config.n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_embd, 64), nn.GELU(), nn.Linear(64, config.n_embd)
        )

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class TinyGpt(nn.Module):
    """Made from a dataclass; positions end at ``block_size``."""

    def __init__(self, config: GptConfig):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.blocks = nn.ModuleList(CausalBlock(config) for _ in range(config.n_layer))
        self.norm = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device))
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.norm(x))


class TextRecogniser(nn.Module):
    """Pictures of one height and any width, for CTC."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 1))),
        )
        self.rnn = nn.GRU(32 * 8, 32, bidirectional=True, batch_first=True)
        self.classes = nn.Linear(64, 37)

    def forward(self, images):
        x = self.conv(images)
        x = x.permute(0, 3, 1, 2).flatten(2)
        return self.classes(self.rnn(x)[0]).log_softmax(-1)


class MelTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(80, 32, 5, padding=2)
        self.norm = nn.BatchNorm1d(32)
        self.tags = nn.Linear(32, 10)

    def forward(self, mel):
        return self.tags(F.relu(self.norm(self.conv(mel))).mean(-1))


class WaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(1, 8, 2)
        self.dilated = nn.ModuleList(nn.Conv1d(8, 8, 2, dilation=2**i) for i in range(1, 4))
        self.last = nn.Conv1d(8, 16, 1)

    def forward(self, waveform):
        x = self.first(F.pad(waveform, (1, 0)))
        for i, conv in enumerate(self.dilated, 1):
            x = x + torch.tanh(conv(F.pad(x, (2**i, 0))))
        return self.last(x)


class UNet(nn.Module):
    """Segmentation: what comes back up is put beside what went down, of the same size."""

    def __init__(self):
        super().__init__()
        self.down1 = nn.Conv2d(3, 8, 3, padding=1)
        self.down2 = nn.Conv2d(8, 16, 3, padding=1)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = nn.Conv2d(16, 4, 1)

    def forward(self, x):
        a = F.relu(self.down1(x))
        b = F.relu(self.down2(F.max_pool2d(a, 2)))
        return self.out(torch.cat([a, self.up(b)], dim=1))


class VideoClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(3, 8, 3, padding=1)
        self.head = nn.Linear(8, 12)

    def forward(self, clip):
        return self.head(F.adaptive_avg_pool3d(F.relu(self.conv(clip)), 1).flatten(1))


class DigitVae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.mean = nn.Linear(784, 64), nn.Linear(64, 8)
        self.decode = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 784))

    def forward(self, x):
        mean = self.mean(F.relu(self.encode(x.flatten(1))))
        return torch.sigmoid(self.decode(mean)), mean


class ClickModel(nn.Module):
    """Numbers beside four columns of categories, each with a table of its own."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 8) for n in (50, 20, 90, 30))
        self.mlp = nn.Sequential(nn.Linear(13 + 4 * 8, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense, sparse):
        columns = [table(sparse[:, i]) for i, table in enumerate(self.tables)]
        return self.mlp(torch.cat([dense, *columns], dim=1)).squeeze(1)


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Conv1d(3, 32, 1), nn.ReLU(), nn.Conv1d(32, 64, 1))
        self.head = nn.Linear(64, 8)

    def forward(self, points):
        return self.head(self.mlp(points).amax(dim=2))


class DenseGraph(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, nodes, adjacency):
        x = F.relu(torch.bmm(adjacency, self.first(nodes)))
        return torch.bmm(adjacency, self.second(x))


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )

    def forward(self, left, right):
        return F.cosine_similarity(self.net(left), self.net(right))


class DetectionHead(nn.Module):
    """Boxes and scores of a grid, in a dict."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=4, padding=1)
        self.boxes, self.scores = nn.Conv2d(16, 4, 1), nn.Conv2d(16, 6, 1)

    def forward(self, images):
        x = F.silu(self.stem(images))
        boxes = self.boxes(x).flatten(2).transpose(1, 2).exp()
        return {"boxes": boxes, "scores": self.scores(x).flatten(2).transpose(1, 2).sigmoid()}


class Forecaster(nn.Module):
    """A series, and what is known of every step beside it."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(3 + 2, 24, batch_first=True)
        self.head = nn.Linear(24, 6)

    def forward(self, history, covariates):
        return self.head(self.gru(torch.cat([history, covariates], dim=-1))[0][:, -1])


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(130, 32), nn.Embedding(170, 32)
        self.transformer = nn.Transformer(32, 4, 1, 1, 64, dropout=0.0, batch_first=True)
        self.words = nn.Linear(32, 170)

    def forward(self, src, tgt):
        return self.words(self.transformer(self.source(src), self.target(tgt)))


class MeanOfWords(nn.Module):
    """Words up to each row's length count, the padding behind does not."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(140, 16)
        self.classes = nn.Linear(16, 3)

    def forward(self, text, lengths):
        seen = torch.arange(text.shape[1])[None, :] < lengths[:, None]
        total = (self.embedding(text) * seen[..., None]).sum(1)
        return self.classes(total / lengths[:, None])


class NoisePredictor(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Linear(16, 8)
        self.first, self.last = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x, t):
        rates = torch.exp(-math.log(1000) * torch.arange(8) / 8)
        angles = t[:, None].float() * rates[None]
        steps = torch.cat([angles.sin(), angles.cos()], dim=1)
        return self.last(F.silu(self.first(x) + self.time(steps)[:, :, None, None]))


class Policy(nn.Module):
    """A camera and the joints of an arm."""

    def __init__(self):
        super().__init__()
        self.camera = nn.Sequential(
            nn.Conv2d(3, 8, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.trunk = nn.Sequential(nn.Linear(8 * 4 + 7, 32), nn.Tanh(), nn.Linear(32, 7))

    def forward(self, image, joints):
        return self.trunk(torch.cat([self.camera(image), joints], dim=1))
