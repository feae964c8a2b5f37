"""What a session of the runtime ``web`` says where there is no browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from onnx_gate.errors import GateError
from onnx_gate.manifest import RuntimeSpec
from onnx_gate_engines.web import chromium, package, service
from onnx_gate_engines.web.runtime import WebRuntime

pytestmark = pytest.mark.process


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[service.BrowserService]:
    """A broker that finds neither browser nor package, unless a variable names one."""
    (tmp_path / "dist").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(package.VARIABLE, str(tmp_path))
    monkeypatch.setenv(chromium.VARIABLE, str(tmp_path / "chromium"))
    running = service.BrowserService()
    for name, value in running.variables.items():
        monkeypatch.setenv(name, value)
    yield running
    running.close()


def test_the_error_names_what_is_missing(broker: service.BrowserService, tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Sin", ["x"], ["y"])], "g", [x], [y])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph), path)
    with pytest.raises(GateError, match="which is no program") as error:
        WebRuntime().open(path, RuntimeSpec("web"), 1)
    assert error.value.code == "OG302"
    assert WebRuntime().environment() == {}
    assert broker.versions()["the browser"] == "none"
    assert broker.versions()["onnxruntime-web"].startswith("unknown ")
