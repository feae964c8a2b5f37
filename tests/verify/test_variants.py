"""What PyTorch leaves open, on real modules: seen where it happens, and nothing beside it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onnx_gate.manifest import Tolerance
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.judge.judge import judge
from onnx_gate.verify.judge.judgement import Judgement, Rules
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.reference.perturb import MovedRounding

RULES = Rules(Tolerance(auto=10.0))
RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def reference_of(module: nn.Module, **inputs: np.ndarray) -> CaseReference:
    torch.manual_seed(0)
    eager = Eager(module.eval(), tuple(inputs))
    return CaseReference(eager, Float64Reference(eager), inputs, eager.run(inputs))


def verdict(reference: CaseReference, candidate: np.ndarray, index: int = 0) -> Judgement:
    expected = reference.outputs.arrays[index]
    return judge(candidate, expected, RULES, reference.output(index))


class Attention(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


class Softmax(nn.Module):
    """What older code writes: scores masked with the dtype's minimum."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        scores = x @ x.transpose(-1, -2) / 3
        return torch.softmax(scores.masked_fill(~mask, torch.finfo(x.dtype).min), -1) @ x


def masks(rows: int) -> np.ndarray:
    """Query 0 sees no key, as the padding and the causal mask together may have it."""
    mask = np.tril(np.ones((rows, rows), bool))
    mask[:, 0] = False
    return mask


@pytest.mark.parametrize(
    ("module", "answer"),
    [*itertools.product((Attention, Softmax), ("zero", "mean")), (Attention, "nan")],
)
def test_attention_over_nothing_is_open_and_nothing_else_is(
    module: type[nn.Module], answer: str
) -> None:
    x, mask = floats(2, 5, 9), masks(5)
    reference = reference_of(module(), x=x, mask=mask)
    right = reference.outputs.arrays[0].copy()
    right[:, 0] = {"zero": 0.0, "mean": x.mean(1), "nan": np.nan}[answer]
    judged = verdict(reference, right)
    assert judged.holds, judged.reason
    assert judged.open in (0, 18)
    assert judged.compared == 90 - judged.open
    for wrong in (right.copy(), right.copy()):
        wrong[1, 3, 3] += 1e-3
        assert not verdict(reference, wrong).holds
    third = right.copy()
    third[:, 0] = 0.5
    assert not verdict(reference, third).holds


