"""What the fork server has made before a model is exported."""

from __future__ import annotations

import inspect
from typing import NoReturn

import pytest
from torch.onnx._internal.exporter._registration import ONNXRegistry

import onnx_gate.verify.export.warm  # noqa: F401


def test_no_export_reads_the_source_of_every_translation(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_: object) -> NoReturn:
        pytest.fail("a translation is read anew")

    monkeypatch.setattr(inspect, "getsource", read)
    assert len(ONNXRegistry.from_torchlib().functions) > 400
