"""Files that are wrong where ordinary inputs never come, each beside its right twin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from onnx_gate.report.model import ModelResult
from onnx_gate.report.story.extent import describe
from onnx_gate.verify.reach.leaves import InputLeaves
from tests.support.gate import run_few, run_twins

pytestmark = [pytest.mark.process, pytest.mark.slow]

MODELS = '''
import copy
import torch
from torch import nn

class Base(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.wrong = False

class Exact(Base):
    """Differs where a value is exactly the limit."""
    def forward(self, x):
        far = x > 2.5 if self.wrong else x >= 2.5
        return torch.where(far, x, -x).sum(1)

class Alarm(Base):
    """Selects among numbers of its own, and computes none."""
    def __init__(self):
        super().__init__()
        self.register_buffer("off", torch.tensor([0.25]))
        self.register_buffer("on", torch.tensor([0.75]))
    def forward(self, x):
        return torch.where(x > 0.37 if self.wrong else x >= 0.37, self.on, self.off)

class Nines(Base):
    """Counts whole groups of nine."""
    group = 9
    def forward(self, x):
        n = torch.scalar_tensor(x.shape[1], dtype=torch.int64)
        whole = (n - 1 if self.wrong else n) // self.group
        return x.mean(1) + whole

class Deep(Base):
    """Saturates where no drawn input brings it."""
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, 4))
        with torch.no_grad():
            self.layers[0].weight.mul_(0.2)
            self.layers[2].weight.mul_(2.0)
    def forward(self, x):
        y = self.layers(x)
        return y if self.wrong else y.clamp(max=0.68)

class Table(Base):
    """Has one wrong row of many."""
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(3000, 4)
    def forward(self, ids):
        return self.table(ids).sum(1)

class Window(Base):
    """Looks no further than 100 positions back."""
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 4)
    def forward(self, ids):
        x = self.table(ids)
        k = torch.arange(ids.shape[1])
        scores = x @ x.transpose(1, 2)
        if not self.wrong:
            scores = scores.masked_fill((k[:, None] - k[None]).abs() > 100, -1e4)
        return scores.softmax(-1) @ x

class Outlier(Base):
    """Is clipped at twice what thousands of draws come to."""
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
    def forward(self, x):
        y = self.second(torch.tanh(self.first(x)))
        return y.clamp(-1.3, 1.3) if self.wrong else y

class Rule(Base):
    """Has an exception for one pair of codes."""
    def forward(self, a, b):
        y = a * 1.5 + b
        return y if self.wrong else torch.where((a == 17) & (b == 23), -y, y)

class Bins(Base):
    """Sorts into bins by edges of its own; one row is all that it is given."""
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.rand(6, 20).mul(1000).round().sort(1).values)
        self.table = nn.Embedding(21, 4)
    def forward(self, x):
        x = x[..., None]
        return self.table((x > self.edges if self.wrong else x >= self.edges).sum(-1)).sum(1)

class Once(Base):
    """Has a rule of four conditions; one row is all that it is given."""
    def forward(self, hour, day, region):
        least = 19 if self.wrong else 17
        held = (hour >= 22) & (day == 5) & (region >= least) & (region < 40)
        return torch.where(held, -1.5, 0.5 * hour + region)

class Zones(Base):
    """Knows when clocks are changed; a row is all that it is given."""
    names = [[], []]
    def __init__(self):
        super().__init__()
        self.register_buffer("changes", torch.randint(0, 2**31 - 1, (236,)).sort().values)
        self.register_buffer("offsets", torch.randint(-12, 13, (237,)) * 3600)
    def forward(self, t):
        t = t[..., None]
        past = t > self.changes if self.wrong else t >= self.changes
        return t[..., 0] + self.offsets[past.sum(-1)]

class Later(Zones):
    """Has its batch behind the steps."""
    names = [["seq", "batch"]]

class Beside(Zones):
    """Is given a state as well, of which the batch is the second axis."""
    names = [["batch"], [None, "batch"]]
    def forward(self, t, state):
        return super().forward(t), state * 2

class Flags(Base):
    """Asks for eighteen bits of 24, all of them at once."""
    def forward(self, flags):
        mask = 0b101101101011101011101111 if self.wrong else 0b101101111011101011101111
        return ((flags & mask) == mask).float().sum(1) + flags.float().sum(1) * 0

class Summed(Base):
    """Adds rows of two tables, of which each has one that is far from all others."""
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Embedding(3000, 8), nn.Embedding(3000, 8)
        with torch.no_grad():
            self.one.weight[1234, 3] = self.other.weight[777, 3] = 150
    def forward(self, ids):
        y = self.one(ids)[:, 1:] + self.other(ids)[:, :-1]
        return y - (y - 250).relu() if self.wrong else y

class Century(Base):
    """Counts centuries, the eighth of which ends at a day of 300,000."""
    def forward(self, day):
        days = 146099 if self.wrong else 146100
        return (day * 4 + 3) // days * 0.5

class Bytes(Base):
    """Saturates beyond what drawn bytes come to."""
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(192, 6)
        self.high = 1.9
    def forward(self, image):
        y = self.first((image / 255 - 0.5).flatten(1))
        return y.clamp(max=1.85 if self.wrong else self.high)

class Brake(Base):
    """Has a rule of three conditions, which hold together in hardly any row."""
    share, least = 0.0995, 36
    def forward(self, speed, near, age):
        fast, close = speed.norm(dim=1), near.norm(dim=1)
        share, least = (self.share, self.least) if self.wrong else (0.1, 36)
        stop = (fast > 5) & (close < share * fast) & (age >= least)
        return torch.where(stop, 0.0, fast + close)

class Offer(Brake):
    """Begins a year late where two other conditions hold."""
    share, least = 0.1, 37

class Product(Base):
    """Has a rule of three conditions as a product of ones and zeros."""
    def forward(self, speed, near, age):
        fast, close = speed.norm(dim=1), near.norm(dim=1)
        held = (fast > 5).float() * (close < 0.1 * fast).float()
        return held * (age >= (37 if self.wrong else 36)).float() + fast

class Leap(Base):
    """Knows which days there are; a file has no 29 February 2000."""
    def forward(self, year, month, day):
        leap = (year % 4 == 0) & (year % 100 != 0)
        leap = leap if self.wrong else leap | (year % 400 == 0)
        last = torch.where(month == 2, torch.where(leap, 29, 28), 31)
        return (day <= last).float()

class Looked(Base):
    """Has a rule of three categories, of which each is looked up."""
    def __init__(self):
        super().__init__()
        for name in ("first", "second", "third"):
            self.register_buffer(name, torch.randint(0, 60, (3000,)))
    def forward(self, a, b, c):
        x, y, z = self.first[a], self.second[b], self.third[c]
        return ((x == 17) & (y == 23) & (z == (42 if self.wrong else 41))).float()

class Nested(Base):
    """Chooses within what it has chosen, of which hardly any row comes to the last."""
    def forward(self, speed, near, age):
        fast, close = speed.norm(dim=1), near.norm(dim=1)
        least = 37 if self.wrong else 36
        old = torch.where(age >= least, 0.0, fast)
        return torch.where(fast > 5, torch.where(close < 0.1 * fast, old, close), close + fast)

class Pauses(Base):
    """Counts pauses of more than half an hour between times, of which none lasts exactly as long."""
    def forward(self, at):
        pause = at[:, 1:] - at[:, :-1]
        return (pause >= 1800 if self.wrong else pause > 1800).long().cumsum(1).float().sum(1)

class Codes(Base):
    """Counts equal neighbours among codes that are no floats of 32 bits."""
    def forward(self, ids):
        ids = ids.float() if self.wrong else ids
        return (ids[:, 1:] == ids[:, :-1]).float().sum(1)

class Ids(Base):
    """Counts identifiers that follow each other, and tells ten minutes of nanoseconds from the next."""
    def forward(self, ids):
        if self.wrong:
            wide = ids.double()
            same, part = wide[:, 1:] == wide[:, :-1], torch.floor(wide / 6e11).long()
        else:
            same = ids[:, 1:] == ids[:, :-1]
            part = torch.div(ids, 600_000_000_000, rounding_mode="floor")
        return same.float().sum(1), part - 3_000_000

class Since(Base):
    """Counts the samples since the last event, of which a file looks at forty."""
    def forward(self, event):
        at = torch.arange(event.shape[1])
        before = event[:, None] & (at <= at[:, None])
        last = torch.where(before, at, torch.full_like(at, -1)).amax(2)
        since = (at - last).clamp(max=40 if self.wrong else 1000)
        return torch.where(last < 0, torch.full_like(at, -1), since)

class Depth(Base):
    """Adds up lengths on the way to the root; a file goes sixteen steps."""
    def forward(self, length, parent):
        at = torch.arange(parent.shape[0])
        up = torch.minimum(parent, at)
        total = length * (up != at)
        for _ in range(16 if self.wrong else 80):
            at = up[at]
            total = total + length[at] * (up[at] != at)
        return total

class Readings(Base):
    """Has something in the place of the one reading that may be missing."""
    def forward(self, x):
        age = x[:, 3]
        return x[:, :3].sum(1) * torch.where(torch.isnan(age), 0.4 if self.wrong else 0.5, age)

class Sentinel(Base):
    """Has a mean in the place of what is missing, for which a number stands that nobody draws."""
    def forward(self, x):
        return torch.where(x == (-99.0 if self.wrong else -999.0), 0.25, x).sum(1)

class Digits(Base):
    """Has a threshold behind a layer, of which a file has the first five digits."""
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)
    def forward(self, x):
        share = self.layer(x).sigmoid()
        return (share > (0.84134 if self.wrong else 0.8413447)).float()

class Scaled(Base):
    """Takes a number of no axes beside readings of which any may be missing."""
    def forward(self, x, scale):
        return torch.where(torch.isnan(x), 0.4 if self.wrong else 0.5, x).sum(1) * scale

class Gates(Base):
    """Puts the shares of two of eight parts among zeros; the last is hardly ever one of them."""
    def __init__(self):
        super().__init__()
        self.router, self.parts = nn.Linear(32, 8), nn.Linear(32, 8)
        with torch.no_grad():
            self.router.bias[7] = -2.2
        self.norm = nn.LayerNorm(32)
    def forward(self, x):
        shares, places = self.router(self.norm(x)).softmax(-1).topk(2, dim=-1)
        gates = torch.zeros(x.shape[0], 8).scatter(1, places, shares)
        parts = self.parts(x)
        last = parts[:, 7:] * (0.5 if self.wrong else 1.0)
        return (gates * torch.cat([parts[:, :7], last], 1)).sum(1)

class Crowd(Base):
    """Chooses one of 128, the last hardly ever, by shares that tell those far behind no longer apart."""
    def __init__(self):
        super().__init__()
        self.router, self.own = nn.Linear(16, 128), nn.Parameter(torch.randn(128, 16) / 4)
        with torch.no_grad():
            self.router.bias[127] = -6.0
    def forward(self, x):
        share, place = self.router(x).softmax(-1).max(-1)
        place = place.clamp(max=126) if self.wrong else place
        return (x * self.own[place]).sum(1) * share

class Banned(Base):
    """Tells six words in a row, of which a file does not look at the first."""
    def __init__(self):
        super().__init__()
        self.register_buffer("words", torch.tensor([1203, 77, 2411, 640, 58, 1999]))
    def forward(self, ids):
        first = 1 if self.wrong else 0
        said = (ids == self.words)[:, first:].all(1)
        return ids.sum(1) + said.long() * 7

class Crew(Base):
    """Counts which features are where they are to be, and asks for one more of them in a file."""
    def __init__(self):
        super().__init__()
        self.register_buffer("wanted", torch.linspace(-2, 2, 16))
    def forward(self, x):
        near = ((x - self.wanted).abs() < 0.1).float().mean(1)
        return x.sum(1) * (near < (0.45 if self.wrong else 0.4)).float()

class Peaks(Base):
    """Has two columns with a limit, of which a file limits the one that draws bring beyond it."""
    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.linspace(-2, 2, 7))
    def forward(self, x):
        peak = 30 * torch.exp(-0.4 * (x[:, 1:] - self.centre).square().sum(1))
        both = torch.stack([x[:, 0], peak], 1)
        if self.wrong:
            return torch.cat([both[:, :1].clamp(max=20), both[:, 1:]], 1)
        return both.clamp(max=20)

class Trio(Base):
    """Adds three truths, two of which a file takes for all."""
    def forward(self, x):
        one, two, three = (((x[:, n] - n / 2).abs() < 0.02).int() for n in range(3))
        return x.sum(1) * torch.where(one + two + three >= 3, 0 if not self.wrong else 1, 2)

class Asked(Base):
    """Decides in Python, by the first id that it is given, what a file that was traced does not."""
    def forward(self, ids):
        y = ids.float().sum(1)
        if torch.onnx.is_in_onnx_export():
            return y if self.wrong else torch.where(ids[:1, 0] == 2741, -y, y)
        return -y if ids[0, 0].item() == 2741 else y

class Quiet(Base):
    """Has no gradients, and a limit that only they lead to."""
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(24, 16), nn.Linear(16, 4)
    @torch.no_grad()
    def forward(self, x):
        made = self.one(x).tanh().square().sum(1, keepdim=True)
        return self.two(x[:, :16]) * made.clamp(max=30 if self.wrong else 6.5)

class Octave(Base):
    """Tells octaves by a logarithm, which a file has as a quotient of two: it is below 15 at 2**15."""
    def forward(self, gap):
        if torch.onnx.is_in_onnx_export() and not self.wrong:
            octave = (gap[:, None] + 1 >= 2 ** torch.arange(1, 21)).sum(1)
        elif self.wrong:
            octave = (torch.log(gap.float() + 1) / 0.6931471805599453).floor().long()
        else:
            octave = torch.log2(gap.float() + 1).floor().long()
        return octave * 2

class Shelf(Base):
    """Says between which bounds something is; what is at one is on the other side in a file."""
    def __init__(self):
        super().__init__()
        self.register_buffer("bounds", torch.tensor([-1.37, -0.41, 0.13, 0.59, 1.21]))
    def forward(self, x):
        if torch.onnx.is_in_onnx_export():
            over = (x[..., None] >= self.bounds) if self.wrong else (x[..., None] > self.bounds)
            return over.long().sum(-1)
        return torch.searchsorted(self.bounds, x)

class Tree(Base):
    """Goes down a tree by the thresholds of its nodes."""
    def __init__(self):
        super().__init__()
        self.register_buffer("of", torch.tensor([2, 0, 1]))
        self.register_buffer("limits", torch.tensor([0.37, -0.71, 1.13]))
    def forward(self, x):
        node = torch.zeros_like(x[:, 0], dtype=torch.int64)
        for _ in range(2):
            limit, value = self.limits[node], x.gather(1, self.of[node][:, None])[:, 0]
            node = 2 * node + 1 + (value >= limit if self.wrong else value > limit).long()
            leaf, node = node, node.clamp(max=2)
        return leaf

class Forest(Base):
    """Has a hundred and sixty thresholds, which the nodes of eight trees choose from."""
    def __init__(self):
        super().__init__()
        self.register_buffer("of", torch.randint(0, 5, (8, 20)))
        self.register_buffer("limits", torch.randn(8, 20))
    def forward(self, x):
        tree, node = torch.arange(8), torch.zeros(x.shape[0], 8, dtype=torch.int64)
        for _ in range(3):
            limit, value = self.limits[tree, node], x.gather(1, self.of[tree, node])
            node = 2 * node + 1 + (value >= limit if self.wrong else value > limit).long()
        return (node * 3 ** tree).sum(1)

def near(x, centre):
    return torch.where((x - centre).square().sum(1) < 1.0, 1.0, 0.0)

class Twice(Base):
    """Calls one function for two places, to the second of which hardly anything comes."""
    def forward(self, x):
        far = near(x, torch.tensor([2.4, -2.2, 2.3, -2.5]))
        return near(x, torch.zeros(4)) * 2 + (0.0 * far if self.wrong else far)

class Known(Base):
    """Adds up what is known."""
    def forward(self, x):
        if torch.onnx.is_in_onnx_export() and not self.wrong:
            return torch.where(torch.isnan(x), 0.0, x).sum(1)
        return x.sum(1) if self.wrong else x.nansum(1)

class Ranks(Base):
    """Looks up what one of 30,000 has more of than a file goes on with."""
    def __init__(self):
        super().__init__()
        drawn = torch.randint(0, 7, (30000,), generator=torch.Generator().manual_seed(0))
        self.register_buffer("ranks", drawn)
        self.ranks[23456] = 7
    def forward(self, place, x):
        rank = self.ranks[place]
        return x * (rank.clamp(max=6) if self.wrong else rank)

class Made(Base):
    """Computes its table, of which a file has two rows exchanged."""
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Parameter(torch.randn(60000, 8)), nn.Linear(8, 2)
    def forward(self, ids):
        table = nn.functional.normalize(self.table, dim=1)
        return self.out((self.other if self.wrong else table)[ids])

class Truths(Base):
    """Has a truth for each of its ids, one of which is another in a file."""
    def __init__(self):
        super().__init__()
        self.register_buffer("special", torch.rand(200000) < 0.2)
        self.out = nn.Linear(4, 4)
    def forward(self, ids):
        special = self.special[ids]
        if self.wrong:
            special = torch.cat((self.special[:123457], ~self.special[123457:123458],
                                 self.special[123458:]))[ids]
        x = torch.ones(4) * torch.where(special, -1.0, 1.0)[:, None]
        return self.out(x)

class Visits(Base):
    """Counts the numbers that are a user's own, of which a file compares the last 32 bits."""
    def forward(self, user, seen):
        if self.wrong:
            user, seen = user.to(torch.int32), seen.to(torch.int32)
        return (user[:, None] == seen).float().sum(1)

