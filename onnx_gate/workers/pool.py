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
import struct
import tempfile
import termios
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from onnx_gate.workers import admission, channel, forkserver, limits, process
from onnx_gate.workers.admission import QueuedTask, RunningMemory
from onnx_gate.workers.forkserver import ForkServer, ServerLost, WorkerEvent
from onnx_gate.workers.launch import Launch
from onnx_gate.workers.outcome import outcome_of_exit
from onnx_gate.workers.running import Running
from onnx_gate.workers.task import End, Outcome, Task
from onnx_gate.workers.worker_log import WorkerLog

__all__ = ["Outcome", "Task", "run_tasks"]

TICK = 0.05
"""Seconds between two looks at the limits, at least."""

GRACE = 30.0
"""Seconds in which the fork server must have started, or ended, a worker it was told to."""

_WATCH_SHARE = 0.02  # of a processor, that looking at all processes may take
_READ = 1 << 20


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
    memory: int | None = None,
) -> dict[str, Outcome]:
    """Run ``target`` (``package.module:function``) on each task, at most ``jobs`` at a time.

    The longest is started first. A worker starts beside others only where what is expected of
    all of them fits into ``memory`` bytes (None: what the machine and its cgroups have now); where
    it turns out not to, workers are ended but for one, and run again alone in the end.

    The function is called as ``target(payload, emit)`` in a fork of a process that has imported
    ``preload``. Every message it emits goes to ``on_event(name, message)`` as it arrives, and is
    untrusted. ``on_start(name)`` is called when a worker starts: again for a task that is run
    again, alone, because it was ended for want of memory, or of time while another worker's many
    processes kept the processors from it (each is a stage of its own, waiting for it), or in flight
    when the fork server died.
    ``on_end`` is called once per task, when its outcome is known, and is the only one to have its
    messages: they are kept no longer.

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
    pool = _Pool(target, preload, on_event, on_start, on_end, launch, memory)
    order = admission.longest_first([task.expected_seconds for task in tasks])
    before = process.set_subreaper(True)
    try:
        pool.run([tasks[index] for index in order], jobs)
        # Alone, a worker that runs out of memory does so by itself.
        pool.run(tuple(pool.retry_alone), 1)
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
class _Pool:
    target: str
    preload: Sequence[str]
    on_event: Callable[[str, dict[str, Any]], None]
    on_start: Callable[[str], None] | None
    on_end: Callable[[str, Outcome], None] | None
    launch: Launch
    memory: int | None
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    retry_alone: list[Task] = field(default_factory=list)
    suspects: list[Task] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._server: ForkServer | None = None
        self._selector = selectors.DefaultSelector()
        self._active: dict[int, Running] = {}
        self._numbers = itertools.count(1)
        self._default_limit = limits.default_memory_limit(self.memory)
        self._reserve = int(admission.RESERVE * (self.memory or limits.available_memory()))
        self._shared = 0  # bytes of a worker that are the server's
        self._strangers = {row.pid for row in process.children_elsewhere()}
        self._next_watch = 0.0

    def run(self, tasks: Iterable[Task], jobs: int, *, last: bool = False) -> None:
        """Run all tasks; those in flight when the server dies are suspects, or lost if ``last``."""
        queue = list(tasks)
        passed = Counter[str]()
        while queue or self._active:
            try:
                while len(self._active) < jobs:
                    index = self._next(queue, passed)
                    if index is None:
                        break
                    if self._server is None and not self._start_server(queue):
                        return
                    passed.update(task.name for task in queue[:index])
                    self._spawn(queue.pop(index))
                for key, _ in self._selector.select(TICK):
                    receive: Callable[[], None] = key.data
                    receive()
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
            process.end_orphans(self._strangers, GRACE)
        finally:
            for worker in self._active.values():
                self._drop(worker)
            self._active.clear()
            self._selector.close()

    def _next(self, queue: Sequence[Task], passed: Counter[str]) -> int | None:
        """Return the index in the queue of the task to start now."""
        if not queue or not self._active:
            return 0 if queue else None
        waiting = [QueuedTask(self._own(task), passed[task.name]) for task in queue]
        return admission.next_to_start(waiting, self._running_memory(), self._room())

    def _own(self, task: Task) -> int:
        """Bytes that a worker is expected to use, the server's aside."""
        expected = admission.UNKNOWN if task.expected_memory is None else task.expected_memory
        return max(0, expected - self._shared)

    def _running_memory(self) -> list[RunningMemory]:
        return [
            RunningMemory(self._own(worker.task), max(0, worker.used - self._shared), worker.asked)
            for worker in self._active.values()
        ]

    def _room(self) -> int:
        """Bytes that workers side by side may still take."""
        if self.memory is None:
            return limits.available_memory() - self._reserve
        return self.memory - self._reserve - sum(each.used for each in self._running_memory())

    def _start_server(self, queue: list[Task]) -> bool:
        try:
            self._server = ForkServer(self.target, self.preload, self.launch)
        except ServerLost as error:
            process.end_orphans(self._strangers, GRACE)
            for task in queue:
                self._settle(task, Outcome((), "lost", str(error), (), 0.0, 0))
            return False
        self._shared = process.anonymous_bytes(self._server.pid)
        self._selector.register(self._server, selectors.EVENT_READ, self._receive)
        return True

    def _spawn(self, task: Task) -> None:
        assert self._server is not None
        token = channel.new_token()
        try:
            log = WorkerLog(task.log)
        except OSError as error:
            # An earlier worker may have put something in the way: no reason to lose the others.
            detail = f"its log could not be created: {error.strerror}"
            self._settle(task, Outcome((), "lost", detail, (), 0.0, 0))
            return
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        worker = Running(
            task=task,
            number=next(self._numbers),
            limit=self._default_limit if task.memory is None else task.memory,
            pipe=reader,
            log=log,
            decoder=channel.Decoder(token),
            asked=time.monotonic(),
            oom_kills=limits.oom_kills(),
        )
        self._active[worker.number] = worker
        for each in self._active.values():
            each.ran_beside_others = each.ran_beside_others or len(self._active) > 1
        self._selector.register(reader, selectors.EVENT_READ, partial(self._read, worker, _READ))
        self._selector.register(log, selectors.EVENT_READ, partial(self._read_log, worker))
        # Not by way of the server, whose memory every later worker inherits.
        with tempfile.TemporaryFile() as job:
            try:
                job.write(token + pickle.dumps(task.payload))
                job.seek(0)
                self._server.spawn(worker.number, job.fileno(), writer, log.writer)
            finally:
                os.close(writer)
                log.release()

    def _read(self, worker: Running, most: int) -> None:
        """Take in what the worker sent, at most ``most`` bytes of it."""
        while most > 0 and worker.listening:
            try:
                data = os.read(worker.pipe, min(most, 1 << 18))
            except BlockingIOError:
                return
            if not data:
                self._stop_reading(worker)
                return
            most -= len(data)
            try:
                for message in worker.decoder.feed(data):
                    if message["kind"] == channel.RESULT:
                        worker.messages.append(message)
                    self.on_event(worker.task.name, message)
            except channel.ProtocolError as error:
                self._stop_reading(worker)
                self._terminate(worker, "protocol", str(error))

    def _read_log(self, worker: Running) -> None:
        # It may have been dropped since the selector saw it.
        if worker.printing and not worker.log.read(_READ):
            self._stop_logging(worker)

    def _stop_logging(self, worker: Running) -> None:
        if worker.printing:
            worker.printing = False
            self._selector.unregister(worker.log)

    def _stop_reading(self, worker: Running) -> None:
        if worker.listening:
            worker.listening = False
            self._selector.unregister(worker.pipe)

    def _terminate(self, worker: Running, end: End, detail: str) -> None:
        """Decide how the worker ends, and have it end so."""
        if worker.terminate is None:
            worker.terminate = end, detail
            worker.terminated_at = time.monotonic()
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
                # Packages that somebody else has chosen run in the server: its word is no proof, and
                # whoever is believed to be a worker may be killed.
                if process.descends(report.value, self._server.pid):
                    worker.pid = report.value
                worker.started = time.monotonic()
                if self.on_start is not None:
                    self.on_start(worker.task.name)
            else:
                self._ended(worker, report)

    def _ended(self, worker: Running, report: WorkerEvent) -> None:
        """The worker and its family are gone; what is in the pipe now is all there is."""
        with suppress(ServerLost):
            self._read(worker, _readable(worker.pipe))
        worker.log.read(_readable(worker.log.fileno()))
        worker.peak = max(worker.peak, report.peak)
        end, detail = worker.terminate or outcome_of_exit(
            report,
            spoke=bool(worker.messages),
            complete=worker.decoder.ended,
            starved=limits.oom_kills() > worker.oom_kills,
        )
        if end == "memory" and worker.terminate is None:
            worker.retry_alone = worker.ran_beside_others
        elif end == "timeout":
            worker.retry_alone = worker.was_crowded
        self._finish(worker, end, detail)

    def _finish(self, worker: Running, end: End, detail: str) -> None:
        if worker.retry_alone:
            del self._active[worker.number]
            self._drop(worker)
            self.retry_alone.append(worker.task)
            lacking = "memory" if end == "memory" else "processors"
            self.on_event(worker.task.name, {"kind": "stage", "name": f"waiting for {lacking}"})
            return
        outcome = Outcome(
            messages=tuple(worker.messages),
            end=end,
            detail=detail,
            tail=worker.log.last_lines(),
            seconds=time.monotonic() - (worker.started or worker.asked),
            peak_memory=worker.peak,
        )
        self._active.pop(worker.number, None)
        self._drop(worker)
        self._settle(worker.task, outcome)

    def _settle(self, task: Task, outcome: Outcome) -> None:
        if self.on_end is not None:
            self.on_end(task.name, outcome)
            # As many as all models together have sent would have room nowhere.
            outcome = replace(outcome, messages=())
        self.outcomes[task.name] = outcome

    def _drop(self, worker: Running) -> None:
        self._stop_reading(worker)
        self._stop_logging(worker)
        os.close(worker.pipe)
        worker.log.close()

    def _watch(self) -> None:
        """Hold the server and every worker to their limits."""
        if self._server is None:
            return
        begin, spent = time.monotonic(), time.thread_time()
        table = process.process_table()
        server = table.get(self._server.pid)
        # A server that a worker has stopped or traces is as lost as one that it has killed.
        if not self._server.alive() or server is None or server.state in "TtZ":
            raise ServerLost("the fork server does not run")
        families = process.families(table, {w.pid for w in self._active.values() if w.pid})
        self._note_crowds(families)
        for worker in list(self._active.values()):
            if begin - (worker.terminated_at or worker.asked) > GRACE and (
                worker.terminate or not worker.pid
            ):
                raise ServerLost("the fork server does not answer")
            if not worker.pid:
                continue
            family = families[worker.pid]
            worker.used = sum(row.rss for row in family)
            worker.peak = max(worker.peak, worker.used)
            beyond = limits.exceeded(worker, family, begin)
            if beyond is not None:
                self._terminate(worker, *beyond)
        self._make_room()
        # By the processor's time: a machine that is kept busy is no reason to look less often.
        spent = time.thread_time() - spent
        self._next_watch = time.monotonic() + max(TICK, spent / _WATCH_SHARE)

    def _note_crowds(self, families: Mapping[int, Sequence[process.ProcessRow]]) -> None:
        """Remember who was kept waiting by another's many processes: that is no fault of its own."""
        crowds = {
            pid
            for pid, family in families.items()
            if sum(row.state == "R" for row in family) > limits.CROWD
        }
        for worker in self._active.values():
            worker.was_crowded = worker.was_crowded or bool(crowds - {worker.pid})

    def _make_room(self) -> None:
        """Where memory is short, end a worker that is then run again alone."""
        workers = list(self._active.values())
        # Whoever is ending already gives its memory back.
        if len(workers) < 2 or any(worker.terminate for worker in workers):
            return
        index = admission.to_end(self._running_memory(), self._room())
        if index is not None:
            workers[index].retry_alone = True
            self._terminate(workers[index], "memory", "no memory was left beside others")

    def _abandon(self, last: bool) -> None:
        """The server is lost: end its workers, and remember who may have been at fault."""
        if self._server is not None:
            self._selector.unregister(self._server)
            self._server.destroy()
            self._server = None
        for worker in self._active.values():
            if worker.pid:
                process.kill_family(worker.pid)
        process.end_orphans(self._strangers, GRACE)
        while self._active:
            worker = next(iter(self._active.values()))
            if worker.terminate is not None:
                self._finish(worker, *worker.terminate)
            elif last:
                self._finish(worker, "lost", "it killed the process that started it")
            else:
                del self._active[worker.number]
                self._drop(worker)
                self.suspects.append(worker.task)


def _readable(pipe: int) -> int:
    """Bytes in the pipe now: somebody who still writes to it cannot make this endless."""
    size: int = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]
    return size
