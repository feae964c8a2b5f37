"""What of a manifest to verify, and how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnx_gate.gate.answers_folder import Against
from onnx_gate.report.io import MAX_BYTES
from onnx_gate.report.model import Commit, Sandbox, Shard
from onnx_gate.verify.context import AuditRequest
from onnx_gate.workers.launch import Launch


@dataclass(frozen=True)
class Options:
    """What of the manifest to verify, and how: the whole of a call.

    ``output`` takes the report, the logs, and with ``keep_models`` the exported files. ``models``
    and ``cases`` are globs (none: all); of the models, only the part of ``shard`` is verified
    (none: all of them). ``runtimes`` are names of engines (none: those of the manifest).
    ``baseline`` is a report to compare with. ``jobs`` is the number of workers side by side (0: as
    many as there are cores). ``cache`` is the folder of a cache of verdicts (none: everything is
    verified); with ``changed`` it is said why each model is verified. With ``traceback`` it is shown
    where the error of a model came from. ``launch`` says how the models' code is started, and
    ``sandbox`` what that keeps it from. ``commit`` is what is checked out (none: nobody has looked).
    ``report_bytes`` is what the report may have: as much as whoever has to read it takes. ``remedies``
    is how many times the run's own time is spent on trying what would make red models green (0: none).
    """

    output: Path
    models: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    shard: Shard | None = None
    baseline: Path | None = None
    jobs: int = 0
    keep_models: bool = False
    cache: Path | None = None
    changed: bool = False
    traceback: bool = False
    audit: AuditRequest | None = None
    journal: Path | None = None
    answers: Path | None = None
    against: Against | None = None
    launch: Launch = Launch()
    sandbox: Sandbox | None = None
    commit: Commit | None = None
    report_bytes: int = MAX_BYTES
    remedies: float = 0.0

    @property
    def follows(self) -> bool:
        """Whether more is asked of each model than its verdict, which then is not the cache's."""
        return self.audit is not None or self.answers is not None

    @property
    def knows_verdicts(self) -> bool:
        """Whether verdicts are looked up in a cache, and kept there."""
        return self.cache is not None and not self.follows
