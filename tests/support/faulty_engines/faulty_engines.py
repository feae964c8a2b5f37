"""Engines as a package of their own registers them, whose way to read a file has one mistake.

``Elu`` loses its slope, as a converter that does not know the attribute would have it. One ends its
process at a graph that it was not made for, as native code does.
"""

from __future__ import annotations

import ctypes
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnx_gate.findings import codes
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array, Session
from onnx_gate.runtimes.open import find_runtime


class _Faulty:
    isolated = True
    engine = ""
    only_fused = False

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> Session:
        proto = onnx.load(str(model))
        products = {o for node in proto.graph.node if node.op_type == "Gemm" for o in node.output}
        for node in proto.graph.node:
            if node.op_type == "Elu" and (not self.only_fused or node.input[0] in products):
                del node.attribute[:]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.onnx")
            onnx.save(proto, str(path))
            return find_runtime(self.engine).open(path, replace(spec, name=self.engine), threads)

    def environment(self) -> dict[str, Any]:
        return {}


class Fragile:
    """ONNX Runtime for softmaxes over the last axis, and nothing at address 0 for all others."""

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> Session:
        for node in onnx.load(str(model), load_external_data=False).graph.node:
            if node.op_type == "Softmax" and node.attribute[0].i != -1:
                ctypes.string_at(0)
        return find_runtime("onnxruntime").open(model, replace(spec, name="onnxruntime"), threads)

    def environment(self) -> dict[str, Any]:
        return {}


class Hasty:
    """ONNX Runtime whose further optimisations end its process."""

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> Session:
        if spec.optimization in (None, "all", "extended"):
            ctypes.string_at(0)
        return find_runtime("onnxruntime").open(model, replace(spec, name="onnxruntime"), threads)

    def environment(self) -> dict[str, Any]:
        return {}


class Coarse:
    """ONNX Runtime whose answers have the digits of half precision, as a phone's engine has."""

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> Session:
        session = find_runtime("onnxruntime").open(
            model, replace(spec, name="onnxruntime", tolerance=None), threads
        )
        run = session.run
        session.run = lambda feeds: [x.astype("float16").astype(x.dtype) for x in run(feeds)]  # type: ignore[method-assign]
        return session

    def environment(self) -> dict[str, Any]:
        return {}


class Short:
    """ONNX Runtime that has four bits less of what is of 16 bits."""

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> Session:
        session = find_runtime("onnxruntime").open(
            model, replace(spec, name="onnxruntime", tolerance=None), threads
        )
        run = session.run
        session.run = lambda feeds: [_shorter(x) for x in run(feeds)]  # type: ignore[method-assign]
        return session

    def environment(self) -> dict[str, Any]:
        return {}


def _shorter(array: Array) -> Array:
    if array.dtype != np.float16:
        return array
    return (array.view(np.uint16) & 0xFFF0).view(np.float16)


class Raising:
    """One that does not know what to do with a file, and says so in a way of its own."""

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> Session:
        raise KeyError("slope")

    def environment(self) -> dict[str, Any]:
        return {}


class RaisingApart(Raising):
    isolated = True


class Crashing(Fragile):
    """One of a process of its own, which ends at whatever it is given."""

    isolated = True

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> Session:
        ctypes.string_at(0)
        raise AssertionError


class Hanging:
    isolated = True

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> Session:
        threading.Event().wait()
        raise AssertionError

    def environment(self) -> dict[str, Any]:
        return {}


class OpenVino(_Faulty):
    engine = "openvino"


class Fusing(_Faulty):
    """One that has it right alone, and wrong where it makes one of it and of the product before.

    It takes no product alone.
    """

    engine = "openvino"
    only_fused = True

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> Session:
        nodes = onnx.load(str(model), load_external_data=False).graph.node
        if [node.op_type for node in nodes] == ["Gemm"]:
            raise codes.OG303.error(f"{spec.label}: nothing follows the product")
        return super().open(model, spec, threads)


class OpenCv(_Faulty):
    engine = "opencv"


class Mnn(_Faulty):
    engine = "mnn"


class Ncnn(_Faulty):
    engine = "ncnn"


class LiteRt(_Faulty):
    engine = "litert"
