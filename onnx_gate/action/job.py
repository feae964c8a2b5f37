"""What the process that verifies is told by the one that holds the token: a file of JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from onnx_gate.report.model import Run, Sandbox
from onnx_gate.since.environments import Installer
from onnx_gate.workers.launch import Launch


class AskedSince(BaseModel):
    """What is asked about packages once the verdicts are there.

    ``files`` are pairs of paths: of what the base has, and of what is checked out. The folder of
    ``packages`` takes all that is written, and after ``seconds`` no run is begun.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: tuple[tuple[Path, Path], ...]
    packages: Installer
    seconds: float


class Job(BaseModel):
    """A run of the gate inside the container.

    Paths are absolute; ``cache`` is null without one. ``launch`` is how the models' processes are
    started. ``audit``: faults are seeded into models that pass, and ``min_score`` is the share of
    them that has to be caught, null for any. ``keep_models``: exported files stay in the output.
    ``remedies``: the models are verified, the report is there, and what would fix the red ones is
    tried; ``since``: the report is there, and which package changed what is asked, null where it is
    not. ``image`` has the versions that the image came with, ``run`` the workflow run that this is
    part of.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    manifest: Path
    models: tuple[str, ...] = ()
    shard: str = ""
    output: Path
    cache: Path | None = None
    audit: bool = False
    min_score: float | None = None
    keep_models: bool = False
    remedies: bool = False
    since: AskedSince | None = None
    launch: Launch
    sandbox: Sandbox
    image: Mapping[str, str] = {}
    run: Run | None = None
