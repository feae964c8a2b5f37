"""What a forward pass costs, counted and not timed: the same on every machine and under any load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch.utils.flop_counter import flop_registry

from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.tensors import to_tensor
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reference.operator_mode import FollowingMode, tensors_of

# Seconds, roughly those of one core: an operator's call, one number read and written, one product
# added. An export takes 0.6 seconds and 20 milliseconds an operator (a ResNet of 70 operators 2.5 s, a
# BERT of 400 7 s). Every case is answered by two sides and compared, and where that is not within
# the floor, again by runs with moved rounding: four at least, each somewhat slower than the plain one.
_CALL, _NUMBER, _PRODUCT = 15e-6, 2e-9, 5e-11
_EXPORT, _EXPORT_CALL = 0.6, 0.02
SIDES = 8.0


@dataclass(frozen=True)
class Cost:
    """The price of a forward pass in seconds of an idealised machine, and what it consists of.

    ``numbers`` and ``products`` are those that grow with the inputs; ``fixed`` is the price of what is
    computed of weights alone, as norms of them are.
    """

    calls: int
    numbers: int
    products: int
    fixed: float = 0.0

    @property
    def work(self) -> float:
        """The part of the price that grows with the inputs."""
        return _NUMBER * self.numbers + _PRODUCT * self.products

    def forward(self, ratio: float = 1.0) -> float:
        """Return the price of a call, of inputs that are ``ratio`` times as large."""
        return _CALL * self.calls + self.fixed + ratio * self.work

    def case(self, ratio: float = 1.0) -> float:
        """Return the price of a case: both sides answer and are compared."""
        return SIDES * self.forward(ratio)

    def run(self, cases: int) -> float:
        """Return the price of a whole run of so many cases, its export included."""
        return _EXPORT + _EXPORT_CALL * self.calls + cases * self.case()


def measure(eager: Eager, inputs: Mapping[str, Array]) -> Cost:
    """Count one forward pass; raises ``Refusal`` as the module does."""
    counter = _Counter()
    tensors = {name: to_tensor(array) for name, array in inputs.items()}
    counter.follow(tensors)
    eager.run_prepared(tensors, mode=counter)
    fixed = _NUMBER * counter.numbers[False] + _PRODUCT * counter.products[False]
    return Cost(counter.calls, counter.numbers[True], counter.products[True], fixed)


class _Counter(FollowingMode):
    """Adds up what operators do, apart what grows: with an input, or a size that something is made in."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.numbers, self.products = {True: 0, False: 0}, {True: 0, False: 0}

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the operator and add up what it does."""
        given = tensors_of((args, kwargs))
        grows = not given or self.follows(given)
        result = func(*args, **kwargs)
        self.calls += 1
        made = tensors_of(result)
        self.numbers[grows] += sum(leaf.numel() for leaf in made)
        known = flop_registry.get(getattr(func, "_overloadpacket", None))
        if known is not None:
            self.products[grows] += int(known(*args, **kwargs, out_val=result)) // 2
        if grows:
            self.follow(made)
        return result
