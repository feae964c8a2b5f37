"""ONNX Runtime Web in a headless Chromium: WebGPU, or WebAssembly.

No Node and no driver is needed: a page of ours loads the files of the npm package, and Chromium is
spoken to over a pipe. The model goes to the page by HTTP on the loopback, so that one of any size
is streamed, and tensors as bytes. One browser serves all models of a run; ``broker.py`` says how it
keeps them apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx.external_data_helper import _get_all_tensors, uses_external_data

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array, Refusal, ValueInfo
from onnx_gate.runtimes.onnxruntime_errors import load_problem, refusal
from onnx_gate.text import did_you_mean
from onnx_gate_engines.web import frames, wire
from onnx_gate_engines.web.link import BrowserLink
from onnx_gate_engines.web.placement import Placement, placement_of
from onnx_gate_engines.web.service import connect

# The file of the package that has a provider: what 'onnxruntime-web/webgpu' and '/wasm' import.
_MODULES = {"webgpu": "ort.webgpu.bundle.min.mjs", "wasm": "ort.wasm.bundle.min.mjs"}
_DEFAULT = "webgpu"
_LEVELS = {"off": "disabled", "basic": "basic", "extended": "extended", "all": "all"}
_DTYPES = {"string": "str"}
_SHOWN = 5
# The oldest version of the package that was seen to run here; 1.20 was seen not to.
_OLDEST = "1.22"
# The keys of the package's SessionOptions (dist/lib/inference-session.d.ts of onnxruntime-common); it
# reads no other, and says nothing of them.
_OPTIONS = frozenset(
    (
        *("enableCpuMemArena", "enableGraphCapture", "enableMemPattern", "enableProfiling"),
        *("executionMode", "extra", "freeDimensionOverrides", "graphOptimizationLevel"),
        *("interOpNumThreads", "intraOpNumThreads", "logId", "logSeverityLevel"),
        *("logVerbosityLevel", "optimizedModelFilePath", "preferredOutputLocation"),
        "profileFilePrefix",
    )
)
# A load that fails may do so for want of memory, where this much of it is asked for at once.
_MUCH, _MOST = 1 << 30, 4 << 30
# What ONNX Runtime Web puts before ONNX Runtime's own sentence.
_PREFIX = re.compile(r"^.*?ERROR_CODE: \d+, ERROR_MESSAGE: ", re.S)


class WebRuntime:
    """``name: web`` of a manifest."""

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> WebSession:
        """Load ``model`` into a page of its own; see ``Runtime.open``.

        ``options`` are ONNX Runtime Web's ``SessionOptions``; ``module`` among them is the file of
        the package to import.
        """
        provider = spec.provider or _DEFAULT
        if provider not in _MODULES:
            raise codes.OG301.error(
                f"{spec.label}: ONNX Runtime Web is run here with the providers "
                f"{' and '.join(_MODULES)}, not with {provider!r}"
            )
        unknown = sorted(set(spec.options) - _OPTIONS - {"module"})
        if unknown:
            raise codes.OG302.error(
                f"{spec.label}: ONNX Runtime Web has no session option {unknown[0]!r}"
                f"{did_you_mean(unknown[0], _OPTIONS)}"
            )
        session = WebSession(model, spec, provider, threads)
        try:
            session.start()
        except BaseException:
            session.close()
            raise
        return session

    def environment(self) -> dict[str, Any]:
        """Return the versions of browser and package, as far as there are any."""
        try:
            with connect() as connection:
                frames.send(connection, frames.JOB, json.dumps({"files": 0}).encode())
                kind, body = frames.receive(connection)
        except (OSError, EOFError):
            return {}
        return dict(json.loads(body)) if kind == frames.MESSAGE else {}


class WebSession:
    """One model in one page."""

    def __init__(self, model: Path, spec: RuntimeSpec, provider: str, threads: int) -> None:
        self._model, self._spec, self._provider, self._threads = model, spec, provider, threads
        external = _external_files(model)
        self._files = (model, *(model.parent / path for path in external))
        self._link = BrowserLink(spec.label, {**self._job(), "external": external}, self._files)
        self._elsewhere: tuple[Finding, ...] = ()
        self.inputs: tuple[ValueInfo, ...] = ()
        self.outputs: tuple[ValueInfo, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Which nodes did not run on the provider, and whether the browser was lost on the way."""
        reason = self._link.repeated_because
        if not reason:
            return self._elsewhere
        label = self._spec.label
        message = f"{label}: {reason}, so the model was run again in a browser of its own"
        data = {"runtime": label, "reason": reason}
        return (*self._elsewhere, codes.OG326.finding(message, data=data))

    def start(self) -> None:
        """Open the page; raises ``GateError`` where it, or the model in it, cannot be had."""
        header = self._link.open()
        if "error" in header:
            raise self._load_error(header)
        if "inputs" not in header:
            raise codes.OG302.error(
                f"{self._spec.label}: onnxruntime-web {header['version']} does not describe a model's "
                f"inputs; version {_OLDEST} or later has to be there"
            )
        self.inputs, self.outputs = _infos(header["inputs"]), _infos(header["outputs"])
        if self._provider == "webgpu":
            self._check_halves(header["halves"])
            self._look_at(placement_of(header["lines"], self._model))

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Run once; raises ``Refusal`` with ONNX Runtime's own sentence."""
        for name, array in feeds.items():
            if not wire.can_carry(array):
                raise Refusal(f"{name} is {array.dtype.name}, which a browser has no array for")
        header, arrays = self._link.ask(wire.encode(feeds))
        if "error" in header:
            raise refusal(Exception(_bare(header["error"])))
        by_name = dict(zip((t["name"] for t in header["tensors"]), arrays, strict=True))
        return [by_name[value.name] for value in self.outputs]

    def close(self) -> None:
        """Have the page closed."""
        self._link.close()

    def _job(self) -> dict[str, Any]:
        spec = self._spec
        options = dict(spec.options)
        module = options.pop("module", _MODULES[self._provider])
        if spec.optimization is not None:
            options["graphOptimizationLevel"] = _LEVELS[spec.optimization]
        if spec.session_options:
            options["extra"] = dict(spec.session_options)
        provider = {"name": self._provider, **spec.provider_options}
        options["executionProviders"] = [provider]
        return {
            "module": module,
            "provider": self._provider,
            "threads": self._threads,
            "options": options,
        }

    def _load_error(self, header: Mapping[str, Any]) -> GateError:
        label, words = self._spec.label, _bare(str(header["error"]))
        if header["stage"] == "import":
            module = self._job()["module"]
            return codes.OG302.error(
                f"{label}: the browser cannot import {module!r} from onnxruntime-web's folder dist; "
                f"version {_OLDEST} or later of the package, or another module, has to be there"
            )
        version = str(header["version"])
        problem = load_problem(Exception(words), self._model, version, self._provider)
        text = problem.message
        size = sum(path.stat().st_size for path in self._files)
        if size > _MUCH:
            text += (
                f". The file and its weights have {size / 1e9:.1f} GB, and WebAssembly has "
                f"{_MOST / 1e9:.1f} GB for everything"
            )
        return problem.code.error(f"{label}: {text}")

    def _check_halves(self, has_halves: bool) -> None:
        """Refuse what would fail in the first kernel, whatever the inputs."""
        if not has_halves and _has_halves(self._model):
            raise codes.OG202.error(
                f"{self._spec.label}: the file computes in float16, for which WebGPU here has no "
                "kernels: Chromium's software adapter lacks shader-f16, which graphics cards have. "
                "Verify the file in float32, or this one with provider: wasm"
            )

    def _look_at(self, placement: Placement | None) -> None:
        """Say, or refuse, what does not run on the provider."""
        if placement is None:
            raise codes.OG301.error(
                f"{self._spec.label}: ONNX Runtime Web does not say where its nodes run"
            )
        elsewhere = placement.elsewhere
        if not elsewhere:
            return
        shown = ", ".join(f"{node.op_type} {node.name!r}" for node in elsewhere[:_SHOWN])
        more = f" and {len(elsewhere) - _SHOWN} more" if len(elsewhere) > _SHOWN else ""
        # A file's own nodes, which may be more than those that an optimisation has left.
        count = min(len(elsewhere), placement.total)
        message = (
            f"{self._spec.label}: {count} of {placement.total} nodes run in WebAssembly "
            f"and not on {self._provider}: {shown}{more}"
        )
        if self._spec.strict:
            raise codes.OG301.error(f"{message}; strict: true refuses that")
        nodes = [{"name": node.name, "op_type": node.op_type} for node in elsewhere]
        data = {"runtime": self._spec.label, "nodes": nodes, "total": placement.total}
        self._elsewhere = (codes.OG320.finding(message, data=data),)


def _has_halves(model: Path) -> bool:
    graph = onnx.load(str(model), load_external_data=False).graph
    values = (*graph.input, *graph.output, *graph.value_info)
    kinds = {value.type.tensor_type.elem_type for value in values}
    return onnx.TensorProto.FLOAT16 in kinds | {tensor.data_type for tensor in graph.initializer}


def _bare(message: str) -> str:
    # The address of a C++ exception stands alone where its words were lost on the way.
    return "it gives no reason" if message.isdecimal() else _PREFIX.sub("", message)


def _infos(values: Sequence[Mapping[str, Any]]) -> tuple[ValueInfo, ...]:
    return tuple(
        ValueInfo(v["name"], _DTYPES.get(v["dtype"], v["dtype"]), tuple(v["shape"])) for v in values
    )


def _external_files(model: Path) -> list[str]:
    """Return the files that a model's weights are in, as it names them."""
    try:
        graph = onnx.load(str(model), load_external_data=False)
    except Exception:  # the engine says it better
        return []
    names = {
        entry.value
        for tensor in _get_all_tensors(graph)
        if uses_external_data(tensor)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return sorted(names)