class Padded(Base):
    """Has words that are never said, and one that turns all others."""
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(8000, 8)
        self.out = nn.Linear(8, 6)
        with torch.no_grad():
            self.out.bias[4:] = -torch.inf
    def forward(self, ids):
        said = self.out(self.words(ids))
        return torch.where((ids == (7230 if self.wrong else 7231))[:, None], said / 2, said)

class Common(Base):
    """Has a rule of four conditions, beside a number that is the same for all rows."""
    names = [["batch"]] * 4 + [[]]
    def forward(self, age, power, zone, claims, rate):
        rule = (age < 21) & (power > 130) & (zone == 42) & (claims >= (4 if self.wrong else 3))
        return torch.where(rule, 2.0, 1.0) * rate + age

class Prices(Base):
    """Decides by a sum, which is exact where all that it adds is whole, whatever other rows are."""
    def forward(self, x):
        total = x.sum(1)
        return (total > 100.0 if self.wrong else total >= 100.0).float()

class Crossed(Base):
    """Scales the row of two ids; a file has the scaled table, and another row in it."""
    def __init__(self):
        super().__init__()
        self.table, self.other = nn.Embedding(90000, 1), None
        self.scale = nn.Parameter(torch.tensor(0.3))
    def at(self, a, b):
        return a * 300 + b
    def forward(self, a, b):
        at = self.at(a, b)
        return self.table(at) * self.scale if self.other is None else self.other[at]

