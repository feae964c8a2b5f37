"""Sessions of an engine in a process of its own, whose end is an error of that engine alone.

One process serves all sessions of an entry of ``runtimes`` that this process opens. What
goes over its pipes is pickled: both ends are the gate's, and run the same code with the same rights.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.codes import code_of
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array, Refusal, ValueInfo

# The folder that it is started in is no place to import from.
_PROGRAM = (
    "import sys; del sys.path[0]; from onnx_gate.runtimes.host import main; main(*sys.argv[1:])"
)
_LENGTH = struct.Struct("<Q")
# Of the time that is left a call may take so much, and never less than a page fault takes.
_SHARE = 0.5
_LEAST_SECONDS = 1.0


def send(pipe: IO[bytes], message: Any) -> None:
    """Write one message, and its length before it."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Read one message; raises ``EOFError`` where the other end is gone."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)


class Host:
    """The process of one engine, started by and for this process."""

    def __init__(self, name: str) -> None:
        self.owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, name, str(self.owner)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_scratch},
        )

    @property
    def is_ours(self) -> bool:
        """Return whether this process started it and it still runs: a fork needs one of its own."""
        return self.owner == os.getpid() and self._process.poll() is None

    def ask(self, label: str, *message: Any) -> Any:
        """Return the answer; raises ``GateError`` and ``Refusal`` as the engine does, OG310 if it ends.

        It is ended, too, where it takes more than its share of the time that the model has left.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        limit = _limit()
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(limit, end)
        timer.daemon = True
        if limit < threading.TIMEOUT_MAX:
            timer.start()
        try:
            send(process.stdin, message)
            kind, answer = receive(process.stdout)
        except (BrokenPipeError, EOFError) as error:
            ending = _ending(process.wait())
            if late.is_set():
                ending = f"no answer in {limit:.0f} s, half of what the model had left of its time"
            raise codes.OG310.error(f"{label}: {ending}") from error
        finally:
            timer.cancel()
        if kind == "refusal":
            raise Refusal(*answer)
        if kind == "error":
            name, text, error_kind = answer
            raise code_of(name).error(text, kind=error_kind)
        return answer

    def end(self) -> None:
        """End the process, if it is this process's own."""
        if self.owner == os.getpid():
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    if pipe is not None:
                        pipe.close()


_hosts: dict[str, Host] = {}
_scratch: dict[str, str] = {}
_ends: list[float] = []


def prepare(folder: Path, seconds: float) -> None:
    """Have engines put temporary files in ``folder``, and answer within ``seconds`` from now.

    One that is killed in a conversion removes nothing. One that hangs leaves half of the time for
    the others, and for what is told of them.
    """
    _scratch["TMPDIR"] = str(folder)
    _ends[:] = [time.monotonic() + seconds]


def _limit() -> float:
    left = _ends[0] - time.monotonic() if _ends else math.inf
    return max(_LEAST_SECONDS, _SHARE * left)


def open_isolated(model: Path, spec: RuntimeSpec, threads: int) -> IsolatedSession:
    """Load ``model`` in the process of the runtime of ``spec``, which is started where there is none."""
    host = _hosts.get(spec.label)
    if host is None or not host.is_ours:
        if host is None:
            atexit.register(_end, spec.label)
        host = _hosts[spec.label] = Host(spec.name)
    return IsolatedSession(host, model, spec, threads)


class IsolatedSession:
    """A session of another process."""

    def __init__(self, host: Host, model: Path, spec: RuntimeSpec, threads: int) -> None:
        self._host, self._label = host, spec.label
        answer = host.ask(spec.label, "open", model.absolute(), spec, threads)
        self._number: int = answer[0]
        self.inputs: tuple[ValueInfo, ...] = answer[1]
        self.outputs: tuple[ValueInfo, ...] = answer[2]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the engine says of the way it runs the model."""
        findings: tuple[Finding, ...] = self._host.ask(self._label, "findings", self._number)
        return findings

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Run once; see ``Session.run``."""
        outputs: Sequence[Array] = self._host.ask(self._label, "run", self._number, dict(feeds))
        return outputs

    def close(self) -> None:
        """Give back what the session holds, unless its process is gone."""
        with contextlib.suppress(GateError):
            self._host.ask(self._label, "close", self._number)


def _end(label: str) -> None:
    _hosts.pop(label).end()


def _ending(status: int) -> str:
    if status < 0:
        return f"its process was killed by {signal.Signals(-status).name}"
    return f"its process ended with exit status {status} and no answer"
