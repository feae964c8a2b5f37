"""The process of one engine; ``isolated`` starts it and is its other end."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import traceback
from typing import Any

from onnx_gate.errors import GateError
from onnx_gate.runtimes.base import Refusal, Session, first_line
from onnx_gate.runtimes.isolated import receive, send
from onnx_gate.runtimes.open import find_runtime

_PR_SET_PDEATHSIG = 1


def main(name: str, parent: str) -> None:
    """Answer until the other end of the pipe is closed."""
    _end_with(int(parent))
    # What an engine prints goes to the model's log, and not between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Native code that crashes says nothing of itself.
    faulthandler.enable()
    sessions: dict[int, Session] = {}
    while True:
        try:
            message = receive(sys.stdin.buffer)
        except EOFError:
            return
        send(answers, _answer(name, sessions, *message))


def _answer(name: str, sessions: dict[int, Session], action: str, *arguments: Any) -> Any:
    try:
        if action == "open":
            session = find_runtime(name).open(*arguments)
            number = max(sessions, default=0) + 1
            sessions[number] = session
            return "answer", (number, session.inputs, session.outputs)
        number, *rest = arguments
        if action == "findings":
            return "answer", tuple(getattr(sessions[number], "findings", ()))
        if action == "run":
            return "answer", list(sessions[number].run(*rest))
        sessions.pop(number).close()
        return "answer", None
    except Refusal as refusal:
        return "refusal", (str(refusal), dict(refusal.data))
    except GateError as error:
        return "error", (error.code, error.message, error.kind)
    except Exception as error:
        traceback.print_exc()
        return "refusal", (f"{type(error).__name__}: {first_line(error)}",)


def _end_with(parent: int) -> None:
    """Let the kernel end this process with the one that it serves (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
