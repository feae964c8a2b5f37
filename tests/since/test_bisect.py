"""The release of an exporter that broke a model, found among wheels in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_gate.since.environments import installer
from tests.support.gate import gate
from tests.support.wheels import wheel

pytestmark = [pytest.mark.slow, pytest.mark.process]

MANIFEST = """
version: 1
suites: {one: {random: normal, count: 1}}
defaults: {suites: [one]}
models:
  net:
    model: nets.py:Net
    inputs: {x: "float32[2, 6]"}
    export: {exporter: "writer:export"}
"""
NETS = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return x.sigmoid()
"""
# Writes an operator by hand, as exporters do: which one is what releases differ in.
WRITER = """
import onnx
from onnx import helper

def export(module, example, path):
    value = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 6])
    node = helper.make_node("{}", ["x"], ["y"])
    graph = helper.make_graph([node], "net", [value("x")], [value("y")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    (tmp_path / "nets.py").write_text(NETS)
    for version, operator in (("1.0", "Sigmoid"), ("1.2", "HardSigmoid")):
        wheel(tmp_path / "wheels", "writer", version, WRITER.format(operator))
    wheel(tmp_path / "wheels", "writer", "1.1", "", tag="cp27-none-any")
    return tmp_path


def bisect(project: Path, *arguments: str, package: str = "writer") -> tuple[int, str]:
    done = gate(
        *("bisect", "--package", package, "--find-links", "wheels", "--no-index", *arguments),
        cwd=project,
        variables={"XDG_CACHE_HOME": str(project / "cache")},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(
    installer((), no_index=True).uv is None, reason="pip does not say what it leaves out"
)
def test_the_release_is_named_with_what_it_changed(project: Path) -> None:
    status, said = bisect(project, "1.0..1.2")
    assert status == 0, said
    assert "writer: 2 releases from 1.0 to 1.2" in said
    assert "skipped: writer==1.1 has no wheels" in said
    assert "0 runs beyond the two ends" in said
    *_, verdict, before, after = said.splitlines()
    assert verdict == "net: writer 1.2 is the first bad version"
    assert before.startswith("  1.0: pass, ")
    assert after.startswith("  1.2: diverged, ")
    assert "of the tolerance used (output" in after
    assert len(list((project / "cache" / "onnx-gate" / "environments").iterdir())) == 2


@pytest.mark.parametrize(
    ("package", "arguments", "says"),
    [
        ("writer", ["2.0..3.0"], "no release from 2.0 to 3.0 for this Python"),
        ("writer", ["1.2..1.2"], "only 1.2 from 1.2 to 1.2"),
        ("wirter", ["1.0..1.3"], "wirter was not found"),
        ("writer", ["1.0..1.3", "--model", "nett"], "did you mean 'net'?"),
        ("writer", ["1.0..1.3", "--against", "here"], "'writer' is none: leave it out"),
    ],
)
def test_a_call_that_cannot_be_answered_says_why(
    project: Path, package: str, arguments: list[str], says: str
) -> None:
    status, said = bisect(project, *arguments, package=package)
    assert (status, said.count("Traceback")) == (2, 0), said
    assert says in " ".join(said.split())
