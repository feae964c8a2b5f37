"""What a forward pass costs, counted and not timed: the same on every machine and under any load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils.flop_counter import flop_registry

from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reference.operator_mode import OperatorMode

# Seconds, roughly those of one core: an operator's call, one number read and written, one product
# added. An export takes 0.6 seconds and 20 milliseconds an operator (a ResNet of 70 operators 2.5 s, a
# BERT of 400 7 s). Every case is answered by two sides and compared, and where that is not within
# the floor, again by runs with moved rounding: four at least, each somewhat slower than the plain one.
_CALL, _NUMBER, _PRODUCT = 15e-6, 2e-9, 5e-11
_EXPORT, _EXPORT_CALL = 0.6, 0.02
_SIDES = 8.0


@dataclass(frozen=True)
class Cost:
    """The price of a forward pass in seconds of an idealised machine, and what it consists of."""

    calls: int
    numbers: int
    products: int

    @property
    def work(self) -> float:
        """The part of the price that grows with the inputs."""
        return _NUMBER * self.numbers + _PRODUCT * self.products

    def forward(self, ratio: float = 1.0) -> float:
        """Return the price of a call, of inputs that are ``ratio`` times as large."""
        return _CALL * self.calls + ratio * self.work

    def case(self, ratio: float = 1.0) -> float:
        """Return the price of a case: both sides answer and are compared."""
        return _SIDES * self.forward(ratio)

    def run(self, cases: int) -> float:
        """Return the price of a whole run of so many cases, its export included."""
        return _EXPORT + _EXPORT_CALL * self.calls + cases * self.case()


def measure(eager: Eager, inputs: Mapping[str, Array]) -> Cost:
    """Count one forward pass; raises ``Refusal`` as the module does."""
    counter = _Counter()
    eager.run(inputs, mode=counter)
    return Cost(counter.calls, counter.numbers, counter.products)


class _Counter(OperatorMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls = self.numbers = self.products = 0

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the operator and add up what it does."""
        result = func(*args, **kwargs)
        self.calls += 1
        self.numbers += sum(
            leaf.numel() for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)
        )
        known = flop_registry.get(getattr(func, "_overloadpacket", None))
        if known is not None:
            self.products += int(known(*args, **kwargs, out_val=result)) // 2
        return result