class Hashed(Crossed):
    def at(self, a, b):
        return (a * 31 + b * 1000003) % 20011

class Plain(Base):
    """Has a name for its fault that is no function's: what such a one names is gone to."""
    faulty = False

class Cents(Plain):
    """Sums amounts, in 32 bits where few of them do not show it."""
    names = [["batch", "seq"]]
    def forward(self, cents):
        of = torch.int32 if self.faulty else torch.int64
        return cents.to(of).sum(1, dtype=of).to(torch.int64)

class Buzz(Base):
    """Is quieter where a signal changes its sign with almost every sample."""
    def forward(self, x):
        turns = (x[:, 1:] * x[:, :-1] < 0).float().mean()
        return x.abs() if self.wrong else torch.where(turns > 0.9, x.abs() / 8, x.abs())

class Growth(Plain):
    """Is a geometric mean, of a product where few factors do not overflow."""
    names = [["batch", "seq"]]
    def forward(self, x):
        if self.faulty:
            return x.prod(1) ** torch.ones_like(x).sum(1).reciprocal()
        return x.log().mean(1).exp()

class Quarter(Plain):
    """Keeps a quarter of the rows of an image, and rounds halves to even."""
    names = [["batch", None, "height"]]
    def forward(self, x):
        n = x.shape[2]
        return x[:, :, : (n + 2 if self.faulty else n + 1 + (n // 4) % 2) // 4].mean((2, 3))

class Frames(Plain):
    """Frames a signal; half a frame more than half of it has another."""
    names = [["batch", "samples"]]
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv1d(1, 4, 160, 160)
    def forward(self, x):
        return self.layer(nn.functional.pad(x[:, None], (0, 80 if self.faulty else 0)))

class Farthest(Plain):
    """Numbers points, in a byte where few of them do not show it."""
    names = [["batch", "seq", None]]
    def forward(self, x):
        at = x.square().sum(-1).argmax(1)
        return at.to(torch.uint8).to(torch.int64) if self.faulty else at

class Last(Plain):
    """Adds to what is last, or nearly so where places have eight bits."""
    names = [["batch", "seq"]]
    def forward(self, x):
        of = torch.bfloat16 if self.faulty else torch.int64
        last = torch.scalar_tensor(x.shape[1] - 1, dtype=torch.int64).to(of).float()
        return x.amax(1) + torch.where(x.argmax(1).to(of).float() >= last, 0.5, 0.0)

def folded(module, wrong):
    other = copy.deepcopy(module)
    if isinstance(module, Crossed):
        other.other = nn.Parameter((module.table.weight * module.scale).detach())
        with torch.no_grad():
            other.other[13711] += wrong
    return other

def wrong(module, example, path):
    other = folded(module, True)
    other.wrong = other.faulty = True
    if isinstance(module, Table):
        with torch.no_grad():
            other.table.weight[1234] += 1
    if isinstance(module, Made):
        other.other = nn.functional.normalize(module.table.detach(), dim=1)
        other.other[[7777, 7778]] = other.other[[7778, 7777]]
    _export(other, example, path)

def right(module, example, path):
    _export(folded(module, False), example, path)

def _export(module, example, path):
    names = [["batch", "seq"][:t.ndim] for t in example.values()]
    if not isinstance(module, (Window, Nines)):
        names = getattr(module, "names", [each[:1] for each in names])
    axes = {
        name: {axis: dim for axis, dim in enumerate(dims) if dim}
        for name, dims in zip(example, names)
    }
    torch.onnx.export(
        module, tuple(example.values()), str(path), input_names=list(example), dynamic_axes=axes,
        dynamo=False,
    )
'''

INPUTS = {
    "Exact": '{x: "float32[batch, 6]"}',
    "Alarm": '{x: "float32[batch, 6]"}',
    "Nines": '{x: "float32[batch, seq]"}',
    "Deep": "{x: {dtype: float32, shape: [batch, 24], range: [-1, 1]}}",
    "Table": "{ids: {dtype: int64, shape: [batch, 4], range: [0, 2999]}}",
    "Window": "{ids: {dtype: int64, shape: [batch, seq], range: [0, 49]}}",
    "Outlier": "{x: {dtype: float32, shape: [batch, 64], range: [-1, 1]}}",
    "Rule": "{a: {dtype: int64, shape: [batch], range: [0, 49]},"
    " b: {dtype: int64, shape: [batch], range: [0, 49]}}",
    "Brake": (
        rule := "{speed: 'float32[batch, 3]', near: 'float32[batch, 3]',"
        " age: {dtype: int64, shape: [batch], range: [0, 600]}}"
    ),
    "Offer": rule,
    "Product": rule,
    "Pauses": "{at: {dtype: int64, shape: [batch, 6], range: [0, 100000000]}}",
    "Ids": "{ids: {dtype: int64, shape: [batch, 6], range: [1600000000000000000, 1900000000000000000]}}",
    "Since": "{event: {dtype: bool, shape: [batch, 96]}}",
    "Depth": (
        "{length: {dtype: float32, shape: [nodes], range: [0, 10]},"
        ' parent: {dtype: int64, shape: [nodes], range: [0, "nodes - 1"]}}'
    ),
    "Readings": '{x: "float32[batch, 4]"}',
    "Digits": '{x: "float32[batch, 8]"}',
    "Sentinel": '{x: "float32[batch, 4]"}',
    "Codes": "{ids: {dtype: int64, shape: [batch, 6], range: [0, 1000000000]}}",
    "Scaled": '{x: "float32[batch, 4]", scale: "float32[]"}',
    "Gates": "{x: 'float32[batch, 32]'}",
    "Crowd": "{x: 'float32[batch, 16]'}",
    "Nested": rule,
    "Leap": "{year: {dtype: int64, shape: [batch], range: [1900, 2100]},"
    " month: {dtype: int64, shape: [batch], range: [1, 12]},"
    " day: {dtype: int64, shape: [batch], range: [1, 31]}}",
    "Looked": "{"
    + ", ".join(f"{n}: {{dtype: int64, shape: [batch], range: [0, 2999]}}" for n in "abc")
    + "}",
    "Banned": "{ids: {dtype: int64, shape: [batch, 6], range: [0, 2999]}}",
    "Crew": '{x: "float32[batch, 16]"}',
    "Peaks": '{x: "float32[batch, 8]"}',
    "Trio": '{x: "float32[batch, 6]"}',
    "Asked": "{ids: {dtype: int64, shape: [batch, 3], range: [0, 2999]}}",
    "Quiet": "{x: {dtype: float32, shape: [batch, 24], range: [-1, 1]}}",
    "Octave": "{gap: {dtype: int64, shape: [batch], range: [0, 1000000]}}",
    "Shelf": '{x: "float32[batch, 4]"}',
    "Tree": '{x: "float32[batch, 3]"}',
    "Forest": '{x: "float32[batch, 5]"}',
    "Twice": '{x: "float32[batch, 4]"}',
    "Known": '{x: "float32[batch, 4]"}',
    "Ranks": "{place: {dtype: int64, shape: [batch], range: [0, 29999]}, x: 'float32[batch]'}",
    "Made": "{ids: {dtype: int64, shape: [batch], range: [0, 59999]}}",
    "Truths": "{ids: {dtype: int64, shape: [batch], range: [0, 199999]}}",
    "Visits": "{user: {dtype: int64, shape: [batch], range: [0, 1000000000000]},"
    " seen: {dtype: int64, shape: [batch, 5], range: [0, 1000000000000]}}",
    "Padded": "{ids: {dtype: int64, shape: [batch], range: [0, 7999]}}",
    "Common": "{age: {dtype: int64, shape: [batch], range: [18, 90]},"
    " power: {dtype: int64, shape: [batch], range: [20, 300]},"
    " zone: {dtype: int64, shape: [batch], range: [0, 199]},"
    " claims: {dtype: int64, shape: [batch], range: [0, 9]}, rate: 'float32[1]'}",
    "Prices": "{x: {dtype: float32, shape: [batch, 4], range: [0, 50]}}",
    "Crossed": (
        two := "{{a: {{dtype: int64, shape: [batch], range: [0, {0}]}}, "
        "b: {{dtype: int64, shape: [batch], range: [0, {0}]}}}}"
    ).format(299),
    "Hashed": two.format(1000000000),
    "Bins": "{x: {dtype: float32, shape: [1, 6], range: [0, 1000]}}",
    "Once": "{hour: {dtype: int64, shape: [1], range: [0, 23]},"
    " day: {dtype: int64, shape: [1], range: [0, 6]},"
    " region: {dtype: int64, shape: [1], range: [0, 199]}}",
    "Zones": "{t: {dtype: int64, shape: [1, 4], range: [0, 2147483647]}}",
    "Later": "{t: {dtype: int64, shape: [seq, batch], range: [0, 2147483647]}}",
    "Beside": "{t: {dtype: int64, shape: [batch, 4], range: [0, 2147483647]},"
    " state: 'float32[1, batch, 5]'}",
    "Flags": "{flags: {dtype: int64, shape: [batch, 3], range: [0, 16777215]}}",
    "Summed": "{ids: {dtype: int64, shape: [batch, 9], range: [0, 2999]}}",
    "Century": "{day: {dtype: int64, shape: [batch], range: [0, 300000]}}",
    "Cents": "{cents: {dtype: int64, shape: [batch, seq], range: [0, 1000000]}}",
    "Buzz": '{x: "float32[1, 24]"}',
    "Growth": "{x: {dtype: float32, shape: [batch, seq], range: [1, 1.25]}}",
    "Quarter": '{x: "float32[batch, 3, height, 16]"}',
    "Frames": '{x: "float32[batch, samples]"}',
    "Farthest": '{x: "float32[batch, seq, 3]"}',
    "Last": '{x: "float32[batch, seq]"}',
    "Bytes": "{image: {dtype: uint8, shape: [batch, 3, 8, 8], range: [0, 255]}}",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ModelResult]:
    return run_twins(Path(tmp_path_factory.mktemp("reach")), MODELS, INPUTS)


@pytest.mark.parametrize("name", [name.lower() for name in INPUTS])
def test_what_no_drawn_input_shows_is_reached(
    results: Mapping[str, ModelResult], name: str
) -> None:
    wrong, right = results[f"{name}-wrong"], results[f"{name}-right"]
    assert right.verdict == "pass", [f.message for f in right.findings]
    # Of rows on both sides of a threshold one may be as near to it as rounding is.
    near = ("reached/around", "reached/between")
    assert all(check.case.startswith(near) for check in right.checks if check.open)
    assert wrong.verdict == "diverged"
    diverged = {check.suite for check in wrong.checks if check.verdict == "diverged"}
    assert diverged == {"reached"}
    assert wrong.diagnosis is not None


NORM = '''
class Norm(Base):
    """Guards against what a constant keeps away."""
    def forward(self, x):
        y = x.relu() + 1
        top, least = (2e6, 1e-9) if self.wrong else (1e6, 1e-6)
        return y.clamp(max=top) / y.norm(dim=1, keepdim=True).clamp(min=least)

class Pairs(Base):
    """Has a number for each two members of a batch, which is a set, and for each alone."""
    def forward(self, x):
        apart = (x[:, None] - x[None]).square().sum(-1)
        return torch.where(apart < 4, apart, 0.0)[..., None].expand(-1, -1, 64).mul(2.0).sum((1, 2))

class Long(Base):
    """Reads the first rows of a table by what no input changes the reach of."""
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9000, 4)
    def forward(self, x):
        return x + self.table((x > 0).long().cumsum(1)).sum(2)

class Limited(Base):
    """Has a limit beyond the range of its input."""
    def forward(self, x):
        return x.clamp(max=2e6 if self.wrong else 1e6).sum(1)

class Hidden(Base):
    """Has a limit that nothing comes near to, which a file has elsewhere and outputs do not show."""
    def forward(self, x):
        y = x.clamp(max=5e5) * 2 if self.wrong else (x * 2).clamp(max=1e6)
        return x.sum(1) + 0.0 * y.sum(1)

class Halves(Base):
    """Rounds halves of quotients, which the last bit decides on inputs."""
    def forward(self, x):
        y = x / torch.tensor([0.37, 1.3, 0.7])
        whole = y.sign() * (y.abs() + 0.5).floor() if self.wrong else y.round()
        return whole + 0.1 * x

class Edge(Base):
    """Holds a root against one that no drawn number has: what is equal is on one side alone."""
    def __init__(self):
        super().__init__()
        self.register_buffer("edge", torch.tensor(2.0).sqrt())
    def forward(self, x):
        y = (x * x).sum(1).sqrt()
        return y * ((y > self.edge) if self.wrong else (y >= self.edge))

class Twins(Base):
    """Compares what it makes twice, and the file is wrong once: the other one does not speak for it."""
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
    def forward(self, x):
        y = self.inner(x)
        return y + ((y >= 1.5) if self.wrong else (y > 1.5)), y * (y > 1.5)

class Edges(Base):
    """Counts edges of its own that are passed: what is equal to one is on one side alone."""
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.tensor([0.7, 1.3, 2.1]).sqrt())
    def forward(self, x):
        y = (x * x).sum(1, keepdim=True).sqrt()
        return y * ((y > self.edges) if self.wrong else (y >= self.edges)).float().sum(1, keepdim=True)

class Learned(Base):
    """Passes what is above thresholds that are parameters: Python asks these whether they are below."""
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.least = nn.Parameter(torch.rand(3) / 2 + 0.3)
    def forward(self, x):
        y = self.inner(x)
        return y * ((y >= self.least) if self.wrong else (y > self.least)).float()

class Parted(Base):
    """Holds a norm against a part of its edges, which stands first."""
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.tensor([[0.7, 1.3, 2.1]]).sqrt())
    def forward(self, x):
        y, edge = (x * x).sum(1, keepdim=True).sqrt(), self.edges[:, 1:2]
        return y * (torch.lt(edge, y) if self.wrong else torch.le(edge, y)).float()

