"""What an audit remembers of faults: also of those that have ended a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_gate.gate.journal import Journal

BEGUN = {"kind": "begun", "key": "k", "mutant": {"id": "axis@0", "fate": "survived"}}
REFUSED = {"id": "axis@0", "fate": "refused", "reason": "killed by SIGSEGV"}


@pytest.mark.parametrize("kept", [True, False])
def test_a_fault_that_ends_its_process_is_not_tried_again(tmp_path: Path, kept: bool) -> None:
    journal = Journal(tmp_path if kept else None)
    journal.begin("net", BEGUN)
    assert not journal.ended("other", "killed by SIGSEGV")
    assert journal.ended("net", "killed by SIGSEGV")
    assert not journal.ended("net", "killed by SIGSEGV")
    assert journal.read("net") == {"k": REFUSED}
    assert Journal(tmp_path).read("net") == ({"k": REFUSED} if kept else {})


def test_a_fault_of_which_the_fate_is_known_ends_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.begin("net", BEGUN)
    journal.add("net", {"key": "k", "mutant": {"fate": "caught"}})
    assert not journal.ended("net", "killed by SIGKILL")
    journal.begin("net", BEGUN)
    assert not journal.ended("net", None)
    assert journal.read("net") == {"k": {"fate": "caught"}}


@pytest.mark.parametrize("message", [{}, {"key": 3, "mutant": {}}, {"key": "k", "mutant": [1]}])
def test_what_a_worker_says_is_not_believed_to_be_of_any_form(message: dict[str, object]) -> None:
    journal = Journal(None)
    journal.begin("net", message)
    journal.add("net", message)
    journal.begin("net", message)
    assert not journal.ended("net", "killed by SIGKILL")
    assert journal.read("net") == {}
