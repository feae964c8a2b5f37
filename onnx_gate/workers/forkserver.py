"""A process that has everything imported, has never exported anything, and forks workers.

Idea. To import torch, onnxscript and ONNX Runtime takes a processor 2 to 4 s; to fork a process that
has imported them takes milliseconds, and the fork shares its pages. An export changes the process
that makes it, and spoils later ones. So one process imports, and runs no model; each model gets a
fork of it. It is the zygote of Android and Chromium, and ``multiprocessing.forkserver``.

Python's own does not do here: a worker can connect to its socket and have it run what it likes, it
reports a death of its own as exit status 255, and it reaps workers before anyone can kill what they
left behind. So this one speaks over a nameless pair of sockets that workers do not have.

Invariants, whatever a worker does:

- A pid means one worker until its end is reported. A dead worker stays a zombie until its group has
  been killed, so that its number cannot belong to somebody else by then.
- ENDED is reported when nothing of the worker's family lives: its process group, its session, and
  what has lost its parent, which becomes this process's child (a subreaper, on Linux). What leaves
  its session and its parent on the way is found by the next sweep.
- There is one thread, and no descriptor of the server's in a worker; so a fork is always safe.
- Nothing that a worker prints or sends passes through here: its memory is every later worker's.

Cost. A fork of 300 MB of imports takes about 10 ms, most of it for page tables, and a page that a
worker writes to is copied. A sweep reads ``/proc`` once, some 20 microseconds for each process.
"""

from __future__ import annotations

import gc
import importlib
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from onnx_gate.deadline import Deadline
from onnx_gate.text import last_lines
from onnx_gate.workers import child, process
from onnx_gate.workers.launch import Launch

START_SECONDS = 300.0
"""How long the imports may take: from a cold disk, with the gate's other processes beside them."""

CLOSE_SECONDS = 15.0
"""How long to wait for the server to end its workers; killing a family takes up to 10 s."""

# Orphans are looked for when a child has died, and this often: longer than a process that is born
# and left alone on purpose lives by accident, short enough that it never outlives its worker for long.
_SWEEP_SECONDS = 0.25

_REQUEST = struct.Struct("!cI")  # SPAWN (with three descriptors) or KILL, number of the worker
_REPORT = struct.Struct("!cIiQ")  # what, number, pid or wait status or errno, peak memory
_SPAWN, _KILL = b"S", b"K"
READY, BORN, FAILED, ENDED = b"R", b"B", b"F", b"E"


class ServerLost(Exception):
    """The fork server has ended, or does not answer."""


@dataclass(frozen=True)
class WorkerEvent:
    """``value`` is a pid (BORN), an errno (FAILED) or a wait status (ENDED); ``peak`` bytes."""

    what: bytes
    number: int
    value: int
    peak: int