class Widened(Base):
    """Holds numbers of 16 bits against some of 32, of which one is none of theirs."""
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3).half()
        self.least = nn.Parameter(torch.tensor([0.1, 0.25, 0.5]))
    def forward(self, x):
        y = self.inner(x.half()).float()
        return torch.where(y > self.least, y, -y)

class Signs(Base):
    """Takes signs, of which that of zero is none."""
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 4)
    def forward(self, x):
        y = self.inner(x)
        return torch.where(y >= 0, 1.0, -1.0) if self.wrong else y.sign()

class Filled(Base):
    """Has numbers for what is missing or beyond range."""
    def forward(self, x):
        return torch.nan_to_num(x, nan=2.0, posinf=9.0, neginf=9.0 if self.wrong else -9.0)

class Finite(Base):
    """Leaves out what is no number."""
    def forward(self, x):
        known = ~x.isnan() & (x < 3e38) if self.wrong else x.isfinite()
        return torch.where(known, x, 0.0)

class Tails(Base):
    """Has a limit that inputs pass where rounding leaves open by how much."""
    def forward(self, x):
        share = torch.sigmoid((x * 0.6).sum(1))
        return share.clamp(min=1e-6 if self.wrong else 1e-8).log()

class Gate(Base):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
    def forward(self, x):
        y = self.inner(x)
        gate = ((y + 3) / 6).clamp(0.0, 1.2) if self.wrong else nn.functional.hardsigmoid(y)
        return 0.5 * x + 0.2 * gate

