"""Who starts and who is ended: over whole simulated runs, and with processes that allocate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_gate.workers import limits
from onnx_gate.workers.admission import (
    HEADROOM,
    MIB,
    PATIENCE,
    UNKNOWN,
    QueuedTask,
    RunningMemory,
    expectation,
    longest_first,
    next_to_start,
    to_end,
)
from onnx_gate.workers.pool import run_tasks
from onnx_gate.workers.task import Outcome, Task

pytestmark = pytest.mark.process

SIZES = st.integers(0, 100)


def simulate(needs: Sequence[int], jobs: int, total: int) -> list[tuple[list[int], list[int]]]:
    """Run tasks that take just what is expected of them; the oldest worker always ends first.

    Returns who ran beside whom, and who waited, after each start.
    """
    queue, running = list(range(len(needs))), list[int]()
    passed = [0] * len(needs)
    seen = []
    while queue or running:
        while len(running) < jobs:
            held = [
                RunningMemory(needs[each], needs[each], place) for place, each in enumerate(running)
            ]
            room = total - sum(needs[each] for each in running)
            waiting = [QueuedTask(needs[each], passed[each]) for each in queue]
            place = next_to_start(waiting, held, room)
            if place is None:
                break
            for each in queue[:place]:
                passed[each] += 1
            running.append(queue.pop(place))
            seen.append((list(running), list(queue)))
        running.pop(0)
    return seen


@given(st.lists(SIZES, max_size=30), st.integers(1, 6), SIZES)
def test_everyone_starts_and_memory_is_never_exceeded_but_by_one_alone(
    needs: list[int], jobs: int, total: int
) -> None:
    seen = simulate(needs, jobs, total)
    assert sorted(running[-1] for running, _ in seen) == list(range(len(needs)))
    for running, _ in seen:
        assert len(running) <= jobs
        assert len(running) == 1 or sum(needs[each] for each in running) <= total


@given(st.lists(SIZES, min_size=1, max_size=60), st.integers(2, 4), SIZES)
def test_nobody_is_passed_over_for_ever(needs: list[int], jobs: int, total: int) -> None:
    overtaken = dict.fromkeys(range(len(needs)), 0)
    for running, waiting in simulate(needs, jobs, total):
        for each in waiting:
            overtaken[each] += each < running[-1]
    assert max(overtaken.values()) <= PATIENCE


def test_a_big_one_does_not_wait_for_all_the_small_ones() -> None:
    seen = simulate([50, 100, *[50] * 30], jobs=2, total=100)
    [place] = [place for place, (running, _) in enumerate(seen) if running[-1] == 1]
    assert seen[place][0] == [1]
    assert place == 1 + PATIENCE


@given(st.lists(SIZES, min_size=1), st.lists(st.tuples(SIZES, SIZES), min_size=1), SIZES)
def test_the_first_that_fits_is_next(
    needs: list[int], taken: list[tuple[int, int]], room: int
) -> None:
    running = [RunningMemory(expected, used, 0.0) for expected, used in taken]
    left = room - sum(max(0, expected - used) for expected, used in taken)
    fitting = [place for place, need in enumerate(needs) if need <= left]
    found = next_to_start([QueuedTask(need) for need in needs], running, room)
    assert found == (fitting[0] if fitting else None)
    assert next_to_start([QueuedTask(need) for need in needs], [], room) == 0


@given(st.lists(st.none() | st.floats(0, 1e6), max_size=20))
def test_the_longest_starts_first_and_what_is_unknown_is_usual(times: list[float | None]) -> None:
    order = longest_first(times)
    assert sorted(order) == list(range(len(times)))
    known = [times[place] for place in order if times[place] is not None]
    assert known == sorted(known, key=lambda each: -(each or 0))
    unknown = [place for place in order if times[place] is None]
    assert unknown == sorted(unknown)
    assert longest_first([1.0, None, 9.0, 4.0, 2.0]) == [2, 3, 1, 4, 0]


RUNNING = st.builds(
    lambda used, more, started: RunningMemory(max(0, used + more), used, started),
    SIZES,
    st.integers(0, 50) | st.integers(-50, 50),
    st.integers(0, 5).map(float),
)


@given(st.lists(RUNNING, max_size=5), st.integers(-50, 0))
def test_who_is_ended_has_outgrown_what_was_expected(
    running: list[RunningMemory], room: int
) -> None:
    place = to_end(running, room)
    assert (place is None) == (room >= 0 or len(running) < 2)
    if place is not None:
        excess = [max(0, each.used - each.expected) for each in running]
        assert excess[place] == max(excess)


@given(st.lists(SIZES, min_size=2, max_size=5), st.permutations(range(5)))
def test_or_else_came_last(used: list[int], order: list[int]) -> None:
    running = [
        RunningMemory(each, each, float(start)) for each, start in zip(used, order, strict=False)
    ]
    place = to_end(running, -1)
    assert place is not None
    assert running[place].started == max(each.started for each in running)


def test_what_is_expected() -> None:
    assert expectation(None, 0) == UNKNOWN
    assert expectation(None, 100 * MIB) == UNKNOWN + 400 * MIB
    assert expectation(500 * MIB, 100 * MIB) == int(HEADROOM * 500 * MIB)
    assert expectation(None, 10**12, 300 * MIB) == 300 * MIB


class Together:
    """What happened when, by the names of the tasks."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.company: dict[str, set[str]] = {}
        self.starts: list[str] = []
        self.messages: dict[str, tuple[dict[str, Any], ...]] = {}

    def started(self, name: str) -> None:
        self.starts.append(name)
        self.running.add(name)
        for each in self.running:
            self.company.setdefault(each, set()).update(self.running - {each})

    def ended(self, name: str, outcome: Outcome) -> None:
        self.messages[name] = outcome.messages
        self.running.discard(name)


