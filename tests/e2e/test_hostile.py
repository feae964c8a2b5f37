"""What a model does to its process is an error of that model, and of no other."""

from __future__ import annotations

from collections.abc import Callable

import psutil
import pytest

from tests.support.gate import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HARMFUL = {
    "exits": "crashed",
    "exits_at_once": "crashed",
    "segfaults": "crashed",
    "loops": "timeout",
    "allocates": "memory",
    "raises": "build",
    "corrupts": "crashed",
    "kills_parent": "crashed",
    "interrupts": "crashed",
    "stops": "timeout",
    "dies_later": "crashed",
    "sabotages": "crashed",
    "multiplies": "crashed",
}
HARMLESS = ("first", "last", "prints", "closes_stdout", "leaves_threads")


@pytest.fixture(scope="module")
def hostile(verify_manifest: Callable[..., Run]) -> Run:
    return verify_manifest("hostile.yml")


@pytest.mark.parametrize("name", HARMFUL)
def test_harm_is_an_error_of_the_model_that_does_it(hostile: Run, name: str) -> None:
    model = hostile.model(name)
    assert model.verdict == "error", hostile.output
    assert model.error is not None
    assert model.error.kind == HARMFUL[name]
    assert model.error.message


@pytest.mark.parametrize("name", HARMLESS)
def test_the_others_keep_their_verdicts(hostile: Run, name: str) -> None:
    assert hostile.model(name).verdict == "pass", hostile.output


def test_the_run_fails_and_says_all(hostile: Run) -> None:
    assert hostile.status == 1
    assert len(hostile.report.models) == len(HARMFUL) + len(HARMLESS)


def test_an_exception_of_the_gate_says_where_it_came_from(hostile: Run) -> None:
    error = hostile.model("sabotages").error
    assert error is not None
    assert error.code == "OG505"
    assert "TypeError" in error.message
    assert "onnx_gate/" in error.message
    assert error.log is not None
    log = (hostile.folder / error.log).read_text()
    assert "Traceback (most recent call last)" in log
    assert any("TypeError" in line for line in error.tail)


def test_the_end_of_the_log_is_shown(hostile: Run) -> None:
    error = hostile.model("segfaults").error
    assert error is not None
    assert error.log is not None
    assert (hostile.folder / error.log).exists()
    assert any("Segmentation" in line or "string_at" in line for line in error.tail)


def test_no_line_of_a_model_is_a_workflow_command(hostile: Run) -> None:
    for line in hostile.output.splitlines():
        assert not line.lstrip().startswith("::")
        assert "##[" not in line


def test_nobody_is_left_running(hostile: Run) -> None:
    left = [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(hostile.folder) in part for part in process.info["cmdline"] or ())
    ]
    assert left == []
