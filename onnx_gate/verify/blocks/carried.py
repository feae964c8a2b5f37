"""What runtimes make of a case by themselves: their own values through all blocks, steps, and the end."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from onnx_gate.findings.finding import Finding
from onnx_gate.report.model import Check
from onnx_gate.runtimes.base import Array, Outputs
from onnx_gate.verify.blocks.block_steps import MovedSteps, StepTogetherReference
from onnx_gate.verify.blocks.memory import give_back
from onnx_gate.verify.blocks.stage_runs import StageRuns
from onnx_gate.verify.blocks.together import TogetherReference
from onnx_gate.verify.blocks.torch_side import BlockLine, TorchSide
from onnx_gate.verify.compared import Asked
from onnx_gate.verify.experience import Experience
from onnx_gate.verify.judge.where import selection
from onnx_gate.verify.proposal import Measured
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.steps.course import in_order
from onnx_gate.verify.steps.measured_steps import StepRows
from onnx_gate.verify.steps.trajectory import Trajectory
from onnx_gate.verify.stopwatch import Clock

# Behind the id of the case whose values the runtimes carry on themselves.
CARRIED = "carried"


@dataclass(frozen=True)
class Carried:
    """Ends the way of the case that the runtimes carry, all its steps in ``lines``."""

    torch: TorchSide
    runs: StageRuns
    clock: Clock
    step: Callable[[str], None]

    def own_steps(self, lines: Sequence[BlockLine], graph_inputs: Mapping[str, str]) -> None:
        """Take the runtimes through the later steps, each by what it has come to itself."""
        for before, line in itertools.pairwise(lines):
            self.step(f"step {line.number} of {len(lines)}")
            assert line.feedback is not None
            for label, own in before.own.items():
                every = [own[name] for name in self.torch.pieces.outputs if name in own]
                answers = (None, None) if label in before.refused else (every, None)
                if before.outputs is None:
                    continue
                ordered = in_order(self.runs.setting(self.runs.spec), before.outputs.names, answers)
                if ordered is not None and line.outputs is not None:
                    mine = line.feedback.mine(line.case.arrays, ordered)
                    line.own[label] = self.torch.divided.held(fed(mine, graph_inputs))
            for place, stage in enumerate(self.torch.pieces.stages):
                if not line.own or not stage.piece.outputs:
                    continue
                feeds = next(iter(line.own.values()))
                self.torch.pieces.write(stage.piece, feeds, self.runs.file)
                runtimes = [r for r in self.runs.spec.runtimes if r.label in line.own]
                with self.runs.sessions(stage, runtimes) as sessions:
                    for label in sessions:
                        self.runs.carry(stage, line, label, sessions)
                self.runs.took(sessions)
                line.keep(self.torch.pieces.read_after(place))
                give_back()

    def end(
        self, lines: Sequence[BlockLine], together: int
    ) -> tuple[tuple[Check, ...], list[Finding], list[Measured]]:
        """Judge what they have come to, by the manifest's own tolerance; return what fewer bits cost.

        So many runs with moved rounding go side by side.
        """
        spec, first = self.runs.spec, lines[0]
        way, moved = None, None
        rows: dict[str, StepRows] = {}
        if first.feedback is not None:
            way = Trajectory(first.feedback, first.case)
            moved = MovedSteps(self.torch, first.feedback, [line.case for line in lines])
            rows = {n: StepRows(first.feedback, first.case.sizes, False) for n in first.own}
        experience: dict[str, Experience] = defaultdict(Experience)
        comparer = self.runs.comparer(spec, experience)
        checks: list[Check] = []
        for line in lines:
            case, outputs = line.case, line.outputs
            assert outputs is not None
            reference = self._reference(line, outputs, way, moved, together)
            selected = tuple(
                selection(spec, name, array.shape, case.arrays, case.sizes, case.id)
                for name, array in zip(outputs.names, outputs.arrays, strict=True)
            )
            case = replace(case, id=f"{case.id}/{CARRIED}", expected={})
            asked = Asked(reference, selected=selected)
            for label, own in line.own.items():
                refused = line.refused.get(label)
                answers = (
                    None
                    if refused
                    else [own[name] for name in self.torch.pieces.outputs if name in own]
                )
                answered, taken = (answers, refused), rows.get(label)
                settled = taken.settled if taken else ()
                made = list(comparer.one(case, label, asked, answered, settled))
                if taken is None:
                    checks += made
                else:
                    ordered = in_order(comparer.setting, outputs.names, answered)
                    taken.take(line.number, made, reference, ordered, selected)
            if way is not None:
                way.advance(outputs.arrays)
        checks += (check for taken in rows.values() for check in taken.checks())
        return comparer.settled(checks), comparer.tally.findings, comparer.tally.measured

    def _reference(
        self,
        line: BlockLine,
        outputs: Outputs,
        way: Trajectory | None,
        moved: MovedSteps | None,
        together: int,
    ) -> CaseReference:
        """Return what PyTorch says of a case that was carried, or of one of its steps."""
        eager, clock = self.torch.eager, self.clock
        if way is None or moved is None:

            def alone(seeds: Sequence[int]) -> list[tuple[Array, ...] | None]:
                return self.torch.moved([line.case] * len(seeds), seeds)

            return TogetherReference(eager, line.case.arrays, outputs, clock, alone, together)
        return StepTogetherReference(eager, way, outputs, clock, moved, together)


def fed(arrays: Mapping[str, Array], graph_inputs: Mapping[str, str]) -> dict[str, Array]:
    """Return a case's arrays by the names of the graph's inputs."""
    return {graph: arrays[name] for name, graph in graph_inputs.items()}
