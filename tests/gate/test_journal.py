"""What an audit remembers of faults: also of those that have ended a process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from onnx_gate.gate.journal import BLOCKS, FAULTS, Journal

BEGUN = {"kind": "begun", "key": "k", "value": {"id": "axis@0", "fate": "survived"}}
REFUSED = {"id": "axis@0", "fate": "refused", "reason": "killed by SIGSEGV"}


@pytest.mark.parametrize("kept", [True, False])
def test_a_fault_that_ends_its_process_is_not_tried_again(tmp_path: Path, kept: bool) -> None:
    journal = Journal(tmp_path if kept else None, FAULTS)
    journal.begin("net", BEGUN)
    assert not journal.ended("other", "killed by SIGSEGV")
    assert journal.ended("net", "killed by SIGSEGV")
    assert not journal.ended("net", "killed by SIGSEGV")
    assert journal.read("net") == {"k": REFUSED}
    assert Journal(tmp_path, FAULTS).read("net") == ({"k": REFUSED} if kept else {})


def test_a_fault_of_which_the_fate_is_known_ends_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path, FAULTS)
    journal.begin("net", BEGUN)
    journal.add("net", {"key": "k", "value": {"fate": "caught"}})
    assert not journal.ended("net", "killed by SIGKILL")
    journal.begin("net", BEGUN)
    assert not journal.ended("net", None)
    assert journal.read("net") == {"k": {"fate": "caught"}}


@pytest.mark.parametrize("message", [{}, {"key": 3, "value": {}}, {"key": "k", "value": [1]}])
def test_what_a_worker_says_is_not_believed_to_be_of_any_form(message: dict[str, object]) -> None:
    journal = Journal(None, FAULTS)
    journal.begin("net", message)
    journal.add("net", message)
    journal.begin("net", message)
    assert not journal.ended("net", "killed by SIGKILL")
    assert journal.read("net") == {}


def test_what_rests_on_something_holds_as_long_as_that_does(tmp_path: Path) -> None:
    journal = Journal(tmp_path, BLOCKS)
    journal.add("net", {"key": "k", "value": {"n": 1}}, {"code": "a"})
    journal.add("net", {"key": "l", "value": {"n": 2}}, {"code": "a"})
    # Another process writes to the same file in between.
    Journal(tmp_path, BLOCKS).add("net", {"key": "k", "value": {"n": 3}}, {"code": "b"})
    journal.add("net", {"key": "m", "value": {"n": 4}}, {"code": "a"})

    def known(code: str) -> dict[str, Mapping[str, Any]]:
        return Journal(tmp_path, BLOCKS).read("net", lambda basis: basis == {"code": code})

    assert known("a") == {"k": {"n": 1}, "l": {"n": 2}, "m": {"n": 4}}
    assert known("b") == {"k": {"n": 3}}
    assert known("c") == {}
    path = tmp_path / "blocks" / "net.jsonl"
    text = path.read_text()
    path.write_text(text.replace('{"n": 1}', '{"n": 9}').replace('{"code": "b"}', '{"code": "c"}'))
    assert known("a") == {"l": {"n": 2}, "m": {"n": 4}}
    assert known("c") == {}
