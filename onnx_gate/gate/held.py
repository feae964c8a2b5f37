"""What runs inside a worker that has no PyTorch: one model's file, held against its answers."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onnx_gate.manifest import ModelSpec
from onnx_gate.report.io import to_message
from onnx_gate.runtimes import isolated
from onnx_gate.runtimes.environment import environment
from onnx_gate.verify.context import Context, Given
from onnx_gate.verify.held import hold

# Of what the kernel says of a processor, what PyTorch calls its capability; the last one counts.
_CAPABILITIES = {
    "avx2": "AVX2",
    "avx512f": "AVX512",
    "avx512_vnni": "AVX512",
    "asimd": "NEON",
    "sve": "SVE",
}


def work(payload: tuple[ModelSpec, Context, Given], emit: Callable[[dict[str, Any]], None]) -> None:
    """Hold one model against what was carried, and send the result."""
    spec, context, given = payload
    isolated.prepare(context.folder, spec.timeout)
    os.environ.setdefault("OMP_NUM_THREADS", str(context.threads))
    result = hold(spec, given, context, emit)
    result = result.model_copy(update={"reference": spec.reference})
    emit(
        {
            "kind": "result",
            "environment": environment(spec, _capability()),
            "model": to_message(result),
        }
    )


def _capability() -> str:
    try:
        words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split())
    except OSError:
        return platform.processor() or "unknown"
    return next((c for name, c in reversed(_CAPABILITIES.items()) if name in words), "default")
