"""Where rows are among the values at which a module decides: on which side of limits, at which steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.weak import WeakTensorKeyDictionary

from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.tensors import to_tensor
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.inputs.draw import Float64
from onnx_gate.verify.reach.margins import CHOOSES, COMPARISONS
from onnx_gate.verify.reach.rules import RULES, limit_of
from onnx_gate.verify.reach.sites import MOST_COLUMNS
from onnx_gate.verify.reach.stack import Stack, axis_of
from onnx_gate.verify.reference.operator_mode import OperatorMode, given_to, tensors_of

# What every runtime computes to the bit, as IEEE 754 says of it, or moves about.
_PLAIN = frozenset(
    (
        *("add", "sub", "rsub", "mul", "neg", "div", "abs", "relu", "where", "maximum", "minimum"),
        *("clamp", "clamp_min", "clamp_max", "floor", "ceil", "trunc", "round", "_to_copy"),
        *("clone", "copy_", "view", "_unsafe_view", "unsqueeze", "squeeze", "select", "slice"),
        *("expand", "permute", "transpose", "t", "alias", "detach", "stack", "cat", "unbind"),
        *("split", "masked_fill", "bucketize", "searchsorted", "__rshift__", "bitwise_and"),
    )
)
# And what is a function of a few numbers, each in its own way of rounding.
_ROUNDED = frozenset(
    (
        *("log", "log2", "log10", "log1p", "exp", "exp2", "expm1", "sqrt", "rsqrt", "pow"),
        *("reciprocal", "square", "sum", "mean", "cumsum", "amax", "amin", "max", "min"),
    )
)
_WHOLE = frozenset(("floor", "ceil", "trunc"))
_STEPS = _WHOLE | {"round", "floor_divide"}
_TABLES = {"bucketize": "boundaries", "searchsorted": "sorted_sequence"}
_REMAINDERS = frozenset(("remainder", "fmod"))
_KINDS = ("limit", "equality")
_DECIDES = frozenset(name for name, rules in RULES.items() if any(r.kind in _KINDS for r in rules))
_KNOWN = _PLAIN | _ROUNDED | _STEPS | _REMAINDERS | _DECIDES
# A pass of 4,000 rows is known by a megabyte.
_MOST_PLACES = 4 * MOST_COLUMNS


@dataclass(frozen=True)
class Reading:
    """What a pass shows of rows, ``sides[row, place]``: on which side of a limit, or at which step.

    What is even is exactly there: 0 at a limit, with -1 and 1 on its sides; at a step, or a half that is
    rounded, twice its number. ``limits`` are the places that have one, ``plain`` those that every runtime
    computes the same to the bit.
    """

    sides: Float64
    limits: np.ndarray[tuple[int], np.dtype[np.bool_]]
    plain: np.ndarray[tuple[int], np.dtype[np.bool_]]


def read(
    eager: Eager,
    arrays: Mapping[str, Array],
    stack: Stack,
    *,
    steps: bool = False,
    every: bool = False,
) -> Reading | None:
    """Return what a module shows of rows, their axis in front; ``None`` where it refuses or shows nothing.

    Limits that join what is on both of their sides tell nothing of where they are: with ``steps`` they are
    left out. With ``every``, comparisons are looked at whatever they are made of, and nothing else.
    """
    rows = 1 if stack.passes else stack.count(arrays)
    passes: list[list[tuple[Float64, bool, bool]]] = []
    for given in stack.given(arrays):
        tensors = {each: to_tensor(array) for each, array in given.items()}
        axis = 0 if stack.passes else max(stack.axes.values(), default=0)
        gauge = _Gauge(tensors, rows, axis, steps=steps, every=every)
        try:
            eager.run_prepared(tensors, mode=gauge)
        except Refusal:
            return None
        passes.append(gauge.found)
    alike = [each for each in zip(*passes, strict=False) if len({a[0].shape for a in each}) == 1]
    if not alike:
        return None
    counts = [each[0][0].shape[1] for each in alike]
    sides = np.concatenate([np.concatenate([a[0] for a in each]) for each in alike], axis=1)
    limits = np.repeat([each[0][1] for each in alike], counts)
    plain = np.repeat([each[0][2] for each in alike], counts)
    return Reading(sides[:, :_MOST_PLACES], limits[:_MOST_PLACES], plain[:_MOST_PLACES])


class _Gauge(OperatorMode):
    """Keeps, of what deciding operators are given, on which side or at which quotient each row is."""

    def __init__(
        self, tensors: Mapping[str, torch.Tensor], rows: int, axis: int, *, steps: bool, every: bool
    ) -> None:
        super().__init__()
        self.found: list[tuple[Float64, bool, bool]] = []
        self._rows, self._axis, self._steps, self._every = rows, axis, steps, every
        # Of what is made of the inputs whether it is so to the bit.
        self._made: MutableMapping[torch.Tensor, bool] = WeakTensorKeyDictionary()
        self._made.update(dict.fromkeys(tensors.values(), True))

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the operator, and note what it makes of each row."""
        given = [self._made[x] for x in tensors_of((args, kwargs)) if x in self._made]
        result = func(*args, **kwargs)
        name = name if name.startswith("_") else name.rstrip("_")
        if given and (self._every or name in _KNOWN):
            plain = all(given)
            for made in tensors_of(result):
                exact = name in _PLAIN or name in COMPARISONS or not made.is_floating_point()
                self._made[made] = plain and exact
            try:
                for sides, limit in self._sides(name, given_to(func, args, kwargs), result):
                    self._note(sides, limit, plain)
            except (RuntimeError, TypeError, ValueError):
                pass  # of other types or shapes: nothing that can be cut
        return result

    def _sides(
        self, name: str, bound: dict[str, Any], result: Any
    ) -> Iterator[tuple[torch.Tensor, bool]]:
        operand = bound.get("self", bound.get("input"))
        if not isinstance(operand, torch.Tensor):
            return
        if name in COMPARISONS or name == "sign":
            yield _side(operand, bound.get("other", 0)), True
            return
        if name in CHOOSES:
            chosen = [each for each in tensors_of(result) if each.dtype == torch.int64]
            yield from ((2.0 * each + 1, False) for each in chosen)
            return
        if self._every:
            return
        truncates = name == "_to_copy" and operand.is_floating_point()
        truncates = truncates and not result.is_floating_point() and result.dtype != torch.bool
        if name in _TABLES and bound[_TABLES[name]].ndim == 1:
            yield _side(operand[..., None], bound[_TABLES[name]]), True
        elif name == "round" and not bound.get("decimals"):
            yield (operand - 0.5).ceil() + (operand + 0.5).floor() + 1, False
        elif (name in _WHOLE or truncates) and operand.is_floating_point():
            yield operand.floor() + operand.ceil(), False
        elif name in _STEPS or name in _TABLES or truncates or bound.get("rounding_mode"):
            yield 2.0 * result + 1, False
        elif name in _REMAINDERS:
            yield 2.0 * (operand - result) + 1, False
        else:
            for rule in RULES.get(name, ()):
                for limit in rule.limits if rule.kind in _KINDS else ():
                    value = limit_of(limit, bound)
                    if value is not None:
                        side = _side(operand, value)
                        yield side if not self._steps else torch.zeros_like(side), True

    def _note(self, sides: torch.Tensor, limit: bool, plain: bool) -> None:
        if self._axis and sides.ndim:
            sides = sides.movedim(axis_of(sides.shape, self._rows, self._axis) or 0, 0)
        if sides.numel() and (self._rows == 1 or (sides.ndim and len(sides) % self._rows == 0)):
            last = sides.shape[-1] if sides.ndim > 1 and len(sides) == self._rows else 1
            columns = sides.detach().reshape(self._rows, -1, last)
            chosen = columns[(slice(None), *_places(columns.shape[1], last))]
            self.found.append((chosen.double().nan_to_num().numpy(), limit, plain))


def _places(others: int, last: int) -> tuple[Array, Array]:
    """Return some places of a row: each along its last axis, columns or a table's entries, if few."""
    if others * last <= MOST_COLUMNS:
        other, column = np.divmod(np.arange(others * last), last)
        return other, column
    columns = np.unique(np.linspace(0, last - 1, min(last, MOST_COLUMNS)).astype(np.int64))
    each = np.arange(max(1, min(others, MOST_COLUMNS // len(columns))))
    # Beside each other they are at other places along the other axes.
    other = (columns[:, None] + each * others // len(each)) % others
    return other.reshape(-1), np.repeat(columns, len(each))


def _side(operand: torch.Tensor, limit: Any) -> torch.Tensor:
    """Return on which side of a limit each element is, of whole numbers of any size."""
    above: torch.Tensor = torch.gt(operand, limit).to(torch.int8)
    return above - torch.lt(operand, limit).to(torch.int8)
