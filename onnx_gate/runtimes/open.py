"""Engines by name: found by entry point, and opened here or in a process of their own."""

from __future__ import annotations

from pathlib import Path

from onnx_gate.findings import codes
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.manifest.engines import ENGINES
from onnx_gate.plugins import plugins
from onnx_gate.runtimes.base import Runtime, Session
from onnx_gate.runtimes.isolated import open_isolated

ENTRY_POINT_GROUP = "onnx_gate.runtimes"


def open_session(model: Path, spec: RuntimeSpec, threads: int) -> Session:
    """Load ``model`` into the engine of ``spec``; raises ``GateError`` as ``Runtime.open`` does."""
    runtime = find_runtime(spec.name)
    if getattr(runtime, "isolated", False):
        return open_isolated(model, spec, threads)
    return runtime.open(model, spec, threads)


def find_runtime(name: str) -> Runtime:
    """Return the engine registered as ``name``; raises ``GateError`` where there is none."""
    engines = plugins(ENTRY_POINT_GROUP)
    if name not in engines.names:
        if name in ENGINES:
            raise codes.OG302.error(
                f"the runtime {name!r} is in a package of its own, which is not installed: "
                f"pip install 'onnx-gate[{name}]'"
            )
        names = sorted(engines.names)
        raise codes.OG302.error(f"no runtime is called {name!r}; installed: {', '.join(names)}")
    try:
        factory = engines[name].load()
    except ImportError as error:
        raise codes.OG302.error(f"the runtime {name!r} cannot be imported: {error}") from error
    runtime: Runtime = factory()
    return runtime
