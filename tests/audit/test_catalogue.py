"""Every fault of the catalogue is one: the graph stays valid, and it answers something else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnx_gate.audit.catalogue import CATALOGUE, SEEDINGS
from onnx_gate.audit.edit import Edit, applied
from onnx_gate.audit.fault import KINDS, Fault, FaultSite
from onnx_gate.audit.files import ORIGINAL, share_weights, write_faulty
from onnx_gate.audit.graph import FlatGraph, GraphInput
from onnx_gate.audit.sample import candidates, wilson
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.onnxruntime import OnnxRuntime
from tests.support.audit_graphs import Sample, samples

# What nobody could see: momentum says nothing about inference.
WITHOUT_EFFECT = {"momentum"}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Sample, FlatGraph, Path]]:
    opened = []
    for name, sample in samples().items():
        folder = tmp_path_factory.mktemp(name)
        path = folder / "given.onnx"
        onnx.save_model(sample.model, str(path))
        shared = share_weights(path, folder / "audit")
        inputs = [GraphInput(n, n, spec) for n, spec in sample.inputs.items()]
        graph = FlatGraph(shared, folder / "audit", inputs, sample.sizes)
        opened.append((sample, graph, folder / "audit"))
    return opened


def run(path: Path, sample: Sample, edit: Edit | None = None) -> list[Array] | None:
    """The answers, ``None`` where the runtime refuses."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    feeds = sample.feeds if edit is None or edit.feed is None else edit.feed(sample.feeds)
    try:
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return [np.asarray(each) for each in session.run(None, feeds)]
    except Exception:  # ONNX Runtime's exceptions share no base of their own.
        return None


def same(left: list[Array], right: list[Array]) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(left, right, strict=True))


def edits(fault: Fault, graph: FlatGraph) -> Iterator[tuple[FaultSite, Edit]]:
    for site in fault.sites(graph):
        yield site, fault.seed(graph, site, 0)


@pytest.mark.parametrize("fault", CATALOGUE, ids=lambda fault: fault.name)
def test_a_fault_leaves_a_valid_graph_with_another_answer(
    fault: Fault, graphs: list[tuple[Sample, FlatGraph, Path]]
) -> None:
    changed = tried = 0
    for sample, graph, folder in graphs:
        clean = run(folder / ORIGINAL, sample)
        assert clean is not None
        before = graph.model.SerializeToString(deterministic=True)
        for site, edit in edits(fault, graph):
            tried += 1
            again = fault.seed(graph, site, 0)
            first, second = (applied(graph.model, each) for each in (edit, again))
            assert first.SerializeToString(deterministic=True) == second.SerializeToString(
                deterministic=True
            )
            for name, array in edit.tensors.items():
                np.testing.assert_array_equal(array, again.tensors[name])
            assert edit.in_graph != (edit.feed is not None)
            path = write_faulty(graph.model, edit, folder) if edit.in_graph else folder / ORIGINAL
            onnx.checker.check_model(str(path))
            answers = run(path, sample, edit)
            changed += answers is None or not same(answers, clean)
        assert graph.model.SerializeToString(deterministic=True) == before
    assert tried, "no graph of tests/support/audit_graphs.py has room for it"
    assert bool(changed) == (fault.name not in WITHOUT_EFFECT)


def test_faults_are_seeded_in_bodies_and_in_functions(
    graphs: list[tuple[Sample, FlatGraph, Path]],
) -> None:
    sample, graph, folder = graphs[2]
    assert not graph.model.functions
    clean = run(folder / ORIGINAL, sample)
    given = run(folder.parent / "given.onnx", sample)
    assert clean is not None
    assert given is not None
    assert same(clean, given)
    names = {name for node in graph.nodes for name in node.outputs}
    assert len(names) == sum(len(node.outputs) for node in graph.nodes)
    effective = set()
    for fault in CATALOGUE:
        for site, edit in edits(fault, graph):
            answers = run(write_faulty(graph.model, edit, folder), sample, edit)
            if fault.operators and answers is not None and not same(answers, clean):
                effective.add(graph.nodes[site.index].proto.op_type)
    # Of the branch that is taken, of the loop and of the function; the other branch has no effect.
    assert effective >= {"MatMul", "Softmax", "Gemm", "Tanh", "Mul"}
    assert "LeakyRelu" not in effective


