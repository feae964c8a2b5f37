"""Every blame has its words in every rendering, and a file is not called PyTorch."""

from __future__ import annotations

from typing import get_args

import pytest

from onnx_gate.findings.finding import Finding
from onnx_gate.report.model import ExportInfo, ModelError, Report
from onnx_gate.report.model.check import Worst
from onnx_gate.report.model.diagnosis import Blame, Diagnosis, GraphNode, Source
from onnx_gate.report.model.headroom import Headroom, ValueRange
from onnx_gate.report.model.remedy import Remedies, SettingChange
from onnx_gate.report.render import html, junit, markdown, sarif, terminal
from onnx_gate.report.story import diagnosed, headroom, sentence
from tests.support.report.reports import check
from tests.support.report.scenes import model, whole


def blamed(blame: Blame, *, file: bool, runtime: str = "onnxruntime") -> Report:
    diagnosis = Diagnosis(
        runtime=runtime,
        case="edges/zeros",
        output="logits",
        blame=blame,
        against="the reference" if file else "PyTorch",
        evidence=({"experiment": "tried", "outcome": "differs", "agrees": False},),  # type: ignore[arg-type]
    )
    bad = check("edges/zeros", "diverged", budget=41.0, reason="too far")
    reference = "base.onnx" if file else None
    return whole(
        model("int8", bad, verdict="diverged", diagnosis=diagnosis, reference=reference),
        model("fine", reference=reference),
    )


@pytest.mark.parametrize("blame", get_args(Blame))
def test_every_blame_has_its_words(blame: Blame) -> None:
    for render in (terminal.render, markdown.render, html.render, junit.render, sarif.render):
        assert render(blamed(blame, file=False))
        text = render(blamed(blame, file=True))
        if render is not sarif.render:  # its rules are described for all runs
            assert "PyTorch" not in text, render.__module__


def test_a_kernel_is_that_of_the_engine_that_diverged() -> None:
    for render in (terminal.render, markdown.render, html.render, junit.render):
        text = render(blamed("kernel", file=False, runtime="mnn[precision=low]"))
        assert "ONNX Runtime" not in text, render.__module__
        assert "mnn" in text, render.__module__


@pytest.mark.parametrize(("seq", "leads"), [(7, False), (12, True)])
def test_a_condition_on_sizes_is_the_reason_at_these_sizes_alone(seq: int, leads: bool) -> None:
    bad = check(f"typical/seq={seq}/0", "diverged", budget=41.0, sizes={"seq": seq})
    diagnosis = Diagnosis(
        runtime="onnxruntime",
        case=bad.case,
        output="logits",
        blame="undecided",
        cause="layers.0 computes something else",
        source=Source(file="models/net.py", line=3, code="return x"),
    )
    finding = Finding(
        code="OG116",
        severity="error",
        message="the graph has no trace of the other branch",
        file="models/net.py",
        line=15,
        data={"broken": [{"seq": 12}], "named": [{"seq": 12}], "code": "if n > 8:"},
    )
    failed = model("net", bad, verdict="diverged", diagnosis=diagnosis, findings=(finding,))
    said = str(sentence.of_model(failed, "onnx-gate.yml"))
    assert ("was decided during the export, models/net.py:15" in said) == leads
    assert ("layers.0 computes something else, models/net.py:3" in said) != leads


@pytest.mark.parametrize(("code", "put"), [("OG417", True), ("OG102", False)])
def test_a_wrong_weight_is_put_right_by_who_wrote_the_file(code: str, put: bool) -> None:
    bad = check("typical/0", "diverged", budget=41.0)
    wrong = Finding(code=code, severity="error", message="k.weight holds the values of q.weight")
    diagnosis = Diagnosis(runtime="onnxruntime", case=bad.case, output="logits", blame="exporter")
    made = ExportInfo(exporter="export.py:write", opset=20, bytes=1, nodes=1)
    net = model(
        *("net", bad), verdict="diverged", diagnosis=diagnosis, findings=(wrong,), export=made
    )
    said = sentence.of_model(net, "onnx-gate.yml")
    assert (said.remedy == "put it right in export.py:write, which writes the file") is put


