"""Execution providers: their options, and what is said of nodes that they leave to others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from onnx_gate.errors import GateError
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.open import open_session
from onnx_gate.runtimes.providers import elsewhere, settings, shortened
from tests.support import onnx_files

CACHES = Path("/caches")


def test_cuda_multiplies_in_float32_unless_asked_otherwise() -> None:
    assert settings("CUDAExecutionProvider", {}, CACHES) == {"use_tf32": "0"}
    assert settings("CUDAExecutionProvider", {"use_tf32": "1"}, CACHES) == {"use_tf32": "1"}
    assert settings("CPUExecutionProvider", {}, CACHES) == {}


def test_tensorrt_keeps_its_engines_outside_of_the_report() -> None:
    given = {"trt_engine_cache_enable": "1"}
    assert settings("TensorrtExecutionProvider", given, CACHES) == {
        **given,
        "trt_engine_cache_path": "/caches/tensorrt",
    }
    own = given | {"trt_engine_cache_path": "/mine"}
    assert settings("TensorrtExecutionProvider", own, CACHES) == own
    assert settings("TensorrtExecutionProvider", {}, CACHES) == {}


@pytest.mark.parametrize(
    ("given", "dtypes"),
    [
        ({"use_tf32": "1"}, ["TF32"]),
        ({"use_tf32": "0", "trt_fp16_enable": "False"}, []),
        ({"trt_fp16_enable": "1", "trt_int8_enable": "true"}, ["float16", "int8"]),
        ({"precision": "FP16"}, ["FP16"]),
        ({"precision": "FP32"}, []),
    ],
)
def test_options_that_shorten_are_in_the_verdict(given: dict[str, str], dtypes: list[str]) -> None:
    notes = shortened("onnxruntime:cuda", given)
    assert [note.data["precision"] for note in notes] == dtypes
    assert all(note.code == "OG309" and note.severity == "note" for note in notes)


@dataclass
class Node:
    op_type: str


@dataclass
class Subgraph:
    ep_name: str
    types: tuple[str, ...]

    def get_nodes(self) -> list[Node]:
        return [Node(each) for each in self.types]


def test_nodes_that_run_elsewhere_are_counted_by_operator() -> None:
    subgraphs = [
        Subgraph("CUDAExecutionProvider", ("Conv", "Relu")),
        Subgraph("CPUExecutionProvider", ("NonZero", "Shape", "Shape")),
    ]
    own, notes = elsewhere("onnxruntime:cuda", "CUDAExecutionProvider", subgraphs)
    assert own == 2
    assert [note.message for note in notes] == [
        "onnxruntime:cuda: 3 of 5 nodes do not run on CUDAExecutionProvider: 2 Shape, 1 NonZero"
    ]
    assert notes[0].data["elsewhere"] == {"NonZero": 1, "Shape": 2}
    assert elsewhere("x", "CUDAExecutionProvider", subgraphs[:1]) == (2, [])


@pytest.mark.parametrize(
    ("strict", "message"),
    [(None, "does not run every node"), (False, "runs not one node of the model")],
)
def test_a_provider_that_runs_nothing_is_no_verdict(
    tmp_path: Path, strict: bool | None, message: str
) -> None:
    """AzureExecutionProvider is in every build, and has kernels for nothing here."""
    onnx_files.network(tmp_path / "model.onnx")
    spec = RuntimeSpec("onnxruntime", provider="azure", strict=strict)
    with pytest.raises(GateError, match=message) as refused:
        open_session(tmp_path / "model.onnx", spec, 1)
    assert refused.value.code == "OG301"
