"""ONNX Runtime with any execution provider, and no silent fall-back to another one."""

from __future__ import annotations

import ctypes
import math
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime as ort

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array, ValueInfo, contiguous
from onnx_gate.runtimes.onnxruntime_errors import load_problem, refusal
from onnx_gate.runtimes.providers import CPU, NVIDIA, elsewhere, settings, shortened

WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
"""The option of a session that says where the external data of a model lie."""

PREPACKING_OFF = "session.disable_prepacking"
"""The option of a session with which weights stay as they are stored, and are packed in every run."""

# What providers keep from one run to the next, which is no part of the report.
_CACHES = Path.home() / ".cache" / "onnx-gate"
_LEVELS = {
    "off": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_TENSOR_TYPES = {
    "tensor(float16)": "float16",
    "tensor(bfloat16)": "bfloat16",
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(int8)": "int8",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(uint8)": "uint8",
    "tensor(uint16)": "uint16",
    "tensor(uint32)": "uint32",
    "tensor(uint64)": "uint64",
    "tensor(bool)": "bool",
    "tensor(string)": "str",
}
_BFLOAT16_ONNX_TYPE = 16


class OnnxRuntime:
    """``name: onnxruntime`` of a manifest."""

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> OnnxRuntimeSession:
        """Load ``model`` into a session; see ``Runtime.open``."""
        provider = provider_name(spec.provider)
        options = session_options(threads)
        if spec.optimization is not None:
            options.graph_optimization_level = _LEVELS[spec.optimization]
        strict = spec.strict is not False
        if provider != CPU:
            _find_libraries(provider)
            options.add_session_config_entry("session.disable_cpu_ep_fallback", str(int(strict)))
            options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        for key, value in spec.session_options.items():
            _set_option(options, key, value)
        given = settings(provider, spec.provider_options, _CACHES)
        try:
            session = ort.InferenceSession(str(model), options, providers=[(provider, given)])
        except Exception as error:
            raise _load_error(error, model, spec.label, provider) from error
        if provider not in session.get_providers():
            raise codes.OG301.error(
                f"{spec.label}: {provider} was asked for and could not be loaded; ONNX Runtime "
                f"fell back to {', '.join(session.get_providers())}"
            )
        findings = shortened(spec.label, spec.provider_options)
        if provider != CPU:
            findings += _placement(session, spec.label, provider)
        return OnnxRuntimeSession(session, tuple(findings))

    def environment(self) -> dict[str, Any]:
        """Return the version, the build's providers and its device."""
        return {
            "onnxruntime": ort.__version__,
            "providers": list(ort.get_available_providers()),
            **({"gpu": gpus} if (gpus := ", ".join(_gpus())) else {}),
        }


class OnnxRuntimeSession:
    """One loaded model; a run that takes longer than ``seconds``, where it is set, is ended."""

    seconds: float | None = None

    def __init__(self, session: ort.InferenceSession, findings: tuple[Finding, ...] = ()) -> None:
        self.findings = findings
        self._session: ort.InferenceSession | None = session
        self.inputs = tuple(_info(value) for value in session.get_inputs())
        self.outputs = tuple(_info(value) for value in session.get_outputs())
        self._names = [value.name for value in self.outputs]
        self._needs_values = any(v.dtype == "bfloat16" for v in (*self.inputs, *self.outputs))

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Run once; raises ``Refusal`` with ONNX Runtime's own sentence."""
        try:
            with self._limited() as options:
                return self._run(feeds, options)
        except Exception as error:
            raise refusal(error) from error

    @contextmanager
    def _limited(self) -> Iterator[ort.RunOptions | None]:
        if self.seconds is None:
            yield None
            return
        options = ort.RunOptions()
        # Between two nodes ONNX Runtime looks whether it shall go on, inside of loops too.
        timer = threading.Timer(self.seconds, setattr, (options, "terminate", True))
        timer.start()
        try:
            yield options
        finally:
            timer.cancel()

    def _run(self, feeds: Mapping[str, Array], options: ort.RunOptions | None) -> Sequence[Array]:
        assert self._session is not None
        if self._needs_values:
            values = {name: _to_value(contiguous(array)) for name, array in feeds.items()}
            made = self._session.run_with_ort_values(self._names, values, options)
            return [_from_value(value) for value in made]
        arrays = {name: contiguous(array) for name, array in feeds.items()}
        return [np.asarray(output) for output in self._session.run(self._names, arrays, options)]

    def close(self) -> None:
        """Drop the session and its weights."""
        self._session = None


def session_options(threads: int) -> ort.SessionOptions:
    """Return options that say errors only, and share the machine with others."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def provider_name(provider: str | None) -> str:
    """Return ONNX Runtime's name of a provider: ``cuda`` is ``CUDAExecutionProvider``.

    Raises ``GateError`` (OG301) where this build of ONNX Runtime does not have it.
    """
    if provider is None:
        return CPU
    available = ort.get_available_providers()
    known = {
        name.removesuffix("ExecutionProvider").lower(): name for name in ort.get_all_providers()
    }
    name: str = known.get(provider.removesuffix("ExecutionProvider").lower(), provider)
    if name not in available:
        raise codes.OG301.error(
            f"the execution provider {provider!r} is not in this build of ONNX Runtime "
            f"{ort.__version__}, which has {', '.join(available)}; install the package that has it "
            "(onnxruntime-gpu for cuda and tensorrt)"
        )
    return name


def _find_libraries(provider: str) -> None:
    """Load CUDA from NVIDIA's packages, as torch does where it is imported."""
    if provider in NVIDIA and "torch" not in sys.modules and hasattr(ort, "preload_dlls"):
        ort.preload_dlls()


def _gpus() -> Iterator[str]:
    """Yield the names of NVIDIA's devices, as their driver has them."""
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        with suppress(OSError):
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                key, _, value = line.partition(":")
                if key == "Model":
                    yield value.strip()


def _placement(session: ort.InferenceSession, label: str, provider: str) -> list[Finding]:
    """Return a note on nodes that run elsewhere; raises ``GateError`` (OG301) where all of them do."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        message = f"ONNX Runtime {ort.__version__} does not say which nodes run on {provider}"
        return [codes.OG309.finding(f"{label}: {message}", data={"provider": provider})]
    own, findings = elsewhere(label, provider, session.get_provider_graph_assignment_info())
    if not own:
        raise codes.OG301.error(
            f"{label}: {provider} runs not one node of the model, all of them are left to other "
            "providers"
        )
    return findings


def _set_option(options: ort.SessionOptions, key: str, value: str) -> None:
    if not key.startswith(("session.", "optimization.", "ep.", "mlas.")) and hasattr(options, key):
        current = getattr(options, key)
        try:
            if isinstance(current, bool):
                setattr(options, key, str(value).lower() in ("1", "true"))
            elif isinstance(current, int):
                setattr(options, key, int(value))
            else:
                setattr(options, key, value)
        except (TypeError, ValueError) as error:
            raise codes.OG302.error(
                f"session option {key}: {value!r} is not usable: {error}"
            ) from error
    else:
        options.add_session_config_entry(key, str(value))


def _load_error(error: Exception, model: Path, label: str, provider: str) -> GateError:
    if provider != CPU and "fallback" in str(error).lower():
        return codes.OG301.error(
            f"{label}: {provider} does not run every node of the model, and the rest would fall "
            f"back to the CPU: {refusal(error)}"
        )
    problem = load_problem(error, model, ort.__version__, provider)
    refused = problem.code.error(f"{label}: {problem.message}")
    refused.data |= problem.data
    return refused


def _info(value: Any) -> ValueInfo:
    return ValueInfo(
        value.name, _TENSOR_TYPES.get(value.type, value.type), tuple(value.shape or ())
    )


def _to_value(array: Array) -> ort.OrtValue:
    if array.dtype == ml_dtypes.bfloat16:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(
            array.view(np.uint16), _BFLOAT16_ONNX_TYPE
        )
    return ort.OrtValue.ortvalue_from_numpy(array)


def _from_value(value: ort.OrtValue) -> Array:
    if value.data_type() != "tensor(bfloat16)":
        return np.asarray(value.numpy())
    # Handed out through DLPack only, which NumPy cannot read; on the CPU it is memory like any other.
    shape = tuple(value.shape())
    size = 2 * math.prod(shape)
    data = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(data, ml_dtypes.bfloat16).reshape(shape).copy()