def test_most_faults_run(graphs: list[tuple[Sample, FlatGraph, Path]]) -> None:
    """What a runtime refuses needs no gate: nearly all faults have to be of the silent kind."""
    ran = refused = 0
    for sample, graph, folder in graphs:
        for fault in CATALOGUE:
            for _, edit in edits(fault, graph):
                path = write_faulty(graph.model, edit, folder) if edit.in_graph else None
                answers = run(path or folder / ORIGINAL, sample, edit)
                ran, refused = ran + (answers is not None), refused + (answers is None)
    assert refused < 0.1 * ran


def test_a_run_that_does_not_end_is_ended(tmp_path: Path) -> None:
    endless = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 20]> endless (float[2] x) => (float[2] y) {
          times = Constant <value = int64 {9223372036854775807}> ()
          go = Constant <value = bool {1}> ()
          y = Loop (times, go, x) < body = step (int64 i, bool on, float[2] s) => (bool c, float[2] n) {
              c = Identity (on)
              n = Tanh (s)
          } >
        }"""
    )
    onnx.save_model(endless, str(tmp_path / "endless.onnx"))
    session = OnnxRuntime().open(tmp_path / "endless.onnx", RuntimeSpec("onnxruntime"), 1)
    session.seconds = 0.2
    with pytest.raises(Refusal, match="terminate"):
        session.run({"x": np.ones(2, np.float32)})


def test_the_catalogue_is_complete_data() -> None:
    assert len({fault.name for fault in CATALOGUE}) == len(CATALOGUE)
    assert {fault.name for fault in CATALOGUE} == SEEDINGS.keys()
    assert {fault.kind for fault in CATALOGUE} == set(KINDS)
    for fault in CATALOGUE:
        assert fault.source.startswith(("https://github.com/", "user: "))
        assert list(fault.sizes) == sorted(set(fault.sizes), key=fault.sizes.index)
        assert bool(fault.operators) == (fault.kind != "inputs")


def test_a_sample_is_of_the_seed_and_begins_with_every_kind(
    graphs: list[tuple[Sample, FlatGraph, Path]],
) -> None:
    _, graph, _ = graphs[1]
    first, again, other = (candidates(graph, CATALOGUE, seed) for seed in (0, 0, 1))
    assert [each.id for each in first] == [each.id for each in again]
    assert [each.id for each in first] != [each.id for each in other]
    assert {each.id for each in first} == {each.id for each in other}
    kinds = [each.fault.kind for each in first[: len(KINDS)]]
    assert len(set(kinds)) == len(KINDS)
    weights = [each for each in first if each.fault.kind == "weights"]
    assert len({each.fault.name for each in weights[:12]}) > 3
    assert {each.depth for each in weights[:24]} == {each.depth for each in weights}


def test_weights_are_stored_once(graphs: list[tuple[Sample, FlatGraph, Path]]) -> None:
    """A faulty graph refers to the original's weights, and has what it changes besides."""
    _, graph, folder = graphs[1]
    fault = next(each for each in CATALOGUE if each.name == "weight-stale")
    site = next(iter(fault.sites(graph)))
    weights = (folder / "weights.data").read_bytes()
    path = write_faulty(graph.model, fault.seed(graph, site, 0), folder)
    assert (folder / "weights.data").read_bytes() == weights
    stored = onnx.load(str(path), load_external_data=False)
    assert sum(len(t.raw_data) for t in stored.graph.initializer) < 10_000


@pytest.mark.parametrize(
    ("caught", "of", "low", "high"),
    # Agresti and Coull 1998, and R's binom.confint(method = "wilson").
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (0, 0, 0.0, 1.0)],
)
def test_the_interval_is_wilsons(caught: int, of: int, low: float, high: float) -> None:
    assert wilson(caught, of) == pytest.approx((low, high), abs=1e-4)
