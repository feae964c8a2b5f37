"""Recording the calls that a script makes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from onnx_gate.errors import UserError
from onnx_gate.init.init import record
from onnx_gate.init.request import Identity

NET = Identity("Net", "/nowhere/net.py")


@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("'", "No closing quotation"),
        ("", "it is empty"),
        ("no-such-command", "No such file"),
        ("false", "ended with status 1, so nothing was written"),
        ("true", "the command called no Net"),
    ],
)
def test_a_command_from_which_nothing_is_learned(command: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words):
        record(command, NET, tmp_path)


@pytest.mark.process
def test_the_users_own_sitecustomize_runs_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.setenv("PYTHONPATH", str(own))
    with pytest.raises(UserError, match="called no Net"):
        record(f"{sys.executable} -c pass", NET, tmp_path)
    assert (tmp_path / "ran").exists()
