"""Stored inputs: every format, and every mistake in one, named with its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from safetensors.numpy import save_file

from onnx_gate.errors import GateError
from onnx_gate.manifest import FilesSuite, InputSpec
from onnx_gate.verify.inputs.suites.base import Draft, SuiteContext
from onnx_gate.verify.inputs.suites.files import FileCases

X = np.arange(6, dtype=np.float32).reshape(2, 3)
INPUTS = {"x": InputSpec("float32", ("batch", 3))}


def read(folder: Path, pattern: str, inputs: dict[str, InputSpec] = INPUTS) -> list[Draft]:
    context = SuiteContext("real", inputs, ({},), folder)
    return list(FileCases().cases(FilesSuite((pattern,)), context))


def test_every_format_holds_the_same_case(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, output_0=X * 2)
    np.save(tmp_path / "b.npy", X)
    save_file({"x": X}, tmp_path / "c.safetensors")
    torch.save({"x": torch.from_numpy(X)}, tmp_path / "d.pt")
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    tensor = numpy_helper.from_array(X, "x")
    (folder / "input_0.pb").write_bytes(tensor.SerializeToString())
    (folder / "output_0.pb").write_bytes(numpy_helper.from_array(X * 2).SerializeToString())
    assert isinstance(tensor, onnx.TensorProto)
    drafts = read(tmp_path, "*")
    assert [draft.parts for draft in drafts] == [
        ("a",),
        ("b",),
        ("c",),
        ("d",),
        ("test_data_set_0",),
    ]
    for draft in drafts:
        assert np.array_equal(draft.arrays["x"], X)
        assert draft.sizes == {"batch": 2}
    for draft in (drafts[0], drafts[4]):
        assert np.array_equal(draft.expected["0"], X * 2)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": X}, "lacks x; has y"),
        ({"x": X.astype(np.float64)}, "x is float64, the manifest says float32"),
        ({"x": X.T.copy()}, "x has shape [3, 2], the manifest says [batch, 3]"),
        ({"x": X[0]}, "x has shape [3]"),
        ({"x": np.array([None])}, "cannot be read"),
    ],
)
def test_a_mistake_names_the_file(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(GateError, match=r"suites\.real: wrong\.npz") as error:
        read(tmp_path, "*.npz")
    assert words in str(error.value)


def test_a_pickle_is_not_read(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (open, (str(tmp_path / "harm"), "w"))  # type: ignore[return-value]

    torch.save({"x": Harm()}, tmp_path / "a.pt")
    with pytest.raises(GateError, match="cannot be read"):
        read(tmp_path, "*.pt")


def test_a_link_out_of_the_workspace_is_not_followed(tmp_path: Path) -> None:
    inside = tmp_path / "workspace"
    inside.mkdir()
    np.savez(tmp_path / "secret.npz", x=X)
    (inside / "a.npz").symlink_to(tmp_path / "secret.npz")
    with pytest.raises(GateError, match="no file matches"):
        read(inside, "*.npz")


def test_one_dimension_has_one_size(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=np.zeros((5, 1), np.float32))
    inputs = {**INPUTS, "y": InputSpec("float32", ("batch", 1))}
    with pytest.raises(GateError, match="batch is 2 in one input and 5 in y"):
        read(tmp_path, "*.npz", inputs)
