"""Which of a model's checks is diagnosed, where several engines are out of tolerance."""

from __future__ import annotations

from onnx_gate.diagnose.diagnose import worst
from onnx_gate.manifest import RuntimeSpec
from tests.support.report.reports import check
from tests.support.report.scenes import far, model

RUNTIMES = (RuntimeSpec("onnxruntime"), RuntimeSpec("opencv"))


def test_what_is_wrong_in_the_file_is_no_fault_of_the_engine_with_the_largest_error() -> None:
    own = check("typical/0", "diverged", **far(1e-3, None, 41.0))
    other = check("large/0", "diverged", runtime="opencv", **far(1e-1, None, 410.0))
    found = worst(model("wrong", own, other, verdict="diverged"), RUNTIMES)
    assert found is not None
    assert (found.runtime, found.case) == ("onnxruntime", "typical/0")


def test_where_onnx_runtime_is_right_it_is_the_worst_of_the_others() -> None:
    fine = check("typical/0")
    others = [
        check(f"typical/{n}", "diverged", runtime="opencv", **far(e, None, e * 4e4))
        for n, e in enumerate((1e-3, 1e-1))
    ]
    found = worst(model("wrong", fine, *others, verdict="diverged"), RUNTIMES)
    assert found is not None
    assert (found.runtime, found.case) == ("opencv", "typical/1")
