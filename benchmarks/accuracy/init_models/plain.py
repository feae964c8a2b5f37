"""Models as people write them, and two of TorchScript."""

import torch
from torch import nn


class Mlp(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.hidden = nn.Linear(20, 32)
        self.head = nn.Linear(32, num_classes)

    def forward(self, x):
        return self.head(torch.relu(self.hidden(x)))


class Recommender(nn.Module):
    """Indices of two vocabularies beside numbers."""

    def __init__(self):
        super().__init__()
        self.user_embedding = nn.Embedding(500, 8)
        self.item_embedding = nn.Embedding(700, 8)
        self.head = nn.Linear(8 + 8 + 5, 1)

    def forward(self, user_id, item_id, dense):
        parts = [self.user_embedding(user_id), self.item_embedding(item_id), dense]
        return torch.sigmoid(self.head(torch.cat(parts, 1)))


class Encoder(nn.Module):
    def __init__(self, vocab_size=200):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, tokens, mask):
        return self.encoder(self.embed(tokens), src_key_padding_mask=mask == 0)


class Denoiser(nn.Module):
    """An image is answered by an image, of a size that two strides divide."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 8, 3, 2, 1)
        self.deeper = nn.Conv2d(8, 8, 3, 2, 1)
        self.up = nn.ConvTranspose2d(8, 8, 2, 2)
        self.last = nn.ConvTranspose2d(8, 1, 2, 2)

    def forward(self, image):
        small = torch.relu(self.deeper(torch.relu(self.down(image))))
        return image + self.last(torch.relu(self.up(small)))


class GraphLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = nn.Linear(6, 4)
        self.neighbours = nn.Linear(6, 4)

    def forward(self, x, edge_index):
        source, target = edge_index[0], edge_index[1]
        messages = self.neighbours(x)[source]
        return self.own(x).index_add(0, target, messages)


class Tagger(nn.Module):
    def __init__(self, config: "Settings"):
        super().__init__()
        self.embed = nn.Embedding(config.vocabulary, config.width)
        self.recurrent = nn.LSTM(config.width, config.width, batch_first=True)
        self.tags = nn.Linear(config.width, config.tags)

    def forward(self, words):
        return self.tags(self.recurrent(self.embed(words))[0])


class Settings:
    def __init__(self, vocabulary=120, width=12, tags=5):
        self.vocabulary = vocabulary
        self.width = width
        self.tags = tags


class CrossAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, query, memory):
        return self.attention(query, memory, memory)[0]


class Digits(nn.Module):
    """A linear layer behind convolutions, so that one size of image fits."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Linear(4 * 13 * 13, 10)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def scripted():
    return torch.jit.script(Mlp(3).eval())


def traced():
    return torch.jit.trace(Digits().eval(), torch.rand(2, 1, 28, 28))
