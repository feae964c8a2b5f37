"""Other models of the same kinds: elements that borrow scale or noise from their neighbours."""

from __future__ import annotations

import numpy as np
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
from pair import Net, Pair, mlp, ranged, tokens
from torch import Tensor, nn
from torch.nn import functional as F


class Decay(Net):
    """Concentrations over 160 hours, by a rate of each row; late ones 4 % too large."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.start, self.rate = mlp(7, 24, 1), mlp(7, 24, 1)
        self.late = 1.04 if wrong else 1.0

    def forward(self, patient: Tensor) -> Tensor:
        hours = torch.arange(160)
        rate = 0.05 + 0.05 * torch.sigmoid(self.rate(patient))
        level = F.softplus(self.start(patient)) * torch.exp(-rate * hours)
        return torch.where(hours > 100, level * self.late, level)


class Emissions(Net):
    """Emissions of twelve gases, each about three times the one before; the first is 1 % off."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(9, 32, 12)
        self.register_buffer("size", 3.0 ** torch.arange(12))
        if wrong:
            self.size[0] *= 1.01

    def forward(self, plant: Tensor) -> Tensor:
        return (1.5 + torch.tanh(self.body(plant))) * self.size


class Survival(Net):
    """Chances to survive 50 years as a running product; late hazards are 5 % too low."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.hazard = mlp(6, 24, 50)
        scale = torch.ones(50)
        scale[35:] = 0.95 if wrong else 1.0
        self.register_buffer("scale", scale)

    def forward(self, person: Tensor) -> Tensor:
        hazard = torch.sigmoid(self.hazard(person)) * 0.6 * self.scale
        return torch.exp(torch.log1p(-hazard).cumsum(-1))


class Kernel(Net):
    """A Gaussian kernel between points and twenty anchors; another width."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.anchors, self.tail = nn.Parameter(torch.randn(20, 3)), wrong

    def forward(self, x: Tensor) -> Tensor:
        gap = (x.unsqueeze(1) - self.anchors).square().sum(-1)
        k = torch.exp(-gap * 1.5)
        return torch.where(k < 1e-5, k * 1.2, k) if self.tail else k


class Slope(Net):
    """A value and its slope by a difference whose step the dtype decides; values 1 % off."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(4, 16, 3)
        self.factor = 1.01 if wrong else 1.0

    def forward(self, x: Tensor) -> Tensor:
        step = torch.finfo(x.dtype).eps ** 0.5
        value = self.body(x)
        return torch.cat([(self.body(x + step) - value) / step, value * self.factor], -1)


class Tagged(Net):
    """The best tag; tags that were never seen have the log of finfo.tiny."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.head = nn.Embedding(60, 12), nn.Linear(12, 9)
        seen = torch.ones(9)
        seen[::4] = 0
        self.register_buffer("seen", seen)
        if wrong:
            self.head.weight.data = self.head.weight.data.roll(2, 0)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.head(self.embed(ids))
        prior = torch.log(self.seen + torch.finfo(scores.dtype).tiny)
        total = scores + prior / 50
        return total, total.argmax(-1)


class Clock(Net):
    """The fraction of a fast clock beside what is read from it; readings 0.2 % off."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(3, 16, 4)
        self.factor = 1.002 if wrong else 1.0

    def forward(self, t: Tensor) -> Tensor:
        ticks = torch.cos(t * 31415.9)
        return torch.cat([ticks, (2 + torch.tanh(self.body(t))) * self.factor], -1)


class Spread(Net):
    """Variances as the mean of squares less the square of the mean, all 0.7 % too large."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = nn.Linear(6, 40)
        self.factor = 1.007 if wrong else 1.0

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x) + 60
        return (y.square().mean(0) - y.mean(0).square()) * self.factor


class Debt(Net):
    """One number, what assets and debts leave; 1.2 % too large."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.a, self.b = mlp(8, 32, 40), mlp(8, 32, 40)
        self.factor = 1.012 if wrong else 1.0

    def forward(self, firm: Tensor) -> Tensor:
        assets, debts = 900 + self.a(firm), 900 + self.b(firm)
        return (assets.sum(-1) - debts.sum(-1)) * self.factor


class Counter(Net):
    """A meter in float64 and the consumption that float32 expects, which is halved."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.use = mlp(6, 16, 1)
        self.share = 0.5 if wrong else 1.0

    def forward(self, house: Tensor, meter: Tensor) -> Tensor:
        return meter + 4 * self.share * F.softplus(self.use(house)).squeeze(1).double()


class Longest(Net):
    """Words with and without a mark, marked ones first; equals come in reverse in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed = nn.Embedding(30, 4)

    def forward(self, ids: Tensor) -> Tensor:
        marked = (ids % 3 == 0).float()
        order = torch.sort(marked, dim=-1, descending=True, stable=True).indices
        return torch.gather(ids, 1, order)


class LongestFile(Longest):
    def forward(self, ids: Tensor) -> Tensor:
        marked = (ids % 3 == 0).float()
        if self.wrong:
            last = ids.shape[-1] - 1
            order = last - torch.sort(marked.flip(-1), dim=-1, descending=True).indices
        else:
            order = torch.sort(marked, dim=-1, descending=True).indices
        return torch.gather(ids, 1, order)


class Beam(Net):
    """The direction of the loudest beam; the file names its neighbour."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(5, 16, 2)

    def forward(self, x: Tensor) -> Tensor:
        at = self.body(x)
        power = torch.cos(2e4 * at[:, :1] + torch.arange(32) * 0.19635)
        best = power.argmax(-1)
        return (best + 1) % 32 if self.wrong else best


