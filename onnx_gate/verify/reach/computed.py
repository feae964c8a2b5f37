"""Which decisions are about what is computed of the inputs, and not about their values themselves.

That a table is the module's to the bit says what a row holds, and nothing of which one is read: an index
that is an input is the same on both sides, and one that is computed may be another in the file.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.tensors import to_tensor
from onnx_gate.verify.reach.watch import Watch
from onnx_gate.verify.reach.watcher import Watcher
from onnx_gate.verify.reference.operator_mode import tensors_of

_COPIES = frozenset(("_to_copy", "clone", "contiguous"))


def learn_computed(watcher: Watcher, arrays: Mapping[str, Array]) -> None:
    """Learn from a case which decisions are about what is computed."""
    tensors = {name: to_tensor(array) for name, array in arrays.items()}
    watch = _Computed(watcher, tensors)
    try:
        watcher.eager.run_prepared(tensors, mode=watch)
    except Refusal:
        return
    watcher.take(watch)


class _Computed(Watch):
    """Knows of each tensor that depends on an input whether it is computed."""

    def __init__(self, watcher: Watcher, inputs: Mapping[str, torch.Tensor]) -> None:
        super().__init__(watcher)
        self._made: MutableMapping[torch.Tensor, bool] = WeakTensorKeyDictionary()
        self._made.update(dict.fromkeys(inputs.values(), False))

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator, and note what it has made."""
        given = [x for x in tensors_of((args, kwargs)) if x in self._made]
        result = super().run(name, func, args, kwargs)
        if given:
            computed = any(map(self._is_computed, given))
            alias = any(r.alias_info is not None for r in func._schema.returns)
            passed = not func._schema.is_mutable and (alias or name in _COPIES)
            for made in tensors_of(result):
                rounded = given[0].is_floating_point() and not made.is_floating_point()
                self._made[made] = computed or not passed or rounded
        return result

    def _is_computed(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and self._made.get(value, False)
