"""Where an integer output comes from: the values that an argmax, topk or sort pointed at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.utils._pytree as pytree

from onnx_gate.runtimes.torch_eager import to_array
from onnx_gate.verify.reference.answers import Derived, IndexSource
from onnx_gate.verify.reference.operator_mode import OperatorMode

_INDEX_OUTPUT = {
    "argmax": 0,
    "argmin": 0,
    "topk": 1,
    "sort": 1,
    "max": 1,
    "min": 1,
    "kthvalue": 1,
    "median": 1,
    "nanmedian": 1,
    "mode": 1,
    "cummax": 1,
    "cummin": 1,
}
_SEVERAL = frozenset({"topk", "sort", "stable sort"})
_FIRST_OF_EQUALS = frozenset({"argmax", "argmin", "max", "min", "stable sort"})
# Operators that move integers about without changing them.
_MOVES = frozenset(
    [
        *("view", "_unsafe_view", "reshape", "_reshape_alias", "squeeze", "unsqueeze", "permute"),
        *("transpose", "t", "slice", "select", "expand", "clone", "alias", "detach", "_to_copy"),
        *("flip", "split", "split_with_sizes", "unbind", "contiguous"),
    ]
)


# Operators that compute a number of an index and of numbers that are known.
_COMPUTES = frozenset(
    {"floor_divide", "remainder", "fmod", "div", "add", "sub", "mul", "bitwise_and"}
)


@dataclass(frozen=True)
class _Known:
    """Where a tensor of indices comes from; ``of`` and ``places`` where it was computed of one."""

    source: torch.Tensor
    axis: int | None
    slots: torch.Tensor
    shape: tuple[int, ...]
    made_by: str
    of: torch.Tensor | None = None
    places: torch.Tensor | None = None

    def told(self, chosen: torch.Tensor) -> IndexSource:
        """Return it as data, with the output that it is of."""
        derived = None
        if self.of is not None and self.places is not None:
            derived = Derived(to_array(self.of), to_array(self.places))
        return IndexSource(
            to_array(self.source),
            self.axis,
            to_array(self.slots),
            self.shape,
            self.made_by in _SEVERAL,
            self.made_by in _FIRST_OF_EQUALS,
            derived,
            to_array(chosen),
        )


class Tracker(OperatorMode):
    """Remembers, for every tensor of indices, what it points into."""

    def __init__(self) -> None:
        super().__init__()
        # The tensors are kept, so that no other gets the address of one.
        self._known: dict[int, tuple[torch.Tensor, _Known]] = {}

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the operator; note reductions to indices, what moves such indices or computes of them."""
        result = func(*args, **kwargs)
        if name in _INDEX_OUTPUT:
            self._note_reduction(name, func, args, kwargs, result)
        elif args and id(args[0]) in self._known:
            if name in _MOVES:
                self._note_move(name, func, args, kwargs, result)
            elif name in _COMPUTES:
                self._note_computed(func, args, kwargs, result)
        return result

    def origins(self, outputs: Sequence[torch.Tensor]) -> list[IndexSource | None]:
        """Return the origin of each output, ``None`` where it is no known index."""
        known = (self._known.get(id(tensor)) for tensor in outputs)
        return [None if entry is None else entry[1].told(entry[0]) for entry in known]

    def _note_reduction(
        self, name: str, func: Any, args: Any, kwargs: dict[str, Any], result: Any
    ) -> None:
        place = _INDEX_OUTPUT[name]
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        if place >= len(outputs):
            return
        index, source = outputs[place], args[0]
        if not isinstance(source, torch.Tensor):
            return
        names = [argument.name for argument in func._schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        defaults = {
            a.name: a.default_value for a in func._schema.arguments if a.has_default_value()
        }
        axis = given.get("dim", defaults.get("dim"))
        if axis is not None and source.ndim:
            axis %= source.ndim
        if name == "sort" and given.get("stable"):
            name = "stable sort"
        slots = torch.arange(index.numel()).reshape(index.shape)
        known = _Known(source.detach().clone(), axis, slots, tuple(index.shape), name)
        self._known[id(index)] = index, known

    def _note_move(
        self, name: str, func: Any, args: Any, kwargs: dict[str, Any], result: Any
    ) -> None:
        known = self._known[id(args[0])][1]
        if name == "_to_copy" and result.is_floating_point():
            return

        def moved(each: torch.Tensor) -> list[Any]:
            return pytree.tree_leaves(
                each if name == "_to_copy" else func(each, *args[1:], **kwargs)
            )

        tensors, slots = pytree.tree_leaves(result), moved(known.slots)
        places = [None] * len(tensors) if known.places is None else moved(known.places)
        for tensor, where, place in zip(tensors, slots, places, strict=True):
            self._known[id(tensor)] = tensor, replace(known, slots=where, places=place)

    def _note_computed(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        """Note what is computed of an index and of single numbers, which is known of every place."""
        index, known = args[0], self._known[id(args[0])][1]
        single = (
            not isinstance(each, torch.Tensor) or (not each.ndim and id(each) not in self._known)
            for each in args[1:]
        )
        # Of what promises the first of equals, another place is another answer.
        if known.made_by in _FIRST_OF_EQUALS or not known.source.ndim or not all(single):
            return
        if result.shape != index.shape or result.is_floating_point() or result.dtype == torch.bool:
            return
        count = known.source.numel() if known.axis is None else known.source.shape[known.axis]
        of = torch.arange(count) if known.of is None else known.of
        places = index if known.places is None else known.places
        made = replace(known, of=func(of, *args[1:], **kwargs), places=places.clone())
        self._known[id(result)] = result, made
