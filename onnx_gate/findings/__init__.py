"""The catalogue of findings: every code, what it means, why it matters, how to fix it."""

from onnx_gate.findings.explain import explanation
from onnx_gate.findings.explanation import CATALOGUE, Explanation

__all__ = ["CATALOGUE", "Explanation", "explanation"]
