"""From a report to statements: one model, one file of each predicate. Nothing here is signed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnx_gate import __version__
from onnx_gate.attest.statement import (
    TEST_RESULT,
    Compared,
    Digest,
    Parity,
    Resource,
    Statement,
    Waived,
)
from onnx_gate.errors import unwritten
from onnx_gate.files import sha256_of
from onnx_gate.manifest import Manifest, ModelSpec
from onnx_gate.report.io import write_text
from onnx_gate.report.layout import slug
from onnx_gate.report.model import Check, ModelResult, Report
from onnx_gate.report.story.extent import COMPARED, coverage
from onnx_gate.verify.checkpoint_files import checkpoint_files

_RESULTS = {"pass": "PASSED", "diverged": "FAILED", "error": "FAILED"}


def write_statements(report: Report, manifest: Manifest, report_file: Path, folder: Path) -> None:
    """Write what was verified of every file that was; raises ``UserError`` where that is not possible.

    A model that came to no file has no statement, since there is nothing that it could be about, and
    neither has one of which some blocks were judged alone.
    """
    specs = {spec.name: spec for spec in manifest.models}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for model in report.models:
            if model.portion is not None or model.export is None or not model.export.files:
                continue
            statement = statement_of(report, model, specs[model.name], manifest, report_file)
            parity = statement.model_dump(mode="json", by_alias=True, exclude_none=True)
            for name, each in (("parity", parity), ("test-result", _test_result(parity, model))):
                text = json.dumps(each, indent=1, ensure_ascii=False)
                write_text(folder / f"{slug(model.name)}.{name}.json", f"{text}\n")
    except OSError as error:
        raise unwritten(f"--attest {folder}", error, "name a folder that can be") from error


def statement_of(
    report: Report, model: ModelResult, spec: ModelSpec, manifest: Manifest, report_file: Path
) -> Statement:
    """Return what is to be signed of one model."""
    assert model.export is not None
    assert report.created is not None
    counting = _counting(model)
    numbers, decisions, weights = coverage(model), model.decisions, model.weights
    environment = {k: v for k, v in model.environment.items() if isinstance(v, str)}
    return Statement(
        subject=tuple(_resource(name, each) for name, each in model.export.files.items()),
        predicate=Parity(
            model=model.name,
            verdict=model.verdict,
            file=next(iter(model.export.files)),
            created=report.created,
            tolerances={check.output: _asked(check) for check in counting},
            compared=Compared(
                checks=numbers.compared,
                advice=numbers.advice,
                refused=numbers.refused,
                sizes=dict(numbers.sizes),
                resolution=numbers.resolution.worst if numbers.resolution else None,
                unseen=numbers.resolution.unseen if numbers.resolution else (),
                decisions=(decisions.seen, decisions.of) if decisions is not None else None,
                weights=(weights.total - len(weights.unknown), weights.total) if weights else None,
            ),
            runtimes=tuple(sorted({check.runtime for check in counting})),
            environment={"onnx-gate": __version__, **environment},
            waivers=tuple(
                Waived(check=w.check, until=str(w.until), reason=w.reason) for w in spec.waivers
            ),
            waived=sum(check.verdict == "waived" for check in counting),
            sandbox=report.sandbox.level if report.sandbox is not None else None,
            manifest=report.manifest.path,
            configuration=tuple(_configuration(report, spec, manifest, report_file)),
        ),
    )


def _configuration(
    report: Report, spec: ModelSpec, manifest: Manifest, report_file: Path
) -> Iterator[Resource]:
    yield _resource(report.manifest.path, report.manifest.sha256)
    yield _resource("report.json", sha256_of(report_file))
    sha = report.sha or (report.run.sha if report.run is not None else "")
    if sha:
        yield Resource(name="commit", digest=Digest(gitCommit=sha))
    for file in _sources(spec, manifest.workspace):
        if file.is_file():
            yield _resource(file.relative_to(manifest.workspace).as_posix(), sha256_of(file))


def _sources(spec: ModelSpec, workspace: Path) -> Iterator[Path]:
    """Yield the files that the manifest names; the commit has what they import."""
    place = (spec.model or "").partition(":")[0]
    if place:
        module = place if "/" in place or place.endswith(".py") else place.replace(".", "/") + ".py"
        yield workspace / module
    if spec.weights is not None:
        yield from checkpoint_files(workspace / spec.weights.file, workspace)
    if spec.reference is not None:
        yield workspace / spec.reference


def _test_result(parity: dict[str, Any], model: ModelResult) -> dict[str, Any]:
    """Return the same as in-toto's predicate for tests, which others' policies know."""
    verdicts = {"passedTests": "pass", "warnedTests": "waived", "failedTests": "diverged"}
    tests = {
        key: [
            f"{c.runtime}: {c.case}: {c.output}" for c in _counting(model) if c.verdict == verdict
        ]
        for key, verdict in verdicts.items()
    }
    if model.error is not None:
        tests["failedTests"].append(f"{model.error.kind}: {model.error.code}")
    result = _RESULTS[model.verdict]
    return {
        **parity,
        "predicateType": TEST_RESULT,
        "predicate": {
            "result": "WARNED" if result == "PASSED" and tests["warnedTests"] else result,
            "configuration": parity["predicate"]["configuration"],
            **tests,
        },
    }


def _asked(check: Check) -> dict[str, Any]:
    """Return the tolerance, without what it came to in this case."""
    return {key: value for key, value in check.tolerance.items() if key != "allowed"}


def _counting(model: ModelResult) -> list[Check]:
    return [check for check in model.checks if check.verdict in COMPARED and not check.advice]


def _resource(name: str, sha256: str) -> Resource:
    return Resource(name=name, digest=Digest(sha256=sha256))
