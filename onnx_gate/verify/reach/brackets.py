"""Where quotients change and limits lie behind arithmetic of one input: its domain, cut again and again.

A quotient by 146,097 in place of 146,096 is another one at a few numbers of millions, all of them next to
where it changes, and the more of them the larger it is. No formula is inverted: many values of the input
in one batch show between which two of them something changes, and the next batch lies between these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.tensors import to_tensor
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.inputs.draw import Float64, numpy_dtype
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.margin import distance_from
from onnx_gate.verify.reach.margins import COMPARISONS
from onnx_gate.verify.reach.rules import RULES, limit_of
from onnx_gate.verify.reach.stack import Stack, axis_of
from onnx_gate.verify.reference.operator_mode import FollowingMode, given_to, tensors_of

# Beside what decides, these keep a value a function of one input's element, with slopes and steps.
_ARITHMETIC = frozenset(
    (
        *(
            "log",
            "log2",
            "log10",
            "log1p",
            "exp",
            "exp2",
            "expm1",
            "sqrt",
            "rsqrt",
            "pow",
            "reciprocal",
        ),
        "_to_copy",
        "add",
        "sub",
        "rsub",
        "mul",
        "neg",
        "div",
        "__rshift__",
        "bitwise_and",
        "clone",
        "copy_",
        "view",
        "_unsafe_view",
        "unsqueeze",
        "squeeze",
        "select",
        "slice",
        "expand",
        "permute",
        "transpose",
        "t",
        "alias",
        "detach",
        "stack",
        "cat",
        "unbind",
        "split",
        "where",
    )
)
_STEPS = frozenset(("floor", "ceil", "trunc", "round", "floor_divide", "bucketize", "searchsorted"))
_REMAINDERS = frozenset(("remainder", "fmod"))
_KINDS = ("limit", "equality")
_DECIDES = frozenset(name for name, rules in RULES.items() if any(r.kind in _KINDS for r in rules))
_KNOWN = _ARITHMETIC | _STEPS | _REMAINDERS | _DECIDES
# Of one operator: so many changes at each end of the domain, and at its largest quotients. The last
# show the smallest fault of a divisor most; four of them meet it however a slope of four lies.
_ENDS, _TOP = 2, 4
# Where no more changes than this are known, they are all followed: 4,000 rows cut each into sixty parts.
_FEW = 64
# So many parts at least is what lies between two values cut into.
_PARTS = 8
# 2,000 rows find one number of 2**63 in so many rounds.
_ROUNDS = 10
# So many units of a domain's end away, rounding in a few operations does not decide, nor does it where
# the judge moves it by ten times as much.
_UNITS = 64
_COLUMNS = 8


class _Changes(FollowingMode):
    """Keeps, of operators on arithmetic of one input, on which side or at which quotient each row is."""

    def __init__(
        self, tensor: torch.Tensor, rows: int, axis: int, *, steps: bool, every: bool
    ) -> None:
        super().__init__()
        self.found: list[Float64] = []
        self._rows, self._axis, self._steps, self._every = rows, axis, steps, every
        self.follow(tensor)

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the operator, and note what it makes of each row."""
        known = self.follows(tensors_of((args, kwargs)))
        result = func(*args, **kwargs)
        name = name if name.startswith("_") else name.rstrip("_")
        if known and (self._every or name in _KNOWN):
            self.follow(result)
            try:
                for sides in self._sides(name, given_to(func, args, kwargs), result):
                    self._note(sides)
            except (RuntimeError, TypeError, ValueError):
                pass  # of other types or shapes: nothing that can be cut
        return result

    def _sides(self, name: str, bound: dict[str, Any], result: Any) -> Iterable[torch.Tensor]:
        operand = bound.get("self", bound.get("input"))
        if not isinstance(operand, torch.Tensor) or (self._every and name not in COMPARISONS):
            return
        truncates = name == "_to_copy" and operand.is_floating_point()
        truncates = truncates and not result.is_floating_point()
        if name in _STEPS or truncates or (name == "div" and bound.get("rounding_mode")):
            yield result
        elif name in _REMAINDERS:
            yield operand - result
        elif self._every or not self._steps:
            for rule in RULES.get(name, ()):
                if rule.kind in _KINDS:
                    for limit in rule.limits:
                        value = limit_of(limit, bound)
                        if value is not None:
                            yield distance_from(operand, value).sign()

    def _note(self, sides: torch.Tensor) -> None:
        if self._axis and sides.ndim:
            sides = sides.movedim(axis_of(sides.shape, self._rows, self._axis) or 0, 0)
        if sides.numel() and (self._rows == 1 or (sides.ndim and len(sides) % self._rows == 0)):
            columns = sides.detach().double().reshape(self._rows, -1)
            chosen = np.linspace(0, columns.shape[1] - 1, min(_COLUMNS, columns.shape[1]))
            self.found.append(columns[:, np.unique(chosen.astype(np.int64))].numpy())


