"""What looking for further cases may still spend, and what a case of some sizes would cost."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_gate.manifest import InputSpec
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.sizes import Sizes, elements
from onnx_gate.verify.reach.cost import Cost

# Gradients keep every value of a pass: half a GiB of float32.
MOST_NUMBERS = 2**27


class Purse:
    """What may still be spent; ``part`` keeps the rest of it back for a while.

    ``pairs`` is the share of ``cost`` that grows with the square of a batch.
    """

    def __init__(
        self, left: float, cost: Cost, inputs: Mapping[str, InputSpec], pairs: float
    ) -> None:
        self.left, self.cost, self._kept = left, cost, 0.0
        self._inputs, self._pairs = inputs, pairs

    def part(self, share: float) -> _Part:
        """Spend no more than a share of what is left."""
        return _Part(self, share)

    def takes(self, passes: float, ratio: float = 1.0) -> bool:
        """Pay for passes, if there is enough."""
        price = passes * self.cost.forward(ratio)
        if price > self.left - self._kept:
            return False
        self.left -= price
        return True

    def ratio(self, base: Case, sizes: Sizes, squared: bool = False) -> float:
        """Return how much more a case of some sizes costs; ``squared`` where a length grows."""
        if sizes == base.sizes:
            return 1.0
        ratio = elements(self._inputs, sizes) / max(1, count(base.arrays))
        pairs = 1.0 if squared else self._pairs
        return (1 - pairs) * ratio + pairs * ratio**2 if ratio > 1 else ratio

    def affords(self, base: Case, sizes: Sizes, squared: bool = False) -> bool:
        """Return whether there is enough for a case of some sizes."""
        ratio = self.ratio(base, sizes, squared)
        fits = ratio * self.cost.numbers <= MOST_NUMBERS
        return fits and self.cost.case(ratio) <= self.left - self._kept

    def pay(self, price: float) -> None:
        """Pay what a case has cost."""
        self.left -= price


class _Part:
    def __init__(self, purse: Purse, share: float) -> None:
        self._purse, self._share = purse, share

    def __enter__(self) -> None:
        self._purse._kept = (1 - self._share) * self._purse.left

    def __exit__(self, *error: object) -> None:
        self._purse._kept = 0.0


def count(arrays: Mapping[str, Array]) -> int:
    """Return how many numbers inputs have together."""
    return sum(array.size for array in arrays.values())
