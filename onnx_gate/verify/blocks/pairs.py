"""Two neighbouring blocks in one session: what is optimised across their border is run there.

A block alone is optimised alone. A fusion of the end of one with the beginning of the next is in the whole
file, and in no block of it; so each two that follow each other are run once more, on PyTorch's values
where the first begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from onnx_gate.manifest import RuntimeSpec
from onnx_gate.report.model import Check
from onnx_gate.report.model.diagnosis import Diagnosis, Evidence
from onnx_gate.verify.blocks.in_a_row import in_a_row
from onnx_gate.verify.blocks.pieces import BlockStage
from onnx_gate.verify.blocks.torch_side import GRAPH, Said, TorchSide
from onnx_gate.verify.compared import Asked, Comparer
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.sessions import Sessions, without_optimisations
from onnx_gate.verify.stopwatch import Clock

# Behind the id of the case on which two blocks are run together.
JOINED = "joined"

Open = Callable[[BlockStage, Sequence[RuntimeSpec]], AbstractContextManager[Sessions]]


def pair_name(first: str, second: str) -> str:
    """Return what two blocks are called together."""
    return f"{first} + {second}"


@dataclass(frozen=True)
class PairRun:
    """Runs a stage's block with the one before it; ``file`` takes the piece of both."""

    torch: TorchSide
    clock: Clock
    file: Path
    runtimes: tuple[RuntimeSpec, ...]
    open: Open

    def before(self, stage: BlockStage) -> BlockStage | None:
        """Return the block before, ``None`` where no value of it is the next one's alone.

        Nor where it has been run with the one before itself, whose end is not in the file.
        """
        if not stage.inside or stage.number not in self.torch.pieces.pairs:
            return None
        if self.torch.hidden(stage.number - 1):
            return None
        return self.torch.pieces.stages[2 * stage.number - 1]

    def judged(
        self, comparer: Comparer[CaseReference], stage: BlockStage, before: BlockStage, said: Said
    ) -> tuple[list[Check], Diagnosis | None]:
        """Return the checks of both in a row, and whose fault it is where one diverges.

        ``said`` is a case that has just gone through the stage, and each of the two has passed alone.
        """
        pieces, line, name = self.torch.pieces, said.line, pair_name(before.name, stage.name)
        piece = pieces.pairs[stage.number]
        fed = {each: line.known[each] for each in piece.needs}
        pieces.write(piece, fed, self.file)
        eager, inputs = in_a_row(self.torch, [before], stage, line)
        arrays = {**inputs, **{GRAPH + each: array for each, array in fed.items()}}
        case = replace(line.case, id=f"{line.case.id}/{JOINED}", arrays=arrays, expected={})
        assert said.asked.reference is not None
        outputs = said.asked.reference.outputs
        reference = CaseReference(eager, Float64Reference(eager), inputs, outputs, self.clock)
        asked = Asked(reference, selected=said.asked.selected)
        graph = {GRAPH + each: each for each in piece.needs}
        known = [value in outputs.names for value in stage.names]

        def run(runtimes: Sequence[RuntimeSpec]) -> list[Check]:
            checks: list[Check] = []
            with self.open(stage, runtimes) as sessions:
                for label in sessions:
                    answers, refused = sessions.ask(label, case.arrays, graph)
                    if answers is not None:
                        answers = [
                            a for a, is_known in zip(answers, known, strict=True) if is_known
                        ]
                    checks += comparer.one(case, label, asked, (answers, refused))
            return [check.model_copy(update={"block": name}) for check in checks]

        with self.torch.skeleton.loaded(self.torch.parameters(before)):
            checks = run(self.runtimes)
            bad = next((c for c in checks if c.verdict == "diverged" and not c.advice), None)
            if bad is None:
                return checks, None
            plain = without_optimisations(self.runtimes)
            without = [] if plain is None else run((plain,))
        return checks, _diagnosis(bad, before.name, stage.name, without)


def _diagnosis(bad: Check, first: str, second: str, without: Sequence[Check]) -> Diagnosis:
    """Say whose fault it is that two blocks diverge together and not alone.

    ``without`` are the checks of both without optimisations, empty where that is none's to try.
    """
    agrees = bool(without) and all(check.verdict == "pass" for check in without)
    alone = f"{first} and {second} agree with PyTorch each alone"
    if not agrees:
        cause = f"{alone}, and not in a row, with optimisations or without"
        return Diagnosis.undecided(bad, "", cause)
    border = f"one across the border of {first} and {second} is wrong"
    cause = f"{alone}, and together without optimisations: {border}"
    evidence = Evidence(
        decisive=True,
        experiment=f"{first} and {second} in one session without optimisations, on PyTorch's values",
        outcome="agrees with PyTorch",
        agrees=True,
    )
    found = Diagnosis.undecided(bad, "", cause)
    return found.model_copy(update={"blame": "optimiser", "evidence": (evidence,)})
