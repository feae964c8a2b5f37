"""Quantised and half-precision files: recognised, a tolerance proposed, the layer with a fault named."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from onnx_gate.manifest import InputSpec, ModelSpec, Tolerance
from onnx_gate.report.io import read_report
from onnx_gate.report.model import Check, ModelResult
from onnx_gate.report.model.check import Metrics
from onnx_gate.report.model.diagnosis import Precision, Proposal
from onnx_gate.report.story import precision as words
from onnx_gate.verify.compared import Comparer, Setting, Tally
from onnx_gate.verify.context import Reduced
from onnx_gate.verify.inspect.reduced import reduced_precision
from onnx_gate.verify.proposal import Measured, note, precision_of, propose
from tests.support import quantised
from tests.support.gate import gate, run_few
from tests.support.quantised import HOW, SHAPES

pytestmark = [pytest.mark.slow, pytest.mark.process]

KINDS = {
    "static": ("static", "int8"),
    "qoperator": ("static", "int8"),
    "dynamic": ("dynamic", "int8"),
    "int4": ("weights", "int4"),
    "fp16": ("half", "float16"),
    "fp16io": ("half", "float16"),
}
FILES = [
    *((model, how) for model in SHAPES for how in HOW),
    ("mlp", "qoperator"),
    ("mlp", "fp16io"),
]
# A file, its correct twin, the product whose weights have a wrong scale, and the layer that it is.
FAULTS = {
    "cnn.bad": ("cnn", "static", 1, "body"),
    "cnn.bad-stem": ("cnn", "dynamic", 0, "stem"),
    "mlp.bad": ("mlp", "static", 1, "second"),
    "mlp.bad-op": ("mlp", "qoperator", 1, "second"),
    "block.bad": ("block", "static", 0, "qkv"),
    "block.bad-int4": ("block", "int4", 1, "proj"),
}
# Without it sums of u8 by s8 products saturate (OG717), and the widest layers lose more than their bits.
VNNI = "vnni" in Path("/proc/cpuinfo").read_text()
LEFT_OUT = pytest.mark.skip(reason="sums of u8 by s8 products saturate on a processor without VNNI")


def is_as_elsewhere(model: str, how: str) -> bool:
    """Return whether a file computes on this processor what it does on one with VNNI."""
    return VNNI or model != "mlp" or how not in ("static", "dynamic", "qoperator")


RUN = [(m, h) for m, h in FILES if is_as_elsewhere(m, h)]
EACH = [pytest.param(*each, marks=[] if each in RUN else [LEFT_OUT]) for each in FILES]


def entry(model: str, file: str, tolerance: dict[str, float] | None = None) -> dict[str, object]:
    shape = ", ".join(map(str, SHAPES[model]))
    own = {} if tolerance is None else {"tolerance": tolerance}
    return {"model": f"models.py:{model}", "onnx": file, "inputs": {"x": f"float32[{shape}]"}} | own


def run(folder: Path, name: str, entries: Mapping[str, object]) -> dict[str, ModelResult]:
    (folder / f"{name}.yml").write_text(json.dumps({"version": 1, "models": entries}))
    done = gate("run", "--manifest", f"{name}.yml", "--no-cache", "--output", name, cwd=folder)
    (folder / f"{name}.txt").write_text(done.stdout + done.stderr)
    return {m.name: m for m in read_report(folder / name / "report.json").models}


@pytest.fixture(scope="session")
def files(once: Callable[..., Path]) -> Path:
    def fill(folder: Path) -> None:
        shutil.copy(quantised.__file__, folder / "models.py")
        for model, shape in SHAPES.items():
            quantised.export(model, folder / f"{model}.onnx")
            for how in (h for m, h in FILES if m == model):
                quantised.quantise(
                    folder / f"{model}.onnx", how, folder / f"{model}.{how}.onnx", shape
                )
        for name, (model, how, index, _) in FAULTS.items():
            source = folder / f"{model}.{how}.onnx"
            scale = quantised.scale_of(source, index)
            quantised.with_wrong_scale(source, folder / f"{name}.onnx", scale, 1.6)

    return once("quantised", fill)


@pytest.fixture(scope="session")
def first(files: Path, once: Callable[..., Path]) -> dict[str, ModelResult]:
    """The first manifest that somebody writes: it names the files and no tolerance."""

    def fill(folder: Path) -> None:
        shutil.copytree(files, folder, dirs_exist_ok=True)
        run(folder, "first", {f"{m}.{h}": entry(m, f"{m}.{h}.onnx") for m, h in RUN})

    folder = once("quantised-first", fill)
    return {m.name: m for m in read_report(folder / "first" / "report.json").models}


@pytest.fixture(scope="session")
def second(
    files: Path, first: dict[str, ModelResult], once: Callable[..., Path]
) -> dict[str, ModelResult]:
    """The second: with the tolerances that the first run has proposed, and files with a fault."""

    def proposed(model: str, how: str) -> dict[str, float]:
        found = first[f"{model}.{how}"].precision
        assert found is not None
        return dict(found.proposals[0].tolerance)

    def fill(folder: Path) -> None:
        shutil.copytree(files, folder, dirs_exist_ok=True)
        entries = {f"{m}.{h}": entry(m, f"{m}.{h}.onnx", proposed(m, h)) for m, h in RUN}
        faults = {n: (m, h) for n, (m, h, *_) in FAULTS.items() if (m, h) in RUN}
        entries |= {n: entry(m, f"{n}.onnx", proposed(m, h)) for n, (m, h) in faults.items()}
        run(folder, "second", entries)

    folder = once("quantised-second", fill)
    return {m.name: m for m in read_report(folder / "second" / "report.json").models}


@pytest.mark.parametrize(("model", "how"), EACH)
def test_it_is_recognised_and_weighed(model: str, how: str, first: dict[str, ModelResult]) -> None:
    result = first[f"{model}.{how}"]
    found = result.precision
    assert found is not None
    assert (found.how, found.dtype) == KINDS[how]
    assert result.diagnosis is not None
    assert result.diagnosis.blame == "reduced precision"
    assert (found.suspect, found.left_db) == (None, None)
    assert found.layers == tuple(sorted(found.layers, key=lambda each: each.snr_db))
    # The costliest layers are products, each of a module and of a line of the user's.
    named = [each.module for each in found.layers if each.module is not None]
    assert named
    assert any(each.source is not None for each in found.layers)
    (proposal,) = found.proposals
    assert proposal.tolerance["snr_db"] < proposal.snr_db
    assert ("top1" in proposal.tolerance) == (model != "block" and proposal.top1 == 1.0)
    if how.startswith("fp16"):
        assert proposal.snr_db > 45
        assert any(f.code == ("OG117" if how == "fp16" else "OG121") for f in result.findings)


@pytest.mark.parametrize(("model", "how"), EACH)
def test_it_passes_with_the_tolerance_that_is_proposed(
    model: str, how: str, second: dict[str, ModelResult]
) -> None:
    assert second[f"{model}.{how}"].verdict == "pass"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if each[:2] in RUN else [LEFT_OUT])
        for name, each in FAULTS.items()
    ],
)
def test_a_wrong_scale_is_caught_and_its_layer_named(
    name: str, second: dict[str, ModelResult]
) -> None:
    result = second[name]
    assert result.verdict == "diverged"
    assert result.diagnosis is not None
    assert result.diagnosis.node is not None
    assert result.diagnosis.node.module == FAULTS[name][3]
    assert result.precision is not None
    suspect = result.precision.suspect
    assert suspect is not None
    assert suspect.gain is not None
    assert suspect.gain == pytest.approx(1.6, abs=0.35)
    assert not result.precision.proposals


def test_a_float_file_is_none_of_them(files: Path) -> None:
    proto = onnx.load(str(files / "mlp.onnx"))
    assert reduced_precision(proto, "file", quantised.mlp()) is None
    half = onnx.load(str(files / "mlp.fp16.onnx"))
    assert reduced_precision(half, "file", quantised.mlp()) is not None
    assert reduced_precision(half, "file", quantised.mlp().half()) is None
    mostly = quantised.mlp().half()
    mostly.register_buffer("scale", torch.ones(3))
    assert reduced_precision(half, "file", mostly) is None
    # What an exporter has made of a weight beforehand is in the file beside it.
    twice = onnx.ModelProto.FromString(half.SerializeToString())
    twice.graph.initializer.extend(half.graph.initializer)
    twice.graph.initializer.extend(half.graph.initializer)
    assert reduced_precision(twice, "file", quantised.mlp().half()) is None
    short = reduced_precision(half, "file", quantised.mlp().bfloat16())
    assert short is not None
    assert "the model in bfloat16" in note(short).message
    # What the gate's own exporters write is what the module says.
    assert reduced_precision(half, "dynamo", quantised.mlp()) is None


def measured(
    snr: float, cosine: float, case: str = "a", drawn: bool = True, agreeing: int = 20
) -> Measured:
    return Measured("ort", case, "logits", {"batch": 2}, drawn, cosine, snr, agreeing, 20)


def made_of(proposals: tuple[Proposal, ...], names: dict[str, str] | None = None) -> Precision:
    return Precision(how="static", dtype="int8", proposals=proposals, names=names or {})


def test_a_proposal_leaves_what_two_draws_are_apart() -> None:
    (proposal,) = propose([measured(30.0, 0.9995), measured(34.0, 0.9998, "b")])
    assert proposal.case == "a"
    assert (proposal.margin_db, proposal.draws) == (4.0, 1)
    assert proposal.tolerance == {"cosine": 0.9987, "snr_db": 26.0, "top1": 0.92}
    assert words.yaml(made_of((proposal,))) == "tolerance: {cosine: 0.9987, snr_db: 26, top1: 0.92}"


def test_a_proposal_without_draws_or_agreement() -> None:
    (proposal,) = propose([measured(30.2, 0.99, drawn=False, agreeing=19)])
    assert (proposal.margin_db, proposal.draws) == (3.0, 0)
    assert proposal.tolerance == {"cosine": 0.98, "snr_db": 27.0}


def test_nothing_is_proposed_for_what_fewer_bits_do_not_explain() -> None:
    """Whatever a file has lost, 18.5 dB was what it should meet."""
    poor = propose([measured(19.5, 0.99)])
    assert poor[0].tolerance == {}
    made = Precision(how="static", dtype="int8", proposals=poor)
    assert "no tolerance is proposed for logits: 19.5 dB" in "\n".join(words.lines(made))
    assert words.reason_and_action(made)[1].startswith("Leave its costliest layers in float32")
    assert propose([measured(19.5, 0.99)], dtype="int4")[0].tolerance


def test_two_outputs_have_a_tolerance_each() -> None:
    checks = [measured(30.0, 0.9995), Measured("ort", "a", "a.b", {}, False, 0.9, 24.0)]
    text = words.yaml(made_of(propose(checks)))
    assert text.startswith("outputs: {logits: {cosine: ")
    assert '"a.b": {cosine: ' in text


REDUCED = Reduced("static", "int8", {})
SPEC = ModelSpec("net", "m.py:Net", {"x": InputSpec("float32", ("batch",))})


def test_outputs_are_called_what_the_manifest_has_to_call_them() -> None:
    checks = [measured(30.0, 0.9995)]
    checks = [*(replace(each, output="0") for each in checks), replace(checks[0], output="2")]
    made = precision_of(REDUCED, checks, SPEC, ("linear_4", "cat_2", "cat_3"), ("0", "1", "2"))
    assert made is not None
    text = words.yaml(made)
    assert re.findall(r"(\w+): [{n]", text) == ["outputs", "linear_4", "cat_2", "cat_3"]
    assert "cat_2: null" in text
    # As the model and the file both call them they stay.
    same = precision_of(REDUCED, checks, SPEC, ("2", "0"), ("0", "2"))
    assert same is not None
    assert words.yaml(same).startswith("outputs: {0: {cosine")


def test_what_the_manifest_has_is_not_proposed_again() -> None:
    checks = [measured(30.0, 0.9995), measured(34.0, 0.9998, "b")]
    had = replace(SPEC, tolerance=Tolerance(cosine=0.9987, snr_db=26.0, top1=0.92))
    for spec, again in ((SPEC, False), (had, True)):
        made = precision_of(REDUCED, checks, spec)
        assert made is not None
        assert ("Paste" in words.reason_and_action(made)[1]) is not again


def test_what_counts_of_cases_that_nobody_chose_is_measured() -> None:
    """A tolerance of the ordinary cases alone was red, and proposed anew, where others count."""
    metrics = {"ordinary": 1.0, "near": 2.0, "far": 90.0, "beyond": 90.0}
    checks = [
        Check(
            runtime="ort",
            suite="typical",
            case=case,
            output="y",
            verdict="diverged",
            metrics=Metrics(elements=1, max_abs=error, max_rel=0.0, rms=0.0),
        )
        for case, error in metrics.items()
    ]
    tally: Tally[Any] = Tally(
        measured=[Measured("ort", case, "y", {}, False, 0.9, 25.0) for case in metrics],
        unchosen={"near": False, "far": False, "beyond": True},
    )
    setting = Setting(spec=SPEC, graph_outputs=(), workspace=Path(), threads=1, reduced=REDUCED)
    Comparer(setting, tally).settled(checks)
    assert [each.case for each in tally.measured] == ["ordinary", "far"]


def test_the_words() -> None:
    line = words.kind_line(Precision(how="static", dtype="int8", operators={"QuantizeLinear": 4}))
    assert line == "int8 with fixed scales (4 QuantizeLinear)"


def test_other_weights_are_not_what_the_layers_cost_that_could_be_told(
    files: Path, once: Callable[..., Path]
) -> None:
    """A file of other weights has none of the module's values but its input."""

    def fill(folder: Path) -> None:
        shutil.copytree(files, folder, dirs_exist_ok=True)
        (folder / "models.py").write_text(
            (folder / "models.py").read_text().replace("manual_seed(0)", "manual_seed(1)")
        )
        run(folder, "other", {"cnn": entry("cnn", "cnn.static.onnx", {"cosine": 0.99})})

    folder = once("quantised-other", fill)
    (result,) = read_report(folder / "other" / "report.json").models
    found, diagnosis = result.precision, result.diagnosis
    assert found is not None
    assert found.suspect is None
    assert found.left_db is not None
    assert found.left_db > 30
    assert words.reason_and_action(found)[0].startswith("the file differs by more than int8, which")
    assert diagnosis is not None
    assert (diagnosis.node, diagnosis.guilty, diagnosis.source) == (None, None, None)
    assert "no other is noisy" not in diagnosis.evidence[0].outcome


