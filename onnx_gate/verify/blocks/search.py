"""The first wrong node of a stage that diverges, looked for where there is room to run it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from onnx_gate.manifest import ModelSpec
from onnx_gate.report.layout import REPRO
from onnx_gate.report.model import Check
from onnx_gate.report.model.diagnosis import Diagnosis
from onnx_gate.runtimes.half import HALF
from onnx_gate.text import listed
from onnx_gate.verify.blocks.in_a_row import in_a_row
from onnx_gate.verify.blocks.need import TIMES
from onnx_gate.verify.blocks.pieces import BlockStage
from onnx_gate.verify.blocks.torch_side import GRAPH, Said, TorchSide
from onnx_gate.verify.context import Context
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.subject import NO_CAUSE, Locate, Subject
from onnx_gate.workers.forked import run_forked

# The search for a node has so many seconds, and so many bytes for values.
_SECONDS = 60.0
_VALUES = 256 << 20
# A fork has what this process has, its own forks for experiments have that again, and a session.
_COPIES = 3.5


@dataclass(frozen=True)
class BlockSearch:
    """Finds the node; ``limit`` is the memory that the model may use, in bytes, ``scratch`` a folder."""

    torch: TorchSide
    context: Context
    limit: int
    locate: Locate
    scratch: Path

    def diagnosis(
        self, spec: ModelSpec, stage: BlockStage, said: Said, checks: Sequence[Check]
    ) -> Diagnosis | None:
        """Return that of the first of a stage's checks that diverges; ``None`` where none does.

        ``spec`` is the model's entry as it is for the stage.
        """
        bad = next((c for c in checks if c.verdict == "diverged" and not c.advice), None)
        if bad is None:
            return None
        part = stage.name or "what follows the last block"
        before = self.torch.judged_with(stage)
        hidden = [each.name for each in before]
        place = part if stage.inside or not stage.name else f"what leads to {part}"
        who = f"{place} computes"
        if hidden:
            who = f"{' to '.join(dict.fromkeys((hidden[0], hidden[-1])))} and {place} together compute"
        missing = {self.torch.path(each) for each in before} & self.torch.divided.missing
        lacks = f"the file has no weight of {listed(sorted(missing), 3)}: " if missing else ""
        cause = f"{lacks}{who} something else on PyTorch's own values"
        if self.torch.divided.reduced is not None or bad.runtime in self._halves(spec):
            found = Diagnosis.undecided(
                bad, "what its bits cost is more than is allowed there", cause
            )
            return found.model_copy(update={"blame": "reduced precision"})
        subject = self._subject(spec, stage, said, bad)
        if subject is None:
            note = "its parameters are too many to be looked into"
            return Diagnosis.undecided(bad, note, cause)
        data, trouble = run_forked(lambda: self.locate(cause, subject, _SECONDS), 2 * _SECONDS)
        if trouble:
            return Diagnosis.undecided(bad, f"{NO_CAUSE}: {trouble}", cause)
        return Diagnosis.model_validate(data)

    def _subject(
        self, spec: ModelSpec, stage: BlockStage, said: Said, bad: Check
    ) -> Subject | None:
        reference = said.asked.reference
        names = reference.outputs.names if reference is not None else ()
        taken = psutil.Process().memory_info().rss
        taken += TIMES * self.torch.skeleton.nbytes(stage.piece.parameters)
        room = _COPIES * taken < self.limit
        if not room or bad.output not in names or len(names) != len(stage.piece.outputs):
            return None
        # Where the file has not what the block is given, the piece begins before that.
        eager, arrays = said.eager, said.case.arrays
        before = self.torch.judged_with(stage) or self.torch.made_again(stage)
        if stage.inside and not before and not self._fed(stage, said):
            eager, inputs = in_a_row(self.torch, (), stage, said.line)
            arrays = {**arrays, **inputs}
        path = self.scratch / "wrong.onnx"
        feeds = {name: said.case.arrays[GRAPH + name] for name in stage.piece.needs}
        proto = self.torch.pieces.write_whole(stage.piece, feeds, path)
        return Subject(
            spec=spec,
            eager=eager,
            exported=Exported(path, "dynamo", proto),
            graph_inputs={GRAPH + name: name for name in stage.piece.needs},
            arrays=arrays,
            output=names.index(bad.output),
            runtime=next(r for r in spec.runtimes if r.label == bad.runtime),
            check=bad,
            workspace=self.context.workspace,
            folder=self.scratch / "diagnose",
            repro=self.context.folder / REPRO,
            memory=_VALUES,
        )

    def _halves(self, spec: ModelSpec) -> set[str]:
        """Return the runtimes that round each 16-bit result, which says all that there is to look for."""
        return {each.label for each in spec.runtimes if each.name == HALF}

    def _fed(self, stage: BlockStage, said: Said) -> bool:
        """Return whether the piece of a block is fed with all that PyTorch's block is given."""
        given = said.line.given
        known = self.torch.divided.calls[stage.number].inputs
        return given is not None and given.at.keys() <= known.keys()