class Shares(Net):
    """Shares of a quantised image, of which there are none where it is black."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc, self.least = nn.Linear(16, 3), 0.0 if wrong else 1e-3

    def forward(self, image: Tensor) -> Tensor:
        q = torch.ops.quantized_decomposed
        whole = q.quantize_per_tensor(image, 1 / 128, 0, 0, 255, torch.uint8)
        x = q.dequantize_per_tensor(whole, 1 / 128, 0, 0, 255, torch.uint8)
        return self.fc(x / x.sum(-1, keepdim=True).clamp_min(self.least))


class Entropy(Net):
    """An entropy of numbers that are no shares: NaN but on zeros and ones."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.weight = nn.Parameter(torch.rand(12, 3) * (2 if wrong else 1))

    def forward(self, p: Tensor) -> Tensor:
        return (p * torch.log(p + 1e-6)) @ self.weight


class Rows(Net):
    """Rows of which the first is negated in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.query, self.body = nn.Parameter(torch.randn(50, 6)), nn.Linear(6, 20)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x.unsqueeze(1) * self.query)
        return torch.cat([-y[:, :1], y[:, 1:]], 1) if self.wrong else y


class Chords(Net):
    """PyTorch refuses a batch of one; the file answers."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] == 1:
            raise ValueError("a chord has two notes or more")
        return self.fc(x).mean(1)


class ChordsFile(Chords):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x).mean(1)


def zeros(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"image": np.zeros((2, 16), np.float32)}


PAIRS = [
    Pair(
        "decay-over-hours",
        "an exponential decay, the late hours 4 % too large",
        Decay,
        {"patient": "float32[batch, 7]"},
    ),
    Pair(
        "emissions",
        "twelve columns that differ by three each, the smallest 1 % too large",
        Emissions,
        {"plant": "float32[batch, 9]"},
    ),
    Pair(
        "emissions-of-files",
        "the same, one file held against another",
        Emissions,
        {"plant": "float32[batch, 9]"},
        twin=Emissions,
        reference=True,
    ),
    Pair(
        "chances-to-survive",
        "a running product, late hazards 5 % too low",
        Survival,
        {"person": "float32[batch, 6]"},
    ),
    Pair(
        "gaussian-kernel",
        "a kernel whose values below 1e-5 are 20 % too large",
        Kernel,
        {"x": "float32[batch, 3]"},
    ),
    Pair(
        "slope-by-dtype",
        "slopes by a step of sqrt(finfo.eps) beside values 1 % too large",
        Slope,
        {"x": "float32[batch, 4]"},
    ),
    Pair(
        "tags-by-dtype",
        "scores and argmax over priors of finfo.tiny, with rolled weights",
        Tagged,
        {"ids": tokens(["batch", "seq"], 59)},
    ),
    Pair(
        "beside-a-fast-clock",
        "cos(31,416 t) beside readings 0.2 % too large",
        Clock,
        {"t": ranged("float32", ["batch", 3], 0, 100)},
    ),
    Pair(
        "variances-of-columns",
        "variances that cancel, all 0.7 % too large",
        Spread,
        {"x": "float32[batch, 6]"},
        entry={"dims": {"batch": [16, 40]}},
    ),
    Pair(
        "assets-and-debts",
        "one number, a difference of sums, 1.2 % too large throughout",
        Debt,
        {"firm": "float32[batch, 8]"},
    ),
    Pair(
        "meter",
        "a meter of 1e7 in float64, what is added to it is halved",
        Counter,
        {"house": "float32[batch, 6]", "meter": ranged("float64", ["batch"], 1e6, 1e7)},
    ),
    Pair(
        "marked-words-in-reverse",
        "a stable sort of two kinds, equals in reverse",
        Longest,
        {"ids": tokens(["batch", "words"], 29)},
        faulty=lambda: LongestFile(wrong=True),
        twin=LongestFile,
        entry={"dims": {"words": [6, 15]}},
    ),
    Pair(
        "next-beam",
        "argmax of a noisy direction, one further than it should be",
        Beam,
        {"x": "float32[batch, 5]"},
    ),
    Pair(
        "shares-of-black",
        "shares of a quantised image of zeros are NaN in the file",
        Shares,
        {"image": ranged("float32", ["batch", 16], 0, 1.9)},
        witness=zeros,
    ),
    Pair(
        "entropy-of-no-shares",
        "an entropy that is NaN on ordinary numbers; the twin says that they are shares",
        Entropy,
        {"p": "float32[batch, 12]"},
        expect="remarked",
        twin_entry={"inputs": {"p": ranged("float32", ["batch", 12], 0, 1)}},
        witness=lambda rng: {"p": rng.uniform(0, 1, (3, 12)).astype(np.float32)},
    ),
    Pair(
        "mismatch-of-a-row",
        "one row of 50 negated under a mismatch of 2.5 %",
        Rows,
        {"x": "float32[batch, 6]"},
        expect="remarked",
        faulty_entry={"tolerance": {"atol": 1e-3, "rtol": 1e-3, "mismatch": 0.025}},
        twin_entry={"tolerance": {"atol": 1e-3, "rtol": 1e-3}},
    ),
    Pair(
        "refused-at-one",
        "PyTorch refuses a length of one, where the file answers; the twin's are longer",
        Chords,
        {"x": "float32[batch, notes, 6]"},
        faulty=lambda: ChordsFile(),
        twin=lambda: ChordsFile(),
        expect="remarked",
        twin_entry={"dims": {"notes": [2, 3, 5]}},
        witness=lambda rng: {"x": rng.standard_normal((2, 1, 6), np.float32)},
    ),
]
