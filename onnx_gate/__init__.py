"""onnx-gate: does the ONNX model say what the PyTorch model says?"""

from __future__ import annotations


def __getattr__(name: str) -> str:
    """Look the version up when it is asked for: the look-up takes longer than reading a manifest."""
    if name != "__version__":
        raise AttributeError(name)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("onnx-gate")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0+unknown"
