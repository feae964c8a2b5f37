"""Several publishers at once: one comment with the newest result, in whatever order they run."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from dataclasses import dataclass

import pytest

from onnx_gate.github.client import Client
from onnx_gate.github.comment import CommentResult, sync_comment
from onnx_gate.github.comment_policy import CommentPolicy
from onnx_gate.github.transport import Budget
from tests.support.gate import ROOT
from tests.support.github.clients import header
from tests.support.github.server import BOT, NUMBER, TOKEN, GitHub
from tests.support.github.state import HEAD
from tests.support.github.virtual import VirtualTime

OLDER_HEAD = "0123abcd" * 5


@dataclass(frozen=True)
class Publisher:
    """``start`` is when it begins; its commit is the pull request's head or an older one."""

    run: int
    start: float
    policy: CommentPolicy = "changes"
    wrong: bool = True
    sha: str = HEAD

    @property
    def verdict(self) -> str:
        return "diverged" if self.wrong else "pass"


def race(
    server: GitHub, publishers: list[Publisher], seed: int, longest: float
) -> dict[int, CommentResult]:
    """Let the publishers loose, each request slow by up to ``longest`` before and after it."""
    time = VirtualTime(len(publishers))
    random_numbers = random.Random(seed)
    server.sleep = time.sleep
    server.latency = lambda method, path: (
        random_numbers.choice((0, 0.01, longest)),
        random_numbers.choice((0, 0.01, longest)),
    )
    results: dict[int, CommentResult] = {}
    errors: list[BaseException] = []

    def publish(publisher: Publisher) -> None:
        time.sleep(publisher.start)
        try:
            results[publisher.run] = sync_comment(
                Client(TOKEN, server.url, budget=Budget(1000, time.now), sleep=time.sleep),
                server.repository,
                NUMBER,
                header(publisher.run, publisher.verdict, publisher.sha),
                f"Run {publisher.run} says {publisher.verdict}.",
                publisher.policy,
                publisher.wrong,
            )
        except BaseException as error:
            errors.append(error)
        finally:
            time.leave()

    threads = [threading.Thread(target=publish, args=(p,), daemon=True) for p in publishers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if errors:
        raise errors[0]
    return results


def stand_some(server: GitHub, random_numbers: random.Random) -> None:
    """Have nothing, an old comment or a pair of them stand, and a stranger's spoof."""
    server.add_comment("mallory", f"{header(10**6, 'pass').line()}\nspoof")
    for run in random_numbers.choice(([], [], [50], [50, 51])):
        server.add_comment(BOT, f"{header(run).line()}\nold")


@pytest.mark.slow
@pytest.mark.parametrize("block", range(6))
def test_one_comment_with_the_newest_result(block: int) -> None:
    for seed in range(block * 20, block * 20 + 20):
        random_numbers = random.Random(seed)
        with GitHub() as server:
            stand_some(server, random_numbers)
            publishers = [
                Publisher(run, random_numbers.choice((0, 0, 0.1, 0.5, 1)))
                for run in range(100, 100 + random_numbers.choice((2, 2, 3)))
            ]
            for _ in range(random_numbers.choice((0, 0, 1, 2))):
                kind = random_numbers.choice(("500", "500-after", "reset", "reset-after"))
                method = random_numbers.choice(("POST", "PATCH", "DELETE", "GET"))
                server.fail(method, "comments", kind=kind)
            results = race(server, publishers, seed, longest=0.2)
            newest = publishers[-1]
            own = [comment for comment in server.comments if comment.author == BOT]
            text = f"{header(newest.run).line()}\nRun {newest.run} says diverged."
            assert [comment.body for comment in own] == [text], (seed, results)
            assert results[newest.run].action in ("created", "updated"), seed
            assert str(own[0].id) in str(results[newest.run].url)
            assert "spoof" in server.comments[0].body


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["changes", "on-failure"])
def test_a_slow_old_failure_never_ends_up_on_a_green_pull_request(policy: CommentPolicy) -> None:
    for seed in range(25):
        random_numbers = random.Random(seed)
        with GitHub() as server:
            stand_some(server, random_numbers)
            stood = len(server.comments) > 1
            starts = random_numbers.sample((0, 0.1, 0.4, 1, 3), 2)
            old = Publisher(100, starts[0], policy, sha=OLDER_HEAD)
            new = Publisher(101, starts[1], policy, wrong=False)
            results = race(server, [old, new], seed, longest=0.2)
            bodies = [comment.body for comment in server.comments if comment.author == BOT]
            if policy == "changes" and stood:
                assert bodies == [f"{header(101, 'pass').line()}\nRun 101 says pass."], seed
            else:
                assert bodies == [], (seed, results)


