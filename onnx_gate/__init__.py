"""onnx-gate: does the ONNX model say what the PyTorch model says?"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("onnx-gate")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"