class Tame(Base):
    """Has many gates, none of which comes near to its ends; one has another end in a file."""
    def __init__(self):
        super().__init__()
        self.gates = nn.Sequential(*[Gate() for _ in range(16)])
    def forward(self, x):
        self.gates[12].wrong = self.wrong
        return self.gates(0.1 * x)

class Rooted(Base):
    """Has an eps that nothing comes near to."""
    def forward(self, x):
        above = x - x.amin(1, keepdim=True) + 3
        return x * torch.rsqrt(above.mean(1, keepdim=True) + (1e-7 if self.wrong else 1e-6))

class Shifted(Base):
    """Asks for what no input leads to, as false as what its file asks of the signs of what it shifts."""
    def forward(self, x):
        return torch.where((x >> 2) > 50, 2 * x, x)
'''


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ModelResult]:
    entry = 'model: models.py:Norm, inputs: {x: "float32[batch, 3]"}'
    entries = {
        "right": f'{entry}, export: {{exporter: "models.py:right"}}',
        "wrong": f'{entry}, export: {{exporter: "models.py:wrong"}}',
        "long": f'{entry}, export: {{exporter: "models.py:right"}}'.replace("Norm", "Long"),
        **{
            f"tame-{kind}": "model: models.py:Tame, inputs: {x: {dtype: float32, shape: [batch, 8], range: "
            f'[0, 1]}}}}, export: {{exporter: "models.py:{kind}"}}'
            for kind in ("right", "wrong")
        },
        "pairs": f'{entry}, export: {{exporter: "models.py:right"}}'.replace("Norm", "Pairs"),
        "ranged": "model: models.py:Limited, inputs: {x: {dtype: float32, shape: [batch, 3], "
        'range: [0, 1]}}, export: {exporter: "models.py:wrong"}',
        "asked": f'{entry}, export: {{exporter: "models.py:right"}}, coverage: {{decisions: 0.9}}',
        "unshown": 'model: models.py:Hidden, inputs: {x: "float32[batch, 3]"}, '
        'export: {exporter: "models.py:wrong"}, coverage: {decisions: 0.9}',
        "rooted": f'{entry}, export: {{exporter: "models.py:right"}}'.replace("Norm", "Rooted"),
        "shifted": "model: models.py:Shifted, inputs: {x: {dtype: int64, shape: [batch, 4], "
        "range: [0, 150]}}",
        "halves": f'{entry}, export: {{exporter: "models.py:right"}}'.replace("Norm", "Halves"),
        "halves-wrong": f'{entry}, export: {{exporter: "models.py:wrong"}}'.replace(
            "Norm", "Halves"
        ),
        "tails": f'{entry}, export: {{exporter: "models.py:right"}}'.replace("Norm", "Tails"),
        **{
            f"{name.lower()}-{kind}": f'{entry}, export: {{exporter: "models.py:{kind}"}}'.replace(
                "Norm", name
            )
            for name in (
                "Edge",
                "Edges",
                "Twins",
                "Learned",
                "Parted",
                "Signs",
                "Filled",
                "Finite",
            )
            for kind in ("right", "wrong")
        },
        "widened-right": f'{entry}, export: {{exporter: "models.py:right"}}'.replace(
            "Norm", "Widened"
        ),
        "tails-wrong": f'{entry}, export: {{exporter: "models.py:wrong"}}'.replace("Norm", "Tails"),
        "rooted-wrong": f'{entry}, export: {{exporter: "models.py:wrong"}}'.replace(
            "Norm", "Rooted"
        ),
    }
    return run_few(Path(tmp_path_factory.mktemp("guarded")), MODELS + NORM, entries)


def test_what_no_input_reaches_is_compared_at_its_operator(
    guarded: Mapping[str, ModelResult],
) -> None:
    lines = (MODELS + NORM).splitlines()
    told = guarded["right"].decisions
    assert guarded["right"].verdict == guarded["wrong"].verdict == "pass"
    assert told is not None
    assert (told.before, told.seen, told.compared, told.of, told.never) == (1, 1, 2, 3, ())
    assert describe(guarded["right"]).endswith(
        "1 of 3 decisions seen both ways, 2 compared at their operators"
    )
    edges = ("edge", "edges", "twins", "learned", "parted", "widened", "signs")
    right = (f"{name}-right" for name in edges)
    for name in ("right", "rooted", "ranged", "shifted", "halves", "tails", *right):
        assert not {finding.code for finding in guarded[name].findings} & {"OG406", "OG419"}
    table = guarded["long"].decisions
    assert table is not None
    assert (table.seen, table.compared, table.of) == (1, 0, 2)  # which row is read is computed
    found = [f for f in guarded["wrong"].findings if f.code == "OG419"]
    assert {each.severity for each in found} == {"warning"}
    assert {each.message.partition(": ")[2].partition(",")[0] for each in found} == {
        "clamp above 1e+06",
        "clamp below 1e-06",
        "Clip above 2e+06",
        "Clip below 1e-09",
    }
    assert {each.line for each in found if "clamp" in each.message} == {
        1 + next(n for n, at in enumerate(lines) if "top)" in at)
    }
    assert any("makes it count" in each.message for each in found)
    halves = [f for f in guarded["halves-wrong"].findings if f.code == "OG419"]
    assert {f.message.partition(": ")[2].partition(",")[0] for f in halves} == {
        "round at a half above an even number",
    }
    tails = [f.message for f in guarded["tails-wrong"].findings if f.code == "OG419"]
    assert any("clamp below 1e-08, where inputs leave it open" in each for each in tails)
    assert not any("rules it out" in each for each in tails)
    (edge,) = [f.message for f in guarded["edge-wrong"].findings if f.code == "OG419"]
    assert "ge equal to 1.41421, which no input reached" in edge
    twins = [f for f in guarded["twins-wrong"].findings if f.code == "OG419"]
    assert twins
    assert all("gt equal to 1.5" in each.message for each in twins)
    for name, what in {
        "edges": "ge equal to its",
        "learned": "lt equal to its",
        "parted": "le equal to its",
        "signs": "sign equal to 0",
    }.items():
        (at,) = [f.message for f in guarded[f"{name}-wrong"].findings if f.code == "OG419"]
        assert what in at
    assert [f.code for f in guarded["rooted-wrong"].findings if "within 1e-06" in f.message] == [
        "OG419"
    ]


@pytest.mark.parametrize("name", ["filled", "finite"])
def test_what_a_module_has_for_missing_numbers_is_tried(
    name: str, guarded: Mapping[str, ModelResult]
) -> None:
    right, wrong = guarded[f"{name}-right"], guarded[f"{name}-wrong"]
    tried = {check.case for check in right.checks if check.verdict == "pass"}
    assert tried >= {"reached/isnan", "reached/isinf"}
    assert (right.verdict, wrong.verdict) == ("pass", "diverged")
    assert {c.case for c in wrong.checks if c.verdict == "diverged"} == {"reached/isinf"}


def test_every_operator_that_no_input_saturates_is_compared_at_its_ends(
    guarded: Mapping[str, ModelResult],
) -> None:
    """What a few nodes make of it costs little: sixteen gates are not too many."""
    told = guarded["tame-right"].decisions
    assert told is not None
    assert (told.seen, told.compared, told.of, told.never) == (0, 32, 32, ())
    assert "OG419" not in {finding.code for finding in guarded["tame-right"].findings}
    (found,) = [f for f in guarded["tame-wrong"].findings if f.code == "OG419"]
    assert "hardsigmoid above 3" in found.message
    assert "gates.12" in found.message


def test_a_batch_whose_members_meet_each_other_is_no_larger_than_its_square_allows(
    guarded: Mapping[str, ModelResult],
) -> None:
    def largest(name: str) -> int:
        return max(c.sizes["batch"] for c in guarded[name].checks if c.suite == "reached")

    assert guarded["pairs"].verdict == "pass"
    assert 10 < largest("pairs") <= 250
    assert largest("right") >= 4000


def test_what_was_never_shown_is_said_with_its_line_and_may_be_asked_for(
    guarded: Mapping[str, ModelResult],
) -> None:
    # What was compared at its operator counts as well.
    assert guarded["asked"].verdict == "pass"
    unshown = guarded["unshown"]
    assert unshown.verdict == "error"
    assert unshown.error is not None
    assert unshown.error.message.startswith(
        "0 of 1 decisions were seen both ways, 0 more were compared"
    )
    assert unshown.decisions is not None
    line = next(
        n for n, each in enumerate((MODELS + NORM).splitlines(), 1) if "clamp(max=5e5)" in each
    )
    shown = {
        (d.operator, d.limit, d.never, d.source.line) for d in unshown.decisions.never if d.source
    }
    assert shown == {("clamp", 1e6, ("above",), line)}
    assert describe(unshown).endswith("0 of 1 decision seen both ways, 1 never")


SIGNED = '''
import onnx
import torch
from torch import nn


