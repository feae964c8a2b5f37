"""What was compared and judged: one runtime × suite × case × output."""

from __future__ import annotations

import math
from typing import Any, Literal

from onnx_gate.findings.finding import Frozen
from onnx_gate.report.model.number import Number

CheckVerdict = Literal["pass", "diverged", "waived", "refused"]
Side = Literal["pytorch", "runtime"]
# What PyTorch leaves open: why it has more than one answer on some inputs.
OpenCause = Literal[
    "rounding", "attention over nothing", "attention's fast path", "order of equals"
]
Form = Literal["shape", "dtype", "number"]


REACHED = "reached"
"""The suite of the cases that are made from what a model's own have not shown."""


class Metrics(Frozen):
    """How far the candidate is from PyTorch on one output.

    ``max_abs``, ``max_rel`` and ``rms`` are over the pairs in which both sides are finite;
    ``max_rel`` leaves out the elements where PyTorch's value is zero. ``scaled`` is the largest
    difference of an element over its own size and what is usual in its channel or row, null where
    the check holds. ``rounding`` is by how much rounding moves the element that decided, in the
    unit of the deviation, null where that was not asked. ``criteria`` holds the value of each
    criterion that the tolerance names.
    """

    elements: int
    max_abs: Number
    max_rel: Number
    rms: Number
    cosine: Number | None = None
    snr_db: Number | None = None
    exceeding: int = 0
    nonfinite: int = 0
    scaled: Number | None = None
    rounding: Number | None = None
    criteria: dict[str, Number] = {}


# The keys of a tolerance that set a limit; ``rtol`` sets one with ``atol``.
Limit = Literal["auto", "atol", "mismatch", "cosine", "snr_db", "top1", "topk", "max_ulp", "max"]


class Deviation(Frozen):
    """The criterion that decided a check: what was measured, and the limit in the same unit.

    ``error`` is |ONNX - PyTorch| of the element that has used most of its limit, in the output's own
    unit. ``constant factor`` is the
    part of ONNX - PyTorch that is proportional to the output, ``one sign`` its mean in units of what
    rounding does to each element. ``unit`` says
    how ``value`` reads: the larger the worse (``error``), a share that is 1 where both sides are
    equal (``agreement``), or decibels of signal to noise (``dB``). ``criterion`` is the key of the
    tolerance that set the limit, ``atol`` for that and ``rtol``; empty where equality is asked for.
    """

    measure: str = "error"
    value: Number
    allowed: Number
    unit: Literal["error", "agreement", "dB"] = "error"
    criterion: Limit | Literal[""] = ""

    @property
    def is_error(self) -> bool:
        """Whether the larger value is the worse one."""
        return self.unit == "error"

    @property
    def error(self) -> float:
        """The value as an error, which is zero where both sides are equal."""
        if self.unit == "agreement":
            return 1 - self.value
        return 10 ** (-self.value / 20) if self.unit == "dB" else self.value


class Worst(Frozen):
    """The element that decides: its index and both values (and float64's, where it was run)."""

    index: tuple[int, ...]
    expected: Number
    actual: Number
    reference: Number | None = None

    @property
    def one_finite(self) -> bool:
        """Whether exactly one side is a number."""
        return math.isfinite(self.expected) != math.isfinite(self.actual)


Unseen = Literal["one channel negated", "the order reversed"]


class Resolution(Frozen):
    """The smallest relative error that a check would have refused, wherever it is.

    Relative to an element itself or to what is usual in the slices that it lies in, whichever is
    larger. ``element`` is of one element, ``row`` of all of one line along the last axis, ``channel``
    of all of one slice along any axis but the first; null for outputs of one axis. Each is that of
    the least protected one. Where one slice resolves far less than the others, that is the one at
    ``index`` of ``axis``, with ``more`` like it, ``size`` times as large as is usual, and ``others``
    is the ``element`` of all others. ``unseen`` are faults that would have passed whatever their size.
    """

    element: Number
    row: Number | None = None
    channel: Number | None = None
    others: Number | None = None
    axis: int = 0
    index: int = 0
    more: int = 0
    size: Number = 1.0
    unseen: tuple[Unseen, ...] = ()

    @property
    def worst(self) -> float:
        """The error that would have been refused whatever it was of."""
        return max(each for each in (self.element, self.row, self.channel) if each is not None)


