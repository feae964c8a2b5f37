"""A file that Git LFS has not fetched is said to be that."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from onnx_gate.errors import GateError
from onnx_gate.manifest import WeightsSpec
from onnx_gate.verify.checkpoint import load_weights
from onnx_gate.verify.onnx_file import read_model

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def read(path: Path) -> None:
    if path.suffix == ".onnx":
        read_model(path, path.name)
    else:
        load_weights(nn.Linear(1, 1), WeightsSpec(path.name), path.parent)


@pytest.mark.parametrize("name", ["model.onnx", "model.pt", "model.safetensors"])
def test_a_pointer_is_called_one(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(POINTER)
    with pytest.raises(GateError, match=r"is a Git LFS pointer.*git lfs pull"):
        read(path)


def test_garbage_is_not_called_a_pointer(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"garbage" * 100)
    with pytest.raises(GateError, match="cannot be read as an ONNX model"):
        read_model(path, "model.onnx")
