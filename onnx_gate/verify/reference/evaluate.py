"""An ONNX graph evaluated node by node, in its own precision or in float64.

ONNX's own reference evaluator, with PyTorch in the place of its slowest operators. What it does not
know, or does element by element in Python, is run by ONNX Runtime in the graph's own precision: one
rounding among many that are not made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
import torch.nn.functional as F
from onnx import TensorProto, numpy_helper
from onnx.helper import np_dtype_to_tensor_dtype
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun, RuntimeContextError
from onnx.reference.ops.op_average_pool import AveragePool_19 as _AveragePool
from onnx.reference.ops.op_max_pool import MaxPool as _MaxPool

from onnx_gate.runtimes.base import Array

NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
# Attributes that hold the dtype of what an operator makes.
_DTYPES = frozenset({"to", "dtype", "output_dtype"})
# What the evaluator computes element by element in Python.
_SLOW = frozenset(
    {"Resize", "Upsample", "GridSample", "RoiAlign", "NonMaxSuppression", "DeformConv"}
)

After = Callable[["Step"], None]


class TooSlow(Exception):
    """The evaluator would take longer than what it says is worth."""


class Step:
    """One node that was run: ``outputs`` may be changed in place."""

    def __init__(self, op_type: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        self.op_type, self.inputs, self.outputs = op_type, inputs, outputs


class Evaluator:
    """Runs one graph; with ``wide`` every floating-point value in it is float64."""

    def __init__(self, path: Path, *, wide: bool) -> None:
        proto = onnx.load(str(path))
        self._wide = wide
        self._opsets, self._ir_version = proto.opset_import, proto.ir_version
        self._sessions: dict[Any, ort.InferenceSession] = {}
        self._after: After | None = None
        self._ends = 0.0
        self._evaluator = _Evaluator(widened(proto) if wide else proto, new_ops=list(_OPS))
        for node in self._evaluator.rt_nodes_:
            self._wrap(node)

    def run(
        self, feeds: Mapping[str, Array], seconds: float, after: After | None = None
    ) -> tuple[Array, ...]:
        """Return the outputs; raises ``TooSlow`` after ``seconds``, and whatever operators raise.

        ``after`` sees every node that was run.
        """
        self._after, self._ends = after, time.monotonic() + seconds
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
            if node.op_type in _SLOW:
                outputs = self._by_runtime(node.onnx_node, inputs)
            else:
                try:
                    outputs = run(*inputs, **options)
                except Exception:  # an operator that the evaluator does not know, or not so
                    outputs = self._by_runtime(node.onnx_node, inputs)
            if self._after is not None:
                # What an operator returns may be what it was given.
                outputs = tuple(np.array(o) if isinstance(o, np.ndarray) else o for o in outputs)
                self._after(Step(node.op_type, inputs, outputs))
            return outputs

        node.run = watched

    def _by_runtime(self, node: onnx.NodeProto, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Run one node in ONNX Runtime, in float32 where everything else is float64."""
        arrays = {
            f"input_{number}": array.astype(np.float32)
            if self._wide and array.dtype == np.float64
            else np.ascontiguousarray(array)
            for number, array in enumerate(inputs)
            if array is not None
        }
        key = (id(node), tuple((name, array.dtype) for name, array in arrays.items()))
        if key not in self._sessions:
            self._sessions[key] = self._open(node, len(inputs), arrays)
        made = iter(self._sessions[key].run(None, arrays))
        outputs = [next(made) if name else None for name in node.output]
        return tuple(
            each.astype(np.float64) if self._wide and each is not None and is_narrow(each) else each
            for each in outputs
        )

    def _open(
        self, node: onnx.NodeProto, count: int, arrays: Mapping[str, Array]
    ) -> ort.InferenceSession:
        one = onnx.NodeProto()
        one.CopyFrom(node)
        names = [f"input_{number}" for number in range(count)]
        one.input[:] = [name if name in arrays else "" for name in names]
        graph = onnx.helper.make_graph(
            [one],
            "one",
            [
                onnx.helper.make_tensor_value_info(name, np_dtype_to_tensor_dtype(a.dtype), None)
                for name, a in arrays.items()
            ],
            [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name],
        )
        model = onnx.helper.make_model(
            graph, opset_imports=self._opsets, ir_version=self._ir_version
        )
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )


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