CLIPPED = """
import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper


class Clipped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(16, 32), torch.nn.Linear(32, 8)

    def forward(self, x):
        return self.two(self.one(3 * x).clamp(0, 6))


def written(module, path, most):
    stored = {name: value.numpy() for name, value in module.state_dict().items()}
    stored |= {"three": np.array(3, np.float32), "zero": np.array(0, np.uint8)}
    stored["scale"] = np.array(most / 255, np.float32)
    node = helper.make_node
    graph = helper.make_graph(
        [
            node("Mul", ["x", "three"], ["a"]),
            node("Gemm", ["a", "one.weight", "one.bias"], ["b"], "one", transB=1),
            node("QuantizeLinear", ["b", "scale", "zero"], ["c"], "clip"),
            node("DequantizeLinear", ["c", "scale", "zero"], ["d"]),
            node("Gemm", ["d", "two.weight", "two.bias"], ["y"], "two", transB=1),
        ],
        "graph",
        [helper.make_tensor_value_info("x", 1, ["batch", 16])],
        [helper.make_tensor_value_info("y", 1, ["batch", 8])],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


def right(module, example, path): written(module, path, 6)
def narrow(module, example, path): written(module, path, 1)


def behind(module, example, path):
    written(module, path, 6)
    proto = onnx.load(path)
    weight = next(t for t in proto.graph.initializer if t.name == "one.weight")
    factors = np.resize(np.array([[1.5], [0.7]], np.float32), (32, 1))
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * factors, weight.name))
    proto.graph.node[2].input[0] = "b6"
    proto.graph.node.insert(2, helper.make_node("Clip", ["b", "low", "high"], ["b6"]))
    proto.graph.node[-1].output[0] = "e"
    stored = {"low": np.float32(0), "high": np.float32(6), "last": np.float32(3.2 / 255)}
    stored["middle"] = np.array(128, np.uint8)
    for name, value in stored.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    for kind, read, made in (("Quantize", "e", "f"), ("Dequantize", "f", "y")):
        node = helper.make_node(f"{kind}Linear", [read, "last", "middle"], [made], f"end{kind}")
        proto.graph.node.append(node)
    onnx.save(proto, path)
"""