@pytest.mark.parametrize("blame", ["capture", "exporter"])
def test_of_a_file_that_a_function_wrote_it_is_said_that_it_did(blame: Blame) -> None:
    bad = check("typical/0", "diverged", budget=41.0)
    diagnosis = Diagnosis(runtime="onnxruntime", case=bad.case, output="logits", blame=blame)
    for exporter, known in (("export.py:write", True), ("dynamo", False)):
        made = ExportInfo(exporter=exporter, opset=20, bytes=1, nodes=1)
        net = model("net", bad, verdict="diverged", diagnosis=diagnosis, export=made)
        said = str(sentence.of_model(net, "onnx-gate.yml"))
        assert ("export.py:write wrote" in said) is known
        assert ("the exporter wrote" in said or "captured" in said) is not known


def test_an_axis_is_named_in_the_function_that_wrote_the_file() -> None:
    bad = check("typical/0", "diverged", budget=41.0)
    cases = (
        ("export.py:write", "export.py:write", "in export.py:write."),
        ("command", "release.py", "in release.py."),
        ("file", "a/b.onnx", "where a/b.onnx is exported."),
        ("export.py:write", None, ""),
        ("dynamo", "", ""),
    )
    for exporter, writer, asked in cases:
        data = {} if writer is None else {"writer": writer, "dims": {"n": 3}}
        baked = Finding(code="OG102", severity="error", message="fixed in the graph", data=data)
        made = ExportInfo(exporter=exporter, opset=20, bytes=1, nodes=1)
        net = model("net", bad, verdict="diverged", findings=(baked,), export=made)
        said = str(sentence.of_model(net, "onnx-gate.yml"))
        assert (f"ame 'n' in dynamic_shapes (or dynamic_axes) {asked}" in said) is bool(asked)
        assert (f"{writer} does not declare 'n' dynamic" in said) is bool(asked)
        assert ("Make no size a number of Python's" in said) is not bool(asked)


def test_what_was_tried_and_does_not_hold_is_not_asked_for() -> None:
    change = (SettingChange(key="export", value={"exporter": "torchscript", "opset": 17}),)
    bad = check("typical/0", "diverged", budget=41.0)
    diagnosis = Diagnosis(runtime="onnxruntime", case=bad.case, output="logits", blame="exporter")
    error = ModelError(
        kind="export",
        code="OG201",
        message="no translation",
        remedy="write that",
        otherwise="write it with other operators",
        changes=change,
    )
    baked = Finding(code="OG102", severity="error", message="fixed in the graph")
    for remedies, says in ((None, True), (Remedies(tried=1, failed=(change,)), False)):
        wrong = model("net", bad, verdict="diverged", diagnosis=diagnosis, remedies=remedies)
        unread = model("net", verdict="error", error=error, remedies=remedies)
        said = str(sentence.of_model(wrong, "onnx-gate.yml"))
        assert ("export with another exporter" in said) is says
        node = GraphNode(name="n", op_type="Reshape", output="y", module="layers.0")
        born = diagnosis.model_copy(update={"node": node})
        sized = model(
            *("net", bad),
            verdict="diverged",
            diagnosis=born,
            findings=(baked,),
            remedies=remedies,
        )
        said = str(sentence.of_model(sized, "onnx-gate.yml"))
        assert "first wrong at Reshape in layers.0." in said
        assert "another exporter, with" not in said
        assert "Make no size a number of Python's before it" in said
        asked = str(sentence.of_model(unread, "onnx-gate.yml"))
        assert ("Write that." in asked) is says
        assert ("Write it with other operators: another exporter was tried" in asked) is not says


def test_whole_numbers_that_a_double_cannot_part_are_not_said_to_be_two() -> None:
    worst = Worst(index=(3,), expected=-(2.0**60), actual=-(2.0**60))
    bad = check("typical/0", "diverged", reason="1 of 8 elements differ", worst=worst)
    said = str(sentence.of_model(model("net", bad, verdict="diverged"), "onnx-gate.yml"))
    assert "is another whole number near -1.15" in said
    assert "says" not in said


@pytest.mark.parametrize(("largest", "way"), [(1e5, "scale it down"), (1e-3, "scale it up")])
def test_what_leaves_a_range_is_scaled_back_into_it(largest: float, way: str) -> None:
    first = ValueRange(name="n", op_type="Mul", largest=largest, small=0.1)
    found = Headroom(dtype="float16", limit=65504, of=1, first=first, shared=True)
    assert way in headroom.remedy(found)