def widened(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a model in which every floating-point value is float64."""
    wide = onnx.ModelProto()
    wide.CopyFrom(proto)
    _widen_graph(wide.graph)
    for function in wide.functions:
        _widen_nodes(function.node)
    return wide


def _widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in NARROW:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    del graph.value_info[:]
    _widen_nodes(graph.node)


def _widen_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _widen_graph(attribute.g)
            elif attribute.HasField("t"):
                _widen_tensor(attribute.t)
            elif attribute.name in _DTYPES and attribute.i in NARROW:
                attribute.i = TensorProto.DOUBLE
            elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                values = attribute.f if attribute.name == "value_float" else list(attribute.floats)
                tensor = numpy_helper.from_array(np.asarray(values, np.float64))
                attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))
            for graph in attribute.graphs:
                _widen_graph(graph)


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in NARROW:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _tensor(array: Array) -> torch.Tensor:
    array = np.ascontiguousarray(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _padding(
    x: Array, auto_pad: str | None, pads: Any, kernel: Any, strides: Any, dilations: Any
) -> list[int]:
    """Return the padding as ONNX lists it: all beginnings, then all ends."""
    rank = x.ndim - 2
    if auto_pad in (None, "", "NOTSET", "VALID"):
        return list(pads) if pads is not None and auto_pad != "VALID" else [0] * 2 * rank
    first, last = [], []
    for size, k, stride, dilation in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        total = max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
        less, more = total // 2, total - total // 2
        first.append(less if auto_pad == "SAME_UPPER" else more)
        last.append(more if auto_pad == "SAME_UPPER" else less)
    return first + last


def _padded(x: torch.Tensor, pads: Sequence[int], value: float = 0.0) -> torch.Tensor:
    rank = x.ndim - 2
    pairs = [p for axis in reversed(range(rank)) for p in (pads[axis], pads[axis + rank])]
    return F.pad(x, pairs, value=value) if any(pairs) else x


class Conv(OpRun):
    """``Conv`` by PyTorch."""

    def _run(  # type: ignore[no-untyped-def]
        self,
        X,
        W,
        B=None,
        auto_pad=None,
        dilations=None,
        group=None,
        kernel_shape=None,
        pads=None,
        strides=None,
    ):
        rank = X.ndim - 2
        strides, dilations = list(strides or [1] * rank), list(dilations or [1] * rank)
        pads = _padding(X, auto_pad, pads, W.shape[2:], strides, dilations)
        x, w, b = _tensor(X), _tensor(W), None if B is None else _tensor(B)
        conv = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
        y = conv(_padded(x, pads), w, b, strides, 0, dilations, group or 1)
        return (y.numpy(),)


class ConvTranspose(OpRun):
    """``ConvTranspose`` by PyTorch."""

    def _run(  # type: ignore[no-untyped-def]
        self,
        X,
        W,
        B=None,
        auto_pad=None,
        dilations=None,
        group=None,
        kernel_shape=None,
        output_padding=None,
        output_shape=None,
        pads=None,
        strides=None,
    ):
        rank = X.ndim - 2
        pads = list(pads or [0] * 2 * rank)
        if output_shape is not None or auto_pad not in (None, "", "NOTSET"):
            raise NotImplementedError("ConvTranspose with output_shape or auto_pad")
        x, w, b = _tensor(X), _tensor(W), None if B is None else _tensor(B)
        conv = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
        strides, dilations = list(strides or [1] * rank), list(dilations or [1] * rank)
        extra = list(output_padding or [0] * rank)
        y = conv(x, w, b, strides, 0, 0, group or 1, dilations)
        # Cut and extended afterwards: PyTorch takes one padding for both ends.
        ends = [e - p for e, p in zip(extra, pads[rank:], strict=True)]
        y = _padded(y, [*(-p for p in pads[:rank]), *(min(e, 0) for e in ends)])
        grown = _padded(y, [*([0] * rank), *(max(e, 0) for e in ends)])
        if b is not None and grown.shape != y.shape:
            raise NotImplementedError("ConvTranspose whose output is larger than its sums")
        return (grown.numpy(),)


class MaxPool(_MaxPool):
    """``MaxPool`` by PyTorch, where it has one output."""

    def _run(self, x, **options):  # type: ignore[no-untyped-def, override]
        rank, kernel = x.ndim - 2, options["kernel_shape"]
        if len(self.onnx_node.output) > 1 or options.get("storage_order") or rank > 3:
            return super()._run(x, **options)
        strides = list(options.get("strides") or [1] * rank)
        dilations = list(options.get("dilations") or [1] * rank)
        if options.get("ceil_mode"):
            return super()._run(x, **options)
        pads = _padding(x, options.get("auto_pad"), options.get("pads"), kernel, strides, dilations)
        lowest = -np.inf if x.dtype.kind == "f" else int(np.iinfo(x.dtype).min)
        pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
        padded = _padded(_tensor(x), pads, lowest)
        return (pool(padded, list(kernel), strides, 0, dilations).numpy(),)


class AveragePool(_AveragePool):
    """``AveragePool`` by PyTorch, where nothing is padded or padding counts."""

    def _run(self, x, **options):  # type: ignore[no-untyped-def, override]
        rank, kernel = x.ndim - 2, options["kernel_shape"]
        strides = list(options.get("strides") or [1] * rank)
        dilations = list(options.get("dilations") or [1] * rank)
        pads = _padding(x, options.get("auto_pad"), options.get("pads"), kernel, strides, dilations)
        counted = options.get("count_include_pad") or not any(pads)
        if options.get("ceil_mode") or not counted or max(dilations) > 1 or rank > 3:
            return super()._run(x, **options)
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1]
        padded = _padded(_tensor(x), pads)
        return (pool(padded, list(kernel), strides).numpy(),)


class Erf(OpRun):
    """``Erf`` by PyTorch."""

    def _run(self, x):  # type: ignore[no-untyped-def]
        return (torch.erf(_tensor(x)).numpy(),)


class Gelu(OpRun):
    """``Gelu`` by PyTorch."""

    def _run(self, x, approximate=None):  # type: ignore[no-untyped-def]
        tensor = _tensor(x)
        return (F.gelu(tensor, approximate=approximate or "none").numpy(),)


_OPS = (Conv, ConvTranspose, MaxPool, AveragePool, Erf, Gelu)