@pytest.mark.slow
def test_a_range_that_is_cut_off_is_the_cause_and_no_matter_of_bits(tmp_path: Path) -> None:
    """What a quantiser ends at is the Clip before it, which tools leave out."""
    entry = (
        'model: models.py:Clipped, inputs: {x: "float32[batch, 16]"}, export: {exporter: "models.py'
    )
    kinds = ("right", "narrow", "behind")
    found = run_few(tmp_path, CLIPPED, {n: f'{entry}:{n}"}}' for n in kinds})
    right, narrow, behind = (found[name] for name in kinds)
    assert narrow.diagnosis is not None
    assert "% of QuantizeLinear clip (above 1" in narrow.diagnosis.cause
    assert narrow.diagnosis.cause.endswith("are cut off by its scale of int8")
    assert narrow.diagnosis.remedy.startswith("Give it a scale that leaves room for these values")
    # Bits alone are still told as bits, with a tolerance that is meant for them.
    assert right.diagnosis is not None
    assert (right.diagnosis.blame, right.diagnosis.cause) == ("reduced precision", "")
    assert right.precision is not None
    assert all(each.tolerance for each in right.precision.proposals)
    # What a layer has made wrongly is beyond the scales of those behind it.
    assert behind.precision is not None
    assert behind.precision.saturated[0].name == "endQuantize"
    assert behind.precision.saturated[0].share > 0.05
    assert behind.precision.suspect is not None
    assert behind.precision.suspect.module == "one"
    assert behind.diagnosis is not None
    assert behind.diagnosis.cause == ""


