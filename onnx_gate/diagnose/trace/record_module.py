"""Record every operator that the untouched module runs: its value, its module and the user's line."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.weak import WeakTensorKeyDictionary

from onnx_gate.diagnose.trace.trace import INPUT, Input, OperatorCall, Trace
from onnx_gate.diagnose.values import ArrayStore
from onnx_gate.errors import GateError
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import Eager, to_array, to_tensor
from onnx_gate.verify.determinism import disagreement
from onnx_gate.verify.reference.operator_mode import OperatorMode
from onnx_gate.verify.source_lines import of_frame, own_source

# What comes of these is no value yet.
_EMPTY = ("aten.empty", "aten.new_empty", "aten.detach", "aten.lift_fresh")
# A model that runs more operators than this is recorded up to here.
MOST = 20_000


class OperatorRecorder(OperatorMode):
    """Adds what every operator returns to a trace."""

    def __init__(self, trace: Trace, store: ArrayStore, workspace: Path | None) -> None:
        super().__init__()
        self.modules: list[str] = []
        self._trace, self._store, self._workspace = trace, store, workspace
        self._numbers: MutableMapping[torch.Tensor, int] = WeakTensorKeyDictionary()
        self._storages: dict[int, list[weakref.ref[torch.Tensor]]] = {}

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator and record its outputs."""
        inputs = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        parents = [n for n in map(self.number, inputs) if n is not None]
        call = OperatorCall(
            func, pytree.tree_map(self._reference, args), pytree.tree_map(self._reference, kwargs)
        )
        result = func(*args, **kwargs)
        full = str(func)
        if full.startswith(_EMPTY) or len(self._trace.values) > MOST:
            return result
        written = func._schema.is_mutable if hasattr(func, "_schema") else False
        for index, tensor in enumerate(pytree.tree_leaves(result)):
            if isinstance(tensor, torch.Tensor):
                number = self.record(tensor, full, parents, call, index)
                if written and number is not None:
                    self._spread(tensor, number)
        return result

    def number(self, tensor: torch.Tensor) -> int | None:
        """Return the traced value that a tensor is, ``None`` for one that was there before."""
        return self._numbers.get(tensor)

    def know(self, tensor: torch.Tensor, number: int) -> None:
        """Take a tensor for a traced value that the trace has already."""
        self._numbers[tensor] = number

    def record(
        self,
        tensor: torch.Tensor,
        operator: str,
        parents: list[int] | None = None,
        call: OperatorCall | None = None,
        index: int | None = None,
    ) -> int | None:
        """Add a tensor's value; return its number, ``None`` where it has no value to keep."""
        try:
            # A graph has what a quantised tensor stands for.
            plain = tensor.dequantize() if tensor.is_quantized else tensor
            array: Array = self._store.put(to_array(plain))
        except (GateError, RuntimeError, NotImplementedError):
            return None
        traced = self._trace.add(
            array,
            operator,
            parents or (),
            module=self.modules[-1] if self.modules else None,
            source=own_source(of_frame(sys._getframe(1), self._workspace))
            if self._workspace
            else None,
            call=None
            if call is None
            else OperatorCall(call.function, call.args, call.kwargs, index),
        )
        self.know(tensor, traced.number)
        self._storages.setdefault(_storage(tensor), []).append(weakref.ref(tensor))
        return traced.number

    def _reference(self, value: Any) -> Any:
        number = self.number(value) if isinstance(value, torch.Tensor) else None
        return value if number is None else Input(number)

    def _spread(self, written: torch.Tensor, number: int) -> None:
        """Record anew the tensors that share the memory that an operator wrote to."""
        for reference in list(self._storages.get(_storage(written), ())):
            other = reference()
            if other is None or other is written:
                continue
            before = self.number(other)
            parents = [number] if before is None else [before, number]
            self.record(other, "written", parents)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def record_module(
    eager: Eager, inputs: Mapping[str, Array], trace: Trace, store: ArrayStore, workspace: Path
) -> tuple[int | None, ...]:
    """Run the module once and add every value to ``trace``; return the numbers of its outputs.

    Attention is taken apart into its products where that does not change what the module says.
    Raises ``Refusal`` where the module cannot be run so.
    """
    slow = eager.without_fast_path()
    if slow is not None and disagreement(eager.run(inputs), slow.run(inputs)):
        slow = None
    recorder = OperatorRecorder(trace, store, workspace)
    eager = slow or eager
    with ExitStack() as stack:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        # In its place NNPACK takes convolutions of 16 samples and more, with ten times the rounding of
        # a sum: no value of a graph would be known by PyTorch's.
        stack.enter_context(torch.backends.nnpack.flags(enabled=False))
        stack.enter_context(_paths(eager.module, recorder.modules))
        tensors = {name: to_tensor(array) for name, array in inputs.items()}
        for name, tensor in tensors.items():
            recorder.record(tensor, f"{INPUT}{name}")
        _, outputs = eager.run_prepared(tensors, mode=recorder)
        return tuple(recorder.number(tensor) for tensor in outputs)


@contextmanager
def _paths(module: nn.Module, stack: list[str]) -> Iterator[None]:
    """Keep the path of the running module at the end of ``stack``."""
    handles = []
    for path, part in module.named_modules():

        def enter(_: nn.Module, __: Any, path: str = path) -> None:
            stack.append(path)

        def leave(_: nn.Module, __: Any, ___: Any) -> None:
            stack.pop()

        handles.append(part.register_forward_pre_hook(enter))
        handles.append(part.register_forward_hook(leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
