"""The life of one worker, from its fork to its exit."""

from __future__ import annotations

import faulthandler
import gc
import importlib
import os
import pickle
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TextIO

from onnx_gate.workers import channel, process

born = 0.0
"""When this process began, by ``time.perf_counter``; 0 in a process that is no worker."""

LOOKED = "onnx_gate.looked"
"""The audit event of who records what a worker reads: it has looked at something for the first time."""

OWN = "onnx_gate.own"
"""The audit event of what is the gate's doing from now on (true), or is the model's again (false)."""

# Taken before any model's code has run, which may well replace it.
_exit = os._exit
_path, _known = sys.path[:], dict(sys.modules)


def live(target: str, job: int, pipe: int, log: int, parent: int) -> NoReturn:
    """Run ``target`` in this freshly forked process, and leave.

    ``job`` is a file with the token and the pickled payload, ``pipe`` takes the frames, ``log``
    everything printed, ``parent`` is the fork server's pid. Exits with 0 once ``target`` has
    returned, with 1 where it raised, with its own status where it raised ``SystemExit``.
    """
    global born
    born = time.perf_counter()
    _path[:] = sys.path
    _known.update(sys.modules)
    code = 1
    try:
        pid = os.getpid()
        os.setsid()
        process.die_with_parent(parent)
        redirect(log)
        with open(job, "rb") as file:
            sender = channel.Sender(pipe, file.read(channel.TOKEN_BYTES))
            payload = pickle.loads(file.read())
        module, _, name = target.partition(":")
        function: Callable[[Any, Callable[[Mapping[str, object]], None]], object]
        function = getattr(importlib.import_module(module), name)
        function(payload, sender.send)
        code = 0
        # A fork of this process that also came back from the target has nothing to say.
        if os.getpid() == pid:
            _flush()
            sender.end()
    except SystemExit as leaving:
        code = _status(leaving)
    except BaseException:
        code = 1
        with suppress(BaseException):
            traceback.print_exc()
    finally:
        with suppress(BaseException):
            _flush()
        # Teardown would wait for threads that the model left running, and costs about a second.
        _exit(code)


@contextmanager
def own_imports() -> Iterator[None]:
    """Import what is no model's, as the process would have before a model's code has run in it.

    Modules are found where they were then, not in what a model has put in the place of one, and no record
    of what it reads has them.
    """
    path, collects = sys.path[:], gc.isenabled()
    made = {
        name: each
        for name, each in sys.modules.items()
        if (_known[name] is not each if name in _known else name.partition(".")[0] not in _known)
        and getattr(each, "__spec__", None) is None
    }
    try:
        sys.path[:] = _path
        for name in made:
            del sys.modules[name]
        sys.modules.update((name, _known[name]) for name in made if name in _known)
        gc.disable()  # imports make next to no garbage
        sys.audit(OWN, True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.path[:] = path
        sys.modules.update(made)
        if collects:
            gc.enable()
        sys.audit(OWN, False)


def redirect(log: int) -> None:
    """Have everything that this process prints go to the descriptor ``log``, and close that."""
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    # New ones: those of the server think that they write to a file, in which they can seek.
    sys.stdout, sys.stderr = _stream(1), _stream(2)
    vars(sys).update(__stdout__=sys.stdout, __stderr__=sys.stderr)
    process.line_buffer_c_stdout()
    faulthandler.enable(2)


def _stream(fd: int) -> TextIO:
    return open(fd, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _status(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF
    with suppress(BaseException):
        print(leaving.code, file=sys.stderr)
    return 1


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
