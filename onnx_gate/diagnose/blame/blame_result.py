"""What the experiments come to: whom they blame, and which of them decided it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from onnx_gate.report.model.diagnosis import Blame, Evidence, Experiment, Pictures


@dataclass(frozen=True)
class BlameResult:
    """A verdict and the experiments that it rests on, in the order they were made.

    ``decided_by`` is the kind of the experiment that settled it, the last of that kind that could
    be made; ``None`` where none did. ``fused_by`` names ONNX Runtime's optimiser where the blame is on one.
    ``program_agrees`` and ``plain_agrees`` say whether torch.export's program, and ONNX Runtime
    with optimisations off, agree with PyTorch; ``None`` where that is not known.
    ``pictures`` are of the check. ``cause`` is what an experiment singled out, ``likely`` what is known to
    differ where none does, ``remedy`` what to do about this very fault.
    """

    blame: Blame
    decided_by: Experiment | None = None
    evidence: tuple[Evidence, ...] = ()
    fused_by: str | None = None
    note: str = ""
    cause: str = ""
    likely: str = ""
    remedy: str = ""
    program_agrees: bool | None = None
    plain_agrees: bool | None = None
    pictures: Pictures | None = None

    def marked(self) -> BlameResult:
        """Return the same result with the deciding experiment marked among the evidence."""
        of_kind = [
            i
            for i, each in enumerate(self.evidence)
            if each.kind == self.decided_by is not None and each.agrees is not None
        ]
        # What is different in a file is told in the order of its weight.
        last = 0 if self.decided_by in ("file", "graph") else -1
        decisive = of_kind[last] if of_kind else None
        return replace(
            self,
            evidence=tuple(
                each.model_copy(update={"decisive": i == decisive})
                for i, each in enumerate(self.evidence)
            ),
        )