DAMPED = """
import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper


class Damped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)

    def forward(self, x):
        return self.two(x + 0.001 * self.one(x))


def written(module, path, off):
    rng, half = np.random.default_rng(0), onnx.TensorProto.FLOAT16
    stored = {name: value.numpy() for name, value in module.state_dict().items()}
    for name, share in off.items():
        stored[name] = stored[name] * (1 + share * rng.standard_normal(stored[name].shape))
    stored = {name: array.astype(np.float16) for name, array in stored.items()}
    stored["little"] = np.array(0.001, np.float16)
    node = helper.make_node
    graph = helper.make_graph(
        [
            node("Cast", ["x"], ["a"], to=half),
            node("Gemm", ["a", "one.weight", "one.bias"], ["b"], "one", transB=1),
            node("Mul", ["b", "little"], ["c"], "damp"),
            node("Add", ["a", "c"], ["d"], "sum"),
            node("Gemm", ["d", "two.weight", "two.bias"], ["e"], "two", transB=1),
            node("Cast", ["e"], ["y"], to=onnx.TensorProto.FLOAT),
        ],
        "graph",
        [helper.make_tensor_value_info("x", 1, ["batch", 32])],
        [helper.make_tensor_value_info("y", 1, ["batch", 32])],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


def right(module, example, path): written(module, path, {})
def two(module, example, path): written(module, path, {"two.weight": 0.008})
def both(module, example, path): written(module, path, {"one.weight": 0.05, "two.weight": 0.008})
"""


@pytest.mark.slow
def test_no_tolerance_is_proposed_for_what_half_precision_does_not_explain(tmp_path: Path) -> None:
    """However quiet each layer is, and where a right value in place of one does not help alone."""
    entry = (
        'model: models.py:Damped, inputs: {x: "float32[batch, 32]"}, export: {exporter: "models.py'
    )
    kinds = ("right", "two", "both")
    found = {
        name: result.precision
        for name, result in run_few(tmp_path, DAMPED, {n: f'{entry}:{n}"}}' for n in kinds}).items()
    }
    right, two, both = (found[name] for name in kinds)
    assert right is not None
    assert two is not None
    assert both is not None
    assert right.left_db is None
    assert all(each.tolerance for each in right.proposals)
    assert both.left_db is not None
    assert two.left_db is not None
    assert two.left_db > 55
    assert (two.suspect, two.proposals, both.proposals) == (None, (), ())
    assert words.reason_and_action(two)[0].startswith(
        "the file differs by more than float16, which"
    )
    assert both.suspect is not None
    assert both.suspect.module == "one"
    assert words.reason_and_action(both)[1] == "Put its weights right, or what it computes."
