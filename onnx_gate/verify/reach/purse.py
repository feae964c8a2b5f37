"""What looking for further cases may still spend, and what a case of some sizes would cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from onnx_gate.manifest import InputSpec, ModelSpec
from onnx_gate.manifest.roles import batches, roles
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.tensors import to_tensor
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.draw import is_drawable
from onnx_gate.verify.inputs.sizes import Sizes, elements
from onnx_gate.verify.reference.models import FAST_PATH
from onnx_gate.verify.reference.operator_mode import FollowingMode, tensors_of
from onnx_gate.verify.reference.parts import parts_of

# Gradients keep every value of a pass: half a GiB of float32.
MOST_NUMBERS = 2**27
# So many seconds it may take to go where the module or its file names a size or decides, or has rows of its
# own: by the prices of ``cost`` they are cases whose passes make sixty million numbers together.
OWED = 1.0
# So many numbers inputs may have that are drawn for more than one try.
LARGEST = 2**18
# Seconds, roughly those of one core: an operator's call, one number read and written, one product
# added. An export takes 0.6 seconds and 20 milliseconds an operator (a ResNet of 70 operators 2.5 s, a
# BERT of 400 7 s). Every case is answered by two sides and compared, and where that is not within
# the floor, again by runs with moved rounding: four at least, each somewhat slower than the plain one.
_CALL, _NUMBER, _PRODUCT = 15e-6, 2e-9, 5e-11
_EXPORT, _EXPORT_CALL = 0.6, 0.02
SIDES = 8.0
# What a CPU has its own kernel of, and products are known of another one's.
_LIKE: Mapping[Any, Any] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (
        torch.ops.aten._scaled_dot_product_flash_attention
    )
}


class Purse:
    """What may still be spent; ``part`` keeps the rest of it back for a while.

    Cases are made from a ``base``, which has ``cost``: ``pairs`` is the share of it that grows with the
    square of a batch, ``lengths`` with theirs.
    """

    def __init__(
        self,
        left: float,
        cost: Cost,
        inputs: Mapping[str, InputSpec],
        base: Case,
        pairs: float,
        lengths: float,
    ) -> None:
        self.left, self.cost, self._kept = left, cost, 0.0
        self.base = base
        self._inputs, self._pairs, self._lengths = inputs, pairs, lengths
        self._batch = batches(inputs)

    def part(self, share: float) -> _Part:
        """Spend no more than a share of what is left."""
        return _Part(self, share)

    def least(self, seconds: float) -> _Least:
        """Spend so much, whatever is left."""
        return _Least(self, seconds)

    def takes(self, passes: float, ratio: float = 1.0) -> bool:
        """Pay for passes, if there is enough."""
        price = passes * self.cost.forward(ratio)
        if price > self.left - self._kept:
            return False
        self.left -= price
        return True

    def ratio(self, sizes: Sizes, longer: bool = False) -> float:
        """Return how much more a case of some sizes costs; ``longer`` where a length grows."""
        if sizes == self.base.sizes:
            return 1.0
        base = max(1, count(self.base.arrays))
        ratio = elements(self._inputs, sizes) / base
        if not longer:
            return _grown(ratio, self._pairs)
        # Words of one row meet each other, and none of another one.
        batch = {dim: sizes[dim] for dim in self._batch & sizes.keys()}
        rows = elements(self._inputs, {**self.base.sizes, **batch}) / base
        return _grown(rows, self._pairs) * _grown(ratio / rows, self._lengths) if rows else ratio

    def affords(self, sizes: Sizes, longer: bool = False) -> bool:
        """Return whether there is enough for a case of some sizes."""
        ratio = self.ratio(sizes, longer)
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


class _Least:
    def __init__(self, purse: Purse, seconds: float) -> None:
        self._purse, self._seconds, self._own = purse, seconds, 0.0

    def __enter__(self) -> None:
        self._own = self._purse.left
        self._purse.left = max(self._own, self._purse._kept + self._seconds)

    def __exit__(self, *error: object) -> None:
        self._purse.left = min(self._own, self._purse.left)


def _grown(ratio: float, pairs: float) -> float:
    return (1 - pairs) * ratio + pairs * ratio**2 if ratio > 1 else ratio


def count(arrays: Mapping[str, Array]) -> int:
    """Return how many numbers inputs have together."""
    return sum(array.size for array in arrays.values())


def pairs_of(
    spec: ModelSpec,
    eager: Eager,
    base: Case,
    cost: Cost,
    drawn: Callable[[Sizes], Mapping[str, Array]],
    *,
    batch: bool,
) -> float:
    """Return which share of a case grows with the square of its batch, or of its lengths.

    Some batches are sets whose members meet each other, such as atoms and their distances, and so do words.
    What a case costs is taken for a + b, of which b grows so: r times as large it is r a + r * r * b.
    """
    known, otherwise = roles(spec.inputs), 0.0 if batch else 1.0
    dims = [dim for dim in base.sizes if (known.get(dim) == "batch") == batch]
    if not dims or spec.named_dims & {*dims} or not all(map(is_drawable, spec.inputs.values())):
        return otherwise
    sizes = {**base.sizes, **{dim: 2 * base.sizes[dim] for dim in dims}}
    if elements(spec.inputs, sizes) > LARGEST:
        return otherwise
    try:
        twice = measure(eager, drawn(sizes))
    except Refusal:
        return 1.0
    r = elements(spec.inputs, sizes) / max(1, count(base.arrays))
    grown = twice.work / cost.work if cost.work else r
    return min(max((grown - r) / (r * (r - 1)), 0.0), 1.0) if r > 1 else 0.0


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
        parts = parts_of(name, args) if name in FAST_PATH else None
        if parts is None and func._can_decompose():  # below autograd it comes whole
            parts = func.decompose
        if parts is not None:  # of what comes whole no products are known
            with self:
                return parts(*args, **kwargs)
        given = tensors_of((args, kwargs))
        grows = not given or self.follows(given)
        result = func(*args, **kwargs)
        self.calls += 1
        made = tensors_of(result)
        self.numbers[grows] += sum(leaf.numel() for leaf in made)
        packet = getattr(func, "_overloadpacket", None)
        known = flop_registry.get(_LIKE.get(packet, packet))
        if known is not None:
            self.products[grows] += int(known(*args, **kwargs, out_val=result)) // 2
        if grows:
            self.follow(made)
        return result
