"""A statement is about files that the gate has read."""

from __future__ import annotations

from pathlib import Path

from onnx_gate.files import sha256_of
from onnx_gate.gate.kept_files import with_kept_files
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.layout import Layout
from onnx_gate.report.model import ModelResult
from onnx_gate.report.model.result import ExportInfo

SPEC = ModelSpec(name="net", model="a:b", inputs={})


def test_what_is_attested_of_a_file_is_what_the_gate_reads(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "out")
    folder = layout.model("net")
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_text("kept")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "own.onnx").write_text("committed")
    committed = ModelSpec(name="own", model="a:b", inputs={}, onnx="own.onnx")
    hashed = with_kept_files(tmp_path, [SPEC, committed], layout)

    def files(name: str, *names: str) -> dict[str, str]:
        claimed = dict.fromkeys(names, "ab" * 32)
        export = ExportInfo(exporter="dynamo", opset=18, bytes=1, nodes=1, files=claimed)
        found = hashed(ModelResult(name=name, verdict="pass", export=export)).export
        assert found is not None
        return found.files

    own = {"model.onnx": sha256_of(folder / "model.onnx")}
    assert files("net", "model.onnx") == own
    assert files("own", "own.onnx") == {"own.onnx": sha256_of(tmp_path / "own.onnx")}
    (folder / "link").symlink_to(tmp_path / "secret")
    for other in ("missing", "../../../secret", str(tmp_path / "secret"), "link"):
        assert files("net", "model.onnx", other) == {}
    assert files("own", "secret") == {}
