"""A committed file is read where its weights lie whole beside it, and says what is missing of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_gate.errors import GateError
from onnx_gate.verify.onnx_file import read_model

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n"


def stored(folder: Path) -> Path:
    """Write two weights of 64 bytes each to one file beside the model, which ends at byte 4160."""
    names = ("first", "second")
    tensors = [numpy_helper.from_array(np.arange(16, dtype=np.float32), name) for name in names]
    graph = helper.make_graph(
        [helper.make_node("Add", names, ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [16])],
        tensors,
    )
    path = folder / "m.onnx"
    onnx.save_model(
        helper.make_model(graph),
        str(path),
        save_as_external_data=True,
        location="m.data",
        size_threshold=0,
    )
    return path


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (None, "the weights of 'first' should be in 'm.data' beside it, which is not there"),
        (b"", "which has 0: it was cut short"),
        (POINTER, "'m.data', which has the weights of 'second', is a Git LFS pointer"),
    ],
)
def test_weights_that_are_not_all_there_are_named(
    tmp_path: Path, left: bytes | None, words: str
) -> None:
    path = stored(tmp_path)
    assert read_model(path, "m.onnx").graph.initializer[1].name == "second"
    (tmp_path / "m.data").unlink()
    if left is not None:
        (tmp_path / "m.data").write_bytes(left)
    with pytest.raises(GateError) as caught:
        read_model(path, "m.onnx")
    assert (caught.value.code, caught.value.kind) == ("OG208", "inspect")
    assert caught.value.message.startswith("m.onnx: ")
    assert words in caught.value.message


def test_the_last_byte_of_the_last_weight_has_to_be_there(tmp_path: Path) -> None:
    path = stored(tmp_path)
    data = (tmp_path / "m.data").read_bytes()
    (tmp_path / "m.data").write_bytes(data[:-1])
    with pytest.raises(GateError, match=r"of 'second' should end at byte \d+ of 'm.data'"):
        read_model(path, "m.onnx")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("location", "../secret.txt", "in 'secret.txt' beside it, which is not there"),
        ("location", "{outside}", "in 'secret.txt' beside it, which is not there"),
        ("location", "/proc/self/environ", "in 'environ' beside it, which is not there"),
        ("location", "/dev/zero", "in 'zero' beside it, which is not there"),
        ("location", "loop", "in 'loop' beside it, which is not there"),
        ("location", "x" * 5000, "beside it, which is not there"),
        ("offset", "-8", "m.onnx: "),
        ("length", "-8", "m.onnx: "),
        ("offset", "many", "m.onnx: "),
    ],
)
def test_of_what_lies_elsewhere_nothing_is_said(
    tmp_path: Path, key: str, value: str, words: str
) -> None:
    """Whoever wrote the file chose the place: it is the repository's mistake, and no way to look around."""
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("a" * 77)
    (folder / "loop").symlink_to("loop")
    path = stored(folder)
    proto = onnx.load(str(path), load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        if entry.key == key:
            entry.value = value.format(outside=tmp_path / "secret.txt")
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(GateError) as caught:
        read_model(path, "m.onnx")
    assert (caught.value.code, caught.value.kind) == ("OG208", "inspect")
    assert words in caught.value.message
    assert "77" not in caught.value.message
