"""What the gate knows of a worker that runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from onnx_gate.workers import channel
from onnx_gate.workers.task import End, Task
from onnx_gate.workers.worker_log import WorkerLog


@dataclass
class Running:
    """A worker from the moment that it is asked for.

    ``limit``, ``used`` and ``peak`` are bytes, ``asked``, ``started`` and ``terminated_at`` times of the
    monotonic clock. ``terminate`` is the end that the gate has decided on. ``ran_beside_others`` says that
    there were others beside it, ``retry_alone`` that it is to be run again without them, and
    ``oom_kills`` is what ``limits.oom_kills`` said when it was asked for.
    """

    task: Task
    number: int
    limit: int
    pipe: int
    log: WorkerLog
    decoder: channel.Decoder
    asked: float
    pid: int = 0
    started: float = 0.0
    listening: bool = True
    printing: bool = True
    used: int = 0
    peak: int = 0
    oom_kills: int = 0
    ran_beside_others: bool = False
    was_crowded: bool = False
    retry_alone: bool = False
    messages: list[dict[str, Any]] = field(default_factory=list)
    terminate: tuple[End, str] | None = None
    terminated_at: float = 0.0
