"""A model that takes all it can get: processes, processor time, disk. Its neighbours notice nothing.

In a container only, and with a bound on what the container may take of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.runner import Job, Step

pytestmark = [pytest.mark.slow, pytest.mark.container, pytest.mark.timeout(900)]

PROJECT = Path(__file__).parent / "project"
BOUNDS = ("--cpus", "1", "--pids-limit", "4000", "--memory", "8g")
ENTRY = """\
  {name}: {{model: "models/{name}.py:build", inputs: {{x: "float32[2, 3]"}}, timeout: {timeout}}}
"""
PLAIN = """\
import torch


class Plain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1


"""
# Each in a session of its own, so that no kill of a process group is enough.
BUSY = """
def build():
    import subprocess
    import time

    for _ in range(400):
        subprocess.Popen(["sh", "-c", "while :; do :; done"], start_new_session=True)
    print("STARTED", flush=True)
    time.sleep(600)
"""
FORKS = """
def build():
    import os

    while True:
        try:
            os.fork()
        except OSError:
            pass
"""
# As fast as the kernel takes it, which is some hundred megabytes a second.
PRINTS = """
def build():
    import os
    import time

    print("BEGINS", flush=True)
    end = time.monotonic() + 6
    block = b"z" * 1023 + b"\\n"
    while time.monotonic() < end:
        os.write(1, block * 1024)
    print("ENDS", flush=True)
    return Plain()
"""


@pytest.fixture
def flooded(image: str, make_job: Callable[..., Job]) -> Callable[..., Step]:
    """Verify a model that has this to build it, between two honest ones."""

    def flooded(text: str, timeout: str) -> Step:
        job = make_job(PROJECT)
        entries = ""
        for name, body, limit in (
            ("first", "build = Plain\n", "110s"),
            ("flood", text, timeout),
            ("last", "build = Plain\n", "110s"),
        ):
            (job.workspace / "models" / f"{name}.py").write_text(PLAIN + body)
            entries += ENTRY.format(name=name, timeout=limit)
        (job.workspace / "onnx-gate.yml").write_text("version: 1\nmodels:\n" + entries)
        return job.run(image, {"mode": "verify"}, timeout=800, docker=BOUNDS)

    return flooded


def verdicts(step: Step) -> dict[str, str]:
    return {
        model["name"]: model["error"]["kind"] if model["error"] else model["verdict"]
        for model in step.report["models"]
    }


@pytest.mark.parametrize("bomb", [BUSY, FORKS], ids=["busy", "forks"])
def test_a_fork_bomb_is_its_own_trouble(flooded: Callable[..., Step], bomb: str) -> None:
    step = flooded(bomb, "100s")
    found = verdicts(step)
    # By what it starts, and not only when its time is over.
    assert found.pop("flood") in ("crashed", "memory"), step.log
    assert found == {"first": "pass", "last": "pass"}, step.log


def test_a_flood_of_output_leaves_the_disk_alone(flooded: Callable[..., Step]) -> None:
    step = flooded(PRINTS, "200s")
    assert verdicts(step) == dict.fromkeys(("first", "flood", "last"), "pass"), step.log
    log = step.job.workspace / "onnx-gate-report" / "logs" / "flood.log"
    assert os.path.getsize(log) < 16 << 20
    text = log.read_text()
    assert "BEGINS" in text[:10_000]
    assert "bytes are left out here]" in text
    assert "ENDS" in text[-100_000:]
