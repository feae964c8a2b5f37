"""Remedies in the manifest: red, tried, held, put in, green."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onnx_gate.findings import codes
from onnx_gate.manifest import EXPORTERS, ModelSpec
from onnx_gate.manifest.load import load, load_bytes
from onnx_gate.manifest.values.exports import ExportSpec
from onnx_gate.remedy.settings import settings
from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelError, ModelResult, Report
from onnx_gate.report.model.remedy import FreshExport, Remedies
from onnx_gate.report.story.remedied import tried
from onnx_gate.report.story.story import tell
from tests.support.gate import ROOT, gate

pytestmark = [pytest.mark.process, pytest.mark.slow]

BROKEN = ROOT / "examples" / "broken"
MODELS = '''
import torch
from torch import nn

class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(40, 4)
    def forward(self, ids):
        return self.table(ids)

class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(4, 2), nn.Linear(4, 2)
    def forward(self, a, b):
        return self.one(a) + self.other(b)

class Loop(nn.Module):
    """No exporter keeps a loop that is as long as an input."""
    def forward(self, x):
        for _ in range(x.shape[0]):
            x = x * 1.5
        return x

class Counter(nn.Module):
    """It disagrees with itself: nothing is right that a remedy could keep."""
    def __init__(self):
        super().__init__()
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        return x * self.calls
'''
MANIFEST = """\
version: 1
models:
  floats: {model: "models.py:Table", inputs: {ids: "float32[batch]"}}
  values:
    model: models.py:Table
    inputs:
      ids: {dtype: int64, shape: [batch], range: [0, 99]}
  double: {model: "models.py:Sum", inputs: {a: "float32[n, 4]", b: "float64[n, 4]"}}
  loop: {model: "models.py:Loop", inputs: {x: "float32[batch, 3]"}}
  counter: {model: "models.py:Counter", inputs: {x: "float32[batch, 3]"}}
"""


def run(folder: Path, manifest: Path, *arguments: str) -> Report:
    output = folder / "output"
    done = gate(
        *("run", "--manifest", str(manifest), "--output", str(output), *arguments), cwd=folder
    )
    assert (output / "report.json").exists(), done.stdout + done.stderr
    return read_report(output / "report.json")


def of(names: str) -> list[str]:
    return [word for name in names.split() for word in ("--model", name)]


def spec_of(name: str) -> ModelSpec:
    return next(s for s in load(BROKEN / "onnx-gate.yml").models if s.name == name)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Examples of the broken ones: exported wrongly, also by their own, stale, and fused wrongly."""
    folder = tmp_path_factory.mktemp("broken")
    names = of("tanh-gelu baked-length stale-weights fused-gelu")
    return run(folder, BROKEN / "onnx-gate.yml", *names, "--remedies", "20")


PATCHES = {
    "baked-length": """\
-    export: {exporter: torchscript}
+    export: {exporter: dynamo}
""",
    "fused-gelu": """\
+    runtimes: [{name: onnxruntime, session_options: \
{"optimization.disable_specified_optimizers": GeluFusionL1}}]
""",
}


@pytest.mark.parametrize("name", list(PATCHES))
def test_a_setting_that_holds_is_a_patch_of_the_manifest(broken: Report, name: str) -> None:
    model = next(model for model in broken.models if model.name == name)
    assert model.verdict == "diverged"
    assert model.remedies is not None
    remedy = model.remedies.held[0]
    changed = [line for line in remedy.patch.splitlines()[2:] if line[0] in "+-"]
    assert "".join(f"{line}\n" for line in changed) == PATCHES[name]
    # And it is what the remedy says: the same text, where its lines are put in.
    text = (BROKEN / "onnx-gate.yml").read_text().splitlines()
    (edit,) = remedy.edits
    assert tuple(text[edit.line - 1 :][: len(edit.old)]) == edit.old
    text[edit.line - 1 : edit.line - 1 + len(edit.old)] = edit.new
    load_bytes("\n".join(text).encode(), BROKEN / "onnx-gate.yml", on_disk=True)


def test_what_an_own_exporter_writes_stays_and_what_holds_instead_is_evidence(
    broken: Report,
) -> None:
    model = next(model for model in broken.models if model.name == "tanh-gelu")
    assert model.remedies is not None
    assert not model.remedies.held
    assert model.remedies.fresh is not None
    assert model.remedies.fresh.writer == "models/tanh_gelu.py:export"
    assert model.remedies.fresh.export == {"exporter": "dynamo"}
    (said,) = tried(model)
    assert said.patch == ""
    assert said.sentence.startswith("tried: a fresh export with {exporter: dynamo} holds, so it is")


@pytest.mark.parametrize(
    "export",
    [
        ExportSpec("command", command="python release.py --out {output}"),
        ExportSpec("release.py:export", opset=18),
    ],
)
def test_no_remedy_takes_a_script_of_the_owner_from_what_is_verified(export: ExportSpec) -> None:
    spec = replace(spec_of("fused-gelu"), export=export)
    every = list(settings(spec, ModelResult(name=spec.name, verdict="diverged")))
    assert [each.evidence for each in every][-2:] == [True, True]
    for each in every:
        made = each.changes[0].value["exporter"]
        assert each.evidence is (made in EXPORTERS)


