"""Files that really differ from their models, each beside one that does not, under the real gate.

Every night (``make nightly``), or some of them: ``pytest tests/pairs -m nightly -k 'masks or flag'``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onnx_gate.report.model import ModelResult
from tests.support import gate as command
from tests.support.pairs import (
    every_pair,
    exported_as,
    faulty_file_differs,
    write_manifest,
)

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3 * 3600)]

HERE = Path(__file__)
PAIRS = every_pair()
PARAMETERS = [pytest.param(name, id=f"{category}-{name}") for name, (category, _) in PAIRS.items()]
MISSED = [
    pytest.param(
        *parameter.values,
        id=parameter.id,
        marks=[pytest.mark.xfail(reason=pair.missed, strict=True)] if pair.missed else [],
    )
    for parameter, (_, pair) in zip(PARAMETERS, PAIRS.values(), strict=True)
]


@pytest.fixture
def run(
    name: str, request: pytest.FixtureRequest, once: Callable[..., Path]
) -> Callable[[], command.Run]:
    """One run of the gate over the pairs of this one's class that were asked for."""
    category, _ = PAIRS[name]
    asked = {
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == HERE
    }
    chosen = [each for key, each in PAIRS.items() if key in asked and each[0] == category]

    def fill(folder: Path) -> None:
        write_manifest(folder, chosen)
        done = command.gate("run", "--no-cache", "--output", "report", cwd=folder, timeout=3 * 3600)
        assert (folder / "report" / "report.json").exists(), done.stdout + done.stderr
        (folder / "report" / "status").write_text(str(done.returncode))
        (folder / "report" / "output").write_text(done.stdout + done.stderr)

    return lambda: command.finished_run(once(f"pairs-{category}", fill) / "report")


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_fault_is_one(name: str, run: Callable[[], command.Run]) -> None:
    _, pair = PAIRS[name]
    if exported_as(pair, "faulty") is None:
        pytest.skip("the gate exports the faulty file itself, or the manifest is at fault")
    assert faulty_file_differs(pair, run().folder.parent / "files" / f"{name}-faulty.onnx")


@pytest.mark.parametrize("name", MISSED)
def test_the_faulty_file_is_caught(name: str, run: Callable[[], command.Run]) -> None:
    _, pair = PAIRS[name]
    faulty, twin = run().model(f"{name}-faulty"), run().model(f"{name}-twin")
    refused = faulty.verdict != "pass"
    if pair.expect == "unverified":
        caught = refused
    elif pair.expect == "remarked":
        caught = refused or bool(_warnings(faulty) - _warnings(twin))
    else:
        # A file that cannot be judged is not one that was found faulty.
        unread = faulty.error is not None and faulty.error.kind in ("build", "inspect")
        caught = refused and not unread
    assert caught, f"{pair.what}: {_said(faulty)}"


@pytest.mark.parametrize("name", PARAMETERS)
def test_its_twin_is_green(name: str, run: Callable[[], command.Run]) -> None:
    twin = run().model(f"{name}-twin")
    assert twin.verdict == "pass", _said(twin)


def _warnings(model: ModelResult) -> set[str]:
    return {finding.code for finding in model.findings if finding.severity != "note"}


def _said(model: ModelResult) -> str:
    """A verdict in a few words: the error, or where it diverged."""
    codes = " ".join(sorted(_warnings(model)))
    if model.error:
        return f"error {model.error.kind} {model.error.code}: {model.error.message} {codes}"
    diverged = [c for c in model.checks if c.verdict == "diverged" and not c.advice]
    cases = sorted({f"{check.case} {check.output}" for check in diverged})
    return f"{model.verdict} {len(diverged)} checks: {'; '.join(cases[:3])} {codes}"