class CheckBase(Frozen):
    """The same check (runtime, suite, case and output) in the baseline.

    ``error`` is that of the deviation. ``max_abs`` is the baseline's largest difference. Both
    are infinite where one side was not finite.
    """

    verdict: CheckVerdict
    error: Number | None = None
    max_abs: Number | None = None
    budget: Number | None = None


class Tokens(Frozen):
    """The tokens chosen over the steps of a check: ``same`` of ``of`` are the same on both sides.

    ``differ_at`` is the first step, from 1, at which one is not.
    """

    same: int
    of: int
    differ_at: int | None = None


class Steps(Frozen):
    """A check of several calls in a row, whose outputs come back as inputs.

    ``count`` calls were asked for. ``at`` is the one, from 1, that the check's numbers are of: the
    first that diverged, or else the one that used most of its tolerance. One number for each call
    that was compared: ``errors`` are the largest differences of the two sides on the scale of the
    output (``|t| + rms(t)``), ``rounding`` PyTorch's own from float64 by then, null where it was not
    needed. An output that has diverged is measured further, and judged no more. ``max_abs`` is the
    largest difference in any step, infinite where one side was not finite or had another form.
    """

    count: int
    at: int
    errors: tuple[Number, ...] = ()
    rounding: tuple[Number | None, ...] = ()
    max_abs: Number
    tokens: Tokens | None = None


class Check(Frozen):
    """One runtime × suite × case × output. ``budget`` is the share of the tolerance used.

    ``deviation`` is what decided, null where nothing was measured: another shape, or a refusal.

    ``sizes`` are those of the dynamic dimensions. ``refused`` is who raised. ``compared`` is the
    number of elements that were finite on both sides and of which PyTorch has one answer; the
    ``open`` ones, of which it has several because of ``causes``, are not among them, and neither are
    those ``outside`` the mask that the manifest has the output judged by.
    ``resolution`` is how small an error the check would have refused, null where it was not found
    out: it is for one ordinary case of each output.
    ``refusal`` is what the runtime's refusal says as values: an input's size, or the node that gave
    up. ``edge`` is the kind of edge that the case is at, empty where it is at none. ``form`` is
    what of the output's form is not PyTorch's. ``steps`` is what the calls after the first came to.
    ``block`` is the part of a model, verified block by block, that the value goes into or comes out of;
    empty for the model's own outputs. ``seconds`` is its part of what asking, running and comparing
    its case took, null where nobody timed it.
    """

    runtime: str
    suite: str
    case: str
    output: str
    verdict: CheckVerdict
    advice: bool = False
    budget: Number | None = None
    tolerance: dict[str, Any] = {}
    deviation: Deviation | None = None
    metrics: Metrics | None = None
    worst: Worst | None = None
    reason: str = ""
    sizes: dict[str, int] = {}
    refused: tuple[Side, ...] = ()
    compared: int = 0
    open: int = 0
    causes: tuple[OpenCause, ...] = ()
    outside: int = 0
    resolution: Resolution | None = None
    refusal: dict[str, Any] = {}
    edge: str = ""
    block: str = ""
    seconds: float | None = None
    form: Form | None = None
    steps: Steps | None = None
    base: CheckBase | None = None

    @property
    def error(self) -> float | None:
        """What was measured as an error, infinite where one side was not finite."""
        return self.deviation.error if self.deviation is not None else None

    @property
    def largest_difference(self) -> float | None:
        """The largest |ONNX - PyTorch|; NaN or an infinity on one side is infinite."""
        if self.metrics is None:
            return None
        return math.inf if self.metrics.nonfinite else self.metrics.max_abs