def test_an_old_write_that_lands_last_is_written_over(github: GitHub) -> None:
    github.add_comment(BOT, f"{header(50).line()}\nold")
    # The old run has looked before, and its write arrives when the new one believes it is done.
    results = race_with(github, {100: 0.0, 101: 0.1}, "PATCH", [(0.6, 0.0)])
    patches = [r.body["body"][-7:] for r in github.requests if r.method == "PATCH"]
    assert patches == ["run 101", "run 100", "run 101"]
    assert [comment.body[-7:] for comment in github.comments] == ["run 101"]
    assert results[100].action == "superseded"
    assert results[101].action == "updated"


def test_two_that_both_post_keep_the_first_comment(github: GitHub) -> None:
    results = race_with(github, {100: 0.0, 101: 0.1}, "POST", [(0.5, 0.5)] * 2)
    writes = [(r.method, r.status) for r in github.requests if r.method != "GET"]
    assert writes == [("POST", 201), ("POST", 201), ("PATCH", 200), ("DELETE", 204)]
    assert [(c.id, c.body[-7:]) for c in github.comments] == [(1001, "run 101")]
    assert results[100].action == "superseded"
    assert results[100].url == results[101].url


def race_with(
    server: GitHub, starts: dict[int, float], slow_method: str, slowness: list[tuple[float, float]]
) -> dict[int, CommentResult]:
    """Start runs at given times; ``slowness`` is that of the first writes by one method."""
    time = VirtualTime(len(starts))
    slow = iter(slowness)
    server.sleep = time.sleep

    def latency(method: str, path: str) -> tuple[float, float]:
        return next(slow, (0.0, 0.0)) if method == slow_method else (0.0, 0.0)

    server.latency = latency
    results: dict[int, CommentResult] = {}

    def publish(run: int, start: float) -> None:
        time.sleep(start)
        client = Client(TOKEN, server.url, budget=Budget(1000, time.now), sleep=time.sleep)
        try:
            results[run] = sync_comment(
                client, server.repository, NUMBER, header(run), f"run {run}", "always", True
            )
        finally:
            time.leave()

    threads = [threading.Thread(target=publish, args=pair) for pair in starts.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


PUBLISH = """
import sys
from onnx_gate.github.client import Client
from onnx_gate.github.comment import Header, sync_comment
url, token, run, sha = sys.argv[1:]
header = Header("default", int(run), 1, sha, "diverged")
result = sync_comment(
    Client(token, url), "octo/models", 7, header, "run " + run, "changes", True, pause=0.3
)
print(result.action)
"""


@pytest.mark.process
def test_two_processes_that_both_post(github: GitHub) -> None:
    both = threading.Barrier(2)

    def wait_for_the_other(method: str, path: str) -> tuple[float, float]:
        posts = sum(request.method == "POST" for request in github.requests)
        if method == "POST" and posts == 0:
            both.wait(60)
        return 0, 0

    github.latency = wait_for_the_other
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PUBLISH, github.url, TOKEN, str(run), HEAD],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for run in (101, 100)
    ]
    ended = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0, 0], ended
    assert sum(request.method == "POST" for request in github.requests) >= 2
    assert [comment.body[-7:] for comment in github.comments] == ["run 101"]
    assert ended[0][0].strip() in ("created", "updated")
