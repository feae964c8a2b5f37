"""Clients whose waits are counted instead of slept."""

from __future__ import annotations

from onnx_gate.github.client import Client
from onnx_gate.github.header import Header
from onnx_gate.github.transport import Budget
from tests.support.github.server import TOKEN, GitHub
from tests.support.github.state import HEAD


class Clock:
    """A clock that only ``sleep`` moves, and that remembers every wait."""

    def __init__(self) -> None:
        self.time = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.time += seconds


def client_for(
    server: GitHub,
    clock: Clock | None = None,
    *,
    token: str = TOKEN,
    seconds: float = 90,
    timeout: float = 10,
) -> Client:
    clock = clock or Clock()
    return Client(
        token, server.url, budget=Budget(seconds, clock), timeout=timeout, sleep=clock.sleep
    )


def header(run: int = 100, verdict: str = "diverged", sha: str = HEAD, **more: object) -> Header:
    fields = {"id": "default", "run": run, "attempt": 1, "sha": sha, "verdict": verdict, **more}
    return Header(**fields)  # type: ignore[arg-type]
