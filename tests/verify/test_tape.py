"""The last operators of a run, moved alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reference.moved import moved, moved_at_end, recorded
from onnx_gate.verify.reference.tape import Tape


class Of(nn.Module):
    """Layers, and a function of what they answer, which is the end that is run again."""

    def __init__(self, end: Callable[[Tensor, Of], Tensor], *, layers: int = 12) -> None:
        super().__init__()
        torch.manual_seed(0)
        sizes = [nn.Linear(16, 16) for _ in range(layers)]
        self.layers = nn.Sequential(*(each for n in sizes for each in (n, nn.Tanh())))
        self.lstm = nn.LSTM(16, 16, batch_first=True)
        self.mixed = nn.Linear(16, 16)
        self.kept: Tensor
        self.register_buffer("kept", torch.zeros(4, 16))
        self.end = end

    def forward(self, x: Tensor) -> Tensor:
        """Return what the end makes of the layers' answer."""
        return self.end(self.layers(x), self)


def _sum_of_layers(y: Tensor, of: Of) -> Tensor:
    total = y
    for _ in range(3):
        z = of.mixed(total)
        total += z  # of what the layers have made
    return of.mixed(total)


def _column_in_place(y: Tensor, of: Of) -> Tensor:
    y[:, 0] += 1.5
    return of.mixed(y)


def _buffer(y: Tensor, of: Of) -> Tensor:
    of.kept.copy_(y)
    of.kept.mul_(0.5)
    return of.mixed(of.kept)


def _own_in_place(y: Tensor, of: Of) -> Tensor:
    z = of.mixed(y)
    z[:, 3:].mul_(2.5)
    return of.mixed(z.relu_())


def _recurrent(y: Tensor, of: Of) -> Tensor:
    return of.lstm(y.unsqueeze(1))[0].squeeze(1)


def _spectrum(y: Tensor, of: Of) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(of.mixed(y)) * 1.7, n=16)


def _told_python(y: Tensor, of: Of) -> Tensor:
    z = of.mixed(y)
    return of.mixed(z * 2 if z.sum().item() > 0 else z)


def _rows(y: Tensor, of: Of) -> Tensor:
    z = of.mixed(y)
    return of.mixed(z[z[:, 0] > 0])


def _branch(y: Tensor, of: Of) -> Tensor:
    z = of.mixed(y)
    z = torch.cond(z.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (z,))
    return of.mixed(z)


def _drawn(y: Tensor, of: Of) -> Tensor:
    return of.mixed(F.dropout(of.mixed(y), 0.5))


ENDS = {
    end.__name__.strip("_"): end
    for end in (
        *(_sum_of_layers, _column_in_place, _buffer, _own_in_place, _recurrent, _spectrum),
        *(_told_python, _rows, _branch, _drawn),
    )
}


def _taped(end: str) -> tuple[Tape, tuple[np.ndarray, ...]]:
    eager = Eager(Of(ENDS[end]).eval(), ("x",))
    inputs = {"x": np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32)}
    eager.run(inputs)  # what compiles a branch is imported
    torch.manual_seed(1)
    outputs = eager.run(inputs).arrays
    torch.manual_seed(1)
    tape = recorded(eager, inputs)
    assert tape is not None
    return tape, outputs


@pytest.mark.parametrize("end", ENDS)
def test_operators_are_given_what_they_were_given(end: str) -> None:
    tape, outputs = _taped(end)
    for _ in range(2):
        again = tape.again(lambda _, func, args, kwargs: func(*args, **kwargs))
        assert again is not None
        for a, b in zip(outputs, again, strict=True):
            assert np.array_equal(a, b.numpy())


@pytest.mark.parametrize("end", ENDS)
def test_each_is_a_run_as_good_as_any(end: str) -> None:
    tape, (first,) = _taped(end)
    runs = [run.arrays[0] for seed in range(8) if (run := moved_at_end(tape, seed)) is not None]
    assert len(runs) == 8
    apart = [np.abs(run - first).max() for run in runs]
    assert all(apart)
    if end != "drawn":
        eager = Eager(Of(ENDS[end]).eval(), ("x",))
        inputs = {"x": np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32)}
        whole = [r.arrays[0] for s in range(16) if (r := moved(eager, inputs, s)) is not None]
        assert max(apart) <= 2 * np.ptp(whole, axis=0).max()


def test_what_is_large_is_not_kept() -> None:
    eager = Eager(nn.Sequential(nn.Linear(4, 4096), nn.Tanh(), nn.ReLU()), ("x",))
    tape = recorded(eager, {"x": np.ones((4097, 4), np.float32)})
    assert tape is not None
    assert moved_at_end(tape, 0) is None


def test_an_output_that_nothing_makes_again_is_no_run() -> None:
    eager = Eager(Of(lambda y, of: (of.mixed(y), of.kept)[1]).eval(), ("x",))
    tape = recorded(eager, {"x": np.ones((4, 16), np.float32)})
    assert tape is not None
    assert moved_at_end(tape, 0) is None
