"""Engines by name: found by entry point, and opened here or in a process of their own."""

from __future__ import annotations

import traceback
from pathlib import Path

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.manifest.engines import ENGINES
from onnx_gate.plugins import plugins
from onnx_gate.runtimes.base import Refusal, Runtime, Session, first_line
from onnx_gate.runtimes.isolated import open_isolated

ENTRY_POINT_GROUP = "onnx_gate.runtimes"


def open_session(model: Path, spec: RuntimeSpec, threads: int = 1) -> Session:
    """Load ``model`` into the engine of ``spec``; raises ``GateError`` as ``Runtime.open`` does.

    What an engine raises besides is an error (OG303) of that engine alone.
    """
    runtime = find_runtime(spec.name)
    try:
        if getattr(runtime, "isolated", False):
            return open_isolated(model, spec, threads)
        return runtime.open(model, spec, threads)
    except (GateError, MemoryError):
        raise
    except Exception as error:
        traceback.print_exc()
        words = first_line(error)
        if not isinstance(error, Refusal):
            words = f"{type(error).__name__}: {words}"
        raise codes.OG303.error(
            f"{spec.label}: the engine failed while it loaded the file: {words}"
        ) from error


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