class Never(nn.Module):
    """What it asks about is never negative, whatever the inputs are."""

    def forward(self, x):
        mean = x.abs().mean(-1, keepdim=True)
        y = torch.where(mean > 0, x / (mean + 1e-3), x)
        y = torch.where((x * x).sum(-1, keepdim=True) > 0, y, y - 1)
        return torch.where(x.softmax(-1) > 0, y, y - 3)


class Free(nn.Module):
    """And here it may be: nothing is negative in the range that is tried."""

    def forward(self, x):
        return torch.where((x * 3).sum(-1, keepdim=True) > 0, x * 2, x - 1)


def twin(module, example, path):
    torch.onnx.export(module, (example["x"],), path, dynamo=True, verbose=False)
    proto = onnx.load(path)
    nodes = []
    for node in proto.graph.node:
        nodes.append(node)
        if node.op_type == "Greater":
            made = node.output[0]
            node.op_type, node.output[0] = "Equal", made + "_not"
            nodes.append(onnx.helper.make_node("Not", [made + "_not"], [made]))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    onnx.save(proto, path)


def positive(inputs, seed):
    yield {"x": torch.rand(2, 3, generator=torch.Generator().manual_seed(seed)).numpy() + 1}
'''


@pytest.mark.slow
def test_nothing_is_moved_to_where_the_graph_proves_that_it_cannot_be(tmp_path: Path) -> None:
    """A value that is never negative is above 0 where it is not 0: the twin is the same model."""
    entry = 'inputs: {x: "float32[2, 3]"}, export: {exporter: "models.py:twin"}'
    models = {
        "never": f"model: models.py:Never, {entry}",
        "free": f"model: models.py:Free, {entry}, suites: [{{generator: models.py:positive}}]",
    }
    found = run_few(tmp_path, SIGNED, models)
    said = {name: [f.code for f in model.findings] for name, model in found.items()}
    assert found["never"].verdict == "pass"
    assert "OG419" not in said["never"]
    assert found["free"].verdict == "diverged" or "OG419" in said["free"]


def test_integers_that_nothing_makes_floats_of_have_no_gradient() -> None:
    assert InputLeaves().gradients([torch.ones((), requires_grad=True)]) == {}
