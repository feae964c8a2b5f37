"""MNN (``pip install 'onnx-gate[mnn]'``): the file is converted with MNN's own converter, then run."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array, Refusal, contiguous, installed_version, package
from onnx_gate.runtimes.declared import (
    check_feeds,
    declared,
    handed_over_otherwise,
    lacking,
    read_graph,
    refuse_empty,
)
from onnx_gate_engines.converted import option
from onnx_gate_engines.native import stderr_and_stdout

_PRECISIONS = ("high", "normal", "low")
_UNSUPPORTED = re.compile(r"These Op Not Support:((?:\s*ONNX::[\w.]+)+)")
# What MNN computes with, for each dtype that it takes.
_HANDED_OVER = {
    "float32": np.float32,
    "float64": np.float32,
    "float16": np.float32,
    "bool": np.int32,
    "uint8": np.uint8,
    "int8": np.int8,
    "int32": np.int32,
    "int64": np.int32,
}


class Mnn:
    """``name: mnn`` of a manifest."""

    isolated = True

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> MnnSession:
        """Convert ``model`` and load it; ``options`` may have the ``precision`` (``high``)."""
        package(spec, "MNN")
        takes = "precision: high, normal or low"
        precision = option(spec, "MNN", "precision", takes, "high", _PRECISIONS)
        graph = read_graph(model)
        inputs, outputs = declared(graph)
        strange = [v.dtype for v in (*inputs, *outputs) if v.dtype not in _HANDED_OVER]
        if strange:
            raise codes.OG303.error(f"{spec.label}: MNN has no {strange[0]} inputs or outputs")
        with tempfile.TemporaryDirectory(prefix="onnx-gate-mnn-") as folder:
            converted = Path(folder, "model.mnn")
            _convert(model, converted, spec)
            return MnnSession(converted, inputs, outputs, precision, threads)

    def environment(self) -> dict[str, Any]:
        """Return the version."""
        return installed_version("mnn")


class MnnSession:
    """One converted model."""

    def __init__(
        self, converted: Path, inputs: Any, outputs: Any, precision: str, threads: int
    ) -> None:
        import MNN.expr
        import MNN.nn

        self._expr = MNN.expr
        self.inputs, self.outputs = inputs, outputs
        config = {"backend": "CPU", "precision": precision, "numThread": threads}
        self._runtime = MNN.nn.create_runtime_manager((config,))
        names = [[value.name for value in side] for side in (inputs, outputs)]
        self._module = MNN.nn.load_module_from_file(
            str(converted), *names, runtime_manager=self._runtime
        )
        self.findings = tuple(_remarks(inputs, outputs, precision))

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Run once; raises ``Refusal`` where MNN has no answer, and where a value does not fit."""
        check_feeds(self.inputs, feeds)
        refuse_empty(feeds, "MNN")
        results = self._module.forward([self._variable(v.name, feeds) for v in self.inputs])
        if len(results) != len(self.outputs):
            raise Refusal("MNN gives no answer; the model's log has what it wrote")
        arrays = []
        for value, result in zip(self.outputs, results, strict=True):
            plain = self._expr.convert(result, self._expr.NCHW)
            read = plain.read()
            if read is None:
                raise Refusal(f"MNN has no value for {value.name}")
            array = np.array(read).reshape(plain.shape).astype(value.dtype)
            # It has no scalars.
            arrays.append(array.reshape(()) if not value.shape and array.size == 1 else array)
        return arrays

    def close(self) -> None:
        """Drop the model."""
        self._module = self._runtime = None

    def _variable(self, name: str, feeds: Mapping[str, Array]) -> Any:
        array = feeds[name]
        kind = np.dtype(_HANDED_OVER[array.dtype.name])
        if array.dtype.kind in "iu" and not np.array_equal(array.astype(kind), array):
            raise Refusal(f"{name} holds an integer that does not fit into {kind}")
        kinds = {"f": self._expr.float, "i": self._expr.int, "u": self._expr.uint8}
        # Its Python interface writes no 8-bit integers with a sign, and casts them.
        written = np.dtype(np.int32) if kind == np.int8 else kind
        variable = self._expr.placeholder(list(array.shape), self._expr.NCHW, kinds[written.kind])
        variable.write(contiguous(array.astype(written)))
        return self._expr.cast(variable, self._expr.int8) if kind == np.int8 else variable


def _convert(model: Path, converted: Path, spec: RuntimeSpec) -> None:
    """Write the file in MNN's format.

    The native function is called: the program around it (``mnnconvert``) installs a package and
    reports what was converted to its makers.
    """
    import _tools

    names = ("--modelFile", str(model), "--MNNModel", str(converted), "--bizCode", "onnx-gate")
    with stderr_and_stdout() as written:
        _tools.mnnconvert(["mnnconvert", "-f", "ONNX", *names])
    if not converted.is_file():
        text = written()
        operators = {op for ops in _UNSUPPORTED.findall(text) for op in ops.split()}
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        raise lacking(spec, model, {op.removeprefix("ONNX::") for op in operators}) or (
            codes.OG303.error(
                f"{spec.label}: the file is not converted: {' '.join(lines[-3:])[:400]}"
            )
        )


def _remarks(inputs: Any, outputs: Any, precision: str) -> list[Finding]:
    remarks = handed_over_otherwise("mnn", (*inputs, *outputs), _HANDED_OVER)
    if precision != "high":
        remarks.append(
            codes.OG309.finding(
                f"mnn computes with precision {precision}, as the manifest asks",
                data={"precision": precision},
            )
        )
    return remarks
