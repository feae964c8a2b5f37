"""What half precision alone costs: the module itself, with all that its operators read rounded."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.utils._pytree as pytree

from onnx_gate.diagnose.reduced.join import snr
from onnx_gate.runtimes.base import Refusal
from onnx_gate.runtimes.file_module import FileModule
from onnx_gate.runtimes.tensors import to_array
from onnx_gate.verify.reference.operator_mode import OperatorMode
from onnx_gate.verify.subject import Subject

# Four times the noise: a file may round in other places than the module has, not in so many more.
_MORE_DB = 12.0


class RoundedMode(OperatorMode):
    """Run every operator on arguments that are rounded to ``dtype``, in the dtype that they have.

    Numbers beyond its largest become that one, as converters make them of the limits in masks. What
    an operator writes to, or returns a part of, is left alone: it is rounded where it is read.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype, self._most = dtype, torch.finfo(dtype).max

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Round what is only read."""
        arguments = func._schema.arguments
        aliased = {a.name for a in arguments if a.alias_info is not None}
        read = [
            value if argument.name in aliased else pytree.tree_map(self.rounded, value)
            for argument, value in zip(arguments, args, strict=False)
        ]
        named = {
            key: value if key in aliased else pytree.tree_map(self.rounded, value)
            for key, value in kwargs.items()
        }
        return func(*read, **named)

    def rounded(self, value: Any) -> Any:
        """Return a floating-point tensor rounded, and anything else as it is."""
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return value.clamp(-self._most, self._most).to(self._dtype).to(value.dtype)


def unexplained(subject: Subject) -> float | None:
    """Return the signal to noise that half precision leaves, in dB, where the file has much less.

    ``None`` where it has about as much, and where the module does not say.
    """
    metrics = subject.check.metrics
    own = None if metrics is None else metrics.snr_db
    if subject.half is None or own is None or isinstance(subject.eager.module, FileModule):
        return None
    dtype: torch.dtype = getattr(torch, subject.half)
    mode = RoundedMode(dtype)
    try:
        expected = subject.eager.run(subject.arrays).arrays[subject.output]
        _, tensors = subject.eager.run_tensors(subject.arrays, mode=mode)
    except Refusal:
        return None
    rounded = to_array(mode.rounded(tensors[subject.output]))
    left = snr(subject.judged(rounded, subject.arrays, expected), expected)
    # A result that happens to need no more bits does not mean that the next one does not, either.
    left = min(left, -20 * math.log10(torch.finfo(dtype).eps / 2))
    return left if own < left - _MORE_DB else None
