"""What alarmed and is right: transforms, exact diagonals, guards, chaos, flushed numbers, ties."""

from __future__ import annotations

import torch
from pair import Net, Pair, ranged
from torch import Tensor, nn


class Cepstrum(Net):
    """A transform of the logarithm of a transform."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.register_buffer("window", torch.hann_window(64))
        self.factor = 1.01 if wrong else 1.0

    def forward(self, frame: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(frame * self.window).abs()
        return torch.fft.rfft(torch.log(spectrum + 1e-2)).real * self.factor


class Convolved(Net):
    """A filter in the frequency domain: there, times a response, and back."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.response = nn.Parameter(torch.rand(33))
        if wrong:
            self.response.data = self.response.data.flip(0)

    def forward(self, signal: Tensor) -> Tensor:
        spectrum = torch.view_as_real(torch.fft.fft(signal))[..., :33, :]
        power = spectrum.square().sum(-1) * self.response
        return torch.fft.fft(power).abs()


class Squares(Net):
    """Squared distances by the product of the points, the diagonal exactly zero."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.lift = nn.Linear(4, 12)
        self.factor = 1.01 if wrong else 1.0

    def forward(self, points: Tensor) -> Tensor:
        f = self.lift(points) + 3
        own = f.square().sum(-1)
        gap = own.unsqueeze(1) + own.unsqueeze(0) - 2 * (f @ f.T)
        n = points.shape[0]
        return gap.clamp_min(0) * (1 - torch.eye(n)) * self.factor


class Energy(Net):
    """The logarithm of an energy that is zero for half of the bands, guarded by finfo.eps."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.bands = nn.Linear(20, 12, bias=False)
        if wrong:
            self.bands.weight.data = self.bands.weight.data.roll(1, 0)

    def forward(self, spectrum: Tensor) -> Tensor:
        energy = torch.relu(self.bands(spectrum)).square()
        return torch.log(energy + torch.finfo(spectrum.dtype).eps)


class Logistic(Net):
    """Forty steps of the logistic map, and a number that is plain."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.rate = 3.99
        self.plain = nn.Linear(5, 5)
        if wrong:
            self.plain.weight.data *= 1.02

    def forward(self, x: Tensor) -> Tensor:
        z = torch.sigmoid(x)
        for _ in range(40):
            z = self.rate * z * (1 - z)
        return torch.cat([z, self.plain(x)], -1)


class Pitch(Net):
    """Scores of 48 pitches whose far tail is below the least normal number."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = nn.Linear(9, 1)
        self.width = 2.1 if wrong else 2.0

    def forward(self, frame: Tensor) -> Tensor:
        at = 24 + 10 * torch.tanh(self.body(frame))
        return torch.exp(-((torch.arange(48) - at) ** 2) / self.width)


class Detector(Net):
    """The three best of 36 anchors; on an image of zeros all scores tie."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv = nn.Conv2d(1, 6, 3, 2, 1)
        self.score, self.box = nn.Conv2d(6, 1, 1), nn.Conv2d(6, 4, 1)
        if wrong:
            self.box.bias.data += 0.05

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.relu(self.conv(image))
        scores = torch.sigmoid(self.score(h)).flatten(1)
        best = scores.topk(3, -1)
        boxes = self.box(h).flatten(2).transpose(1, 2)
        return best.values, boxes.gather(1, best.indices.unsqueeze(-1).expand(-1, -1, 4))


class Recurrent(Net):
    """Two layers of an LSTM over forty frames."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.rnn, self.head = nn.LSTM(8, 24, 2, batch_first=True), nn.Linear(24, 4)
        self.factor = 1.002 if wrong else 1.0

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1]) * self.factor


class Resized(Net):
    """A table of positions, resized by cubic interpolation."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.table, self.head = nn.Parameter(torch.randn(1, 8, 7, 7)), nn.Linear(8, 3)
        self.conv = nn.Conv2d(3, 8, 4, 4)
        if wrong:
            self.table.data[0, 0, 0, 0] += 0.3

    def forward(self, image: Tensor) -> Tensor:
        h = self.conv(image)
        table = nn.functional.interpolate(self.table, (8, 8), mode="bicubic", align_corners=False)
        return self.head((h + table).flatten(2).transpose(1, 2))


PAIRS = [
    Pair(
        "cepstrum",
        "two transforms, one of the log of the other; 1 % too large",
        Cepstrum,
        {"frame": "float32[batch, 64]"},
    ),
    Pair(
        "filtered-spectrum",
        "two nested transforms of a real signal; the response in reverse",
        Convolved,
        {"signal": "float32[batch, 64]"},
    ),
    Pair(
        "squares-with-exact-diagonal",
        "x @ x.T with a diagonal of zeros; 1 % too large",
        Squares,
        {"points": "float32[n, 4]"},
    ),
    Pair(
        "guarded-energies",
        "log(e + finfo.eps); the bands rolled",
        Energy,
        {"spectrum": "float32[batch, 20]"},
    ),
    Pair(
        "logistic-map",
        "forty chaotic steps beside plain numbers 2 % too large",
        Logistic,
        {"x": "float32[batch, 5]"},
    ),
    Pair(
        "pitch-beyond-normal-numbers",
        "a tail below the least normal number; another width",
        Pitch,
        {"frame": "float32[batch, 9]"},
    ),
    Pair(
        "detector-of-ties",
        "topk of scores that tie on zeros; boxes with a shifted bias",
        Detector,
        {"image": ranged("float32", ["batch", 1, 12, 12], 0, 1)},
    ),
    Pair(
        "lstm-of-two-layers",
        "an LSTM over forty frames; 0.2 % too large",
        Recurrent,
        {"x": "float32[batch, 40, 8]"},
    ),
    Pair(
        "resized-table",
        "a table resized by cubic interpolation; one cell is another",
        Resized,
        {"image": ranged("float32", ["batch", 3, 32, 32], 0, 1)},
    ),
]
