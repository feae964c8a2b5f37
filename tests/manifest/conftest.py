from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onnx_gate.manifest import Manifest, ManifestError, load

FILES = (
    "requirements.txt",
    "models/resnet.py",
    "models/detector.py",
    "models/decoder.py",
    "tests/inputs.py",
    "tests/metrics.py",
    "checkpoints/resnet18.safetensors",
    "artifacts/detector.onnx",
    "artifacts/detector.int8.onnx",
    "runs/last.ckpt",
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder with the files that the manifests of the tests name."""
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return tmp_path


@pytest.fixture
def read(workspace: Path) -> Callable[[str | bytes], Manifest]:
    """Load a manifest from its text."""

    def read_text(text: str | bytes) -> Manifest:
        path = workspace / "onnx-gate.yml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(path)

    return read_text


@pytest.fixture
def complaints(read: Callable[[str | bytes], Manifest]) -> Callable[[str | bytes], list[str]]:
    """The problems of a manifest's text, without the name of the file."""

    def complaints_of(text: str | bytes) -> list[str]:
        with pytest.raises(ManifestError) as caught:
            read(text)
        return [str(each).partition("onnx-gate.yml:")[2] for each in caught.value.problems]

    return complaints_of
