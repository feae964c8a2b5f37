"""Many tasks, each in a process of its own that can do no harm to the others.

A task's function is model code: it may exit, crash, hang, eat all memory, write to every
descriptor or kill its parent. Whatever it does becomes the ``Outcome`` of that task alone.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import pickle
import selectors
import signal
import struct
import tempfile
import termios
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from onnx_gate.gate import channel, forkserver, limits, process
from onnx_gate.gate.forkserver import ForkServer, Report, ServerLost
from onnx_gate.gate.launch import Launch

End = Literal["done", "exit", "signal", "timeout", "memory", "protocol", "lost"]

TICK = 0.05
"""Seconds between two looks at the limits, at least."""

GRACE = 30.0
"""Seconds in which the fork server must have started, or ended, a worker it was told to."""

_WATCH_SHARE = 0.05  # of the gate's time, that looking at all processes may take
_READ = 1 << 20


@dataclass(frozen=True)
class Task:
    """What one worker is to do.

    ``payload`` is pickled for the worker. ``timeout`` is in seconds from the worker's start,
    ``memory`` in bytes of resident memory of the worker and all its descendants together (pages
    that they share count for each; None: 85 % of what is available at the start of the run).
    ``log`` is the file for everything printed; what lay there is replaced. What is expected of
    it (null: unknown) decides on order and company only: ``expected_seconds`` of life, and
    ``expected_memory`` in bytes, counted as for ``memory``.
    """

    name: str
    payload: object
    timeout: float
    memory: int | None
    log: Path
    expected_seconds: float | None = None
    expected_memory: int | None = None


@dataclass(frozen=True)
class Outcome:
    """How a task ended.

    ``messages`` are the complete messages of kind ``result``, in order, whatever the end was.
    ``end`` is ``done`` only where the function returned, the process then ended with status 0,
    and nothing but well-formed messages was received. ``detail`` is one sentence for a person,
    ``tail`` the last lines of the log (cleaned, at most 20 of at most 500 characters), ``seconds``
    the life of the worker, ``peak_memory`` the most bytes it was seen to use.
    """

    messages: tuple[dict[str, Any], ...]
    end: End
    detail: str
    tail: tuple[str, ...]
    seconds: float
    peak_memory: int


def run_tasks(
    tasks: Sequence[Task],
    target: str,
    *,
    jobs: int,
    on_event: Callable[[str, dict[str, Any]], None],
    preload: Sequence[str] = (),
    on_start: Callable[[str], None] | None = None,
    on_end: Callable[[str, Outcome], None] | None = None,
    launch: Launch = Launch(),
) -> dict[str, Outcome]:
    """Run ``target`` (``package.module:function``) on each task, ``jobs`` workers at a time.

    The function is called as ``target(payload, emit)`` in a fork of a process that has imported
    ``preload``. Every message it emits goes to ``on_event(name, message)`` as it arrives, and is
    untrusted. ``on_start(name)`` is called when a worker starts: twice for a task that was in
    flight when the fork server died, because it is then run again, alone. ``on_end`` is called
    once per task, when its outcome is known.

    Returns an outcome for every task, by name; a task never raises here. Raises ``ValueError``
    for names that are not unique and for ``jobs`` below 1, and whatever a callback raises
    (``KeyboardInterrupt`` included), once all workers and their descendants are gone. Until
    then the calling process is the parent of every orphan among its descendants (Linux): of its
    own children, started meanwhile by other threads, those in a session of their own would be
    ended with them.
    """
    if len({task.name for task in tasks}) != len(tasks):
        raise ValueError("two tasks have the same name")
    if jobs < 1:
        raise ValueError("jobs must be at least 1")
    pool = _Pool(target, preload, on_event, on_start, on_end, launch)
    before = process.set_subreaper(True)
    try:
        pool.run(tasks, jobs)
        # Whoever was running when a fork server died may have killed it: alone, it can only
        # harm itself.
        pool.run(tuple(pool.suspects), 1, last=True)
    finally:
        try:
            pool.close()
        finally:
            process.set_subreaper(before)
    return {task.name: pool.outcomes[task.name] for task in tasks}


@dataclass
class _Worker:
    task: Task
    number: int
    limit: int
    pipe: int
    log: int
    decoder: channel.Decoder
    asked: float
    pid: int = 0
    started: float = 0.0
    listening: bool = True
    peak: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list)
    doom: tuple[End, str] | None = None
    doomed: float = 0.0


class _Pool:
    def __init__(
        self,
        target: str,
        preload: Sequence[str],
        on_event: Callable[[str, dict[str, Any]], None],
        on_start: Callable[[str], None] | None,
        on_end: Callable[[str, Outcome], None] | None,
        launch: Launch,
    ) -> None:
        self._launch = launch
        self.outcomes: dict[str, Outcome] = {}
        self.suspects: list[Task] = []
        self._target = target
        self._preload = preload
        self._on_event = on_event
        self._on_start = on_start
        self._on_end = on_end
        self._server: ForkServer | None = None
        self._selector = selectors.DefaultSelector()
        self._active: dict[int, _Worker] = {}
        self._numbers = itertools.count(1)
        self._default_limit = limits.default_memory_limit()
        self._strangers = {row.pid for row in _children_elsewhere()}
        self._next_watch = 0.0

    def run(self, tasks: Iterable[Task], jobs: int, *, last: bool = False) -> None:
        """Run all tasks; those in flight when the server dies are suspects, or lost if ``last``."""
        queue = deque(tasks)
        while queue or self._active:
            try:
                while queue and len(self._active) < jobs:
                    if self._server is None and not self._start_server(queue):
                        return
                    self._spawn(queue.popleft())
                for key, _ in self._selector.select(TICK):
                    if isinstance(key.data, _Worker):
                        self._read(key.data, _READ)
                    else:
                        self._receive()
                if time.monotonic() >= self._next_watch:
                    self._watch()
            except ServerLost:
                self._abandon(last)

    def close(self) -> None:
        """End whatever still runs."""
        try:
            if self._server is not None:
                self._selector.unregister(self._server)
                self._server.close()
            self._end_orphans()
        finally:
            for worker in self._active.values():
                self._drop(worker)
            self._active.clear()
            self._selector.close()

    def _start_server(self, queue: deque[Task]) -> bool:
        try:
            self._server = ForkServer(self._target, self._preload, self._launch)
        except ServerLost as error:
            self._end_orphans()
            while queue:
                self._settle(queue.popleft(), Outcome((), "lost", str(error), (), 0.0, 0))
            return False
        self._selector.register(self._server, selectors.EVENT_READ)
        return True

    def _spawn(self, task: Task) -> None:
        assert self._server is not None
        token = channel.new_token()
        try:
            log = limits.create_log(task.log)
        except OSError as error:
            # An earlier worker may have put something in the way: no reason to lose the others.
            detail = f"its log could not be created: {error.strerror}"
            self._settle(task, Outcome((), "lost", detail, (), 0.0, 0))
            return
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        worker = _Worker(
            task=task,
            number=next(self._numbers),
            limit=self._default_limit if task.memory is None else task.memory,
            pipe=reader,
            log=log,
            decoder=channel.Decoder(token),
            asked=time.monotonic(),
        )
        self._active[worker.number] = worker
        self._selector.register(reader, selectors.EVENT_READ, worker)
        # Not by way of the server, whose memory every later worker inherits.
        with tempfile.TemporaryFile() as job:
            try:
                job.write(token + pickle.dumps(task.payload))
                job.seek(0)
                self._server.spawn(worker.number, job.fileno(), writer, log)
            finally:
                os.close(writer)

    def _read(self, worker: _Worker, most: int) -> None:
        """Take in what the worker sent, at most ``most`` bytes of it."""
        while most > 0 and worker.listening:
            try:
                data = os.read(worker.pipe, min(most, 1 << 18))
            except BlockingIOError:
                return
            if not data:
                self._deafen(worker)
                return
            most -= len(data)
            try:
                for message in worker.decoder.feed(data):
                    if message["kind"] == "result":
                        worker.messages.append(message)
                    self._on_event(worker.task.name, message)
            except channel.ProtocolError as error:
                self._deafen(worker)
                self._doom(worker, "protocol", str(error))

    def _deafen(self, worker: _Worker) -> None:
        if worker.listening:
            worker.listening = False
            self._selector.unregister(worker.pipe)

    def _doom(self, worker: _Worker, end: End, detail: str) -> None:
        """Decide how the worker ends, and have it end so."""
        if worker.doom is None:
            worker.doom = end, detail
            worker.doomed = time.monotonic()
            if self._server is not None:
                self._server.kill(worker.number)

    def _receive(self) -> None:
        if self._server is None:
            return
        for report in self._server.receive():
            worker = self._active.get(report.number)
            if worker is None:
                continue
            if report.what == forkserver.BORN:
                worker.pid = report.value
                worker.started = time.monotonic()
                if self._on_start is not None:
                    self._on_start(worker.task.name)
            else:
                self._ended(worker, report)

    def _ended(self, worker: _Worker, report: Report) -> None:
        """The worker and its family are gone; what is in the pipe now is all there is."""
        with suppress(ServerLost):
            self._read(worker, _readable(worker.pipe))
        worker.peak = max(worker.peak, report.peak)
        end, detail = worker.doom or _judge(worker, report)
        self._finish(worker, end, detail)

    def _finish(self, worker: _Worker, end: End, detail: str) -> None:
        outcome = Outcome(
            messages=tuple(worker.messages),
            end=end,
            detail=detail,
            tail=limits.log_tail(worker.log),
            seconds=time.monotonic() - (worker.started or worker.asked),
            peak_memory=worker.peak,
        )
        self._active.pop(worker.number, None)
        self._drop(worker)
        self._settle(worker.task, outcome)

    def _settle(self, task: Task, outcome: Outcome) -> None:
        self.outcomes[task.name] = outcome
        if self._on_end is not None:
            self._on_end(task.name, outcome)

    def _drop(self, worker: _Worker) -> None:
        self._deafen(worker)
        os.close(worker.pipe)
        os.close(worker.log)

    def _watch(self) -> None:
        """Hold the server and every worker to their limits."""
        if self._server is None:
            return
        begin = time.monotonic()
        table = process.process_table()
        server = table.get(self._server.pid)
        # A server that a worker has stopped or traces is as lost as one that it has killed.
        if not self._server.alive() or server is None or server.state in "TtZ":
            raise ServerLost("the fork server does not run")
        families = process.families(table, {w.pid for w in self._active.values() if w.pid})
        for worker in list(self._active.values()):
            limits.cap_log(worker.log)
            if begin - (worker.doomed or worker.asked) > GRACE and (worker.doom or not worker.pid):
                raise ServerLost("the fork server does not answer")
            if not worker.pid:
                continue
            used = sum(row.rss for row in families[worker.pid])
            worker.peak = max(worker.peak, used)
            if used > worker.limit:
                self._doom(
                    worker,
                    "memory",
                    f"over its memory limit of {limits.gibibytes(worker.limit)} "
                    f"({limits.gibibytes(used)} in use)",
                )
            elif begin - worker.started > worker.task.timeout:
                self._doom(worker, "timeout", f"over its time limit of {worker.task.timeout:g} s")
        now = time.monotonic()
        self._next_watch = now + max(TICK, (now - begin) / _WATCH_SHARE)

    def _abandon(self, last: bool) -> None:
        """The server is lost: end its workers, and remember who may have been at fault."""
        if self._server is not None:
            self._selector.unregister(self._server)
            self._server.destroy()
            self._server = None
        for worker in self._active.values():
            if worker.pid:
                process.kill_family(worker.pid)
        self._end_orphans()
        while self._active:
            worker = next(iter(self._active.values()))
            if worker.doom is not None:
                self._finish(worker, *worker.doom)
            elif last:
                self._finish(worker, "lost", "it killed the process that started it")
            else:
                del self._active[worker.number]
                self._drop(worker)
                self.suspects.append(worker.task)

    def _end_orphans(self) -> None:
        """Kill and reap what lost server and workers have left to this process (Linux)."""
        deadline = time.monotonic() + GRACE
        while time.monotonic() < deadline:
            orphans = [row for row in _children_elsewhere() if row.pid not in self._strangers]
            if not orphans:
                return
            for row in orphans:
                with suppress(OSError):
                    os.kill(row.pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(row.pid, os.WNOHANG)
            time.sleep(0.002)


def _children_elsewhere() -> list[process.Row]:
    """This process's children in other sessions: every worker and all it leaves behind are."""
    me, session = os.getpid(), os.getsid(0)
    table = process.process_table()
    return [row for row in table.values() if row.ppid == me and row.sid != session]


def _readable(pipe: int) -> int:
    """Bytes in the pipe now: somebody who still writes to it cannot make this endless."""
    size: int = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]
    return size


def _judge(worker: _Worker, report: Report) -> tuple[End, str]:
    """The end of a worker that nobody ended."""
    if report.what == forkserver.FAILED:
        return "lost", f"no process could be started for it: {os.strerror(report.value)}"
    code = os.waitstatus_to_exitcode(report.value)
    if code < 0:
        name = _signal_name(-code)
        hint = ", by itself or by the kernel for want of memory" if name == "SIGKILL" else ""
        return "signal", f"killed by {name}{hint}"
    if code == 0 and worker.decoder.ended:
        return "done", ""
    when = "before the end of its work" if worker.messages else "before a result"
    return "exit", f"exit status {code} {when}"


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
