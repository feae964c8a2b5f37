"""No room on the disk: said before the export where it can be known, and after it where not."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from onnx_gate.errors import GateError
from onnx_gate.manifest.load import load
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.export import disk, export
from onnx_gate.workers.forked import run_forked

MEBIBYTE = 2**20

MANIFEST = """
version: 1
models:
  linear:
    model: torch.nn:Linear
    inputs: {input: "float32[batch, 1024]"}
    export: {exporter: EXPORTER}
"""


@given(needed=st.integers(0, 1 << 50), free=st.integers(0, 1 << 50))
def test_a_shortage_is_said_where_there_is_one(needed: int, free: int) -> None:
    said = disk.shortage(needed, free)
    assert bool(said) == (needed > free)
    if said:
        assert "--output" in said
        assert "docker run -v" in said


def test_tied_weights_count_once_and_buffers_count() -> None:
    module = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.Linear(1024, 1024, bias=False))
    module[1].weight = module[0].weight
    module.register_buffer("table", torch.zeros(MEBIBYTE, dtype=torch.int8))
    needed = disk.needed_bytes((*module.parameters(), *module.parameters(), *module.buffers()))
    assert 0 <= needed - 5 * MEBIBYTE * (1 + disk.MARGIN_SHARE) - disk.MARGIN_BYTES < 2
    assert disk.needed_bytes(()) == 0


def _export_with(
    folder: Path, exporter: str, limit: int, external: bool
) -> Callable[[], dict[str, object]]:
    """Export four megabytes of weights where no file may grow beyond ``limit`` bytes."""
    (folder / "onnx-gate.yml").write_text(MANIFEST.replace("EXPORTER", exporter))
    spec = load(folder / "onnx-gate.yml").models[0]

    def work() -> dict[str, object]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        if external:
            export.EXTERNAL_DATA_BYTES = 0
        eager = Eager(nn.Linear(1024, 1024).eval(), ("input",))
        example = {"input": np.ones((3, 1024), np.float32)}
        try:
            export.export(spec, eager, example, folder, folder / "out")
        except GateError as error:
            return {"kind": error.kind, "code": error.code, "message": error.message}
        return {"code": ""}

    return work


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("exporter", "external"), [("dynamo", False), ("dynamo", True), ("torchscript", False)]
)
def test_a_file_that_is_cut_short_is_a_full_disk(
    tmp_path: Path, exporter: str, external: bool
) -> None:
    found, trouble = run_forked(_export_with(tmp_path, exporter, MEBIBYTE, external), 200)
    assert not trouble
    assert (found["kind"], found["code"]) == ("export", "OG210"), found
    assert "--output" in str(found["message"])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_file_that_fits_is_written(tmp_path: Path) -> None:
    found, trouble = run_forked(_export_with(tmp_path, "dynamo", 64 * MEBIBYTE, True), 200)
    assert not trouble
    assert found == {"code": ""}


def test_the_check_looks_at_the_folder_of_the_file(tmp_path: Path) -> None:
    module = nn.Module()
    free = shutil.disk_usage(tmp_path).free
    module.weight = nn.Parameter(torch.ones(1).expand(free // 4 + 1))
    with pytest.raises(GateError, match="are free") as caught:
        disk.check_room(tmp_path, module)
    assert caught.value.code == "OG210"
    disk.check_room(tmp_path, nn.Linear(8, 8))
