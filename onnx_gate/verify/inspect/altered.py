"""Which parameters a module computes with before an input comes in: it rounds, scales or joins them.

A file may hold what comes of that in place of the parameter, so such a parameter says nothing of how
the file has to hold it. Modules that round their own weights (aware of a quantiser, ``half().float()``)
are told from files that do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch import nn

from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reference.operator_mode import OperatorMode, tensors_of


def altered_by(eager: Eager, inputs: Mapping[str, Array]) -> frozenset[str] | None:
    """Return the names of the parameters that ``forward`` makes others of, in one call.

    ``None`` where the operators cannot be watched.
    """
    if any(isinstance(part, torch.jit.ScriptModule) for _, part in state.parts(eager.module)):
        return None
    watch = Altering(eager.module)
    try:
        eager.run(inputs, mode=watch)
    except Refusal:
        return None
    return frozenset(watch.altered)


class Altering(OperatorMode):
    """Looks for results that lie elsewhere than the module's own tensors, and come of nothing else."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.altered: set[str] = set()
        self._owners: dict[int, set[str]] = {}
        for name, tensor in state.tensors(module):
            self._owners.setdefault(_storage(tensor), set()).add(name)
        # Not kept: of weights in few bits that may be all of them, widened. The storage of what is gone may
        # be another's next.
        self._fixed: dict[int, list[ReferenceType[torch.Tensor]]] = {}

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the operator, and note whose tensors alone it has made something of."""
        result = func(*args, **kwargs)
        given = [_storage(each) for each in tensors_of((args, kwargs))]
        if all(each in self._owners or self._alive(each) for each in given):
            made = [each for each in tensors_of(result) if _storage(each) not in self._owners]
            for each in made:
                self._fixed[_storage(each)] = [*self._alive(_storage(each)), ref(each)]
            if made:
                self.altered.update(*(self._owners.get(each, ()) for each in given))
        return result

    def _alive(self, storage: int) -> list[ReferenceType[torch.Tensor]]:
        """Return the tensors with a storage that are made of the module's own alone."""
        return [each for each in self._fixed.get(storage, ()) if each() is not None]


def _storage(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # sparse, or made of other tensors
        return id(tensor)
