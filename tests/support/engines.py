"""Engines that are installed apart, and those of a package of their own that have one fault each."""

from __future__ import annotations

import shutil
from importlib.util import find_spec

from tests.support.gate import ROOT

FAULTY = ROOT / "tests" / "support" / "faulty_engines"
ENGINES = {
    "openvino": "openvino",
    "opencv": "cv2",
    "mnn": "MNN",
    "ncnn": "ncnn",
    "litert": "ai_edge_litert",
}


def lacking(name: str) -> str:
    """Return what an engine needs here, nothing where it is there."""
    if find_spec(ENGINES[name]) is None:
        return f"{name} is not installed: pip install 'onnx-gate[{name}]'"
    if name == "litert" and shutil.which("onnx2tf") is None:
        return "onnx2tf, which converts for litert, is not on the PATH"
    return ""
