"""Runs the user's own script and reads what its calls of ``forward`` were."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from onnx_gate.errors import UserError
from onnx_gate.init.learn import RecordedCall
from onnx_gate.init.request import Identity

_HOOK = Path(__file__).parent / "hook"
_CALL = TypeAdapter(RecordedCall)


def record(command: str, identity: Identity, folder: Path) -> tuple[RecordedCall, ...]:
    """Run ``command`` in a process of its own and return the calls of the class that it makes.

    What it stores lies in ``folder``, which the caller removes. Raises ``UserError`` where the
    command fails or calls nothing of the class.
    """
    try:
        words = shlex.split(command)
        if not words:
            raise ValueError("it is empty")
    except ValueError as error:
        raise UserError(f"--record {command!r}: {error}") from error
    wanted = {"folder": str(folder), "qualname": identity.qualname, "file": identity.file}
    path = os.pathsep.join([str(_HOOK), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "ONNX_GATE_RECORD": json.dumps(wanted)}
    try:
        status = subprocess.run(words, env=environment, check=False).returncode
    except OSError as error:
        raise UserError(f"--record: {words[0]}: {error.strerror or error}") from error
    if status != 0:
        raise UserError(f"--record: the command ended with status {status}, so nothing was written")
    rows = [row for file in sorted(folder.glob("calls-*.jsonl")) for row in _rows(file)]
    calls = tuple(_call(row) for row in rows if "tensors" in row)
    if not calls:
        trouble = next((f": {row['trouble']}" for row in rows if "trouble" in row), "")
        raise UserError(
            f"--record: the command called no {identity.qualname}{trouble}; it has to be called as "
            "model(...), by Python, and not started with -I, -E or -S"
        )
    return calls


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def _call(row: dict[str, Any]) -> RecordedCall:
    try:
        return _CALL.validate_python(row)
    except ValidationError as error:
        raise UserError(f"--record: a call was noted that cannot be read: {error}") from error