class ForkServer:
    """The gate's side of a fork server."""

    def __init__(self, target: str, preload: Sequence[str], launch: Launch = Launch()) -> None:
        """Start the server and wait until ``preload`` is imported; raises ``ServerLost``."""
        ours, theirs = socket.socketpair()
        self._control = ours
        self._received = b""
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self._process: subprocess.Popen[bytes] | _Fork
        try:
            with theirs:
                if launch.forked:
                    self._process = self._fork(theirs, target, preload)
                else:
                    self._process = self._start(theirs, target, preload, launch)
        except OSError as error:
            self._control.close()
            self._output.close()
            raise ServerLost(f"the fork server could not be started: {error}") from error
        self.pid = self._process.pid
        try:
            self._wait_until_ready()
        except BaseException:
            self.destroy()
            raise

    def _start(
        self, control: socket.socket, target: str, preload: Sequence[str], launch: Launch
    ) -> subprocess.Popen[bytes]:
        # Set before anything is imported: "-c" would look in the working directory first. Another
        # interpreter knows its own packages.
        path = sys.path if launch.python is None else None
        code = (
            f"import sys; sys.path[:] = {path!r} or sys.path[1:]; "
            "from onnx_gate.workers.forkserver import serve; "
            f"serve({control.fileno()}, {target!r}, {tuple(preload)!r})"
        )
        return subprocess.Popen(
            [*launch.prefix, launch.python or sys.executable, "-c", code],
            env=launch.environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            pass_fds=(control.fileno(),),
            start_new_session=True,
        )

    def _fork(self, control: socket.socket, target: str, preload: Sequence[str]) -> _Fork:
        output = os.dup(self._output.fileno())
        with warnings.catch_warnings():
            # Other threads do not come along; what they hold locked is nothing that a worker needs.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid:
            os.close(output)
            return _Fork(pid)
        try:
            self._control.close()
            os.setsid()
            child.redirect(output)
            serve(control.detach(), target, preload)
        finally:
            os._exit(1)

    def _wait_until_ready(self) -> None:
        self._control.settimeout(START_SECONDS)
        try:
            first = self._control.recv(_REPORT.size)
        except OSError:
            first = b""
        if first[:1] != READY:
            lines = last_lines(os.pread(self._output.fileno(), 1 << 16, 0), 1)
            raise ServerLost(": ".join(("the fork server could not be started", *lines)))
        self._control.setblocking(False)

    def fileno(self) -> int:
        """What becomes readable when there is something to ``receive``."""
        return self._control.fileno()

    def spawn(self, number: int, job: int, pipe: int, log: int) -> None:
        """Ask for a worker; BORN or FAILED will tell. Raises ``ServerLost``."""
        try:
            socket.send_fds(self._control, [_REQUEST.pack(_SPAWN, number)], [job, pipe, log])
        except OSError as error:
            raise ServerLost(str(error)) from error

    def kill(self, number: int) -> None:
        """Ask for the end of a worker and its family; ENDED will tell. Raises ``ServerLost``."""
        try:
            self._control.send(_REQUEST.pack(_KILL, number))
        except OSError as error:
            raise ServerLost(str(error)) from error

    def receive(self) -> list[WorkerEvent]:
        """The reports that have arrived. Raises ``ServerLost`` when there will be no more."""
        try:
            data = self._control.recv(_REPORT.size * 256)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ServerLost(str(error)) from error
        if not data:
            raise ServerLost("the fork server has ended")
        self._received += data
        whole = len(self._received) // _REPORT.size * _REPORT.size
        reports, self._received = self._received[:whole], self._received[whole:]
        return [WorkerEvent(*fields) for fields in _REPORT.iter_unpack(reports)]

    def alive(self) -> bool:
        """Whether its process still runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """Have the server end every worker, then itself."""
        self._control.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_SECONDS)
        self.destroy()

    def destroy(self) -> None:
        """End the server at once; its workers become orphans."""
        self._control.close()
        self._process.kill()
        self._process.wait()
        self._output.close()


def serve(control: int, target: str, preload: Sequence[str]) -> NoReturn:
    """The server's whole life: import ``preload``, then fork a worker for each request."""
    process.set_subreaper(True)
    # PyTorch's and ONNX Runtime's threads take turns. Those that wait in a loop for more work keep
    # the cores from the others: on a busy machine most of the time goes there.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Imports make next to no garbage, and looking for it among a million objects takes a second.
    gc.disable()
    for name in preload:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit):
            # The worker that needs it fails with the same error, in the log of its model.
            traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # A collection in a worker would write to, and so copy, every page of what was imported.
    gc.freeze()
    gc.enable()
    _Server(socket.socket(fileno=control), target).run()
    os._exit(0)


