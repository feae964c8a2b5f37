"""What a worker says of the machine that it runs on."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import onnx

from onnx_gate.errors import GateError
from onnx_gate.manifest import ModelSpec
from onnx_gate.runtimes.open import find_runtime


def environment(spec: ModelSpec, capability: str, **versions: str) -> dict[str, Any]:
    """Return versions, the CPU's instruction set, and what each runtime says of itself."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu_capability": capability,
        **versions,
        "onnx": onnx.__version__,
        "numpy": np.__version__,
    }
    for runtime in spec.runtimes:
        try:
            found |= find_runtime(runtime.name).environment()
        except GateError:  # said again, with its code, when the runtime is opened
            continue
    return found
