"""What a worker sends is about what a worker may speak of, and is believed of nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from onnx_gate.gate.outcome import SAID, result_of
from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.values.runtimes import RuntimeSpec
from onnx_gate.report.io import to_message
from onnx_gate.report.model import ModelResult
from onnx_gate.report.model.remedy import LineEdit, Remedies, Remedy
from onnx_gate.report.model.result import Answers, Portion
from onnx_gate.workers.task import End, Outcome

SPEC = ModelSpec(name="net", model="a:b", inputs={}, line=7, runtimes=(RuntimeSpec(name="engine"),))
EDIT = LineEdit(file="other.py", line=1, old=("a",), new=("b",))


def heard(said: ModelResult, **message: Any) -> ModelResult:
    messages = ({"kind": "result", "model": to_message(said), **message},)
    return result_of(SPEC, Outcome(messages, "done", "", (), 1.5, 1 << 20), "net.log")


def test_what_is_the_gates_own_is_not_a_workers_to_say() -> None:
    said = ModelResult(
        name="net",
        verdict="pass",
        line=99,
        required=False,
        reference="other.onnx",
        cached=True,
        seconds=0.1,
        peak_memory=1,
        base="pass",
        portion=Portion(index=1, count=2),
        answers=Answers(folder="net", sha256="0" * 64, bytes=1),
        environment={"torch": "9.9.9"},
        remedies=Remedies(held=(Remedy(kind="source", edits=(EDIT,)),), tried=1),
    )
    own = heard(said)
    expected = ModelResult(
        name="net",
        verdict="pass",
        line=7,
        portion=said.portion,
        seconds=1.5,
        peak_memory=1 << 20,
    )
    assert own == expected
    # A field that is new is the gate's own until somebody says that it is the worker's.
    values = {
        name for name in ModelResult.model_fields if getattr(said, name) != getattr(own, name)
    }
    defaults = {n for n, f in ModelResult.model_fields.items() if n not in said.model_fields_set}
    assert values | SAID | {"name"} == set(ModelResult.model_fields)
    assert defaults <= SAID


def test_a_worker_speaks_of_known_packages_and_of_its_own_engines() -> None:
    said = ModelResult(name="net", verdict="pass")
    told = {
        "torch": "2.9.0\n::error::x",
        "providers": ["CPU", {"a": 1}],
        "engine": 3,
        "evil": "x",
        "numpy": {"a": "b"},
        "onnx-gate": "9",
    }
    own = heard(said, environment=told).environment
    assert own == {"torch": "2.9.0 ::error::x", "providers": ["CPU", "{'a': 1}"], "engine": "3"}
    lost = Outcome(({"kind": "result", "environment": told},), "exit", "", (), 0.0, 0)
    assert result_of(SPEC, lost, "").environment == {}
    assert heard(said, environment=["torch"]).environment == {}


@pytest.mark.parametrize("end", ["timeout", "memory", "signal"])
def test_what_ended_a_model_says_in_which_stage(end: End) -> None:
    """The stage is by the worker's own account: no escape of it reaches a terminal."""
    outcome = Outcome((), end, "over its limit", (), 1.5, 1 << 20)
    error = result_of(SPEC, outcome, "net.log", "verify: runtime\x1b").error
    assert error is not None
    assert error.message == "over its limit in the stage 'verify: runtime'"