class _Fork:
    """A fork of this process, as ``Popen`` would have it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return the wait status, ``None`` while it runs."""
        if self._status is None:
            with suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self._status = status if pid else None
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises ``TimeoutExpired``."""
        deadline = Deadline(timeout) if timeout is not None else None
        while (status := self.poll()) is None:
            if deadline is not None and deadline.passed():
                raise subprocess.TimeoutExpired("the fork server", timeout or 0.0)
            time.sleep(0.005)
        return status

    def kill(self) -> None:
        """End it, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class _Server:
    def __init__(self, control: socket.socket, target: str) -> None:
        self._control = control
        self._target = target
        self._workers: dict[int, int] = {}  # pid -> number
        self._wake, self._waker = os.pipe()
        for fd in (self._wake, self._waker):
            os.set_blocking(fd, False)

    def run(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        with selectors.PollSelector() as selector:  # has no descriptor that workers would inherit
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            self._report(READY, 0, 0)
            while True:
                ready = selector.select(_SWEEP_SECONDS if self._workers else None)
                files = {key.fd for key, _ in ready}
                if self._wake in files:
                    with suppress(BlockingIOError):
                        os.read(self._wake, 65536)
                if self._control.fileno() in files and not self._obey():
                    break
                self._reap()
        self._end_all()

    def _obey(self) -> bool:
        """Do the next request; False when the gate has gone."""
        try:
            data, fds, _, _ = socket.recv_fds(self._control, _REQUEST.size, 3)
        except ConnectionError:
            return False
        if len(data) < _REQUEST.size:
            return False
        what, number = _REQUEST.unpack(data)
        if what == _SPAWN:
            self._spawn(number, fds)
        else:
            for pid in [pid for pid, known in self._workers.items() if known == number]:
                process.kill_family(pid)
        return True

    def _spawn(self, number: int, fds: list[int]) -> None:
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._report(FAILED, number, error.errno or 0)
        else:
            if pid == 0:
                try:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    self._control.close()
                    os.close(self._wake)
                    os.close(self._waker)
                    for fd in fds:
                        os.set_inheritable(fd, False)
                    job, pipe, log = fds
                    child.live(self._target, job, pipe, log, server)
                finally:
                    os._exit(1)
            self._workers[pid] = number
            self._report(BORN, number, pid)
        for fd in fds:
            os.close(fd)

    def _reap(self) -> None:
        """Collect the dead, and end what they left behind before anyone hears of it."""
        ended = []
        while (pid := self._next_dead()) is not None:
            number = self._workers.pop(pid, None)
            if number is not None:
                # Not yet reaped, so the number of its group cannot belong to anyone else.
                with suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            if number is not None:
                unit = 1 if sys.platform == "darwin" else 1024
                ended.append((number, status, usage.ru_maxrss * unit))
        if ended or self._workers:
            self._end_orphans()
        for number, status, peak in ended:
            self._report(ENDED, number, status, peak)

    def _next_dead(self) -> int | None:
        with suppress(ChildProcessError):
            if hasattr(os, "waitid"):
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                return dead.si_pid if dead else None
            # macOS before Python 3.13, where orphans do not come here: only workers can be dead.
            table = process.process_table()
            return next((p for p in self._workers if p in table and table[p].state == "Z"), None)
        return None

    def _end_orphans(self) -> None:
        """Kill descendants that have lost their parent and are in no living worker's session."""
        process.kill_until_none(self._orphaned)

    def _orphaned(self, table: Mapping[int, process.ProcessRow]) -> list[process.ProcessRow]:
        me = os.getpid()
        orphans = [
            row.pid
            for row in table.values()
            if row.ppid == me
            and row.state != "Z"
            and row.pid not in self._workers
            and row.sid not in self._workers
        ]
        families = process.families(table, orphans).values() if orphans else ()
        return [row for family in families for row in family]

    def _end_all(self) -> None:
        for pid in self._workers:
            process.kill_family(pid)
        deadline = Deadline(CLOSE_SECONDS * 0.8)
        while not deadline.passed():
            self._workers.clear()
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            self._end_orphans()
            time.sleep(0.005)

    def _report(self, what: bytes, number: int, value: int, peak: int = 0) -> None:
        with suppress(OSError):  # the gate has gone; the next read says so
            self._control.sendall(_REPORT.pack(what, number, value, peak))
