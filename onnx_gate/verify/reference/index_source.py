"""Where an integer output comes from: the values that an argmax, topk or sort pointed at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from onnx_gate.runtimes.torch_eager import to_array
from onnx_gate.verify.reference.answers import IndexSource
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
        "view",
        "_unsafe_view",
        "reshape",
        "_reshape_alias",
        "squeeze",
        "unsqueeze",
        "permute",
        "transpose",
        "t",
        "slice",
        "select",
        "expand",
        "clone",
        "alias",
        "detach",
        "_to_copy",
        "flip",
        "split",
        "split_with_sizes",
        "unbind",
        "contiguous",
    ]
)


class Tracker(OperatorMode):
    """Remembers, for every tensor of indices, what it points into."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, tuple[torch.Tensor, Any]] = {}

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the operator; note reductions to indices and what moves such indices."""
        result = func(*args, **kwargs)
        if name in _INDEX_OUTPUT:
            self._note_reduction(name, func, args, kwargs, result)
        elif name in _MOVES and args and id(args[0]) in self._known:
            self._note_move(name, func, args, kwargs, result)
        return result

    def origins(self, outputs: Sequence[torch.Tensor]) -> list[IndexSource | None]:
        """Return the origin of each output, ``None`` where it is no known index."""
        sources: list[IndexSource | None] = []
        for tensor in outputs:
            entry = self._known.get(id(tensor))
            if entry is None:
                sources.append(None)
                continue
            source, axis, slots, shape, name = entry[1]
            sources.append(
                IndexSource(
                    to_array(source),
                    axis,
                    to_array(slots),
                    shape,
                    name in _SEVERAL,
                    name in _FIRST_OF_EQUALS,
                )
            )
        return sources

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
        entry = (source.detach().clone(), axis, slots, tuple(index.shape), name)
        self._known[id(index)] = (index, entry)

    def _note_move(
        self, name: str, func: Any, args: Any, kwargs: dict[str, Any], result: Any
    ) -> None:
        source, axis, slots, shape, made_by = self._known[id(args[0])][1]
        if name == "_to_copy":
            moved: Any = slots
            if result.is_floating_point():
                return
        else:
            moved = func(slots, *args[1:], **kwargs)
        for tensor, where in zip(
            pytree.tree_leaves(result), pytree.tree_leaves(moved), strict=True
        ):
            self._known[id(tensor)] = (tensor, (source, axis, where, shape, made_by))
