"""What a pull request's manifest asks less of its models than its base's does."""

from onnx_gate.guard.loosened import loosened

__all__ = ["loosened"]
