"""What each worker of a run is to do."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from onnx_gate.cache.hits import CachedResults
from onnx_gate.gate.history import History
from onnx_gate.gate.journal import Journal
from onnx_gate.gate.known_blocks import KnownBlocks
from onnx_gate.gate.options import Options
from onnx_gate.manifest import Manifest, ModelSpec
from onnx_gate.report.layout import Layout, slug
from onnx_gate.verify.checkpoint_files import checkpoint_files
from onnx_gate.verify.context import AUDIT_TIMES, AuditRequest, Context
from onnx_gate.workers.admission import expectation
from onnx_gate.workers.launch import own_folder
from onnx_gate.workers.task import Task

WORKER = "onnx_gate.gate.worker:work"
HELD_WORKER = "onnx_gate.gate.held:work"
HELD_PRELOAD = ("onnx", "onnxruntime", "onnx_gate.gate.held")
PRELOAD_ONE = ("torch", "onnx", "onnxruntime", "numpy.ma", "onnx_gate.gate.worker")
"""What the process of one model begins with: the rest it imports itself, beside a fork at work."""
PRELOAD = (
    *PRELOAD_ONE,
    "onnxscript",
    "onnx_gate.verify.export.warm",
    "onnx_gate.diagnose.diagnose",
)

# How many times its share of the processors a model may use up, all of its timeout long: the
# export's compilers and loaders of data do not keep to the number of threads.
_PROCESSORS = 2.0


@dataclass(frozen=True)
class Tasks:
    """Makes the tasks of one run: what each worker is to do."""

    manifest: Manifest
    options: Options
    layout: Layout
    known: CachedResults
    history: History
    journal: Journal
    blocks: KnownBlocks

    def _audit(self, spec: ModelSpec) -> AuditRequest | None:
        request = self.options.audit
        return None if request is None else replace(request, known=self.journal.read(spec.name))

    def of(self, spec: ModelSpec, threads: int, crashes: Mapping[str, str]) -> Task:
        """Make a model's folders and return its task; raises ``OSError``.

        ``crashes`` are the runtimes that have ended its process so far.
        """
        folder, log = self.layout.model(spec.name), self.layout.log(spec.name)
        launch = self.options.launch
        log.parent.mkdir(parents=True, exist_ok=True)
        if launch.policy is not None:
            own_folder(folder, launch.owner)
        context = Context(
            workspace=self.manifest.path.resolve().parent,
            folder=folder.resolve(),
            patterns=self.options.cases,
            threads=threads,
            confinement=launch.confinement(slug(spec.name), folder.resolve()),
            record=self.blocks.cache.records,
            blocks=self.blocks.of(spec),
            reuse=self.blocks.cache.restore(self.known.exported.get(spec.name, {}), folder),
            advise=spec.name not in self.known.hung,
            audit=self._audit(spec),
            answers=self.options.answers is not None,
            crashes=crashes,
        )
        against = self.options.against
        times = 1.0 if context.audit is None else AUDIT_TIMES
        return Task(
            spec.name,
            (spec, context) if against is None else (spec, context, against.given[spec.name]),
            times * spec.timeout,
            spec.memory,
            log,
            processor=_PROCESSORS * threads * times * spec.timeout,
            expected_seconds=self.history.seconds.get(spec.name),
            expected_memory=expectation(
                self.history.memory.get(spec.name), _weights(spec, context.workspace), spec.memory
            ),
        )


def _weights(spec: ModelSpec, workspace: Path) -> int:
    """Bytes of the files of weights that the manifest names, external data beside them included."""
    total = 0
    for path in filter(None, (spec.reference, spec.onnx)):
        file = workspace / path
        with suppress(OSError):
            total += sum(
                each.stat().st_size
                for each in file.parent.iterdir()
                if each.name.startswith(file.name)
            )
    if spec.weights is not None:
        for file in checkpoint_files(workspace / spec.weights.file, workspace):
            with suppress(OSError):
                total += file.stat().st_size
    return total