def test_a_line_of_the_model_is_not_named_for_an_axis_that_a_script_does_not_declare() -> None:
    bad = check("typical/0", "diverged", budget=41.0)
    source = Source(file="net.py", line=11, code="interpolate(x, size=x.shape[-2:])")
    diagnosis = Diagnosis(
        runtime="onnxruntime", case=bad.case, output="y", blame="exporter", source=source
    )
    for writer, file, place in (
        ("release.py", "release.py", "release.py"),
        ("export.release", None, "onnx-gate.yml:7"),
        ("", None, "net.py:11"),
    ):
        data = {"writer": writer, "dims": {"n": 3}}
        baked = Finding(code="OG102", severity="error", message="fixed", file=file, data=data)
        net = model(
            *("net", bad), verdict="diverged", findings=(baked,), diagnosis=diagnosis, line=7
        )
        assert str(sentence.of_model(net, "onnx-gate.yml").place) == place


@pytest.mark.parametrize(
    ("code", "writer", "says"),
    [
        ("OG113", "a/b.onnx", "Call model.eval() before a/b.onnx is exported."),
        ("OG113", "release.py", "Call model.eval() before the export in release.py."),
        ("OG114", "release.py", "Call model.eval() before the export in release.py; what forward"),
        ("OG114", "", "Look at what has changed."),
    ],
)
def test_who_exported_in_training_mode_calls_eval(code: str, writer: str, says: str) -> None:
    bad = check("typical/0", "diverged", budget=41.0)
    diagnosis = Diagnosis(
        runtime="onnxruntime",
        case=bad.case,
        output="y",
        blame="stale artifact",
        cause="the weight a.weight has other values",
        remedy="look at what has changed",
    )
    found = Finding(code=code, severity="error", message="alive", data={"writer": writer})
    exporter = {"a/b.onnx": "file", "release.py": "command"}.get(writer, "dynamo")
    made = ExportInfo(exporter=exporter, opset=20, bytes=1, nodes=1)
    net = model("net", bad, verdict="diverged", findings=(found,), diagnosis=diagnosis, export=made)
    said = str(sentence.of_model(net, "onnx-gate.yml"))
    assert says in said
    assert ("other values" in said) is not bool(writer)


@pytest.mark.parametrize(
    ("blame", "repro", "words"),
    [
        ("undecided", "repro/net/case", "Replay the reproduction and follow"),
        ("undecided", None, "Run this case alone (`--case`), with more `timeout` or `memory`"),
        ("kernel", "repro/net/case", "report the reproduction to ONNX Runtime."),
        ("kernel", None, "and report it to ONNX Runtime."),
    ],
)
def test_a_reproduction_is_named_where_one_was_written(
    blame: Blame, repro: str | None, words: str
) -> None:
    bad = check("typical/seq=7/0", "diverged", budget=41.0, sizes={"seq": 7})
    diagnosis = Diagnosis(
        runtime="onnxruntime", case=bad.case, output="logits", blame=blame, repro=repro
    )
    failed = model("net", bad, verdict="diverged", diagnosis=diagnosis)
    said = str(sentence.of_model(failed, "onnx-gate.yml"))
    assert words in said
    assert ("reproduction and" in said or "the reproduction to" in said) == (repro is not None)


@pytest.mark.parametrize("refused", [True, False])
def test_a_refusal_is_no_wrong_computation(refused: bool) -> None:
    bad = check("typical/seq=7/0", "diverged", sizes={"seq": 7})
    diagnosis = Diagnosis(
        runtime="onnxruntime", case=bad.case, output="*", blame="kernel", refused=refused
    )
    failed = model("net", bad, verdict="diverged", diagnosis=diagnosis)
    said = diagnosed.sentence(diagnosis) + str(sentence.of_model(failed, "onnx-gate.yml"))
    assert ("computes it wrongly" in said) != refused
    assert ("a kernel of ONNX Runtime is wrong" in said) != refused
    assert ("A refusal of ONNX Runtime: it does not run" in said) == refused
    assert ("ONNX Runtime does not run the graph on these inputs" in said) == refused
