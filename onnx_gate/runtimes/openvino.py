"""OpenVINO (``pip install 'onnx-gate[openvino]'``), in float32 unless another precision is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array, Refusal, contiguous, installed_version, package
from onnx_gate.runtimes.declared import check_feeds, declared, lacking, read_graph

# On a CPU that has bfloat16, and on most GPUs, it computes in half precision unless told otherwise.
_PRECISION = "INFERENCE_PRECISION_HINT"
_FLOAT32 = "f32"
_NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}

_NO_RULE = re.compile(r"No conversion rule found for operations: (.+)")
# Where in OpenVINO's source an exception passed, and the expression that was false.
_PASSED = re.compile(r"^(Exception from \S+:\d+:|Check '.*' failed at \S+:\d+:)$")
_ABOUT_OPTION = re.compile(r"Unsupported property|for property key|property")


class OpenVino:
    """``name: openvino`` of a manifest."""

    isolated = True

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> OpenVinoSession:
        """Compile ``model`` for ``device`` (``CPU``); ``options`` are the device's properties."""
        openvino = package(spec, "openvino")
        core = openvino.Core()
        device = spec.device or "CPU"
        options = {_PRECISION: _FLOAT32, **spec.options}
        if device == "CPU":
            options.setdefault("INFERENCE_NUM_THREADS", threads)
        try:
            network = core.read_model(str(model))
        except Exception as error:
            operators = _NO_RULE.findall(str(error))
            names = {name.strip() for line in operators for name in line.split(",")}
            raise lacking(spec, model, names) or codes.OG303.error(
                f"{spec.label}: the model does not load: {_sentence(error)}"
            ) from error
        try:
            compiled = core.compile_model(network, device, options)
        except Exception as error:
            if device.partition(".")[0] not in {
                d.partition(".")[0] for d in core.available_devices
            }:
                raise codes.OG301.error(
                    f"{spec.label}: OpenVINO has no device {device!r} here, only "
                    f"{', '.join(core.available_devices)}: {_sentence(error)}"
                ) from error
            code = codes.OG302 if _ABOUT_OPTION.search(str(error)) else codes.OG303
            raise code.error(f"{spec.label}: {_sentence(error)}") from error
        return OpenVinoSession(model, openvino, compiled, str(options[_PRECISION]))

    def environment(self) -> dict[str, Any]:
        """Return the version."""
        return installed_version("openvino")


class OpenVinoSession:
    """One compiled model."""

    def __init__(self, model: Path, openvino: Any, compiled: Any, precision: str) -> None:
        self._openvino, self._request = openvino, compiled.create_infer_request()
        graph = read_graph(model)
        self.inputs, self.outputs = declared(graph)
        self.findings = tuple(_remarks(graph, precision))

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Run once; raises ``Refusal`` with OpenVINO's own sentence."""
        check_feeds(self.inputs, feeds)
        try:
            results = self._request.infer(
                {name: self._openvino.Tensor(contiguous(array)) for name, array in feeds.items()}
            )
        except Exception as error:
            raise Refusal(_sentence(error)) from error
        return [np.array(results[index]) for index in range(len(self.outputs))]

    def close(self) -> None:
        """Drop the model."""
        self._request = None


def _remarks(graph: onnx.GraphProto, precision: str) -> Iterator[Finding]:
    if precision != _FLOAT32:
        yield codes.OG309.finding(
            f"openvino computes in {precision}, as the manifest asks: {_PRECISION}",
            data={"precision": precision},
        )
    kinds = [tensor.data_type for tensor in graph.initializer]
    kinds += [v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info)]
    if onnx.TensorProto.DOUBLE in kinds:
        yield codes.OG309.finding(
            f"openvino computes float64 in {_NAMES.get(precision, precision)}",
            data={"precision": precision},
        )


def _sentence(error: BaseException) -> str:
    """Return what an exception of OpenVINO's says, without the way that it came."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not _PASSED.match(line)]
    return " ".join(said)[:400] or type(error).__name__