def test_of_a_script_without_dynamic_axes_it_is_said_that_it_has_none() -> None:
    found = codes.OG102.finding("m", data={"dims": {"height": 32}, "writer": "release.py"})
    fresh = FreshExport(writer="release.py", export={"exporter": "dynamo"})
    red = ModelResult(
        name="m", verdict="diverged", findings=(found,), remedies=Remedies(tried=1, fresh=fresh)
    )
    (said,) = tried(red)
    assert said.sentence == (
        "tried: a fresh export with {exporter: dynamo} holds, so it is release.py that exports "
        "otherwise: it passes no dynamic axes for 'height'"
    )


def test_nothing_is_put_in_the_place_of_a_file_that_is_not_here() -> None:
    spec = spec_of("stale-weights")
    pointer = ModelError(kind="export", code="OG208", message="it is a Git LFS pointer")
    assert not list(settings(spec, ModelResult(name=spec.name, verdict="error", error=pointer)))


def test_a_stale_file_is_exported_anew_and_left_beside_the_report(broken: Report) -> None:
    model = next(model for model in broken.models if model.name == "stale-weights")
    assert model.remedies is not None
    (remedy,) = model.remedies.held
    assert (remedy.kind, remedy.file) == ("fresh export", "artifacts/stale_weights.onnx")
    assert remedy.made == "remedies/stale-weights/made.onnx"


def test_inputs_that_forward_refuses_are_put_right_and_what_nothing_mends_is_left(
    tmp_path: Path,
) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    manifest = tmp_path / "onnx-gate.yml"
    manifest.write_text(MANIFEST)
    report = run(tmp_path, manifest, "--remedies", "20")
    models = {model.name: model for model in report.models}
    assert all(model.verdict != "pass" for model in models.values())

    floats, values = (models[name].remedies for name in ("floats", "values"))
    assert floats is not None
    assert values is not None
    assert [c.key for c in floats.held[0].changes] == ["inputs.ids.dtype", "inputs.ids.range"]
    assert [c.value for c in values.held[0].changes] == [[0, 39]]
    # What forward was seen to take is tried first, and alone; and that input's line is named.
    double = models["double"].remedies
    assert double is not None
    assert [(c.key, c.value) for c in double.held[0].changes] == [("inputs.b.dtype", "float32")]
    assert (values.tried, double.tried) == (1, 1)
    assert str(tell(report).models[1].place).endswith("onnx-gate.yml:7")

    loop = models["loop"].remedies
    assert loop is not None
    assert loop.tried
    assert not loop.held
    assert models["counter"].remedies is None
    # What the trials wrote is gone, and nothing of the user's has changed.
    assert not list((tmp_path / "output" / "remedies").iterdir())
    assert manifest.read_text() == MANIFEST

    text = MANIFEST
    for name in ("floats", "values", "double"):
        held = models[name].remedies
        assert held is not None
        for edit in held.held[0].edits:
            assert len(edit.old) == len(edit.new) == 1
            text = text.replace(edit.old[0], edit.new[0])
    manifest.write_text(text)
    after = run(tmp_path, manifest, *of("floats values double"))
    assert [model.verdict for model in after.models] == ["pass", "pass", "pass"]


def test_no_float_file_is_offered_for_one_in_fewer_bits() -> None:
    spec = spec_of("stale-weights")
    stale = ModelResult(name=spec.name, verdict="diverged")
    assert [each.kind for each in settings(spec, stale)] == ["fresh export"]
    note = codes.OG415.finding("the file computes in int8, the model in float32")
    assert not list(settings(spec, stale.model_copy(update={"findings": (note,)})))
    written = replace(spec, onnx=None, export=ExportSpec(exporter="models/export.py:int8"))
    assert not list(settings(written, stale.model_copy(update={"findings": (note,)})))


@pytest.mark.parametrize(("code", "written"), [("OG203", False), ("OG206", False), ("OG207", True)])
def test_what_torch_export_refuses_is_tried_at_no_other_opset(code: str, written: bool) -> None:
    spec = replace(spec_of("baked-length"), export=ExportSpec(opset=21, example={"seq": 4}))
    failed = ModelError(kind="export", code=code, message="m")
    every = list(settings(spec, ModelResult(name=spec.name, verdict="error", error=failed)))
    tried_ = [each.changes[0].value for each in every]
    assert {"exporter": "torchscript", "example": {"seq": 4}} in tried_
    # Another size of the example may be what a trace takes.
    assert {"exporter": "dynamo", "opset": 21} in tried_
    assert any(each.get("optimize") is False for each in tried_) is written
    assert any(each.get("opset") == 18 for each in tried_) is written
    assert ({"exporter": "dynamo", "example": {"seq": 4}} in tried_) is written


@pytest.mark.parametrize("named", [False, True])
def test_sizes_that_an_export_holds_for_are_tried_last_where_the_manifest_has_none(
    named: bool,
) -> None:
    dims = ", dims: {seq: [2, 40]}" if named else ""
    text = (
        "version: 1\nmodels:\n"
        f'  m: {{model: "models.py:M", inputs: {{x: "float32[batch, seq, 4]"}}{dims}}}\n'
    )
    (spec,) = load_bytes(text.encode(), Path("onnx-gate.yml"), on_disk=False).models
    bound = codes.OG116.finding("m", data={"dimension": "seq", "sizes": [17, 48]})
    red = ModelResult(name="m", verdict="diverged", findings=(bound,))
    every = [each.changes for each in settings(spec, red)]
    assert len(every) > 1
    assert ([(c.key, c.value) for c in every[-1]] == [("dims.seq", [17, 48])]) is not named
