"""A run of one model imports the exporter in the model's own process, after the model's code has run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import gate

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

MODEL = """
import sys
from pathlib import Path
from unittest.mock import MagicMock
import torch

sys.path.insert(0, str(Path(__file__).parent))
for name in ("tqdm", "triton"):  # packages that the model can do without, one of them there
    sys.modules[name] = MagicMock()
torch.set_default_dtype(torch.float64)

class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 3, dtype=torch.float32)
"""
MANIFEST = """
version: 1
models: {net: {model: models/net.py:Net, inputs: {x: "float32[batch, 4]"}}}
"""


def test_a_models_path_hides_no_module_of_the_exporter_and_its_record_has_none(
    tmp_path: Path,
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/net.py").write_text(MODEL)
    # torch imports Python's own; an export would end here.
    (tmp_path / "models/profile.py").write_text("raise RuntimeError('a user has profiles, too')")
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    run = ["run", "--cache", "cache"]
    first = gate.started(*run, cwd=tmp_path)
    assert first.returncode == 0, first.stdout + first.stderr
    # The exporter has it, and the model has not asked for it.
    (tmp_path / "models/networkx.py").write_text("")
    again = gate.started(*run, cwd=tmp_path)
    assert "1 of 1 verdicts still hold" in again.stdout + again.stderr
