"""Reading a manifest loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
from onnx_gate.manifest import load
heavy = {"torch", "onnx", "onnxruntime", "numpy", "jsonschema", "onnx_gate.verify"}
print(*sorted(heavy & set(sys.modules)))
"""


@pytest.mark.process
def test_no_heavy_module_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == []
