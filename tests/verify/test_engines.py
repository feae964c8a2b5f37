"""Engines that are installed apart, each on the same file; one that is not there skips and says so."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper

from onnx_gate.errors import GateError
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes import isolated
from onnx_gate.runtimes.base import Refusal, Session, package
from onnx_gate.runtimes.open import find_runtime, open_session
from onnx_gate.verify.sessions import Sessions
from onnx_gate.verify.stopwatch import Clock
from tests.support.gate import ROOT

ENGINES = {"openvino": "openvino", "opencv": "cv2", "mnn": "MNN", "litert": "ai_edge_litert"}
HOST = "onnx_gate.runtimes.host"
FAULTY = ROOT / "tests" / "support" / "faulty_engines"


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> RuntimeSpec:
    name: str = request.param
    if find_spec(ENGINES[name]) is None:
        pytest.skip(f"{name} is not installed: pip install 'onnx-gate[{name}]'")
    if name == "litert" and shutil.which("onnx2tf") is None:
        pytest.skip("onnx2tf, which converts for litert, is not on the PATH")
    return RuntimeSpec(name)


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """Write a file with two inputs and three outputs of different types."""
    nodes = [
        helper.make_node("Mul", ["x", "y"], ["product"], "multiply"),
        helper.make_node("Greater", ["x", "y"], ["greater"], "compare"),
        helper.make_node("Cast", ["greater"], ["counts"], "count", to=TensorProto.INT64),
    ]
    return written(
        tmp_path / "several.onnx",
        nodes,
        {"x": TensorProto.FLOAT, "y": TensorProto.FLOAT},
        {"counts": TensorProto.INT64, "product": TensorProto.FLOAT, "greater": TensorProto.BOOL},
    )


def written(
    path: Path, nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: dict[str, Any]
) -> Path:
    taken, given = (
        [helper.make_tensor_value_info(name, kind, ["batch", 3]) for name, kind in side.items()]
        for side in (inputs, outputs)
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("shop", 1)]
    graph = helper.make_graph(nodes, "graph", taken, given)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    return path


@pytest.fixture
def session(engine: RuntimeSpec, several: Path) -> Iterator[Session]:
    opened = open_session(several, engine, 1)
    yield opened
    opened.close()


def draws(batch: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(batch)
    return {name: generator.normal(size=(batch, 3)).astype(np.float32) for name in ("x", "y")}


@pytest.mark.process
def test_it_answers_by_name_and_order_at_any_size_and_refuses_others(session: Session) -> None:
    assert [value.name for value in session.inputs] == ["x", "y"]
    assert [value.name for value in session.outputs] == ["counts", "product", "greater"]
    for batch in (2, 5):
        feeds = draws(batch)
        counts, product, greater = session.run(feeds)
        np.testing.assert_allclose(product, feeds["x"] * feeds["y"], rtol=1e-6)
        np.testing.assert_array_equal(greater, feeds["x"] > feeds["y"], strict=True)
        np.testing.assert_array_equal(
            counts, (feeds["x"] > feeds["y"]).astype(np.int64), strict=True
        )
    with pytest.raises(Refusal, match="the size of y is 4 on axis 1") as refused:
        session.run(draws(2) | {"y": np.zeros((2, 4), np.float32)})
    assert refused.value.data == {"input": "y", "axis": 1, "expected": 3}
    with pytest.raises(Refusal, match="x is float64, where the graph takes float32"):
        session.run(draws(2) | {"x": np.zeros((2, 3))})


@pytest.mark.process
def test_an_operator_that_it_lacks_is_named_before_anything_runs(
    engine: RuntimeSpec, tmp_path: Path
) -> None:
    if engine.name == "litert":
        pytest.skip("onnx2tf converts a file of no fixed sizes at the first call")
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"], "first"),
        helper.make_node("Haggle", ["positive"], ["y"], "the-haggling", domain="shop"),
    ]
    kind = TensorProto.FLOAT
    path = written(tmp_path / "lacking.onnx", nodes, {"x": kind}, {"y": kind})
    with pytest.raises(GateError) as lacking:
        open_session(path, engine, 1)
    assert lacking.value.code == "OG202"
    assert "Haggle (node 'the-haggling'). Nothing was run." in lacking.value.message
    assert "write them with ONNX's own" in lacking.value.message


@pytest.mark.process
def test_its_end_is_an_error_of_its_own_and_it_can_be_had_again(
    session: Session, engine: RuntimeSpec, several: Path
) -> None:
    before = set(hosts())
    assert before
    for host in before:
        host.kill()
    with pytest.raises(GateError, match="killed by SIGKILL") as ended:
        session.run(draws(2))
    assert ended.value.code == "OG310"
    again = open_session(several, engine, 1)
    assert len(again.run(draws(2))) == 3
    again.close()
    assert not before & set(hosts())


def hosts() -> list[psutil.Process]:
    children = psutil.Process(os.getpid()).children()
    running = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in running if any(HOST in part for part in child.cmdline())]


@pytest.fixture
def with_faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FAULTY))
    paths = [str(FAULTY), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))


@pytest.mark.process
@pytest.mark.parametrize("name", ["raising", "raising-apart"])
def test_what_an_engine_raises_is_an_error_of_that_engine_alone(
    name: str, with_faulty: None, several: Path
) -> None:
    runtimes = [RuntimeSpec(name), RuntimeSpec("onnxruntime")]
    with Sessions(several, runtimes, 1, Clock()) as sessions:
        assert list(sessions) == ["onnxruntime"]
    failed = sessions.failures[name]
    assert (failed.code, "KeyError: 'slope'" in failed.message) == ("OG303", True), failed.message


@pytest.mark.process
def test_an_engine_that_crashes_leaves_its_stack_in_the_log(
    with_faulty: None, several: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(GateError) as ended:
        open_session(several, RuntimeSpec("crashing"), 1)
    assert (ended.value.code, "SIGSEGV" in ended.value.message) == ("OG310", True)
    log = capfd.readouterr().err
    assert "Segmentation fault" in log
    assert "faulty_engines.py" in log


@pytest.mark.process
def test_an_engine_that_hangs_leaves_half_of_the_time_to_the_others(
    with_faulty: None, several: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "_scratch", {})
    monkeypatch.setattr(isolated, "_ends", [])
    isolated.prepare(tmp_path, 8.0)
    runtimes = [RuntimeSpec("hanging"), RuntimeSpec("onnxruntime")]
    with Sessions(several, runtimes, 1, Clock()) as sessions:
        assert list(sessions) == ["onnxruntime"]
    failed = sessions.failures["hanging"]
    assert failed.code == "OG310"
    assert "no answer in 4 s, half of what the model had left of its time" in failed.message


@pytest.mark.process
def test_what_it_leaves_when_it_is_killed_is_in_the_models_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "_scratch", {})
    monkeypatch.setattr(isolated, "_ends", [])
    isolated.prepare(tmp_path, 60.0)
    before = set(hosts())
    host = isolated.Host("reference")
    assert [each.environ()["TMPDIR"] for each in set(hosts()) - before] == [str(tmp_path)]
    host.end()


def test_a_package_that_is_missing_is_named_with_what_to_install() -> None:
    with pytest.raises(GateError) as missing:
        package(RuntimeSpec("openvino"), "no_such_engine")
    assert missing.value.code == "OG302"
    assert str(missing.value) == (
        "openvino: the package of this runtime is not installed: pip install 'onnx-gate[openvino]'"
    )


def test_a_distribution_that_is_missing_is_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])  # where nothing is registered
    with pytest.raises(GateError) as missing:
        find_runtime("ncnn")
    assert missing.value.code == "OG302"
    assert missing.value.message == (
        "the runtime 'ncnn' is in a package of its own, which is not installed: "
        "pip install 'onnx-gate[ncnn]'"
    )


@pytest.mark.process
@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        (RuntimeSpec("openvino", device="GPU.7"), "OG301", "no device 'GPU.7' here, only CPU"),
        (RuntimeSpec("openvino", options={"NUM_STREAM": 1}), "OG302", "NUM_STREAM"),
        (RuntimeSpec("opencv", options={"engine": "old"}), "OG302", "takes engine: new or classic"),
    ],
    ids=str,
)
def test_what_it_cannot_do_is_refused(
    spec: RuntimeSpec, code: str, message: str, several: Path
) -> None:
    pytest.importorskip(ENGINES[spec.name])
    with pytest.raises(GateError) as refused:
        open_session(several, spec, 1)
    assert (refused.value.code, message in refused.value.message) == (code, True), refused.value
