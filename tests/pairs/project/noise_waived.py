"""Ceilings of waivers, and tolerances that let a share or a quiet channel off."""

from __future__ import annotations

import torch
from pair import Net, Pair, mlp
from torch import Tensor, nn


class Features(Net):
    """256 features, one of which is off in the file."""

    off = 300.0

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(12, 48, 256)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return torch.cat([y[:, :1] + self.off, y[:, 1:]], -1) if self.wrong else y


class FeaturesNearly(Features):
    """What the waiver was written for: one feature is off by a thousandth."""

    off = 1e-3

    def __init__(self) -> None:
        super().__init__(wrong=True)


class Channels(Net):
    """A picture of 16 channels, one of which is negated in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv = nn.Conv2d(3, 16, 3)
        if wrong:
            self.conv.weight.data[5] *= -1
            self.conv.bias.data[5] *= -1

    def forward(self, image: Tensor) -> Tensor:
        return self.conv(image)


class Columns(Net):
    """40 columns, one of which is negated in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(12, 48, 40)
        if wrong:
            self.body[2].weight.data[17] *= -1
            self.body[2].bias.data[17] *= -1

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class Stereo(Net):
    """Two tracks, the second a hundredth as loud; it is negated in the file."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv = nn.Conv1d(1, 2, 9, padding=4)
        self.register_buffer("level", torch.tensor([1.0, -0.02 if wrong else 0.02]).reshape(2, 1))

    def forward(self, audio: Tensor) -> Tensor:
        return torch.tanh(self.conv(audio)) * self.level


class Best(Net):
    """Logits of twelve classes; among the first five of a row the file has another order."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(10, 32, 12)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.body(x)
        if not self.wrong:
            return logits
        order = logits.argsort(-1, descending=True)
        values = logits.sort(-1, descending=True).values
        turned = torch.cat([values[:, :5].flip(-1), values[:, 5:]], -1)
        return torch.zeros_like(logits).scatter(-1, order, turned)


def waiver(**more: object) -> dict[str, object]:
    why = "one feature is off by a thousandth since 1.4"
    return {"check": "*", "until": "2099-12-31", "reason": why, **more}


X = {"x": "float32[batch, 12]"}

PAIRS = [
    Pair(
        "waived-share",
        "a ceiling of 0.05 over a share of elements, one of which is off by 300",
        Features,
        X,
        twin=FeaturesNearly,
        entry={
            "tolerance": {"atol": 1e-4, "rtol": 1e-4, "mismatch": 0.001},
            "waivers": [waiver(ceiling=0.05)],
        },
    ),
    Pair(
        "waived-elements",
        "a ceiling of 0.05 under auto; one feature of 256 is off by 300",
        Features,
        X,
        twin=FeaturesNearly,
        entry={"waivers": [waiver(ceiling=0.05)]},
    ),
    Pair(
        "mismatch-of-a-column",
        "one column of 40 negated under a mismatch of 3 %",
        Columns,
        X,
        expect="remarked",
        faulty_entry={"tolerance": {"atol": 1e-3, "mismatch": 0.03}},
        twin_entry={"tolerance": {"atol": 1e-3, "mismatch": 0.001}},
    ),
    Pair(
        "mismatch-of-a-channel",
        "one channel of 16 negated under a mismatch of 7 %",
        Channels,
        {"image": "float32[batch, 3, 10, 10]"},
        expect="remarked",
        faulty_entry={"tolerance": {"atol": 1e-3, "rtol": 1e-3, "mismatch": 0.07}},
        twin_entry={"tolerance": {"atol": 1e-3, "rtol": 1e-3}},
    ),
    Pair(
        "quiet-track",
        "a quiet track negated under a signal-to-noise ratio of 25 dB",
        Stereo,
        {"audio": "float32[batch, 1, 80]"},
        expect="remarked",
        faulty_entry={"tolerance": {"snr_db": 25}},
        twin_entry={"tolerance": {"snr_db": 25, "atol": 1e-4}},
    ),
    Pair(
        "best-five-in-reverse",
        "the five best classes in reverse order under topk 5",
        Best,
        {"x": "float32[batch, 10]"},
        expect="remarked",
        faulty_entry={"tolerance": {"topk": {"k": 5, "agreement": 1.0}}},
        twin_entry={"tolerance": {"topk": {"k": 5, "agreement": 1.0}, "atol": 1e-4, "rtol": 1e-4}},
    ),
]