def held(
    tmp_path: Path, name: str, size: int, expected: int, seconds: float = 0.3, **more: str
) -> Task:
    return Task(
        name,
        {"do": "holds_memory", "name": name, "bytes": size * MIB, "seconds": seconds, **more},
        120,
        None,
        tmp_path / f"{name}.log",
        expected_seconds=seconds,
        expected_memory=expected * MIB,
    )


def run(tasks: list[Task], total: int, jobs: int = 4) -> tuple[dict[str, Outcome], Together]:
    seen = Together()
    outcomes = run_tasks(
        tasks,
        "tests.support.hostile_targets:dispatch",
        jobs=jobs,
        on_event=lambda name, message: None,
        on_start=seen.started,
        on_end=seen.ended,
        memory=total * MIB,
    )
    return outcomes, seen


def test_two_that_do_not_fit_together_run_one_after_the_other(tmp_path: Path) -> None:
    tasks = [
        held(tmp_path, "big", 300, 340, seconds=0.6),
        held(tmp_path, "huge", 300, 340, seconds=0.5),
        held(tmp_path, "small", 30, 60, seconds=0.2),
        held(tmp_path, "tiny", 30, 60, seconds=0.1),
    ]
    outcomes, seen = run(tasks, 600)
    assert {outcome.end for outcome in outcomes.values()} == {"done"}
    assert list(outcomes) == ["big", "huge", "small", "tiny"]
    assert sorted(seen.starts) == sorted(outcomes)
    assert "huge" not in seen.company["big"]
    assert "small" in seen.company["big"]
    assert seen.starts[:2] == ["big", "small"], "the longest, then the longest of those that fit"


def test_one_alone_starts_whatever_is_expected_of_it(tmp_path: Path) -> None:
    outcomes, seen = run([held(tmp_path, name, 20, 10**6) for name in "ab"], 500)
    assert [outcome.end for outcome in outcomes.values()] == ["done", "done"]
    assert seen.company == {"a": set(), "b": set()}


@pytest.mark.parametrize("own", [False, True])
def test_who_outgrows_the_memory_of_all_is_run_again_alone(tmp_path: Path, own: bool) -> None:
    """Two that hold what they should, and one that is not what it seemed."""
    pid = str(tmp_path / "pid")
    tasks = [
        held(tmp_path, "steady", 150, 200, 0.9, outlives=pid),
        held(tmp_path, "growing", 2000 if own else 420, 100, 0.7, pid=pid),
        held(tmp_path, "other", 50, 100, 0.8, outlives=pid),
    ]
    outcomes, seen = run(tasks, 650)
    assert outcomes["steady"].end == outcomes["other"].end == "done"
    assert seen.starts.count("steady") == seen.starts.count("other") == 1
    assert seen.starts.count("growing") == 2
    assert seen.starts[-1] == "growing"
    assert outcomes["growing"].end == ("memory" if own else "done")
    if not own:
        assert outcomes["growing"].peak_memory > 420 * MIB
        assert [message["value"] for message in seen.messages["growing"]] == ["growing"]


def test_what_the_kernel_killed_beside_others_is_run_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = iter(range(10**6))
    monkeypatch.setattr(limits, "oom_kills", lambda: next(kills))
    killed = Task("killed", {"do": "is_killed"}, 120, None, tmp_path / "log", 0.1, 0)
    outcomes, seen = run([killed, held(tmp_path, "steady", 10, 20, 1.0)], 1000)
    assert outcomes["steady"].end == "done"
    assert seen.starts == ["steady", "killed", "killed"]
    assert (outcomes["killed"].end, seen.company["killed"]) == ("memory", {"steady"})


@pytest.mark.parametrize(
    ("text", "count"), [("nr_free 1\noom_kill 7\n", 7), ("oom_kill x\n", 0), (None, 0)]
)
def test_how_often_the_kernel_killed(tmp_path: Path, text: str | None, count: int) -> None:
    if text is not None:
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/vmstat").write_text(text)
    assert limits.oom_kills(tmp_path) == count
