"""Files whose values leave 16 bits: red where ONNX Runtime's CPU is green, and put right as proposed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from onnx_gate.manifest import RuntimeSpec
from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelResult
from onnx_gate.runtimes.half import FLOAT32, HalfRuntime
from onnx_gate.runtimes.onnxruntime import OnnxRuntime
from tests.support import halves
from tests.support.gate import gate
from tests.support.halves import GRAPHS

pytestmark = [pytest.mark.slow, pytest.mark.process]

_DB = 35.0


def entry(name: str, span: halves.Span, file: str) -> dict[str, object]:
    inputs = {"dtype": "float32", "shape": list(GRAPHS[name].shape), "range": list(span)}
    tolerance = {"snr_db": _DB}
    return {
        "reference": f"{name}.onnx",
        "onnx": file,
        "inputs": {"x": inputs},
        "tolerance": tolerance,
    }


def run(folder: Path, name: str, entries: Mapping[str, object]) -> dict[str, ModelResult]:
    suites = {"few": {"random": "uniform", "count": 1}}
    manifest = {"version": 1, "suites": suites, "defaults": {"suites": ["few"]}, "models": entries}
    (folder / f"{name}.yml").write_text(json.dumps(manifest))
    done = gate("run", "--manifest", f"{name}.yml", "--no-cache", "--output", name, cwd=folder)
    assert (folder / name).exists(), done.stdout + done.stderr
    return {m.name: m for m in read_report(folder / name / "report.json").models}


@pytest.fixture(scope="session")
def files(once: Callable[..., Path]) -> Path:
    return once("halves", halves.write)


def others(folder: Path) -> dict[str, object]:
    """Entries of an infinity that a division absorbs, and of scales that are right and too small."""
    absorbed = halves.plain(halves.Graph(
        "s = Mul(x, x)  t = Mul(s, x)  u = Div(one, t)  y = Add(x, u)", "t", (41, 60), (1, 9)
    ))  # fmt: skip
    onnx.save(absorbed, str(folder / "absorbed.onnx"))
    onnx.save(halves.halved(absorbed), str(folder / "absorbed.half.onnx"))
    onnx.save(halves.plain(halves.Graph("y = Tanh(x)", "", (-1, 1), (-1, 1))), folder / "tanh.onnx")
    for name, scale in (("scaled", 1 / 127), ("cut", 0.25 / 127)):
        model = onnx.parser.parse_model(
            '<ir_version: 9, opset_import: ["" : 18]> g (float[4, 64] x) => (float[4, 64] y) '
            f"<float s = {{{scale}}}, int8 z = {{0}}> "
            "{ [quantise] q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  y = Tanh(d) }"
        )
        onnx.save(model, str(folder / f"{name}.onnx"))
        # The older form, in which an operator has integers on both sides: of twice the value.
        model = onnx.parser.parse_model(
            '<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]> '
            "g (float[4, 64] x) => (float[4, 64] y) "
            f"<float s = {{{1 / 127}}}, float t = {{{2 * scale}}}, int8 z = {{0}}, float h = {{0.5}}> "
            "{ q = QuantizeLinear(x, s, z)  [sum] a = com.microsoft.QLinearAdd(q, s, z, q, s, z, t, z) "
            " d = DequantizeLinear(a, t, z)  e = Mul(d, h)  y = Tanh(e) }"
        )
        onnx.save(model, str(folder / f"{name}-sum.onnx"))
    near = {"dtype": "float32", "shape": [4, 64], "range": [-1, 1]}
    tanh = {"reference": "tanh.onnx", "inputs": {"x": near}, "tolerance": {"snr_db": 30}}
    inputs = {"x": {"dtype": "float32", "shape": [4, 64], "range": [41, 60]}}
    return {
        "absorbed": {
            "reference": "absorbed.onnx",
            "onnx": "absorbed.half.onnx",
            "inputs": inputs,
            "tolerance": {"snr_db": _DB},
        },
        "scaled": {**tanh, "onnx": "scaled.onnx"},
        "cut": {**tanh, "onnx": "cut.onnx"},
        "scaled-sum": {**tanh, "onnx": "scaled-sum.onnx"},
        "cut-sum": {**tanh, "onnx": "cut-sum.onnx"},
    }


@pytest.fixture(scope="session")
def results(files: Path, once: Callable[..., Path]) -> dict[str, ModelResult]:
    """Every file on its ranges; those that are wrong once more, with what is proposed for them."""
    here = files
    entries = {name: entry(name, g.beyond, f"{name}.half.onnx") for name, g in GRAPHS.items()}
    twins = {
        f"{name}-twin": entry(name, g.within, f"{name}.half.onnx") for name, g in GRAPHS.items()
    }
    found = run(here, "found", entries | twins | others(here))
    for name, graph in GRAPHS.items():
        room = found[name].headroom
        assert room is not None, name
        mended = halves.halved(halves.plain(graph), room.in_float32)
        onnx.save(mended, str(here / f"{name}.mended.onnx"))
    mended = {name: entry(name, g.beyond, f"{name}.mended.onnx") for name, g in GRAPHS.items()}
    again = run(here, "mended", mended)
    return found | {f"{name}-mended": model for name, model in again.items()}


@pytest.mark.parametrize("name", GRAPHS)
def test_it_is_red_at_the_node_that_leaves_the_range(
    results: dict[str, ModelResult], name: str
) -> None:
    model = results[name]
    assert model.verdict == "diverged"
    assert {c.runtime for c in model.checks if c.verdict == "diverged"} == {"half"}
    assert model.diagnosis is not None
    assert model.diagnosis.node is not None
    assert model.diagnosis.blame == "reduced precision"
    assert model.diagnosis.node.name == GRAPHS[name].at
    assert model.headroom is not None
    patterns = ", ".join(f"'^{node}$'" for node in model.headroom.in_float32)
    assert f"nodes_to_exclude=[{patterns}]" in model.diagnosis.note
    assert model.diagnosis.replay == ("--runtime", "half")
    assert model.diagnosis.repro is not None
    assert "OG420" in {finding.code for finding in model.findings}


def test_its_reproduction_shows_it(files: Path, results: dict[str, ModelResult]) -> None:
    diagnosis = results["norm"].diagnosis
    assert diagnosis is not None
    folder = files / "found" / str(diagnosis.repro)
    assert gate("replay", str(folder), *diagnosis.replay, cwd=files).returncode == 1
    assert gate("replay", str(folder), cwd=files).returncode == 0  # in float32 it is right


@pytest.mark.parametrize("name", GRAPHS)
def test_its_twin_is_green_and_so_is_the_file_with_what_was_proposed(
    results: dict[str, ModelResult], name: str
) -> None:
    for kind in ("twin", "mended"):
        bad = [c for c in results[f"{name}-{kind}"].checks if c.verdict == "diverged"]
        assert results[f"{name}-{kind}"].verdict == "pass", (kind, bad)


@pytest.mark.parametrize("name", GRAPHS)
def test_no_fewer_nodes_would_do(files: Path, results: dict[str, ModelResult], name: str) -> None:
    """Every smaller set of nodes leaves the file wrong, on inputs of the whole range."""
    room, graph = results[name].headroom, GRAPHS[name]
    assert room is not None
    model = onnx.load(str(files / f"{name}.half.onnx"))
    names = [node.name for node in model.graph.node]
    wrong = [c.case for c in results[name].checks if c.verdict == "diverged"]
    assert wrong
    generator = np.random.default_rng(0)
    inputs = [generator.uniform(*graph.beyond, graph.shape).astype("f4") for _ in range(3)]
    inputs += [np.full(graph.shape, end, np.float32) for end in graph.beyond]
    plain = OnnxRuntime().open(files / f"{name}.onnx", RuntimeSpec("onnxruntime"), 1)
    expected = [plain.run({"x": x})[0] for x in inputs]
    for size in range(len(room.in_float32)):
        for some in itertools.combinations(names, size):
            spec = RuntimeSpec("half", options={FLOAT32: some})
            session = HalfRuntime().open(files / f"{name}.half.onnx", spec, 1)
            answers = [session.run({"x": x})[0] for x in inputs]
            errors = [_db(a, e) for a, e in zip(answers, expected, strict=True)]
            assert min(errors) < _DB, some


def test_an_infinity_that_is_absorbed_is_a_warning_with_its_node(
    results: dict[str, ModelResult],
) -> None:
    model = results["absorbed"]
    assert model.verdict == "pass"
    told = [finding for finding in model.findings if finding.code == "OG420"]
    assert [finding.severity for finding in told] == ["warning"]
    assert model.headroom is not None
    assert model.headroom.first is not None
    assert model.headroom.first.name == "t"
    assert model.headroom.first.largest > 65504


@pytest.mark.parametrize(("suffix", "node"), [("", "quantise"), ("-sum", "sum")])
def test_what_a_scale_cuts_off_is_named_with_its_share(
    results: dict[str, ModelResult], suffix: str, node: str
) -> None:
    right, wrong = results[f"scaled{suffix}"], results[f"cut{suffix}"]
    assert right.verdict == "pass"
    assert "OG420" not in {finding.code for finding in right.findings}
    assert wrong.verdict == "diverged"
    assert wrong.precision is not None
    assert wrong.precision.saturated[0].name == node
    assert 0.6 < wrong.precision.saturated[0].share < 0.9
    assert "OG420" in {finding.code for finding in wrong.findings}


def _db(actual: np.ndarray, expected: np.ndarray) -> float:
    if not np.isfinite(actual).all():
        return -np.inf
    noise = float(np.square(actual - expected, dtype="f8").sum())
    signal = float(np.square(expected, dtype="f8").sum())
    return 10 * float(np.log10(signal / noise)) if noise and signal else np.inf
