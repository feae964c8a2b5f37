from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_gate.workers import channel, forkserver, limits, pool, process, worker_log
from onnx_gate.workers.forkserver import ForkServer
from onnx_gate.workers.launch import Launch
from onnx_gate.workers.pool import Outcome, Task, run_tasks
from onnx_gate.workers.worker_log import WorkerLog
from tests.support.profiles import tries

pytestmark = pytest.mark.process

MIB = 1 << 20
linux = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """No test may leave a process, a descriptor or a setting, whatever its target did."""
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    descriptors = psutil.Process().num_fds()
    yield
    assert {c.pid for c in psutil.Process().children(recursive=True)} <= children
    assert psutil.Process().num_fds() == descriptors
    assert not process.set_subreaper(False)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Task]:
    def make(do: str, *, timeout: float = 120, memory: int | None = None, **payload: Any) -> Task:
        log = tmp_path / "logs" / f"{do}.log"
        # Nothing is expected of it, so that it never waits for memory.
        return Task(do, {"do": do, **payload}, timeout, memory, log, expected_memory=0)

    return make


@pytest.fixture
def beside(make: Callable[..., Task], tmp_path: Path) -> Callable[..., Outcome]:
    """Run a hostile task while an innocent one is in flight, which must not notice."""

    def beside(do: str, *, at_end: Callable[[], None] = lambda: None, **options: Any) -> Outcome:
        over = tmp_path / "over"
        hostile = make(do, **options)
        innocent = make("innocent", until=str(over), value=42)
        told: dict[str, Outcome] = {}

        def on_end(name: str, outcome: Outcome) -> None:
            told[name] = outcome
            if name == do:
                at_end()
                over.touch()

        outcomes = run([innocent, hostile], on_end=on_end)
        assert told["innocent"].end == "done"
        assert [m["value"] for m in told["innocent"].messages] == [42]
        assert list(outcomes) == ["innocent", do]
        assert not any(outcome.messages for outcome in outcomes.values())
        return told[do]

    return beside


def run(tasks: list[Task], *, jobs: int = 2, **options: Any) -> dict[str, Outcome]:
    options.setdefault("on_event", lambda name, message: None)
    return run_tasks(tasks, "tests.support.hostile_targets:dispatch", jobs=jobs, **options)


def alive(pids: Path) -> list[int]:
    """Those of the processes noted in a file that there still are."""
    noted = [int(line) for line in pids.read_text().split()] if pids.exists() else []
    return [pid for pid in noted if psutil.pid_exists(pid)]


def values(outcome: Outcome) -> list[Any]:
    return [message["value"] for message in outcome.messages]


def test_done_carries_results_events_and_measurements(make: Callable[..., Task]) -> None:
    events: list[tuple[str, str]] = []
    started: list[str] = []
    task = make("reports_and_returns", value="naïve ✓")
    outcome = run(
        [task],
        on_event=lambda name, message: events.append((name, message["kind"])),
        on_start=started.append,
    )[task.name]
    assert (outcome.end, outcome.detail) == ("done", "")
    assert outcome.messages == ({"kind": "result", "value": "naïve ✓"},)
    assert events == [(task.name, "stage"), (task.name, "result")]
    assert started == [task.name]
    assert outcome.peak_memory > MIB
    assert outcome.seconds > 0


def test_more_tasks_than_jobs_and_none(tmp_path: Path) -> None:
    tasks = [
        Task(f"m{i}", {"do": "reports_and_returns", "value": i}, 120, None, tmp_path / f"{i}")
        for i in range(7)
    ]
    outcomes = run(tasks, jobs=3)
    assert [values(outcomes[task.name]) for task in tasks] == [[i] for i in range(7)]
    assert run([]) == {}


def test_each_worker_is_a_session_of_its_own_under_one_server(tmp_path: Path) -> None:
    tasks = [Task(n, {"do": "says_its_parents"}, 120, None, tmp_path / n) for n in "ab"]
    first, second = (outcome.messages[0] for outcome in run(tasks).values())
    assert first["ppid"] == second["ppid"] != os.getpid()
    assert first["pid"] == first["sid"] != second["pid"] == second["sid"]