class Padded(nn.Module):
    """A second layer to which padding is a key of no weight, and a mean that leaves it out."""

    def forward(self, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        mask = valid[:, None, :] & valid[:, :, None]
        for _ in range(2):
            x = F.scaled_dot_product_attention(x, x, x, attn_mask=mask)
        weight = valid.float()[..., None]
        return x, (x * weight).sum(1) / weight.sum(1)


def test_nan_is_no_answer_where_nothing_hangs_on_what_saw_no_key() -> None:
    valid = np.array([[True] * 5, [True, True, True, False, False]])
    reference = reference_of(Padded(), x=floats(2, 5, 9), valid=valid)
    rows, mean = (array.copy() for array in reference.outputs.arrays)
    rows[1, 3:] = np.nan
    judged = verdict(reference, rows)
    assert judged.holds, judged.reason
    assert (judged.open, judged.compared) == (18, 72)
    rows[1] = np.nan
    assert not verdict(reference, rows).holds
    mean[1] = np.nan
    assert not verdict(reference, mean, 1).holds


def test_nan_is_no_answer_where_the_scores_are_finite() -> None:
    reference = reference_of(Softmax(), x=floats(2, 5, 9), mask=masks(5))
    poisoned = reference.outputs.arrays[0].copy()
    poisoned[:, 0] = np.nan
    assert not verdict(reference, poisoned).holds


def test_a_mask_that_leaves_a_key_opens_nothing() -> None:
    mask = masks(5)
    mask[0, 0] = True
    reference = reference_of(Attention(), x=floats(2, 5, 9), mask=mask)
    other = reference.outputs.arrays[0].copy()
    other[:, 0] = 0
    assert not verdict(reference, other).holds
    assert reference.variants() == ()


class Switch(nn.Module):
    """A flag that chooses between two layers is no mask, whatever it looks like."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Tensor, flag: Tensor) -> Tensor:
        return torch.where(flag, self.a(x), self.b(x))


def test_a_flag_is_not_forgiven() -> None:
    module, x = Switch(), floats(3, 8)
    reference = reference_of(module, x=x, flag=np.array([True]))
    other = Eager(module, ("x", "flag")).run({"x": x, "flag": np.array([False])}).arrays[0]
    assert not verdict(reference, other).holds


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.encoder(x, src_key_padding_mask=padding)


def test_the_fast_path_opens_padded_positions_only() -> None:
    torch.manual_seed(0)
    module, x = Encoder(), floats(2, 6, 16)
    padding = np.zeros((2, 6), bool)
    padding[1, 4:] = True
    reference = reference_of(module, x=x, padding=padding)
    slow = reference._eager.without_fast_path()
    assert slow is not None
    own = slow.run({"x": x, "padding": padding}).arrays[0]
    judged = verdict(reference, own)
    assert judged.holds
    assert judged.open == 32
    assert "attention's fast path" in judged.causes
    ignored = slow.run({"x": x, "padding": np.zeros((2, 6), bool)}).arrays[0]
    assert not verdict(reference, ignored).holds


class Pruned(nn.Module):
    """Keeps the best tokens: equal scores may come in any order, and what is kept with them."""

    def forward(self, scores: Tensor, x: Tensor) -> Tensor:
        best = scores.topk(2, dim=-1).indices
        return x.gather(1, best.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


def test_the_order_of_equals_is_open_behind_a_gather() -> None:
    scores = np.array([[1, 3, 3, 3]], np.float32)
    x = floats(1, 4, 8)
    reference = reference_of(Pruned(), scores=scores, x=x)
    assert verdict(reference, x[:, [1, 2]]).holds
    assert verdict(reference, x[:, [3, 2]]).holds
    assert not verdict(reference, x[:, [0, 2]]).holds


class First(nn.Module):
    def __init__(self, compute: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(x).argmax(-1)


def test_argmax_promises_the_first_of_equals_that_are_exact() -> None:
    x = np.array([[1, 2, 2, 0]], np.float32)
    assert not verdict(reference_of(First(lambda x: x), x=x), np.array([2])).holds
    # Rounding made these equal: another implementation may find the second one larger.
    rounded = reference_of(First(lambda x: torch.exp(x / 3) * 0.1), x=x)
    assert verdict(rounded, np.array([2])).holds
    assert not verdict(rounded, np.array([3])).holds


class Buckets(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.floor(torch.exp(x) * 3) * 100


def test_a_decision_of_rounding_may_go_either_way_and_no_other() -> None:
    thirds = np.concatenate([np.arange(1, 31), np.arange(1, 31) + 0.5]) / 3
    x = np.log(thirds).astype(np.float32)[None]
    reference = reference_of(Buckets(), x=x)
    own = reference.outputs.arrays[0]
    runs = np.stack([run[0] for run in reference.rounding(16)])
    decided = np.any(runs != own, axis=0)[0]
    assert decided.any()
    assert not decided.all()
    other = np.where(decided, runs.min(0), own).astype(np.float32)
    judged = verdict(reference, other)
    assert judged.holds or not np.any(other != own)
    wrong = own.copy()
    wrong[0, 40] += 100
    assert not verdict(reference, wrong).holds


class Counted(nn.Module):
    """One whole number that rounding decides, and others that it moves."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.exp(x) * 3
        return torch.cat([torch.floor(y[:, :1]) * 100, y[:, 1:]], 1)


@pytest.mark.parametrize(("units", "open_"), [(5, True), (200, False)])
def test_a_decision_is_open_where_as_much_as_is_granted_makes_it_otherwise(
    units: int, open_: bool
) -> None:
    x = np.log(np.array([[5, 2, 7.5]], np.float32) / 3) * np.float32(1 + units * 6e-8)
    reference = reference_of(Counted(), x=x)
    own = reference.outputs.arrays[0]
    assert own[0, 0] == 500
    assert all(run[0][0, 0] == 500 for run in reference.rounding(16))
    other = own.copy()
    other[0, 0] = 400
    judged = verdict(reference, other)
    assert judged.holds == open_
    assert judged.open == open_
    # What rounding does not decide is let off by none of it.
    moved = max(abs(run[0][0, 2] - own[0, 2]) for run in reference.rounding(16))
    other[0, 2] += 10 * moved + 30 * np.spacing(own[0, 2])
    assert not verdict(reference, other).holds


class Pixels(nn.Module):
    """Bytes, of which rounding decides now this one and now that, and features of all of them."""

    def forward(self, x: Tensor) -> Tensor:
        pixels = (torch.sin(x) * 200 + torch.cos(x * 3) * 40).round() / 255
        features = torch.sin(torch.arange(8 * x.shape[1]).reshape(-1, 8).float())
        return pixels @ features / x.shape[1]


def test_of_many_decisions_another_one_is_as_likely_as_those_of_the_runs() -> None:
    x = np.random.default_rng(0).uniform(-3, 3, (100, 500)).astype(np.float32)
    reference = reference_of(Pixels(), x=x)
    own = reference.outputs.arrays[0]
    eager, beyond = Eager(Pixels().eval(), ("x",)), []
    for seed in range(100, 106):
        with MovedRounding(seed, 4.0):
            other = eager.run({"x": x}).arrays[0]
        beyond.append(bool((np.abs(other - own) > 3e-6).any()))
        assert verdict(reference, other).holds, seed
    assert any(beyond)
    for wrong in (2e-4, -2e-4):
        assert not verdict(reference, own * np.float32(1 + wrong)).holds


class Epsilon(nn.Module):
    """Computes another function in float64."""

    def forward(self, x: Tensor) -> Tensor:
        return x / (x.abs() * 0 + torch.finfo(x.dtype).eps) * 1e-7


def test_float64_that_computes_another_function_is_no_reference() -> None:
    reference = reference_of(Epsilon(), x=floats(4, 16))
    own = reference.outputs.arrays[0]
    assert verdict(reference, own * np.float32(1 + 3e-7)).holds
    assert not verdict(reference, own * np.float32(1 + 1e-4)).holds


class Sums(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.cumsum(-1), torch.linalg.vector_norm(x, dim=-1)


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_long_sums_may_be_added_one_after_the_other(shift: float) -> None:
    x = floats(2, 20000) + np.float32(shift)
    reference = reference_of(Sums(), x=x)
    naive = np.cumsum(x, axis=-1, dtype=np.float32)
    assert verdict(reference, naive).holds
    squares = np.cumsum(np.square(x), axis=-1, dtype=np.float32)[:, -1]
    assert verdict(reference, np.sqrt(squares), 1).holds
    assert not verdict(reference, naive * np.float32(1 + 3e-3)).holds


class Likelihood(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        p = x.sigmoid()
        return F.binary_cross_entropy(p, torch.ones_like(p), reduction="none").mean(1)


def test_a_probability_may_be_held_at_the_end_that_it_is_next_to() -> None:
    """ONNX Runtime's sigmoid of -17 is exactly 0, and its logarithm is held at -100 then."""
    near = np.linspace(-17.3, -16.5, 64, dtype=np.float32)[None]
    reference = reference_of(Likelihood(), x=near)
    p = 1 / (1 + np.exp(-near.astype(np.float64)))
    held = np.where(p > 5e-8, -np.log(p), 100.0)
    assert verdict(reference, held.mean(1).astype(np.float32)).holds
    reference = reference_of(Likelihood(), x=near / 2)
    assert not verdict(reference, reference.outputs.arrays[0] * np.float32(1.0001)).holds


class Odds(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        p = x.sigmoid()
        return 1 / (1 - p), torch.log(p), torch.log(1 - p)


def test_rounding_decides_whether_there_is_an_infinity() -> None:
    """What is left of 1 is 6e-8 or 0; what is next to 0 has a logarithm, whatever its size is."""
    near = np.linspace(16.2, 17.2, 64, dtype=np.float32)[None]
    reference = reference_of(Odds(), x=near)
    assert 0 < np.isinf(reference.outputs.arrays[0]).sum() < near.size
    left = np.exp(-near.astype(np.float64))
    for index, exact in ((0, 1 / left), (2, np.log(left))):
        sign = np.sign(exact)
        for odd in (np.isinf(near), near > 16.5, near > 16.7):
            other = np.where(odd, sign * np.inf, exact).astype(np.float32)
            judged = verdict(reference, other, index)
            assert judged.holds, (index, odd.sum())
            assert judged.open
        assert not verdict(reference, -other, index).holds
        own = reference.outputs.arrays[index]
        for elsewhere in (-100 * sign, 0 * sign):  # on no way from an answer to the infinity
            strange = np.where(np.isinf(own), elsewhere, own).astype(np.float32)
            assert not verdict(reference, strange, index).holds
        assert not verdict(reference, np.full_like(other, np.nan), index).holds
    small = reference_of(Odds(), x=-near)
    assert not verdict(small, np.full_like(near, -np.inf), 1).holds
    further = reference_of(Odds(), x=near / 2)
    assert not verdict(further, np.full_like(near, np.inf)).holds


class LogOfShare(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.log(x.sigmoid())


class LogOfExp(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.log(x.exp())


@pytest.mark.parametrize(
    ("module", "dtype", "near", "further"),
    [(LogOfShare, np.float16, -16.6, -13.0), (LogOfExp, np.float32, -102.5, -99.0)],
)
def test_the_least_numbers_may_be_none(
    module: type[nn.Module], dtype: type[np.floating[Any]], near: float, further: float
) -> None:
    """6e-8 in float16, and 3e-45 in float32, are a step or two from 0, which has no logarithm."""
    for x, holds in (near, True), (further, False):
        at = np.linspace(x - 0.1, x + 0.1, 8).astype(dtype)[None]
        reference = reference_of(module(), x=at)
        assert np.isfinite(reference.outputs.arrays[0]).all()
        assert verdict(reference, np.full_like(at, -np.inf)).holds is holds


class Shares(nn.Module):
    def forward(self, x: Tensor, total: Tensor) -> Tensor:
        return (x / 4) / total


def test_rounding_decides_whether_a_quotient_by_zero_is_infinite_or_no_number() -> None:
    """Who flushes 2.5e-39 to zero divides zero by zero."""
    x, nan, inf = np.array([1e-38, 1.0], np.float32), math.nan, math.inf
    reference = reference_of(Shares(), x=x, total=np.zeros_like(x))
    assert np.isposinf(reference.outputs.arrays[0]).all()
    judged = verdict(reference, np.array([nan, inf], np.float32))
    assert judged.holds, judged.reason
    assert judged.open == 1
    assert not verdict(reference, np.array([nan, nan], np.float32)).holds
    assert not verdict(reference, np.array([-inf, inf], np.float32)).holds


def test_no_variant_is_made_where_nothing_diverges() -> None:
    reference = reference_of(Attention(), x=floats(2, 5, 9), mask=masks(5))
    assert verdict(reference, reference.outputs.arrays[0].copy()).holds
    assert reference.said.variants is None


class Nucleus(nn.Module):
    """The words that have a share of the probability together."""

    share = 0.9

    def forward(self, x: Tensor) -> Tensor:
        best, order = x.softmax(-1).sort(-1, descending=True)
        kept = (best.cumsum(-1) - best) < self.share
        mask = torch.zeros_like(kept).scatter(-1, order, kept)
        return x.masked_fill(~mask, -1e9).softmax(-1)


class InSingle(Nucleus):
    """The same with partial sums that are rounded one by one, as engines have them."""

    def forward(self, x: Tensor) -> Tensor:
        best, order = x.softmax(-1).sort(-1, descending=True)
        sums = torch.from_numpy(np.add.accumulate(best.numpy(), -1))
        mask = torch.zeros(x.shape, dtype=torch.bool).scatter(-1, order, (sums - best) < self.share)
        return x.masked_fill(~mask, -1e9).softmax(-1)


@pytest.mark.parametrize("words", [40, 60])
def test_where_a_sum_of_equals_is_cut_is_open(words: int) -> None:
    # Every row is of equal numbers: nine tenths of them are the limit, but for rounding.
    x = np.repeat(floats(4000, 1), words, axis=1)
    reference = reference_of(Nucleus(), x=x)
    assert verdict(reference, InSingle()(torch.from_numpy(x)).numpy()).holds
    wrong = InSingle()
    wrong.share = 0.75
    assert not verdict(reference, wrong(torch.from_numpy(x)).numpy()).holds


class Peaks(nn.Module):
    """Where a heat map is the largest of its neighbourhood."""

    reach = 7

    def forward(self, x: Tensor) -> Tensor:
        return self.peaks(x.exp())

    def peaks(self, heat: Tensor) -> Tensor:
        largest = F.max_pool2d(heat, self.reach, 1, self.reach // 2)
        return heat * (largest == heat)


class Apart(nn.Module):
    """Distances by products, as fast code has them: of each to itself the root of what rounding leaves."""

    def forward(self, x: Tensor) -> Tensor:
        size = (x * x).sum(-1)
        square = size[..., :, None] + size[..., None, :] - 2 * (x @ x.mT)
        return square.clamp(min=0).sqrt()


def test_a_root_of_what_rounding_alone_makes_more_than_nothing_is_open() -> None:
    """One element in many thousands is 0 in all runs, and next to it is the root of a last place."""
    x = np.random.default_rng(0).normal(size=(600, 12, 5)).astype(np.float32)
    reference = reference_of(Apart(), x=x)
    own = reference.outputs.arrays[0]
    still = own == 0
    for run in reference.rounding(16):
        still &= run[0] == 0
    assert 0 < still.sum() < 0.01 * (own == 0).sum()
    size = np.square(x).sum(-1).astype(np.float32)
    root = np.sqrt(np.spacing(size))[..., None] * np.eye(12, dtype=np.float32)
    assert verdict(reference, np.where(still, root, own)).holds
    assert not verdict(reference, np.where(still, 1e3 * root, own)).holds
    assert not verdict(reference, np.where(own == 0, own, 1.001 * own)).holds


def test_peaks_of_what_is_equal_but_for_rounding_are_open() -> None:
    # A convolution of an even image ends at numbers some units apart in one engine, and at one in another.
    units = RNG.integers(0, 9, (8, 4, 16, 16)) * np.spacing(np.float32(0.7))
    x = (np.float32(0.7) + units).astype(np.float32)
    reference = reference_of(Peaks(), x=x)
    even = Peaks().peaks(torch.full(x.shape, 0.7).exp()).numpy()
    assert (reference.outputs.arrays[0] == 0).mean() > 0.5
    assert even.all()
    assert verdict(reference, even).holds
    assert not verdict(reference, 1.001 * even).holds


def test_peaks_of_a_smaller_neighbourhood_are_refused() -> None:
    x = floats(4, 3, 16, 16)
    smaller = Peaks()
    smaller.reach = 5
    reference = reference_of(Peaks(), x=x)
    assert verdict(reference, Peaks()(torch.from_numpy(x)).numpy()).holds
    assert not verdict(reference, smaller(torch.from_numpy(x)).numpy()).holds


class Thinned(nn.Module):
    """Of what is steep the rows that are steeper than both neighbours, as an edge detector has them."""

    bell: Tensor
    slope: Tensor

    def __init__(self) -> None:
        super().__init__()
        bell = torch.exp(-(torch.arange(-2.0, 3.0) ** 2) / 2)
        self.register_buffer(
            "bell", (bell[:, None] * bell).expand(1, 3, 5, 5) / 3 / bell.sum() ** 2
        )
        across = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]])
        self.register_buffer("slope", torch.stack([across, across.T])[:, None])

    def forward(self, image: Tensor) -> Tensor:
        smooth = F.conv2d(F.pad(image, (2, 2, 2, 2), mode="reflect"), self.bell)
        slope = F.conv2d(F.pad(smooth, (1, 1, 1, 1), mode="replicate"), self.slope)
        size = slope.square().sum(1, keepdim=True).add(1e-6).sqrt()
        above, below = F.pad(size, (0, 0, 1, 0))[:, :, :-1], F.pad(size, (0, 0, 0, 1))[:, :, 1:]
        return size * ((size > above) & (size > below))


def test_a_choice_that_runs_make_has_the_value_that_it_has_with_nothing_moved() -> None:
    """On a slope of one steepness rounding chooses, and a run that chose what is larger was moved up."""
    image = np.linspace(0, 1, 3 * 16 * 16, dtype=np.float32).reshape(1, 3, 16, 16)
    reference = reference_of(Thinned(), image=image)
    right = Thinned().double()(torch.from_numpy(image).double()).float().numpy()
    judged = verdict(reference, right)
    assert judged.holds, judged.reason
    assert judged.open > 10
    runs = [(*v.arrays, *v.moved[0]) for v in reference.variants() if v.cause == "rounding"]
    moved, still = map(np.stack, zip(*runs, strict=True))
    assert ((moved > 0) == (still > 0)).all()
    both = (moved > 0) & (right > 0)
    assert both.sum() > 100
    assert abs(still - right)[both].max() < abs(moved - right)[both].max() / 4
    chosen = (right > 0) & (reference.outputs.arrays[0] == 0)
    for share in (1e-3, -1e-3):
        assert not verdict(reference, np.where(chosen, right * np.float32(1 + share), right)).holds
