"""A file goes where its statement lets it, and nothing else does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from onnx_gate.attest.accept import refusals
from onnx_gate.attest.statement import parse
from onnx_gate.attest.write import write_statements
from onnx_gate.errors import UserError
from onnx_gate.files import sha256_of
from onnx_gate.manifest import Manifest
from onnx_gate.manifest.load import load
from onnx_gate.manifest.values.waivers import Waiver
from onnx_gate.report.io import read_report
from onnx_gate.report.model import Report
from tests.support.gate import gate

pytestmark = [pytest.mark.process, pytest.mark.slow]

MODELS = """
import torch


def build(size=8):
    torch.manual_seed(0)
    return torch.nn.Linear(size, 600)
"""
MANIFEST = """
version: 1
suites: {few: {random: normal, count: 1}}
defaults: {suites: [few], export: {options: {external_data: true}}}
models:
  ranker: {model: "models.py:build", inputs: {x: "float32[2, 8]"}}
  other: {model: "models.py:build", args: [9], inputs: {x: "float32[2, 9]"}}
"""


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verified")
    (folder / "models.py").write_text(MODELS)
    (folder / "onnx-gate.yml").write_text(MANIFEST)
    done = gate("run", "--keep-models", "--attest", "statements", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Deployed:
    """A file that is about to go somewhere, with the statement that should let it."""

    def __init__(self, verified: Path, folder: Path) -> None:
        self.verified = verified
        self.file = folder / "ranker.onnx"
        self.external = folder / "model.onnx.data"
        models = verified / "onnx-gate-report" / "models"
        shutil.copy(models / "ranker" / "model.onnx", self.file)
        shutil.copy(models / "ranker" / "model.onnx.data", self.external)
        self.statement = (verified / "statements" / "ranker.parity.json").read_bytes()
        manifest = verified / "onnx-gate.yml"
        self.required = [f"manifest={manifest}", "runtime=onnxruntime", "resolution=1e-2"]
        self.folder = folder

    def refused(self) -> list[str]:
        return refusals(self.file, parse(self.statement, "it"), self.required)

    def edit(self, change: Callable[[dict[str, Any]], object]) -> None:
        said = json.loads(self.statement)
        change(said)
        self.statement = json.dumps(said).encode()

    def restated(self, change: Callable[[Report, Manifest], tuple[Report, Manifest]]) -> None:
        """Have the statement made of another report, or of another manifest."""
        folder = self.verified / "onnx-gate-report"
        report, manifest = change(
            read_report(folder / "report.json"), load(self.verified / "onnx-gate.yml")
        )
        write_statements(report, manifest, folder / "report.json", self.folder / "restated")
        self.statement = (self.folder / "restated" / "ranker.parity.json").read_bytes()


@pytest.fixture
def deployed(verified: Path, tmp_path: Path) -> Deployed:
    return Deployed(verified, tmp_path)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def another_file(it: Deployed) -> None:
    shutil.copy(it.verified / "onnx-gate-report" / "models" / "other" / "model.onnx", it.file)
    flip(it.external)


def another_manifest(it: Deployed) -> None:
    changed = it.folder / "onnx-gate.yml"
    changed.write_text(MANIFEST.replace("count: 1", "count: 2"))
    it.required[0] = f"manifest={changed}"


def a_waiver(it: Deployed) -> None:
    known = Waiver(check="few/*", until=date(2030, 1, 1), reason="later")

    def waived(report: Report, manifest: Manifest) -> tuple[Report, Manifest]:
        models = tuple(replace(model, waivers=(known,)) for model in manifest.models)
        return report, replace(manifest, models=models)

    it.restated(waived)


def diverged(it: Deployed) -> None:
    def change(report: Report, manifest: Manifest) -> tuple[Report, Manifest]:
        models = tuple(m.model_copy(update={"verdict": "diverged"}) for m in report.models)
        return report.model_copy(update={"models": models}), manifest

    it.restated(change)


def nothing_compared(it: Deployed) -> None:
    def change(report: Report, manifest: Manifest) -> tuple[Report, Manifest]:
        models = tuple(m.model_copy(update={"checks": ()}) for m in report.models)
        return report.model_copy(update={"models": models}), manifest

    it.restated(change)


def of_the_other(it: Deployed) -> None:
    it.statement = (it.verified / "statements" / "other.parity.json").read_bytes()


def one_more_subject(it: Deployed) -> None:
    other = {"name": "other.onnx", "digest": {"sha256": "0" * 64}}
    it.edit(lambda said: said["subject"].append(other))


def an_unseen_fault(it: Deployed) -> None:
    unseen = ["one channel negated"]
    it.edit(lambda said: said["predicate"]["compared"].update(unseen=unseen))


TAMPERED: dict[str, tuple[Callable[[Deployed], object], str]] = {
    "a byte of the file": (lambda it: flip(it.file), "not the file that was verified"),
    "a byte of the external data": (lambda it: flip(it.external), "not the file that was verified"),
    "no external data": (lambda it: it.external.unlink(), "is not there"),
    "another file of the same name": (another_file, "not the file that was verified"),
    "another manifest": (another_manifest, "another manifest"),
    "a waiver added": (a_waiver, "1 waiver"),
    "an older statement": (lambda it: it.required.append("since=2999-01-01"), "before 2999-01-01"),
    "another commit": (lambda it: it.required.append("commit=0123456"), "not of the commit"),
    "a verdict that is no pass": (diverged, "its verdict is diverged"),
    "nothing compared": (nothing_compared, "nothing was compared"),
    "another model's statement": (of_the_other, "not the file that was verified"),
    "external data left out": (
        lambda it: it.edit(lambda s: s["subject"].pop()),
        "was not verified",
    ),
    "a subject more": (one_more_subject, "does not read"),
    "a runtime more": (
        lambda it: it.required.append("runtime=openvino"),
        "not compared on openvino",
    ),
    "a fault that nobody would see": (an_unseen_fault, "one channel negated would not"),
    "a finer resolution": (lambda it: it.required.append("resolution=1e-12"), "is asked for"),
}


def test_what_was_verified_may_go(deployed: Deployed) -> None:
    assert deployed.refused() == []
    said = parse(deployed.statement, "it")
    assert [each.digest.sha256 for each in said.subject] == [
        sha256_of(deployed.file),
        sha256_of(deployed.external),
    ]
    named = {each.name: each.digest.sha256 for each in said.predicate.configuration}
    for name in ("onnx-gate.yml", "models.py"):
        assert named[name] == sha256_of(deployed.verified / name)
    assert named["report.json"] == sha256_of(deployed.verified / "onnx-gate-report/report.json")


@pytest.mark.parametrize("name", TAMPERED)
def test_what_was_tampered_with_is_refused(name: str, deployed: Deployed) -> None:
    tamper, why = TAMPERED[name]
    tamper(deployed)
    assert why in "; ".join(deployed.refused())


def texts(statement: bytes) -> Iterator[tuple[str, bytes]]:
    twice = b'"_type": "https://in-toto.io/Statement/v1",'
    assert twice in statement
    yield "a key stands twice", statement.replace(twice, twice * 2, 1)
    yield "predicateType", statement.replace(b"attestation/parity", b"attestation/other", 1)
    yield "Extra inputs", statement.replace(b'"waived": 0', b'"waived": 0, "trusted": true', 1)
    yield "no JSON", statement[:-20]


def test_what_is_no_statement_says_so(deployed: Deployed) -> None:
    for why, text in texts(deployed.statement):
        with pytest.raises(UserError, match=why):
            parse(text, "it")
    with pytest.raises(UserError, match="did you mean 'resolution'"):
        refusals(deployed.file, parse(deployed.statement, "it"), ["resolutoin=1"])


def test_a_statement_about_something_else_than_onnx_says_so(deployed: Deployed) -> None:
    deployed.file.write_text("weights to come")
    digest = sha256_of(deployed.file)
    deployed.edit(lambda said: said["subject"][0]["digest"].update(sha256=digest))
    with pytest.raises(UserError, match="is no ONNX file"):
        deployed.refused()


def test_the_command_says_why_and_ends_by_it(deployed: Deployed) -> None:
    statement = deployed.folder / "statement.json"
    statement.write_bytes(deployed.statement)
    call = ("attest", "verify", "ranker.onnx", "--statement", "statement.json", "--require")
    passed = gate(*call, "runtime=onnxruntime", cwd=deployed.folder)
    assert (passed.returncode, passed.stdout) == (0, "ranker.onnx: what was verified\n"), passed
    flip(deployed.file)
    refused = gate(*call, "runtime=onnxruntime", cwd=deployed.folder)
    assert refused.returncode == 1
    assert refused.stderr == "refused: ranker.onnx is not the file that was verified\n"
    assert gate(*call, "mood=sunny", cwd=deployed.folder).returncode == 2
    other = json.loads((deployed.verified / "statements" / "ranker.test-result.json").read_text())
    assert other["predicate"]["result"] == "PASSED"
    assert other["subject"] == json.loads(deployed.statement)["subject"]
    assert other["predicate"]["passedTests"]
