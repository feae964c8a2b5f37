"""What is left: Python numbers, half precision, infinities, small systematic errors, order."""

from __future__ import annotations

import torch
from pair import Net, Pair, mlp, ranged, tokens
from torch import Tensor, nn
from torch.nn import functional as F


class Temperature(Net):
    """Scores and the temperature that belongs to them, a Python number."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc, self.temperature = nn.Linear(6, 3), 0.07

    def forward(self, x: Tensor) -> tuple[Tensor, float]:
        return self.fc(x), self.temperature


class TemperatureFile(Temperature):
    """The same as a file, where a number is a tensor without dimensions."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return self.fc(x), torch.tensor(0.7 if self.wrong else self.temperature)


class Half(Net):
    """Two convolutions in float16, the second 0.3 % too large."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.a, self.b = nn.Conv2d(3, 8, 3).half(), nn.Conv2d(8, 4, 3).half()
        self.factor = 1.003 if wrong else 1.0

    def forward(self, image: Tensor) -> Tensor:
        h = self.b(torch.relu(self.a(image)))
        return (h.float() * self.factor).half()


class HalfLinear(Net):
    """A float16 classifier whose last bias is in bfloat16's precision."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.a, self.b = nn.Linear(24, 48).half(), nn.Linear(48, 10).half()
        self.b.bias.data *= 20
        if wrong:
            self.b.bias.data = self.b.bias.data.bfloat16().half()

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


class LogSumExp(Net):
    """A stable sum of exponentials; the file's overflows."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.shift = nn.Parameter(torch.rand(12))

    def forward(self, energy: Tensor) -> Tensor:
        z = energy + self.shift
        return torch.log(torch.exp(z).sum(-1)) if self.wrong else torch.logsumexp(z, -1)


class Softplus(Net):
    """softplus, which is x for large x; log(1 + exp(x)) is infinity there."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.fc = nn.Linear(5, 7)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        return torch.log1p(torch.exp(y)) if self.wrong else F.softplus(y)


class LeakyNorm(Net):
    """Instance norm of a leaky ReLU; the file's slope is a tenth too large."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv, self.norm = nn.Conv1d(4, 8, 3), nn.InstanceNorm1d(8, affine=True)
        self.slope = 0.011 if wrong else 0.01

    def forward(self, signal: Tensor) -> Tensor:
        return self.norm(F.leaky_relu(self.conv(signal), self.slope))


class TinyBias(Net):
    """A last layer 1e-5 too large."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.body = mlp(32, 64, 64, 8)
        if wrong:
            self.body[4].weight.data *= 1 + 1e-5
            self.body[4].bias.data *= 1 + 1e-5

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class TinyShift(Net):
    """A small convolutional network, every output 2e-5 of its scale too high."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.conv, self.norm = nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 6)
        if wrong:
            self.head.bias.data += 5e-6

    def forward(self, image: Tensor) -> Tensor:
        return self.head(torch.relu(self.norm(self.conv(image))).mean((2, 3)))


class Narrow(Net):
    """Classes as int64; the file gives int32."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.embed, self.head = nn.Embedding(20, 8), nn.Linear(8, 5)

    def forward(self, ids: Tensor) -> Tensor:
        choice = self.head(self.embed(ids)).argmax(-1)
        return choice.to(torch.int32) if self.wrong else choice


class Swapped(Net):
    """A mean and a log variance of the same shape, in the other order."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__(wrong)
        self.trunk, self.mean, self.spread = mlp(12, 24), nn.Linear(24, 6), nn.Linear(24, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.relu(self.trunk(x))
        answer = self.mean(h), self.spread(h)
        return answer[::-1] if self.wrong else answer


PAIRS = [
    Pair(
        "python-number-output",
        "a Python number among the outputs, ten times too large",
        Temperature,
        {"x": "float32[batch, 6]"},
        faulty=lambda: TemperatureFile(wrong=True),
        twin=TemperatureFile,
    ),
    Pair(
        "half-three-per-mille",
        "float16, 0.3 % too large",
        Half,
        {"image": "float16[batch, 3, 12, 12]"},
    ),
    Pair(
        "half-rounded-bias",
        "a float16 bias rounded to bfloat16",
        HalfLinear,
        {"x": "float16[batch, 24]"},
        missed="the bias moves the answer by less than float16 rounds",
    ),
    Pair(
        "logsumexp-overflow",
        "infinity where PyTorch is finite and well-conditioned",
        LogSumExp,
        {"energy": ranged("float32", ["batch", 12], 50, 120)},
    ),
    Pair(
        "softplus-overflow",
        "log(1 + exp(x)) is infinity where softplus is x",
        Softplus,
        {"x": ranged("float32", ["batch", 5], -300, 300)},
    ),
    Pair(
        "leaky-slope",
        "a slope of 0.011 for 0.01, before an instance norm",
        LeakyNorm,
        {"signal": "float32[batch, 4, 40]"},
    ),
    Pair(
        "tiny-factor",
        "a last layer 1e-5 too large",
        TinyBias,
        {"x": "float32[batch, 32]"},
    ),
    Pair(
        "tiny-shift",
        "every output 5e-6 too high",
        TinyShift,
        {"image": ranged("float32", ["batch", 3, 16, 16], 0, 1)},
    ),
    Pair(
        "narrow-integers",
        "int32 for int64",
        Narrow,
        {"ids": tokens(["batch", "seq"], 19)},
    ),
    Pair(
        "swapped-outputs",
        "two outputs of one shape in the other order",
        Swapped,
        {"x": "float32[batch, 12]"},
    ),
]
