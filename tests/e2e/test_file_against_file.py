"""One ONNX file held against another, from the manifest to the diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.version_converter
import pytest
from onnx import TensorProto, helper

from tests.support import onnx_files
from tests.support.gate import Run, finished_run, gate

pytestmark = pytest.mark.process

Inputs = list[tuple[str, int, list[int | str]]]

MANIFEST = """\
version: 1
dims: {batch: [1, 3]}
models:
  optimised: {reference: network.onnx, onnx: optimised.onnx}
  converted: {reference: network.onnx, onnx: converted.onnx}
  faulty: {reference: network.onnx, onnx: faulty.onnx}
  nameless: {reference: network.onnx, onnx: nameless.onnx}
  swapped: {reference: two.onnx, onnx: swapped.onnx}
  tokens: {reference: tokens.onnx, onnx: tokens_too.onnx}
  masked:
    reference: masked.onnx
    onnx: masked_too.onnx
    inputs: {x: "float32[batch, 8]", mask: {dtype: int64, shape: [batch, 8], range: [0, 1]}}
    outputs: {y: {where: mask}}
  table:
    reference: table.onnx
    onnx: table_too.onnx
    inputs: {ids: {dtype: int64, shape: [rows, 4], range: [0, 299999]}}
  misnamed:
    reference: network.onnx
    onnx: optimised.onnx
    inputs: {x: "float32[batch, 8]", mask: "float32[batch, 8]"}
"""


def fill(folder: Path) -> None:
    proto = onnx_files.network(folder / "network.onnx")
    onnx_files.optimised(folder / "network.onnx", folder / "optimised.onnx")
    onnx.save(onnx.version_converter.convert_version(proto, 21), folder / "converted.onnx")
    onnx_files.with_weight(proto, folder / "faulty.onnx", "w1", 1.05)
    onnx_files.renamed(folder / "faulty.onnx", folder / "nameless.onnx")
    both = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Exp", ["x"], ["b"])]
    x: Inputs = [("x", TensorProto.FLOAT, ["batch", 8])]
    onnx_files.save(folder / "two.onnx", both, {}, x, [("a", 8), ("b", 8)])
    onnx_files.save(folder / "swapped.onnx", both, {}, x, [("b", 8), ("a", 8)])
    ids: Inputs = [("ids", TensorProto.INT64, ["batch", 8])]
    cast = [helper.make_node("Cast", ["ids"], ["y"], to=TensorProto.FLOAT)]
    for name in ("tokens.onnx", "tokens_too.onnx"):
        onnx_files.save(folder / name, cast, {}, ids, [("y", 8)])
    for name, outside, inside in (("masked.onnx", 0.0, 1.0), ("masked_too.onnx", 50.0, 1.05)):
        masked = [
            helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.FLOAT),
            helper.make_node("Sub", ["one", "kept"], ["left"]),
            helper.make_node("Mul", ["left", "outside"], ["added"], "not judged"),
            helper.make_node("Add", ["x", "added"], ["h"]),
            helper.make_node("Mul", ["h", "inside"], ["y"], "judged"),
        ]
        constants = {"one": 1.0, "outside": outside, "inside": inside}
        weights = {key: np.array(value, np.float32) for key, value in constants.items()}
        both_inputs: Inputs = [*x, ("mask", TensorProto.INT64, ["batch", 8])]
        onnx_files.save(folder / name, masked, weights, both_inputs, [("y", 8)])
    rows = [
        helper.make_node("Gather", ["table", "ids"], ["read"]),
        helper.make_node("ReduceMean", ["read"], ["y"], axes=[1], keepdims=0),
    ]
    table = np.random.default_rng(0).normal(size=(300000, 3)).astype(np.float32)
    words: Inputs = [("ids", TensorProto.INT64, ["rows", 4])]
    onnx_files.save(folder / "table.onnx", rows, {"table": table}, words, [("y", 3)])
    table[[1777, 241133]] = table[[241133, 1777]]
    onnx_files.save(folder / "table_too.onnx", rows, {"table": table}, words, [("y", 3)])
    (folder / "onnx-gate.yml").write_text(MANIFEST)
    done = gate(
        "run", "--no-cache", "--remedies", "0", "--output", str(folder / "report"), cwd=folder
    )
    (folder / "report" / "status").write_text(str(done.returncode))
    (folder / "report" / "output").write_text(done.stdout + done.stderr)


@pytest.fixture(scope="module")
def run(once: Callable[..., Path]) -> Run:
    return finished_run(once("file-against-file", fill) / "report")


@pytest.mark.parametrize("name", ["optimised", "converted"])
def test_another_form_of_a_file_passes_with_the_inputs_of_the_file(run: Run, name: str) -> None:
    model = run.model(name)
    assert model.verdict == "pass", run.output
    assert model.reference == "network.onnx"
    assert {check.sizes["batch"] for check in model.checks} >= {1, 3}


@pytest.mark.parametrize(
    ("name", "node"), [("faulty", "second"), ("nameless", "n3")], ids=["names", "no names"]
)
def test_a_wrong_weight_is_placed_at_its_node(run: Run, name: str, node: str) -> None:
    diagnosis = run.model(name).diagnosis
    assert diagnosis is not None
    assert diagnosis.node is not None, run.output
    assert (diagnosis.blame, diagnosis.node.name) == ("conversion", node)


def test_what_is_not_judged_is_not_blamed(run: Run) -> None:
    model = run.model("masked")
    assert model.verdict == "diverged", run.output
    diagnosis = model.diagnosis
    assert diagnosis is not None
    assert diagnosis.node is not None, run.output
    assert diagnosis.node.name == "judged"
    # The wrong elements are 5 % off, those that nobody judges by 50.
    errors = [each.error for each in diagnosis.evidence if each.error is not None]
    assert 0 < max(errors) < 0.2


def test_outputs_are_joined_by_their_names_and_their_order_is_a_finding(run: Run) -> None:
    model = run.model("swapped")
    assert {check.verdict for check in model.checks} == {"pass"}
    assert [finding.code for finding in model.findings if finding.severity == "error"] == ["OG115"]


def test_every_row_of_a_table_that_is_another_is_read(run: Run) -> None:
    model = run.model("table")
    assert model.verdict == "diverged", run.output
    wrong = [each.case for each in model.checks if each.verdict == "diverged"]
    assert all(case.startswith("reached/every") for case in wrong), wrong


def test_the_file_is_not_called_pytorch(run: Run) -> None:
    text = " ".join(check.reason for model in run.report.models for check in model.checks)
    assert "the reference's own rounding" in text
    assert "PyTorch" not in run.output


def test_integers_of_a_file_need_a_range_that_can_be_pasted(run: Run) -> None:
    error = run.model("tokens").error
    assert error is not None
    assert error.code == "OG130"
    assert "ids: {dtype: int64, shape: [batch, 8], range: [0, " in error.message


def test_inputs_that_the_file_lacks_are_named(run: Run) -> None:
    error = run.model("misnamed").error
    assert error is not None
    assert error.code == "OG130"
    assert "takes the inputs x, and the manifest names x, mask" in error.message
