"""What a job knows of the event that started it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from onnx_gate.github.run_context import RunContext, read_context
from tests.support.github.server import REPOSITORY
from tests.support.github.state import HEAD

EVENTS = Path(__file__).parent / "events"


def context(event: str = "pull_request", **more: Any) -> RunContext:
    read = read_context(
        {
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(EVENTS / f"{event}.json"),
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_SHA": HEAD,
            "GITHUB_RUN_ID": "17400",
            "GITHUB_WORKFLOW_REF": f"{REPOSITORY}/.github/workflows/parity.yml@refs/heads/main",
        }
    )
    return dataclasses.replace(read, **more)
