"""Several runtimes: one row a model, one column a runtime."""

from __future__ import annotations

from onnx_gate.report.model import ModelError, RuntimeResult
from onnx_gate.report.render import terminal
from onnx_gate.report.story import side_by_side
from tests.support.report.reports import check
from tests.support.report.scenes import model, whole


def test_each_runtime_has_a_verdict_of_its_own() -> None:
    missing = ModelError(kind="runtime", code="OG302", message="not installed")
    several = model(
        "several",
        check("typical/batch=1/0", budget=0.2, compared=8),
        check("typical/batch=1/0", "diverged", runtime="opencv", budget=41.0, compared=8),
        verdict="diverged",
        runtimes=(
            RuntimeResult(runtime="onnxruntime", seconds=0.1),
            RuntimeResult(runtime="opencv", seconds=0.2),
            RuntimeResult(runtime="openvino", seconds=0.0, error=missing),
        ),
    )
    one = model("one", runtimes=(RuntimeResult(runtime="onnxruntime", seconds=0.1),))
    report = whole(several, one)
    labels = side_by_side.runtimes(report)
    assert labels == ("onnxruntime", "opencv", "openvino")
    cells = [side_by_side.cell(several, label) for label in labels]
    assert [str(each) for each in cells] == ["20 %", "diverged ×41", "error OG302"]
    assert [side_by_side.cell(one, label) for label in labels[1:]] == [None, None]
    # One that no runtime was asked about has no row.
    report = whole(several, one, model("unbuilt", verdict="error", error=missing, runtimes=()))
    table = terminal.render(report).partition("On each runtime")[2].partition("\n\n")[0]
    assert "several" in table
    assert "unbuilt" not in table
    alone = whole(one)
    assert side_by_side.runtimes(alone) == ()
    assert "On each runtime" not in terminal.render(alone)
