"""What is built: packages as owners lay them out, and what is said of their factories."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_gate.manifest import InputSpec, ModelSpec
from onnx_gate.verify.build import build

FACTORY = "import torch\n\n\ndef build():\n    return torch.nn.Sequential(torch.nn.Dropout())\n"


def spec(model: str) -> ModelSpec:
    return ModelSpec(name="m", model=model, inputs={"x": InputSpec("float32", (2,))})


def test_a_package_below_src_is_found_and_its_training_mode_is_a_warning(tmp_path: Path) -> None:
    package = tmp_path / "src" / "shop_of_models"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "models.py").write_text(FACTORY)
    built = build(spec("shop_of_models.models:build"), tmp_path)
    assert [(f.code, f.severity) for f in built.findings] == [("OG101", "warning")]
    assert "Return model.eval()" in built.findings[0].message


def test_a_factory_that_the_owner_cannot_change_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, workspace = tmp_path / "library", tmp_path / "work"
    library.mkdir()
    workspace.mkdir()
    (library / "installed_zoo.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(str(library))
    built = build(spec("installed_zoo:build"), workspace)
    assert [(f.code, f.severity) for f in built.findings] == [("OG101", "note")]
    assert "Call eval() where you export it" in built.findings[0].message