def brackets(
    eager: Eager,
    name: str,
    domain: Domain,
    rows: int,
    made_of: Callable[[Array], Mapping[str, Array]],
    stack: Stack,
    pays: Callable[[], bool],
    own: float | None = None,
) -> Array:
    """Return the values of one input on both sides of what changes, the nearest that there are.

    ``made_of`` makes rows in which this one has some values, and all others one and the same;
    ``stack`` gives them to the module. ``pays`` is asked before each batch of so many ``rows``. With the
    value that is the row's ``own``, changes are those of comparisons alone, of whatever is made of it.
    """
    begin, end = (domain.low, domain.high) if domain.is_float else domain.ends
    values = _spread(domain, begin, end, rows)
    if own is not None:
        values[np.abs(values - own).argmin()] = own
    tried, seen, lower = values[:0], list[Float64](), np.zeros(0, np.int64)
    for number in range(_ROUNDS):
        if not len(values) or not pays():
            break
        # Every batch is as large as the first, for what follows from its size.
        batch = values if stack.passes else np.resize(values, rows)
        found = _run(eager, name, made_of(batch), stack, domain, every=own is not None)
        if not found or (number and len(found) != len(seen)):
            break
        if number:
            found = [np.concatenate(pair) for pair in zip(seen, found, strict=True)]
        tried, first = np.unique(np.concatenate((tried, batch)), return_index=True)
        seen = [each[first] for each in found]
        lower = _chosen(seen, rows // _PARTS)
        parts = max(_PARTS, rows // max(1, len(lower))) - 1
        gaps = [_between(domain, tried[at], tried[at + 1], parts) for at in lower]
        values = np.concatenate([tried[:0], *gaps])[:rows]
    if not len(lower):
        return tried[:0]
    low, high, least = tried[lower], tried[lower + 1], _least(domain)
    beyond = [] if stack.passes else [low - least, high + least]
    near = np.concatenate([low, high, *beyond])
    return _on(domain, np.clip(near, begin, end))


def _run(
    eager: Eager,
    name: str,
    arrays: Mapping[str, Array],
    stack: Stack,
    domain: Domain,
    *,
    every: bool,
) -> list[Float64]:
    """Return what each operator shows of all rows, of those that every pass calls."""
    rows = 1 if stack.passes else stack.count(arrays)
    passes: list[list[Float64]] = []
    for given in stack.given(arrays):
        tensors = {each: to_tensor(array) for each, array in given.items()}
        axis = 0 if stack.passes else stack.axes[name]
        changes = _Changes(tensors[name], rows, axis, steps=domain.is_float, every=every)
        try:
            eager.run_prepared(tensors, mode=changes)
        except Refusal:
            return []
        passes.append(changes.found)
    alike = (each for each in zip(*passes, strict=False) if len({a.shape for a in each}) == 1)
    return [np.concatenate(each) for each in alike]


def _chosen(seen: list[Float64], most: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the rows after which something changes: at both ends, at the largest quotients, or all."""
    chosen: dict[int, None] = {}
    every: set[int] = set()
    for sides in seen:
        for column in sides.T:
            changed = np.flatnonzero(column[1:] != column[:-1])
            every.update(map(int, changed))
            size = np.maximum(np.abs(column[changed]), np.abs(column[changed + 1]))
            top = changed[np.argsort(size, kind="stable")[::-1][:_TOP]]
            ends = (*changed[-_ENDS:][::-1], *changed[:_ENDS])
            chosen.update(dict.fromkeys(int(at) for at in (*top, *ends)))
    rows = every if len(every) <= min(_FEW, most) else list(chosen)[:most]
    return np.array(sorted(rows), dtype=np.int64)


def _between(domain: Domain, low: float, high: float, parts: int) -> Array:
    """Return values between two, none where there is none that could tell more."""
    inside = _spread(domain, low, high, parts + 2)
    return inside[(inside > low) & (inside < high) & (high - low > _least(domain))]


def _spread(domain: Domain, low: float, high: float, count: int) -> Array:
    """Return so many values from one to another, of whole numbers each once."""
    if domain.is_float:
        return _on(domain, np.linspace(low, high, count))
    # As the offsets from an end, large numbers are next to each other, too.
    offsets = np.linspace(0.0, int(high) - int(low), count).astype(np.int64)
    return np.unique(np.minimum(offsets, int(high) - int(low)) + int(low))


def _least(domain: Domain) -> float:
    """Return how near two values are that are next to each other."""
    if not domain.is_float:
        return 1
    eps = float(torch.finfo(getattr(torch, domain.spec.dtype)).eps)
    return _UNITS * eps * max(abs(domain.low), abs(domain.high))


def _on(domain: Domain, values: Array) -> Array:
    """Return the nearest values that the input's type can hold."""
    if not domain.is_float:
        return np.unique(values)
    dtype = numpy_dtype(domain.spec.dtype)
    return np.unique(values.astype(dtype).astype(np.float64))
