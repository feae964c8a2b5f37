"""An ONNX graph evaluated node by node, in its own precision or in float64.

ONNX's own reference evaluator, with PyTorch in the place of its slowest operators. What it does not
know, or does element by element in Python, is run by ONNX Runtime in the graph's own precision: one
rounding among many that are not made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import RuntimeContextError

from onnx_gate.graph.edit import with_floats
from onnx_gate.graph.run_node import model_of, type_of
from onnx_gate.graph.session import PlainSession
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.reference.torch_operators import TORCH_OPERATORS

NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
# Attributes that hold the dtype of what an operator makes; what it has inside stays.
_DTYPES = frozenset({"to", "dtype", "output_dtype"})
# What the evaluator computes element by element in Python.
_SLOW = frozenset(
    {"Resize", "Upsample", "GridSample", "RoiAlign", "NonMaxSuppression", "DeformConv"}
)

# Runs a node in one's own way: given the node, its inputs and how to run it on some.
Around = Callable[
    [onnx.NodeProto, Sequence[Any], Callable[[Sequence[Any]], Sequence[Any]]], Sequence[Any]
]


class TooSlow(Exception):
    """The evaluator would take longer than what it says is worth."""


class Evaluator:
    """Runs one graph; with ``wide`` every floating-point value in it is float64."""

    def __init__(self, path: Path, *, wide: bool) -> None:
        proto = onnx.load(str(path))
        self._wide = wide
        self._opsets, self._ir_version = proto.opset_import, proto.ir_version
        self._sessions: dict[Any, PlainSession] = {}
        self._around: Around | None = None
        self._ends = 0.0
        self._evaluator = _Evaluator(
            with_floats(proto, NARROW, TensorProto.DOUBLE, _DTYPES)[0] if wide else proto,
            new_ops=list(TORCH_OPERATORS),
        )
        for node in self._evaluator.rt_nodes_:
            self._wrap(node)

    def run(
        self, feeds: Mapping[str, Array], seconds: float, around: Around | None = None
    ) -> tuple[Array, ...]:
        """Return the outputs; raises ``TooSlow`` after ``seconds``, and whatever operators raise.

        ``around`` runs every node; the outputs that it is given may be changed in place.
        """
        self._around, self._ends = around, time.monotonic() + seconds
        if self._wide:
            feeds = {n: a.astype(np.float64) if is_narrow(a) else a for n, a in feeds.items()}
        with np.errstate(all="ignore"):
            outputs = self._evaluator.run(None, dict(feeds))
        return tuple(np.asarray(output) for output in outputs)

    def _wrap(self, node: Any) -> None:
        run = node.run

        def watched(*inputs: Any, **options: Any) -> Any:
            if time.monotonic() > self._ends:
                raise TooSlow(node.op_type)

            def compute(given: Sequence[Any]) -> Sequence[Any]:
                if node.op_type in _SLOW:
                    return self._by_runtime(node.onnx_node, given)
                try:
                    outputs: Sequence[Any] = run(*given, **options)
                    return outputs
                except Exception:  # an operator that the evaluator does not know, or not so
                    return self._by_runtime(node.onnx_node, given)

            if self._around is None:
                return compute(inputs)

            def copied(given: Sequence[Any]) -> Sequence[Any]:
                # What an operator returns may be what it was given.
                return [np.array(o) if isinstance(o, np.ndarray) else o for o in compute(given)]

            return tuple(self._around(node.onnx_node, inputs, copied))

        node.run = watched

    def _by_runtime(self, node: onnx.NodeProto, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Run one node in ONNX Runtime, in float32 where everything else is float64."""
        arrays = {
            name: array.astype(np.float32) if self._wide and array.dtype == np.float64 else array
            for name, array in zip(node.input, inputs, strict=False)
            if array is not None
        }
        key = (id(node), tuple((name, array.dtype) for name, array in arrays.items()))
        if key not in self._sessions:
            self._sessions[key] = self._open(node, arrays)
        made = iter(self._sessions[key].run(arrays))
        outputs = [next(made) if name else None for name in node.output]
        return tuple(
            each.astype(np.float64) if self._wide and each is not None and is_narrow(each) else each
            for each in outputs
        )

    def _open(self, node: onnx.NodeProto, arrays: Mapping[str, Array]) -> PlainSession:
        one = onnx.NodeProto()
        one.CopyFrom(node)
        one.input[:] = [name if name in arrays else "" for name in node.input]
        types = {name: type_of(array) for name, array in arrays.items()}
        return PlainSession(model_of(one, types, self._opsets, self._ir_version))


class _Unknown:
    """Stands for an operator that the evaluator has nothing for."""

    has_linked_attribute = False

    def __init__(self, node: onnx.NodeProto, _: object) -> None:
        self.onnx_node, self.op_type = node, node.op_type
        self.input, self.output = node.input, node.output

    def need_context(self) -> bool:
        """Return whether it reads values of the graph around it."""
        return False

    def run(self, *inputs: Any, **options: Any) -> Any:
        """Say that it cannot."""
        raise NotImplementedError(self.op_type)


class _Evaluator(ReferenceEvaluator):
    """One that may be asked about operators that it does not know."""

    def _load_impl(self, node: onnx.NodeProto, input_types: Any = None) -> Any:
        try:
            return super()._load_impl(node, input_types)
        except RuntimeContextError:
            if input_types is None:
                raise
            return _Unknown
        except Exception:
            return _Unknown


def is_narrow(array: Array) -> bool:
    """Return whether an array is of a floating-point dtype narrower than float64."""
    return array.dtype.name in ("float32", "float16", "bfloat16")