@linux
def test_a_worker_has_no_descriptor_but_its_own(make: Callable[..., Task]) -> None:
    task = make("lists_descriptors")
    secret, other = os.pipe()
    os.set_inheritable(secret, True)
    try:
        outcome = run([task])["lists_descriptors"]
    finally:
        os.close(secret)
        os.close(other)
    fds = dict(outcome.messages[0]["fds"])
    assert fds.pop("0") == os.devnull
    printed = fds.pop("1")
    assert fds.pop("2") == printed
    # One for what it prints, another for what it sends.
    assert [link.partition(":")[0] for link in (printed, *fds.values())] == ["pipe", "pipe"]


def test_sys_exit(beside: Callable[..., Outcome]) -> None:
    outcome = beside("sys_exit")
    assert (outcome.end, outcome.detail) == ("exit", "exit status 0 before a result")


def test_os_exit(beside: Callable[..., Outcome]) -> None:
    outcome = beside("os_exit")
    assert (outcome.end, outcome.detail) == ("exit", "exit status 0 before a result")


def test_os_exit_after_a_result_is_not_done(beside: Callable[..., Outcome]) -> None:
    outcome = beside("os_exit_after_result")
    assert (outcome.end, outcome.detail) == ("exit", "exit status 0 before the end of its work")
    assert values(outcome) == [7]


def test_exit_with_words(beside: Callable[..., Outcome]) -> None:
    outcome = beside("exits_with_words")
    assert (outcome.end, outcome.detail) == ("exit", "exit status 1 before a result")
    assert outcome.tail == ("no such weights",)


def test_segfault_keeps_what_was_sent_and_shows_where(beside: Callable[..., Outcome]) -> None:
    outcome = beside("segfault")
    assert (outcome.end, outcome.detail) == ("signal", "killed by SIGSEGV")
    assert values(outcome) == [7]
    assert any("in segfault" in line for line in outcome.tail)


def test_abort(beside: Callable[..., Outcome]) -> None:
    outcome = beside("abort")
    assert (outcome.end, outcome.detail) == ("signal", "killed by SIGABRT")


@pytest.mark.parametrize("do", ["endless_loop", "stops_itself", "ignores_signals"])
def test_hang(beside: Callable[..., Outcome], do: str) -> None:
    outcome = beside(do, timeout=0.4)
    assert (outcome.end, outcome.detail) == ("timeout", "over its time limit of 0.4 s")
    assert outcome.seconds >= 0.4


@pytest.mark.parametrize("do", ["eats_memory", "child_eats_memory"])
def test_memory_without_end(beside: Callable[..., Outcome], do: str) -> None:
    outcome = beside(do, memory=300 * MIB)
    assert outcome.end == "memory"
    assert outcome.detail.startswith("over its memory limit of 300 MiB (")
    assert outcome.peak_memory > 300 * MIB


def test_memory_limit_by_default(
    beside: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "available_memory", lambda: 400 * MIB)
    outcome = beside("eats_memory")
    assert outcome.end == "memory"
    assert outcome.detail.startswith("over its memory limit of 340 MiB")


def test_raise(beside: Callable[..., Outcome]) -> None:
    outcome = beside("raises")
    assert (outcome.end, outcome.detail) == ("exit", "exit status 1 before a result")
    assert outcome.tail[0] == "Traceback (most recent call last):"
    assert outcome.tail[-1] == "RuntimeError: wrong shape"


def test_target_that_cannot_be_imported(make: Callable[..., Task]) -> None:
    outcomes = run_tasks(
        [make("raises")], "no_such_module:f", jobs=1, on_event=lambda name, message: None
    )
    assert outcomes["raises"].end == "exit"
    assert outcomes["raises"].tail[-1].startswith("ModuleNotFoundError")


