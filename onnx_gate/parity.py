"""What ``check_parity`` returns and ``assert_parity`` raises: a report that shows itself."""

from __future__ import annotations

from onnx_gate.report.model import Report
from onnx_gate.report.render import notebook, terminal
from onnx_gate.report.story import summary


class ParityReport(Report):
    """The report of a run, as a Python shell or a notebook shows it."""

    def __str__(self) -> str:
        """Return what the command line prints of it."""
        return terminal.render(self)

    def __repr__(self) -> str:
        """Return one line: the verdict and the count."""
        return f"<Report {self.verdict}: {summary.headline(self)}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows of it."""
        return notebook.render(self)


class ParityError(AssertionError):
    """The ONNX model does not say what the PyTorch model says; ``report`` has everything."""

    def __init__(self, report: Report) -> None:
        super().__init__(f"\n{terminal.render(report)}")
        self.report = ParityReport.model_construct(**dict(report))
