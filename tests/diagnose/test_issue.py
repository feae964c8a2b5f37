"""What upstream needs of a divergence: a file that shows it, as small as it can be, and where."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from onnx_gate.diagnose.repro.issue import issues
from onnx_gate.errors import UserError
from onnx_gate.known.book import faults
from onnx_gate.report.model import Report
from onnx_gate.report.model.diagnosis import Diagnosis
from tests.support.report.reports import check
from tests.support.report.scenes import model, whole


def _report(repro: str = "repro/m") -> Report:
    fault = next(f for f in faults() if f.link.endswith("onnxruntime/issues/10514"))
    diagnosis = Diagnosis.model_validate(
        {
            "runtime": "onnxruntime",
            "case": "edges/nan",
            "output": "y",
            "blame": "kernel",
            "node": {"name": "n", "op_type": "ReduceMax"},
            "repro": repro,
            "known": fault.known,
        }
    )
    return whole(
        model("m", check("edges/nan", "diverged"), verdict="diverged", diagnosis=diagnosis)
    )


def _repro(folder: Path) -> None:
    """ReduceMax of 63 rows of 8, in which NaN is the second of the first."""
    data = folder / "repro" / "m" / "test_data_set_0"
    data.mkdir(parents=True)
    text = (
        '<ir_version: 8, opset_import: ["" : 13]> g (float[63,8] x) => (float[63] y) '
        "{ y = ReduceMax<axes=[1], keepdims=0>(x) }"
    )
    onnx.save(onnx.parser.parse_model(text), str(data.parent / "model.onnx"))
    x = np.zeros((63, 8), np.float32)
    x[0, 1] = np.nan
    y = x.max(1)
    for name, array in (("input_0", x), ("output_0", y)):
        tensor = numpy_helper.from_array(array, name[0])
        (data / f"{name}.pb").write_bytes(tensor.SerializeToString())


def test_it_is_the_smallest_that_shows_it(tmp_path: Path) -> None:
    _repro(tmp_path)
    (text,) = issues(_report(), tmp_path)
    assert "https://github.com/microsoft/onnxruntime/issues." in text
    assert "known: ReduceMax and ReduceMin lose NaN" in text
    script = re.search(r"```python\n(.*?)```", text, re.S)
    assert script is not None
    lines = script[1].splitlines()
    assert len(lines) <= 15
    assert "np.array([[0.0, nan]], 'float32')" in script[1], "63 rows of 8 are one of 2"
    told: list[object] = []
    exec(script[1], {"print": told.append})
    assert np.array2string(told[0][0]) in text.partition("## Actual")[2]
    assert "[nan]" in text.partition("## Expected")[2].partition("## Actual")[0]


def test_a_report_names_no_folder_but_its_own(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="outside of"):
        list(issues(_report("../../etc"), tmp_path))
    with pytest.raises(UserError, match="no model x"):
        list(issues(_report(), tmp_path, ["x"]))
    with pytest.raises(UserError, match="nothing to file"):
        list(issues(whole(model("m", check("typical/0"))), tmp_path))
