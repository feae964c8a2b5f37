"""Tails of sigmoid, tanh and softmax: what a careless formula loses is not rounding."""

from __future__ import annotations

import math

import torch
from pair import Net, Pair, mlp, ranged
from torch import Tensor, nn
from torch.nn import functional as F


class LogSigmoid(Net):
    """logsigmoid, which the exporter writes as log(sigmoid)."""

    def forward(self, logits: Tensor) -> Tensor:
        return F.logsigmoid(logits)


class LogSigmoidFile(Net):
    def forward(self, logits: Tensor) -> Tensor:
        if self.wrong:
            return torch.log(torch.sigmoid(logits))
        return logits.clamp_max(0) - torch.log1p(torch.exp(-logits.abs()))


class Preference(Net):
    """The loss of a preference model: logsigmoid of a difference of two scores."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(12, 32, 1)
        self.body[2].weight.data *= 40

    def forward(self, chosen: Tensor, rejected: Tensor) -> Tensor:
        gap = self.body(chosen) - self.body(rejected)
        if self.wrong:
            return torch.log(torch.sigmoid(gap))
        return gap.clamp_max(0) - torch.log1p(torch.exp(-gap.abs()))


class LogSoftmax(Net):
    """Log probabilities of sharp logits."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.head = nn.Linear(16, 20)
        self.head.weight.data *= 60

    def forward(self, x: Tensor) -> Tensor:
        logits = self.head(x)
        return torch.log(torch.softmax(logits, -1)) if self.wrong else logits.log_softmax(-1)


class Logit(Net):
    """Log odds; the file goes through the probability and back."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.head = nn.Linear(10, 4)
        self.head.weight.data *= 12

    def forward(self, x: Tensor) -> Tensor:
        logit = self.head(x)
        if self.wrong:
            p = torch.sigmoid(logit)
            return torch.log(p / (1 - p))
        return logit


class Derivative(Net):
    """The logarithm of tanh's derivative, as normalising flows and squashed policies need it."""

    def forward(self, action: Tensor) -> Tensor:
        if self.wrong:
            return torch.log(1 - torch.tanh(action).square()).sum(-1)
        return (2 * (math.log(2) - action - F.softplus(-2 * action))).sum(-1)


class Gates(Net):
    """Products of far-out sigmoids, in units of a thousand: the file's is a piecewise line."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.mix = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        gate = F.hardsigmoid(x) if self.wrong else torch.sigmoid(x)
        return gate * 1000 * (1 + torch.tanh(self.mix(x)))


class SmallAngle(Net):
    """1 - cos of small angles; the module has the stable form."""

    def forward(self, angle: Tensor) -> Tensor:
        if self.wrong:
            return 1 - torch.cos(angle)
        return 2 * torch.sin(angle / 2).square()


PAIRS = [
    Pair(
        "log-of-sigmoid",
        "log(sigmoid) for logsigmoid, down to -12",
        LogSigmoid,
        {"logits": ranged("float32", ["batch", 16], -12, 4)},
        gate_exports_fault=True,
        twin=LogSigmoidFile,
    ),
    Pair(
        "preference-loss",
        "log(sigmoid) of a difference of scores",
        Preference,
        {"chosen": "float32[batch, 12]", "rejected": "float32[batch, 12]"},
    ),
    Pair(
        "log-of-softmax",
        "log(softmax) for log_softmax, -inf where PyTorch is finite",
        LogSoftmax,
        {"x": ranged("float32", ["batch", 16], -2, 2)},
    ),
    Pair(
        "logit-of-sigmoid",
        "log odds through the probability and back",
        Logit,
        {"x": "float32[batch, 10]"},
    ),
    Pair(
        "tanh-derivative",
        "log(1 - tanh^2) for its stable form",
        Derivative,
        {"action": ranged("float32", ["batch", 3], -6, 6)},
    ),
    Pair(
        "piecewise-sigmoid",
        "a hard sigmoid for a sigmoid",
        Gates,
        {"x": ranged("float32", ["batch", 8], -20, 0)},
    ),
    Pair(
        "small-angles",
        "1 - cos for 2 sin^2",
        SmallAngle,
        {"angle": ranged("float32", ["batch", 12], 0.001, 0.01)},
    ),
]
