"""Operators with their rounding moved: what another implementation could answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._library.custom_ops import OPDEFS

from onnx_gate.verify.reference.decided import Decided
from onnx_gate.verify.reference.exact import CHOOSING, EXACT_ATEN
from onnx_gate.verify.reference.models import MODELS, PLAIN, SCATTERED
from onnx_gate.verify.reference.noise import Exactness, Joiner, Mover, few_bits, has_few_bits, unit
from onnx_gate.verify.reference.normalisation import (
    NORMALISATIONS,
    move_by_statistics,
    move_normalised,
)
from onnx_gate.verify.reference.operator_mode import OperatorMode, given_to, is_view
from onnx_gate.verify.reference.parts import parts_of
from onnx_gate.verify.reference.rounding import Model

# Gaussian elimination and the decompositions are backward stable: what they compute is exact for a
# matrix that is off by some units in the last place of its largest elements (Higham, Accuracy and
# Stability, chapters 9 and 19).
_ELIMINATIONS = frozenset(
    {
        *("_linalg_det", "_linalg_slogdet", "linalg_inv_ex", "_linalg_solve_ex", "linalg_qr"),
        *("linalg_lu_factor_ex", "linalg_cholesky_ex", "_linalg_eigh", "_linalg_svd"),
        *("linalg_matrix_exp", "linalg_lstsq", "linalg_eig", "_linalg_eigvals"),
    }
)
_HALF = (torch.float16, torch.bfloat16)
# Sums of these are added in those.
_SUMMED: Mapping[torch.dtype, torch.dtype] = dict.fromkeys(_HALF, torch.float32)


class MovedRounding(OperatorMode):
    """Move every rounded result of every operator by what another implementation may round it to.

    The idea is Monte Carlo arithmetic (Parker 1997) at the granularity of operators: what comes
    out is what another correct implementation of the same model could have computed. The
    invariant: an operator whose result is exact (it moves, selects or compares values, or its
    operands and result have few significant bits, as whole numbers have) is never moved; those
    are positions and sizes, which are the same everywhere. The inputs are exact, too.

    By how much is said by the operator's ``Model``; one that has none is rounded once. Some
    kernels are run from their ``parts``, custom operators by their Python, and what is made of other
    operators as these. ``times`` moves everything by as many times as much, ``joins``
    moves what is near to each other to one number, and what is ``decided`` is kept or followed.
    ``rewritten`` are the operators that were seen of which exporters write others, and these.
    """

    def __init__(
        self,
        seed: int,
        times: float = 1.0,
        *,
        joins: bool = False,
        decided: Decided | None = None,
    ) -> None:
        super().__init__()
        self._noise = (Joiner if joins else Mover)(seed, times)
        self._decided = decided
        self.has_moved = False
        self.rewritten = dict[str, str]()

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the operator on what its model says, and move its floating-point results."""
        operator = _operator(func)
        parts = parts_of(operator.base, args)
        if parts is not None and "out" not in kwargs:
            with self:
                made = parts(*args, **kwargs)
            return args[0].copy_(made) if operator.written else made
        custom = OPDEFS.get(operator.name)
        if custom is not None:
            with self:
                return custom._init_fn(*args, **kwargs)
        if operator.composite:
            # Below autograd, and in its inference mode, what is made of other operators comes whole.
            with self:
                return func.decompose(*args, **kwargs)
        if operator.is_view:
            return func(*args, **kwargs)
        return self.decide(operator.name, self._rounded(operator, func, args, kwargs))

    def decide(self, name: str, result: Any) -> Any:
        """Return the result of an operator, decided as it is to be."""
        return result if self._decided is None else self._decided.take(name, result)

    def _rounded(self, operator: _Operator, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator that is one, and move what it has rounded."""
        base, model = operator.base, operator.model
        given = given_to(func, args, kwargs)
        reduce = given.get("reduce")
        exact = base in EXACT_ATEN and not given.get("accumulate") and not reduce
        if exact or reduce in CHOOSING:
            result = func(*args, **kwargs)
            if base in ("_to_copy", "copy"):
                self._convert(args[1] if base == "copy" else args[0], result)
            return result
        for each in operator.written:
            if isinstance(given[each], torch.Tensor):
                given[each] = given[each].clone()  # as it was before
        if given.get("rounding_mode"):
            base, model = "floor_divide", MODELS["floor_divide"]
        leaves = _leaves(given)
        operands = Exactness(_floating(leaves), [v for v in leaves if type(v) is float])
        result = self._called(operator, model, func, given, args, kwargs, operands)
        inside = None if model.domain is None else model.back_inside(given, result)
        if model.domain is not None and inside is not None:
            # What writes in place has its result where the operand was.
            own = result if operator.written else given[model.domain[0]]
            args, kwargs = pytree.tree_map(lambda x: inside if x is own else x, (args, kwargs))
            result.copy_(func(*args, **kwargs))
        self.finish(base, model, given, operands, result)
        return result

    def finish(
        self, name: str, model: Model, given: Mapping[str, Any], operands: Exactness, result: Any
    ) -> None:
        """Move the results of an operator, in place."""
        if model.rewritten:
            self.rewritten[name] = model.rewritten
        if model.decides:
            self.has_moved = True
            return
        # A sum that ends at few bits may have lost some on its way.
        sums = any(each is not None for each in (model.chain, model.tail, model.in_turn))
        may_keep = not model.inner and (operands.all if sums else operands.some)
        exact = model.exact_sums(given, operands)
        if name in NORMALISATIONS and isinstance(result, tuple):
            self.normalise(name, given, result)
        # Sums have been moved by the values of what they add.
        noise = self._noise if model.chain is not None else self._noise.made_of(operands.operands)
        if model.in_turn is not None and result.is_floating_point() and result.numel():
            lost = model.in_turn.lost(noise, given, result)
            result.add_(lost.masked_fill_(few_bits(result), 0) if may_keep else lost)
        for place, leaf in enumerate(_floating(result)):
            if leaf.numel():
                self.has_moved = True
                keep = _kept(leaf, () if sums else operands.operands) if may_keep else None
                if exact is not None and exact.numel() == leaf.numel():
                    keep = exact.reshape(leaf.shape) & few_bits(leaf)
                if name in SCATTERED:
                    # A place that no term has come to holds what it held.
                    held = leaf == given["self"]
                    keep = held if keep is None else keep | held
                _move(noise, leaf, model, given, keep, tail=not place)
                if not place:
                    model.keep_inside(leaf, held=self._noise.holds)

    def normalise(self, name: str, given: Mapping[str, Any], result: Any) -> None:
        """Move the statistics that a normalisation has used, where it has made its own."""
        if result[1].numel():
            move_normalised(self._noise, name, given, result)
        elif result[0].dtype == torch.float64:
            move_by_statistics(self._noise, given, result[0])

    def _called(
        self,
        operator: _Operator,
        model: Model,
        func: Any,
        given: Mapping[str, Any],
        args: Any,
        kwargs: dict[str, Any],
        operands: Exactness,
    ) -> Any:
        """Run the operator on moved operands."""
        if operator.base in _ELIMINATIONS:
            args = pytree.tree_map(self._off_by_a_unit, args)
            return func(*args, **kwargs)
        half = any(each.dtype in _SUMMED for each in operands.operands)
        names = [
            each
            for each in (*((half and model.folded) or model.operands), model.added)
            if isinstance(given.get(each), torch.Tensor)
            and each not in operator.written
            and (given[each].is_floating_point() or given[each].is_complex())
        ]
        if not names or (operands.all and not model.inner):
            return func(*args, **kwargs)
        wide = {} if operator.written else _widened(model, given, operands)
        exact = model.exact_sums(given, operands)
        moved = {
            id(given[n]): self.moved_operand(given[n], model, given, n, wide, exact) for n in names
        }

        def replace(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            value = moved.get(id(value), value)
            return value.to(wide.get(value.dtype, value.dtype))

        args, kwargs = pytree.tree_map(replace, (args, kwargs))
        result = func(*args, **kwargs)
        if wide:
            narrow = next(iter(wide)) if len(wide) == 1 else torch.float32
            sums = set(wide.values())
            result = pytree.tree_map_only(
                torch.Tensor, lambda t: t.to(narrow) if t.dtype in sums else t, result
            )
        return result

    def moved_operand(
        self,
        operand: torch.Tensor,
        model: Model,
        given: Mapping[str, Any],
        name: str,
        wide: Mapping[torch.dtype, torch.dtype] = _SUMMED,
        keep: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return a copy of an operand that is off by what sums over it lose, in its ``wide`` dtype.

        What is in ``keep``, which may be one for several elements, is let be.
        """
        copy = operand.to(wide.get(operand.dtype, operand.dtype), copy=True)
        units = 1.0 if name == model.added else model.operand_units(given)
        if model.in_steps and operand.dtype in _SUMMED:
            units = model.in_steps
        if operand.dtype not in _SUMMED or model.in_steps:
            units *= unit(operand) / unit(copy)
        for leaf in _floating(copy):
            noise = self._noise
            if model.along is not None and leaf.ndim > 1:
                noise = noise.made_of([_places(leaf, model.along)])
            if name == "grid":  # a coordinate, to which a half is added before it is scaled
                self._noise.shift(leaf, leaf.abs() + 1, None)
            elif model.decides:
                self._noise.push(leaf, units)
            else:
                noise.scale(leaf, units, keep)
        if name == model.added and copy.is_floating_point():  # a mask of the least number
            low, high = torch.finfo(operand.dtype).min, torch.finfo(operand.dtype).max
            copy.clamp_(low, high).masked_fill_(operand == -torch.inf, -torch.inf)
        return copy

    def _convert(self, source: Any, result: Any) -> None:
        """Move a number that was made narrower: who computes on in more bits has not rounded it."""
        if not isinstance(source, torch.Tensor) or not source.is_floating_point():
            return
        if not result.is_floating_point() or unit(result) <= unit(source):
            return
        keep = result.to(source.dtype) == source
        self._noise.made_of([source]).scale(result, 1.0, keep)

    def _off_by_a_unit(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.ndim < 2 or not value.is_floating_point():
            return value
        if not value.numel():
            return value
        value = value.clone()
        self._noise.shift(value, value.abs().amax(dim=(-2, -1), keepdim=True), None)
        return value


@dataclass(frozen=True)
class _Operator:
    """What is asked of an operator at every call and never changes.

    ``composite`` is one that is made of others and has no model, ``written`` the arguments that it
    writes to.
    """

    name: str
    base: str
    model: Model
    composite: bool
    is_view: bool
    written: frozenset[str]


@cache
def _operator(func: Any) -> _Operator:
    schema = func._schema
    base = schema.name.split("::")[-1].rstrip("_")
    return _Operator(
        schema.name,
        base,
        MODELS.get(base, PLAIN),
        base not in MODELS and base not in EXACT_ATEN and func._can_decompose(),
        is_view(func),
        frozenset(a.name for a in schema.arguments if a.alias_info is not None),
    )


def _move(
    noise: Mover,
    result: torch.Tensor,
    model: Model,
    given: Mapping[str, Any],
    keep: torch.Tensor | None,
    *,
    tail: bool,
) -> None:
    """Move a result in place."""
    amount = None
    if tail and model.tail is not None:
        wide = result.float() if result.dtype in _HALF else result
        amount = torch.as_tensor(model.tail(given, wide), dtype=wide.dtype)
    # What is added in 32 bits is rounded to 16 once.
    half = model.chain is not None and result.dtype in _HALF
    noise.scale(result, model.units if half else model.result_units(given, result), keep)
    if model.chain is None:  # a sum of normal numbers is none that is flushed
        noise.flush(result, keep)
        if model.underflows:
            noise.appear(result)
    if amount is not None:
        noise.shift(result, amount, keep)


def _places(like: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the place of each element along an axis, as a number."""
    places = torch.arange(1, like.shape[axis] + 1, dtype=like.dtype)
    shape = [1] * like.ndim
    shape[axis] = -1
    return places.view(shape).expand(like.shape)


def _widened(
    model: Model, given: Mapping[str, Any], operands: Exactness
) -> Mapping[torch.dtype, torch.dtype]:
    """Return in what dtype an operator is run on moved operands, by theirs.

    Sums of 16-bit numbers are added in 32 bits, and rounded once. Where one side of a product has few
    bits its terms are exact, and so are most partial sums: a short sum, which is rounded at a few of them
    only, loses moves that are below the last place there.
    """
    narrow = {each.dtype for each in operands.operands}
    if narrow == {torch.float32} and model.adds_few(given):
        sides = (each for each in operands.operands if each is not given.get(model.added))
        if any(map(has_few_bits, sides)):
            return {torch.float32: torch.float64}
    return {each: _SUMMED[each] for each in narrow & {*_SUMMED}}


def _leaves(values: Any) -> list[Any]:
    """Return what an operator is given, or its results, one by one."""
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, list | tuple):
        return [values]
    found = []
    for value in values:
        if isinstance(value, list | tuple | dict):
            found += _leaves(value)
        else:
            found.append(value)
    return found


def _floating(values: Any) -> list[torch.Tensor]:
    """Return the tensors with floating-point numbers, those of complex ones as pairs of them."""
    found = []
    for leaf in _leaves(values):
        if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
            if leaf.is_complex():
                leaf = torch.view_as_real(leaf.resolve_conj())
            if leaf.is_floating_point():
                found.append(leaf)
    return found


def _kept(result: torch.Tensor, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return which elements are exact: they, and what they were made of, have few bits.

    What is no number as 1 is, of an exponential far out say, was rounded to it.
    """
    keep = few_bits(result)
    for operand in operands:
        if operand.shape == result.shape:
            keep &= few_bits(operand)
    return keep
