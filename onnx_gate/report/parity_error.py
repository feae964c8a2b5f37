"""The exception that ``assert_parity`` and the pytest plugin raise."""

from __future__ import annotations

from onnx_gate.report.model import Report


class ParityError(AssertionError):
    """The ONNX model does not say what the PyTorch model says; ``report`` has everything."""

    def __init__(self, report: Report) -> None:
        super().__init__(f"\n{report}")
        self.report = report
