"""Known faults of PyTorch, onnxscript, ONNX Runtime, ONNX and OpenVINO: a book, and what fits it."""

from onnx_gate.known.book import faults, find, of_error
from onnx_gate.known.public_fault import Failure, Known, PublicFault

__all__ = ["Failure", "Known", "PublicFault", "faults", "find", "of_error"]
