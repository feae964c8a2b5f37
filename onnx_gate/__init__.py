"""onnx-gate: does the ONNX model say what the PyTorch model says?"""

from __future__ import annotations

from typing import Any

_FROM_API = ("ParityError", "assert_parity", "check_parity")


def __getattr__(name: str) -> Any:
    """Look up what takes longer than reading a manifest when it is asked for."""
    if name in _FROM_API:
        # Not by an import statement: what imports this package for its version has no torch.
        from importlib import import_module

        return getattr(import_module("onnx_gate.api"), name)
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("onnx-gate")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0+unknown"


def __dir__() -> list[str]:
    return [*globals(), *_FROM_API, "__version__"]
