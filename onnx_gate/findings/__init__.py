"""The catalogue of findings: every code, what it means, why it matters, how to fix it."""

from onnx_gate.findings.catalogue import CATALOGUE
from onnx_gate.findings.entry import Explanation
from onnx_gate.findings.explain import explanation

__all__ = ["CATALOGUE", "Explanation", "explanation"]
