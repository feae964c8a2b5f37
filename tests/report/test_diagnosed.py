"""A diagnosis in words: whom it blames."""

from __future__ import annotations

import pytest

from onnx_gate.findings import codes
from onnx_gate.findings.finding import GUESS
from onnx_gate.report.model import ModelError, Problem
from onnx_gate.report.model.diagnosis import Diagnosis, GraphNode, Source
from onnx_gate.report.render import terminal
from onnx_gate.report.story.diagnosed import sentence, worded
from onnx_gate.report.story.sentence import of_model
from onnx_gate.report.story.story import tell
from tests.support.report.reports import check
from tests.support.report.scenes import model, whole


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        ("onnxruntime", "A kernel of ONNX Runtime: the graph is right, and ONNX Runtime computes"),
        ("onnxruntime:cuda", "A kernel of ONNX Runtime: "),
        ("openvino", "A kernel of openvino: the graph is right, and openvino computes it wrongly."),
        ("openvino[threads=2]", "A kernel of openvino: the graph is right, and openvino computes"),
        ("onnxruntime[intra=1]", "A kernel of ONNX Runtime: "),
        ("what is no [ label", "A kernel of what is no [ label: "),
    ],
)
def test_a_kernel_is_that_of_the_runtime_that_diverged(runtime: str, words: str) -> None:
    diagnosis = Diagnosis(runtime=runtime, case="typical/0", output="y", blame="kernel")
    assert sentence(diagnosis).startswith(words)


def test_that_line_is_named_where_there_is_one() -> None:
    diagnosis = Diagnosis(runtime="onnxruntime", case="typical/0", output="y", blame="exporter")
    assert worded("Write {line}", diagnosis) == "Write the module"
    source = Source(file="m.py", line=3, code="return x + y")
    placed = diagnosis.model_copy(update={"source": source})
    assert worded("Write {line}", placed) == "Write that line"


def test_a_guess_is_not_shown_beside_a_cause_that_was_seen() -> None:
    told = codes.OG706.finding("possible: epsilon", severity="note", data={GUESS: True})
    other = codes.OG404.finding("open", severity="note")
    guessed = Diagnosis(runtime="onnxruntime", case="typical/0", output="y", blame="exporter")
    shown = guessed.model_copy(update={"cause": "epsilon is 1e-3"})
    for diagnosis, messages in ((guessed, ["possible: epsilon", "open"]), (shown, ["open"])):
        net = model("net", verdict="diverged", diagnosis=diagnosis, findings=(told, other))
        (story,) = tell(whole(net)).models
        assert [remark.finding.message for remark in story.remarks] == messages


def test_what_the_graph_lacks_is_not_said_to_be_wrong_in_it() -> None:
    node = GraphNode(name="tanh", op_type="Tanh")
    diagnosis = Diagnosis(
        runtime="onnxruntime", case="typical/0", output="y", blame="exporter", node=node
    )
    beside = diagnosis.model_copy(update={"beside": GraphNode(name="gemm", op_type="Gemm")})
    for each, words in ((diagnosis, ", first wrong at Tanh"), (beside, ", without Tanh")):
        apart = check("typical/batch=2/0", "diverged")
        net = model("net", apart, verdict="diverged", diagnosis=each)
        assert words in str(of_model(net, "onnx-gate.yml"))


def test_an_interruption_is_one_statement() -> None:
    """Nothing could have been compared, and the run's one problem is what all begins with."""
    error = ModelError(
        kind="unverified",
        code=codes.OG506.code,
        message="interrupted before this model had a verdict",
        remedy="run it again",
    )
    open_model = model("net", verdict="error", error=error)
    problem = Problem(message="interrupted when 0 of 1 models had a verdict")
    said = str(of_model(open_model, "onnx-gate.yml"))
    assert said.startswith("net: interrupted before this model had a verdict")
    assert said.endswith("Run it again.")
    text = terminal.render(whole(open_model, problems=(problem, Problem(message="no disk"))))
    assert text.count("interrupted when 0 of 1") == 1
    assert "problem: no disk" in text