def test_all_output_goes_to_the_log(
    beside: Callable[..., Outcome],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    outcome = beside("prints_commands")
    assert outcome.end == "exit"
    assert outcome.tail[:3] == ("::error file=x::forged", "::set-output name=x::y", "from C")
    assert outcome.tail[-1] == "RuntimeError: ##[error]old style"
    assert capfd.readouterr() == ("", "")


def test_tail_is_short(beside: Callable[..., Outcome]) -> None:
    tail = beside("prints_progress").tail
    assert len(tail) == 20
    assert all(len(line) <= 500 for line in tail)
    assert "line 39" in tail


def test_log_replaces_a_link_and_does_not_follow_it(
    make: Callable[..., Task], tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    task = make("innocent")
    task.log.parent.mkdir()
    task.log.symlink_to(precious)
    assert run([task])["innocent"].end == "done"
    assert precious.read_text() == "precious"
    assert task.log.read_text() == "innocent output\n"


def test_log_that_cannot_be_created_is_the_trouble_of_one(make: Callable[..., Task]) -> None:
    tasks = [make("innocent"), make("reports_and_returns", value=3)]
    tasks[0].log.mkdir(parents=True)
    outcomes = run(tasks)
    assert outcomes["innocent"].end == "lost"
    assert outcomes["innocent"].detail.startswith("its log could not be created: ")
    assert outcomes["reports_and_returns"].end == "done"


def test_a_log_keeps_its_beginning_and_its_end(make: Callable[..., Task]) -> None:
    task = make("fills_log", lines=200_000)
    outcome = run([task])["fills_log"]
    assert outcome.end == "done"
    text = task.log.read_text()
    assert len(text) < worker_log.HEAD_BYTES + worker_log.TAIL_BYTES + 100
    assert text.startswith("line 0 ")
    assert " bytes are left out here]\n" in text
    assert text.rstrip().endswith("line 199999 " + "z" * 50)
    assert outcome.tail[-1] == "line 199999 " + "z" * 50


def test_what_a_log_never_grows_beyond_is_never_on_the_disk(
    make: Callable[..., Task], tmp_path: Path
) -> None:
    """While it prints for seconds, whenever anyone looks."""
    task = make("prints_for_ever", timeout=3)
    sizes: list[int] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            with suppress(OSError):
                sizes.append(task.log.stat().st_size)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        outcome = run([task])["prints_for_ever"]
    finally:
        over.set()
        watcher.join()
    assert outcome.end == "timeout"
    assert 0 < max(sizes) <= worker_log.HEAD_BYTES + worker_log.TAIL_BYTES + 100


@settings(max_examples=tries(100))
@given(st.lists(st.binary(max_size=30)), st.integers(0, 20), st.integers(1, 20))
def test_a_log_is_whole_or_says_how_much_is_not(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], head: int, tail: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    log = WorkerLog(path, head, tail)
    for part in parts:
        os.write(log.writer, part)
        log.read(1 << 20)
    log.close()
    whole, kept = b"".join(parts), path.read_bytes()
    if len(whole) <= head + tail:
        assert kept == whole
    else:
        lost = len(whole) - head - tail
        between = f"\n[{lost} bytes are left out here]\n".encode()
        assert kept == whole[:head] + between + whole[-tail:]


@linux
def test_too_many_processes_end_their_worker(
    beside: Callable[..., Outcome], tmp_path: Path
) -> None:
    note = tmp_path / "pids"
    outcome = beside("starts_many", count=limits.MAX_PROCESSES + 40, note=str(note))
    assert (outcome.end, outcome.detail) == (
        "processes",
        f"more than {limits.MAX_PROCESSES} processes at once",
    )
    assert len(note.read_text().split()) >= limits.MAX_PROCESSES
    assert alive(note) == []


@linux
def test_who_is_kept_waiting_by_a_crowd_is_run_again_alone(
    make: Callable[..., Task], tmp_path: Path
) -> None:
    starts: list[str] = []
    slow = make("late_at_first", timeout=3, note=str(tmp_path / "note"))
    crowd = make("keeps_busy", processes=limits.CROWD + 4, timeout=4)
    outcomes = run([slow, crowd], on_start=starts.append)
    assert outcomes["late_at_first"].end == "done"
    assert starts.count("late_at_first") == 2
    # The crowd had nobody to blame.
    assert outcomes["keeps_busy"].end == "timeout"
    assert starts.count("keeps_busy") == 1


@linux
def test_processor_time_is_that_of_the_whole_family(make: Callable[..., Task]) -> None:
    task = replace(make("keeps_busy", processes=3), processor=1.0)
    outcome = run([task])["keeps_busy"]
    assert (outcome.end, outcome.detail) == ("timeout", "over its limit of 1 s of processor time")


def test_closed_output_is_no_fault(beside: Callable[..., Outcome]) -> None:
    outcome = beside("closes_output")
    assert (outcome.end, values(outcome)) == ("done", [7])


def test_closed_pipe(beside: Callable[..., Outcome]) -> None:
    outcome = beside("closes_everything")
    assert (outcome.end, outcome.detail) == ("exit", "exit status 1 before a result")


def test_threads_left_running_do_not_hang(beside: Callable[..., Outcome]) -> None:
    outcome = beside("leaves_threads")
    assert (outcome.end, values(outcome)) == ("done", [7])


def test_garbage_on_every_descriptor(beside: Callable[..., Outcome]) -> None:
    outcome = beside("garbage_everywhere")
    assert outcome.end == "protocol"
    assert outcome.detail == "it sent data that is no message of ours"
    assert values(outcome) == [7]


def test_forged_frame(beside: Callable[..., Outcome]) -> None:
    outcome = beside("forged_frame")
    assert (outcome.end, outcome.messages) == ("protocol", ())


def test_data_after_the_end(beside: Callable[..., Outcome]) -> None:
    outcome = beside("data_after_the_end")
    assert outcome.end == "protocol"
    assert outcome.detail == "it sent data after the end of its work"


def test_half_a_message(beside: Callable[..., Outcome]) -> None:
    outcome = beside("half_a_message")
    assert (outcome.end, values(outcome)) == ("exit", [7])


def test_death_after_the_end_is_not_done(beside: Callable[..., Outcome]) -> None:
    outcome = beside("ends_without_leaving")
    assert (outcome.end, values(outcome)) == ("signal", [7])
    assert outcome.detail.startswith("killed by SIGKILL")


def test_failure_after_the_end_is_not_done(beside: Callable[..., Outcome]) -> None:
    outcome = beside("fails_after_the_end")
    assert (outcome.end, outcome.detail) == ("exit", "exit status 3 before the end of its work")


def test_what_is_in_the_pipe_at_the_end_is_read(
    make: Callable[..., Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_READ", 1)
    outcome = run([make("reports_and_returns", value="x" * 30_000)])["reports_and_returns"]
    assert (outcome.end, values(outcome)) == ("done", ["x" * 30_000])


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"[1]",
        b'{"value": 1}',
        b'{"kind": 1}',
        b'{"kind": "result", "value": NaN}',
        b'{"kind": "result", "value": "\\ud800"}',
        b'{"kind": "result", "value": "\xff"}',
        b'{"kind": "result", "value": ' + b"9" * 5000 + b"}",
        b'{"kind": "result", "value": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    ],
    ids=["text", "list", "no-kind", "kind", "nan", "surrogate", "utf8", "digits", "deep"],
)
def test_a_body_that_is_not_ours(body: bytes) -> None:
    token = channel.new_token()
    frame = b"OGF1" + token + b"M" + len(body).to_bytes(4, "big") + body
    decoder = channel.Decoder(token)
    with pytest.raises(channel.ProtocolError):
        list(decoder.feed(frame))


def test_a_body_that_is_not_ours_ends_the_worker(beside: Callable[..., Outcome]) -> None:
    outcome = beside("raw_body", body=b"not json")
    assert (outcome.end, outcome.detail) == ("protocol", "it sent invalid JSON (JSONDecodeError)")


def test_huge_message_is_refused_by_the_sender(beside: Callable[..., Outcome]) -> None:
    outcome = beside("huge_message")
    assert (outcome.end, outcome.messages) == ("exit", ())
    assert "is over the limit of" in outcome.tail[-1]


def test_huge_message_is_refused_by_the_gate(beside: Callable[..., Outcome]) -> None:
    outcome = beside("huge_header")
    assert (outcome.end, outcome.detail) == ("protocol", f"it sent a message of {2**32 - 1} bytes")


def test_a_worker_may_not_send_without_end() -> None:
    token = channel.new_token()
    body = b'{"kind":"stage"}'
    frame = b"OGF1" + token + b"M" + len(body).to_bytes(4, "big") + body
    decoder = channel.Decoder(token, max_total=10 * len(frame))
    assert len(list(decoder.feed(frame * 10))) == 10
    with pytest.raises(channel.ProtocolError, match="more than"):
        list(decoder.feed(frame))


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"stage","x":[' + b"[[]]," * 500_000 + b"0]}",
        b'{"kind":"stage","x":"' + 9 * MIB * b"wide" + "\U0001f600".encode() + b'"}',
        b'{"kind":"stage","x":"' + 9 * MIB * b"wide" + b'\\ud83d\\ude00"}',
    ],
    ids=["many-objects", "wide-text", "escaped-text"],
)
def test_a_message_that_would_take_much_memory_is_not_parsed(body: bytes) -> None:
    token = channel.new_token()
    frame = b"OGF1" + token + b"M" + len(body).to_bytes(4, "big") + body
    with pytest.raises(channel.ProtocolError, match="MiB of memory to read, where 128 MiB"):
        list(channel.Decoder(token).feed(frame))


def test_results_that_are_kept_may_not_take_much_memory_together(
    beside: Callable[..., Outcome],
) -> None:
    outcome = beside("floods_with_results")
    assert outcome.end == "protocol"
    assert re.fullmatch(r"it sent results that take \d+ MiB .* 128 MiB is allowed", outcome.detail)
    assert 1 < len(outcome.messages) < 10


@linux
def test_a_forged_pid_of_the_server_kills_nobody(
    make: Callable[..., Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    lies = f"""
        import os
        import time

        from onnx_gate.workers import forkserver

        told = forkserver._Server._report


        def forged(self, what, number, value, peak=0):
            born = what == forkserver.BORN
            told(self, what, number, {bystander.pid} if born else value, peak)
            if born:
                time.sleep(0.3)
                os._exit(1)


        forkserver._Server._report = forged
        """
    (tmp_path / "lies.py").write_text(textwrap.dedent(lies))
    monkeypatch.syspath_prepend(tmp_path)
    try:
        outcomes = run([make("endless_loop")], preload=["lies"])
        assert outcomes["endless_loop"].end == "lost"
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_frames_may_arrive_in_any_pieces() -> None:
    reader, writer = os.pipe()
    token = channel.new_token()
    sender = channel.Sender(writer, token)
    sender.send({"kind": "result", "value": "ä\udc80"})
    sender.send({"kind": "stage"})
    sender.end()
    with pytest.raises(ValueError, match="ended"):
        sender.send({"kind": "stage"})
    os.close(writer)
    with open(reader, "rb") as source:
        data = source.read()
    decoder = channel.Decoder(token)
    messages = [m for i in range(len(data)) for m in decoder.feed(data[i : i + 1])]
    assert messages == [{"kind": "result", "value": "ä?"}, {"kind": "stage"}]
    assert decoder.ended


@pytest.mark.parametrize("message", [{}, {"kind": 1}, {"kind": "a", "value": float("nan")}])
def test_sender_refuses(message: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        channel.Sender(-1, channel.new_token()).send(message)


def test_large_message(beside: Callable[..., Outcome]) -> None:
    assert len(beside("large_message").messages[0]["value"]) == 8 * MIB


def test_slow_writer_does_not_block_the_gate(make: Callable[..., Task], tmp_path: Path) -> None:
    half, over = tmp_path / "half", tmp_path / "over"
    tasks = [
        make("slow_writer", touch=str(half), until=str(over)),
        make("innocent", until=str(half), value=1),
    ]
    told: dict[str, Outcome] = {}

    def on_end(name: str, outcome: Outcome) -> None:
        told[name] = outcome
        over.touch()

    outcomes = run(tasks, on_end=on_end)
    assert [outcome.end for outcome in outcomes.values()] == ["done", "done"]
    assert values(told["slow_writer"]) == [7]
    assert list(told) == ["innocent", "slow_writer"]


def test_kills_own_group(beside: Callable[..., Outcome]) -> None:
    outcome = beside("kills_group")
    assert outcome.end == "signal"
    assert outcome.detail.startswith("killed by SIGKILL")


@linux
@pytest.mark.parametrize("do", ["kills_parent", "stops_parent", "kills_parent_and_survives"])
def test_death_of_the_server_is_the_fault_of_one(
    make: Callable[..., Task], tmp_path: Path, do: str
) -> None:
    ready, again = tmp_path / "ready", tmp_path / "again"
    pids = tmp_path / "pids"
    starts: list[str] = []
    ends: list[str] = []
    told: dict[str, list[Any]] = {}

    def on_end(name: str, outcome: Outcome) -> None:
        ends.append(name)
        told[name] = values(outcome)

    def on_start(name: str) -> None:
        starts.append(name)
        if starts.count(name) == 2:
            assert not alive(pids)
        if {"innocent", do} <= set(starts):
            ready.touch()
        if starts.count("innocent") == 2:
            again.touch()

    tasks = [
        make("innocent", until=str(again), value=42),
        make(do, ready=str(ready), pids=str(pids)),
        make("reports_and_returns", value=3),
    ]
    outcomes = run(tasks, on_start=on_start, on_end=on_end)
    assert outcomes["innocent"].end == "done"
    assert told["innocent"] == [42]
    assert outcomes["reports_and_returns"].end == "done"
    assert outcomes[do].end == "lost"
    assert outcomes[do].detail == "it killed the process that started it"
    assert sorted(starts) == sorted(["innocent", do, "reports_and_returns", "innocent", do])
    assert sorted(ends) == sorted(["innocent", do, "reports_and_returns"])
    assert not alive(pids)


@linux
def test_interrupt_while_the_server_is_stopped(
    make: Callable[..., Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forkserver, "CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(pool._Pool, "_watch", lambda self: None)
    pids = tmp_path / "pids"

    def on_event(name: str, message: dict[str, Any]) -> None:
        if message["kind"] == "stopped":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run([make("stops_parent_and_says_so", pids=str(pids))], on_event=on_event)
    assert not alive(pids)


@linux
def test_a_server_that_cannot_start_again_loses_no_result(
    make: Callable[..., Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tmp_path / "ready"
    broken = False

    def breaks_later(target: str, preload: tuple[str, ...], launch: Launch) -> Any:
        if broken:
            launch = Launch(python="/nonexistent/python")
        return ForkServer(target, preload, launch)

    def on_end(name: str, outcome: Outcome) -> None:
        nonlocal broken
        broken = True
        ready.touch()

    monkeypatch.setattr(pool, "ForkServer", breaks_later)
    tasks = [make("kills_parent", ready=str(ready)), make("reports_and_returns", value=3)]
    outcomes = run(tasks, on_end=on_end)
    assert outcomes["reports_and_returns"].end == "done"
    assert outcomes["kills_parent"].end == "lost"
    assert "could not be started" in outcomes["kills_parent"].detail


def test_a_server_that_does_not_start(
    make: Callable[..., Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dies_on_import.py").write_text("import os\nprint('bad wheel')\nos._exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    outcomes = run([make("raises"), make("abort")], preload=["dies_on_import"])
    assert {outcome.end for outcome in outcomes.values()} == {"lost"}
    assert outcomes["abort"].detail.startswith("the fork server could not be started")


def test_preload_is_imported_once_and_may_fail(
    make: Callable[..., Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace"
    (tmp_path / "heavy_module.py").write_text(f"open({str(trace)!r}, 'a').write('x')\n")
    monkeypatch.syspath_prepend(tmp_path)
    tasks = [make("innocent"), make("reports_and_returns", value=1)]
    outcomes = run(tasks, preload=["heavy_module", "no_such_module"])
    assert {outcome.end for outcome in outcomes.values()} == {"done"}
    assert trace.read_text() == "x"


@linux
def test_daemon_that_holds_the_pipe(beside: Callable[..., Outcome], tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    def until_it_is_gone() -> None:
        while alive(pids):
            time.sleep(0.01)

    outcome = beside("daemon_holds_pipe", pids=str(pids), at_end=until_it_is_gone)
    assert (outcome.end, values(outcome)) == ("done", [7])
    assert pids.exists()


@linux
def test_background_job_ends_with_its_worker(beside: Callable[..., Outcome]) -> None:
    outcome = beside("leaves_background_job")
    assert outcome.end == "done"
    assert not psutil.pid_exists(outcome.messages[0]["pid"])


def test_fork_that_comes_back_too(beside: Callable[..., Outcome]) -> None:
    outcome = beside("comes_back_twice")
    assert (outcome.end, values(outcome)) == ("done", [7])


@pytest.mark.parametrize("callback", ["on_event", "on_start", "on_end"])
@pytest.mark.parametrize("error", [LookupError, KeyboardInterrupt])
def test_callback_that_raises_ends_everything(
    make: Callable[..., Task], callback: str, error: type[BaseException]
) -> None:
    def fail(*_: object) -> None:
        raise error

    tasks = [make("innocent"), make("ignores_signals")]
    with pytest.raises(error):
        run(tasks, jobs=2, **{callback: fail})


def test_ctrl_c(make: Callable[..., Task]) -> None:
    started: list[str] = []

    def on_start(name: str) -> None:
        started.append(name)
        if len(started) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    # A run in the background of a shell inherits an ignored SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run([make("endless_loop"), make("ignores_signals")], on_start=on_start)
    finally:
        signal.signal(signal.SIGINT, before)


@linux
def test_nothing_outlives_a_gate_that_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"""
import os, signal, sys
from pathlib import Path
sys.path[:] = {sys.path!r}
from onnx_gate.workers.pool import Task, run_tasks
payload = {{"do": "outlives_the_gate", "pids": {str(pids)!r}}}
run_tasks(
    [Task("a", payload, 120, None, Path({str(tmp_path / "log")!r}))],
    "tests.support.hostile_targets:dispatch",
    jobs=1,
    on_event=lambda name, m: m["kind"] == "result" and os.kill(os.getpid(), signal.SIGKILL),
)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert len(pids.read_text().split()) == 3
    noted = {int(pid) for pid in pids.read_text().split()}
    # Whether the dead are reaped is up to the first process of this machine or container.
    while any(row.pid in noted and row.state != "Z" for row in process.process_table().values()):
        time.sleep(0.01)


def test_calls_that_make_no_sense(make: Callable[..., Task]) -> None:
    with pytest.raises(ValueError, match="same name"):
        run([make("innocent"), make("innocent")])
    with pytest.raises(ValueError, match="jobs"):
        run([make("innocent")], jobs=0)


@pytest.mark.parametrize(
    ("cgroup", "files", "room"),
    [
        (
            "0::/a/b\n",
            {
                "a/memory.max": "1000",
                "a/memory.current": "300",
                "a/memory.stat": "anon 1\ninactive_file 50\nactive_file 40\n",
                "a/b/memory.max": "max",
                "a/b/memory.current": "10",
            },
            770,
        ),
        (
            "5:cpu:/x\n4:memory:/host/path\n",
            {"memory/memory.limit_in_bytes": "500", "memory/memory.usage_in_bytes": "100"},
            400,
        ),
        ("0::/\n", {"memory.max": "10", "memory.current": "20"}, 0),
    ],
    ids=["v2", "v1-in-a-container", "full"],
)
def test_available_memory_is_within_the_cgroups(
    tmp_path: Path, cgroup: str, files: dict[str, str], room: int
) -> None:
    for name, text in {
        "proc/self/cgroup": cgroup,
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert limits.available_memory(tmp_path) == room
    assert limits.available_memory(tmp_path / "none") > 0
