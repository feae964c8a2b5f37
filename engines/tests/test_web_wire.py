"""Tensors as bytes, and what the package's folder looks like from here."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from onnx_gate_engines.web import package
from onnx_gate_engines.web.wire import DTYPES, WireError, decode, encode


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)], ids=str)
def test_a_tensor_comes_back_as_it_was(dtype: str, shape: tuple[int, ...]) -> None:
    array = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype)
    strided = np.array(array, order="F")
    header, arrays = decode(encode({"first": strided, "second": array}))
    assert [tensor["name"] for tensor in header["tensors"]] == ["first", "second"]
    for each in arrays:
        assert (each.dtype, each.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(each, array)


def test_text_comes_back_as_it_was() -> None:
    words = np.array([["a", "\0\u202e"], ["", "</script>"]])
    _, (first, number, second) = decode(
        encode({"w": words, "x": np.array(1.5), "o": words.astype(object)})
    )
    assert first.tolist() == second.tolist() == words.tolist()
    assert number == 1.5


def message(header: object, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    start = struct.pack("<I", len(text)) + text
    return start + bytes(-len(start) % 8) + body


TENSOR = {"name": "x", "dtype": "float32", "shape": [2]}


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"\xff\xff\xff\xff",
        message([]),
        message({"tensors": [TENSOR]}, b"four"),
        message({"tensors": [{**TENSOR, "dtype": "object"}]}, bytes(16)),
        message({"tensors": [{**TENSOR, "shape": [-1]}]}, bytes(16)),
        message({"tensors": [{"name": "x"}]}),
        message({"tensors": [{**TENSOR, "dtype": "string"}]}),
        message({"tensors": [{**TENSOR, "dtype": "string", "values": ["only one"]}]}),
    ],
)
def test_what_is_no_message_is_refused(broken: bytes) -> None:
    with pytest.raises(WireError):
        decode(broken)


def test_the_nearest_package_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(package.VARIABLE, raising=False)
    folder = tmp_path / "app" / "node_modules" / "onnxruntime-web"
    (folder / "dist").mkdir(parents=True)
    (folder / "package.json").write_text('{"version": "1.2.3"}')
    below = tmp_path / "app" / "models"
    below.mkdir()
    monkeypatch.chdir(below)
    assert package.find_package() == package.WebPackage(folder / "dist", "1.2.3")

    digest = package.digest_of_package()
    (folder / "dist" / "ort.min.mjs").write_text("export {}")
    assert digest != package.digest_of_package()

    monkeypatch.setenv(package.VARIABLE, str(tmp_path))
    with pytest.raises(package.PackageMissing, match="no folder of onnxruntime-web"):
        package.find_package()
    assert package.digest_of_package() == "none"
