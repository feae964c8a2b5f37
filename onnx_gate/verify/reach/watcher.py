"""A module that is watched whenever it answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import nn

from onnx_gate.runtimes.base import Array, Outputs, Refusal
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reach.shown import Shown
from onnx_gate.verify.reach.sites import DecisionSite
from onnx_gate.verify.reach.stack import row_at
from onnx_gate.verify.reach.watch import Watch
from onnx_gate.verify.reference.tape import Tape

# What runs add to, of what a watcher knows: neither the module, nor what its last run has left.
_TOLD = (
    *("seen", "asked", "masks", "divisors", "writes", "chooses", "_listed", "_limits"),
    *("met", "hulls", "endless", "lost"),
)


class Watcher(Shown):
    """Runs one module, or its parts one by one, and remembers what every decision in it was shown.

    ``hulls`` are the least and the largest value of each input. ``lost``: the module cannot be watched.
    ``eager`` may be that of a part. What it answered last is kept: a case that was tried for what it shows
    is asked about next. ``met`` are the inputs that have shown first what two truths may be
    together, the row of a batch where ``axes`` say along which of each they lie. ``endless`` are the
    outputs that had NaN or infinity in a case that was not searched for.
    """

    def __init__(self, eager: Eager) -> None:
        self.met: dict[tuple[DecisionSite, str], Mapping[str, Array]] = {}
        super().__init__(eager.module)
        self.eager = eager
        self.hulls: dict[str, tuple[float, float]] = {}
        self.axes: Mapping[str, int] = {}
        self.endless: set[str] = set()
        self.lost = False
        self._last: tuple[Eager, Mapping[str, Array], Outputs] | None = None
        self._tape: Tape | None = None

    def run(
        self, inputs: Mapping[str, Array], keeps: Callable[[Outputs], bool] | None = None
    ) -> Outputs:
        """Answer as the module does, and remember what it ``keeps``; raises its ``Refusal``."""
        last, self._last, self._tape = self._last, None, None
        if keeps is None and last is not None and self._is_of(last[0], last[1], inputs):
            return last[2]
        if self.lost:
            return self.eager.run(inputs)
        tape = Tape() if keeps is None else None
        watch = Watch(self, tape=tape)
        try:
            outputs = self.eager.run(inputs, mode=watch, ended=None if tape is None else tape.end)
        except Refusal:
            outputs = self.eager.run(inputs)
            self.lost = True  # what it refuses is being watched
            return outputs
        if keeps is None:
            self.endless |= outputs.endless
        elif not keeps(outputs):
            return outputs
        self._tape = tape
        self.take(watch)
        for shown, (place, shape) in watch.met.items():
            if shown not in self.met:
                self.met[shown] = row_at(inputs, self.axes, place, shape)
        for name, array in inputs.items():
            if array.dtype.kind not in "bOSU" and array.size:
                low, high = self.hulls.get(name, (math.inf, -math.inf))
                values = array.astype(np.float64) if array.dtype.kind == "V" else array
                self.hulls[name] = min(low, float(values.min())), max(high, float(values.max()))
        if keeps is not None:  # a case of it has nothing more to show
            self._last = self.eager, inputs, outputs
        return outputs

    def recorded(self) -> Tape | None:
        """Return the last operators of the last answer, once, ``None`` where they were not kept."""
        tape, self._tape = self._tape, None
        return tape

    def _is_of(self, eager: Eager, tried: Mapping[str, Array], inputs: Mapping[str, Array]) -> bool:
        """Return whether these very arrays were tried, which nobody writes to, by this very module."""
        same = tried.keys() == inputs.keys() and all(tried[n] is a for n, a in inputs.items())
        return eager is self.eager and same

    def take(self, watch: Watch) -> None:
        """Remember what one run has shown."""
        self.asked |= watch.asked
        self.masks |= watch.listed.masks
        self.divisors |= watch.listed.divisors
        self.learn(watch.seen, watch.listed.numbers, watch.limits)

    def told(self) -> dict[str, Any]:
        """Return all that it knows, which ``take_over`` takes: no more than data."""
        return {name: vars(self)[name] for name in _TOLD}

    def take_over(self, told: Mapping[str, Any]) -> None:
        """Know what one in a fork of this process, which has seen all that this has, knew by then."""
        vars(self).update(told)

    def loaded(self, module: nn.Module) -> None:
        """Take note that tensors of the module lie elsewhere now; what it was given is not kept."""
        super().loaded(module)
        self.met.clear()
        self._last = None

    def forget(self) -> None:
        """Begin anew."""
        super().forget()
        self.hulls.clear()
        self.met.clear()
        self._last = None
