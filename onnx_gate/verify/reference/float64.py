"""The module in float64: what PyTorch would say if it did not round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.utils._pytree as pytree

from onnx_gate.errors import GateError
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.file_module import FileModule
from onnx_gate.runtimes.tensors import to_array, to_tensor
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.reference import file as of_file
from onnx_gate.verify.reference.operator_mode import OperatorMode
from onnx_gate.verify.reference.widened import PICKS, VIEWS

NARROW = (torch.float32, torch.float16, torch.bfloat16)

# Parameters above this are widened as operators read them: twice the weights of a large model would
# be more memory than all else, and filling it takes longer than computing with it.
DOUBLED_BYTES = 64 * 2**20


class Float64Mode(OperatorMode):
    """Run every operator in float64: narrower tensors are widened as they come in.

    In-place operators on a narrower tensor write the rounded result back, as its dtype demands.
    With ``lazy`` a view of a narrower tensor stays narrow until something computes with it.
    """

    def __init__(self, *, lazy: bool = False) -> None:
        super().__init__()
        self._lazy = lazy

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Widen the arguments and the ``dtype`` that the operator would make."""
        written = [
            value
            for argument, value in _schema_values(func, args, kwargs)
            if argument.alias_info is not None
            and argument.alias_info.is_write
            and isinstance(value, torch.Tensor)
            and value.dtype in NARROW
        ]
        widened: dict[int, torch.Tensor] = {}

        def widen(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.dtype in NARROW:
                if id(value) not in widened:
                    widened[id(value)] = value.to(torch.float64)
                return widened[id(value)]
            return torch.float64 if isinstance(value, torch.dtype) and value in NARROW else value

        if self._lazy and not written:
            if name in VIEWS:
                return func(*args, **kwargs)
            if name in PICKS:
                return pytree.tree_map(widen, func(*args, **kwargs))
        result = func(
            *pytree.tree_map(widen, args),
            **{k: pytree.tree_map(widen, v) for k, v in kwargs.items()},
        )
        for tensor in written:
            tensor.copy_(widened[id(tensor)])
        if written and len(written) == 1 and result is widened[id(written[0])]:
            return written[0]
        return pytree.tree_map(widen, result)


def _schema_values(func: Any, args: Any, kwargs: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    arguments = func._schema.arguments
    pairs = [
        (argument, args[place] if place < len(args) else kwargs.get(argument.name))
        for place, argument in enumerate(arguments)
    ]
    return [(argument, value) for argument, value in pairs if value is not None]


class Float64Reference:
    """A module in float64: its own weights converted for the time of a call, under ``Float64Mode``.

    The module itself and not a copy of it, because hooks and closures of a copy speak of the
    original. Large parameters are converted one at a time where the module lets that pass: some
    of its own checks want weights of the dtype of the inputs.
    """

    def __init__(self, eager: Eager) -> None:
        self._eager = eager
        self._lazy = _bytes(state.parameters(eager.module)) > DOUBLED_BYTES

    def run_tensors(
        self, inputs: Mapping[str, Array], inner: OperatorMode | None = None
    ) -> tuple[tuple[str, ...], tuple[torch.Tensor, ...]] | None:
        """Return the outputs in float64, or ``None`` where the module cannot run in it.

        ``inner`` is another mode, which sees the operators first.
        """
        if isinstance(self._eager.module, FileModule):
            return of_file.run_float64(self._eager.module, inputs)
        if self._lazy:
            found = self._attempt(inputs, inner, lazy=True)
            if found is not None:
                return found
            self._lazy = False
        return self._attempt(inputs, inner, lazy=False)

    def _attempt(
        self, inputs: Mapping[str, Array], inner: OperatorMode | None, *, lazy: bool
    ) -> tuple[tuple[str, ...], tuple[torch.Tensor, ...]] | None:
        module = self._eager.module
        # Outside the mode: bits that are taken for bfloat16 are none of float64's.
        given = {name: to_tensor(each, torch.float64) for name, each in inputs.items()}
        previous = torch.get_default_dtype()
        try:
            torch.set_default_dtype(torch.float64)
            with ExitStack() as stack:
                weights = () if lazy else state.parameters(module)
                stack.enter_context(_doubled((*weights, *state.buffers(module))))
                stack.enter_context(Float64Mode(lazy=lazy))
                if inner is not None:
                    stack.enter_context(inner)
                names, tensors = self._eager.run_prepared(given)
            return names, tuple(t.to(torch.float64) if t.dtype in NARROW else t for t in tensors)
        except (Refusal, GateError):
            return None
        finally:
            torch.set_default_dtype(previous)

    def run(self, inputs: Mapping[str, Array]) -> tuple[Array, ...] | None:
        """Return the outputs as float64 arrays, or ``None`` where the module cannot run in it."""
        result = self.run_tensors(inputs)
        if result is None:
            return None
        try:
            return tuple(to_array(tensor) for tensor in result[1])
        except GateError:
            return None


@contextmanager
def _doubled(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Hold ``tensors`` in float64."""
    kept = [(t, t.data) for t in {id(t): t for t in tensors}.values() if t.dtype in NARROW]
    try:
        for tensor, values in kept:
            tensor.data = values.to(torch.float64)
        yield
    finally:
        for tensor, values in kept:
            tensor.data = values


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
