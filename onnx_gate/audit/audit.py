"""The audit of one model: faults one after another, and what the gate says of each.

It goes on where verifying has ended: with the exported file, the cases, and PyTorch's answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from pydantic import ValidationError

import onnx_gate
from onnx_gate.audit.beyond import beyond, is_reached, shown_by_operators, wrong_weights
from onnx_gate.audit.catalogue import CATALOGUE
from onnx_gate.audit.edit import Edit
from onnx_gate.audit.effect import Effects
from onnx_gate.audit.files import ORIGINAL, share_weights, write_faulty
from onnx_gate.audit.graph import FlatGraph, GraphInput
from onnx_gate.audit.propose import Proposals
from onnx_gate.audit.sample import SampledFault, candidates, wilson
from onnx_gate.audit.trial import Trial, TrialBench
from onnx_gate.deadline import Deadline
from onnx_gate.files import sha256_of
from onnx_gate.graph.walk import all_nodes
from onnx_gate.report.io import to_message
from onnx_gate.report.model.audit import Audit, ManifestChange, Mutant, Share, Site, Unseen
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.context import BEGUN, MUTANT, SAMPLE, AuditRequest, today
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.inspect.altered import altered_by
from onnx_gate.verify.inspect.exact import ExactWeights, exact_weights
from onnx_gate.verify.key_hash import KeyHash
from onnx_gate.verify.source_lines import of_node, own_source

# What the trial of changes for a survivor is remembered under, where it has ended a process.
_CHANGES = "changes"
# Five were too few for a model of the tests on two busy cores.
_LEAST_SECONDS = 20.0
Emit = Callable[[dict[str, Any]], None]


def audit(
    checker: Checker,
    exported: Exported,
    request: AuditRequest,
    folder: Path,
    emit: Emit,
    deadline: Deadline,
    until: Deadline,
) -> Audit:
    """Seed faults into a model that has passed, and say which of them its gate catches.

    ``folder`` takes files of the size of the model. Every fault whose fate is known is emitted.
    What catches the survivors is looked for ``until`` then, and for ``_LEAST_SECONDS`` at least, which are
    more where more faults than usual are seeded.
    """
    original = share_weights(exported.path, folder)
    bench = TrialBench(checker, checker.tally.answered)
    twin = bench.learn(folder / ORIGINAL)
    if not twin.survived:
        why = twin.refused or (twin.caught.reason if twin.caught is not None else "")
        return Audit(seed=request.seed, note=f"the unchanged graph does not pass twice: {why}")
    inputs = _inputs(checker)
    graph = FlatGraph(original, folder, inputs, _sizes(original, inputs, checker.setting.spec.dims))
    every = candidates(graph, CATALOGUE, request.seed)
    desk = _Desk(graph, bench, folder, exported, request, _digest(folder, bench), emit)
    mutants: list[Mutant] = []
    counted, resumed = 0, 0
    wanted = request.sample or len(every)
    for candidate in every:
        if counted >= wanted or deadline.passed():
            break
        emit(
            {
                "kind": "stage",
                "name": "audit",
                "step": f"{counted} of {min(wanted, len(every))} faults",
            }
        )
        mutant, known = desk.mutant(candidate)
        mutants.append(mutant)
        resumed += known
        counted += mutant.fate != "equivalent" or mutant.by != "same"
        emit({"kind": MUTANT, "key": desk.key(candidate), "value": to_message(mutant)})
    left = min(wanted, len(every)) - counted if deadline.passed() else 0
    mutants = list(_once(mutants))
    made = Audit(
        seed=request.seed,
        sites=len(every),
        score=_share("all", mutants),
        kinds=_shares(mutants, lambda m: m.kind),
        mutants=tuple(mutants),
        left=left,
        resumed=resumed,
    )
    if not request.proposals:
        return made
    emit({"kind": "stage", "name": "audit", "step": "what catches the survivors"})
    least = _LEAST_SECONDS * max(1.0, counted / SAMPLE)
    seconds = min(max(least, until.left), deadline.left)
    return desk.proposed(made, {each.id: each for each in every}, Deadline(seconds))


@dataclass
class _Desk:
    """Everything that one fault needs to become a mutant of which the fate is known."""

    graph: FlatGraph
    bench: TrialBench
    folder: Path
    exported: Exported
    request: AuditRequest
    model: str
    emit: Emit

    def __post_init__(self) -> None:
        self._original = self.folder / ORIGINAL
        self._effects = Effects(self.bench, self._original)
        self._beyond: Effects | None = None
        self._passes = False
        setting, exporter = self.bench.checker.setting, self.exported.exporter
        self._exact: ExactWeights | None = None
        if setting.spec.reference is None and self.bench.answered:
            given = self.bench.answered[0][0].arrays
            altered = partial(altered_by, setting.eager, given)
            self._exact = exact_weights(setting.spec, exporter, setting.reduced, altered, today())
        self._lines = {name: n for n in all_nodes(self.exported.proto) for name in n.output}

    def key(self, candidate: SampledFault, *of: str) -> str:
        """What the fate of a fault depends on."""
        parts = (self.model, candidate.id, self.request.seed, *of)
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def mutant(self, candidate: SampledFault) -> tuple[Mutant, bool]:
        """Return what becomes of a fault, and whether an earlier call has found that out."""
        earlier = self._known(candidate)
        if earlier is not None:
            return earlier, True
        edit = candidate.fault.seed(self.graph, candidate.site, self.request.seed)
        about = self._about(candidate, edit)
        if edit.same:
            return about.model_copy(update={"fate": "equivalent", "by": "same"}), False
        faulty = self._written(edit)
        self._begin(self.key(candidate), about)
        trial = self.bench.trial(faulty, edit.feed)
        about = about.model_copy(update={"answers": trial.digest})
        return self._judged(about, candidate, edit, faulty, trial), False

    def proposed(self, made: Audit, every: Mapping[str, SampledFault], deadline: Deadline) -> Audit:
        """Return the audit with what catches each survivor, or why nothing does."""
        keys = {m.id: self.key(every[m.id], _CHANGES) for m in made.fate("survived")}
        survivors = [m for m in made.fate("survived") if keys[m.id] not in self.request.known]
        about = {mutant.id: mutant for mutant in survivors}

        def faulty(survivor: str) -> tuple[Path, Edit]:
            candidate = every[survivor]
            self._begin(keys[survivor], about[survivor])
            edit = candidate.fault.seed(self.graph, candidate.site, self.request.seed)
            return self._written(edit), edit

        proposals = Proposals(self.bench, self.folder / ORIGINAL, faulty, deadline)
        whys = proposals.catch({mutant.id: mutant.moved for mutant in survivors})
        by = proposals.caught
        changes = tuple(
            ManifestChange(
                key=change.key,
                value=change.value,
                add=change.adds,
                catches=sum(position == number for position in by.values()),
            )
            for number, change in enumerate(proposals.taken)
        )
        mutants = (
            m.model_copy(update={"change": by.get(m.id), "unseen": m.unseen or whys.get(m.id)})
            for m in made.mutants
        )
        return made.model_copy(
            update={
                "mutants": tuple(mutants),
                "changes": changes,
                "changes_tried": proposals.tried,
                "changes_left": proposals.untried,
            }
        )

    def _begin(self, key: str, about: Mutant) -> None:
        """Say what is tried next: should that end the process, another one goes on behind it."""
        self.emit({"kind": BEGUN, "key": key, "value": to_message(about)})

    def _written(self, edit: Edit) -> Path:
        if not edit.in_graph:
            return self.folder / ORIGINAL
        return write_faulty(self.graph.model, edit, self.folder)

    def _judged(
        self, about: Mutant, candidate: SampledFault, edit: Edit, faulty: Path, trial: Trial
    ) -> Mutant:
        if trial.refused:
            return about.model_copy(update={"fate": "refused", "reason": trial.refused})
        check = trial.caught
        if check is not None:
            return about.model_copy(
                update={
                    "fate": "caught",
                    "runtime": check.runtime,
                    "case": check.case,
                    "output": check.output,
                    "reason": check.reason,
                }
            )
        wrong = wrong_weights(edit, self.bench.checker, self._exact)
        if wrong:
            return about.model_copy(update={"fate": "caught", "reason": wrong})
        exact = not candidate.fault.rounds
        none, by = self._effects.is_none(trial, edit, faulty, exact=exact)
        if not none:
            moved = self._effects.moved(trial)
            return about.model_copy(update={"moved": moved, "reached": True})
        shown = self._shown_beyond(edit, faulty, exact=exact)
        if not shown:
            return about.model_copy(update={"fate": "equivalent", "by": by, "moved": 0.0})
        reached = is_reached(self.bench, self.graph, edit, self._original, faulty)
        return about.model_copy(update={"reached": reached, **shown})

    def _shown_beyond(self, edit: Edit, faulty: Path, *, exact: bool) -> dict[str, Any]:
        """Return what shows a fault that no case of the manifest's does, nothing where nothing does."""
        if self._beyond is None:
            bench = beyond(self.bench.checker, self._original) or TrialBench(self.bench.checker, ())
            self._passes = bench.learn(self._original).survived
            self._beyond = Effects(bench, self._original)
        trial = self._beyond.bench.trial(faulty, edit.feed)
        moved = self._beyond.moved(trial)
        caught = trial.caught if self._passes else None
        refused = self._passes and bool(trial.refused)
        if caught or refused or not self._beyond.is_none(trial, edit, faulty, exact=exact)[0]:
            largest = max(trial.moved, key=lambda n: trial.moved[n], default="")
            unseen = Unseen(
                why="inputs",
                case=caught.case if caught else largest,
                runtime=caught.runtime
                if caught
                else self.bench.checker.setting.spec.runtimes[0].label,
                output=caught.output if caught else "output",
            )
            return {"unseen": unseen, "moved": moved, "answers": trial.digest}
        if edit.in_graph and shown_by_operators(self.bench.checker, faulty):
            return {"unseen": Unseen(why="operator"), "answers": edit.words}
        return {}

    def _about(self, candidate: SampledFault, edit: Edit) -> Mutant:
        fault = candidate.fault
        if not fault.operators:
            site = Site(name=self.graph.fed[candidate.site.index].declared)
        else:
            node = self.graph.nodes[candidate.site.index].proto
            stored = self._lines.get(node.output[0])
            line = (
                own_source(of_node(stored, self.bench.checker.setting.workspace))
                if stored
                else None
            )
            site = Site(
                name=node.name or node.output[0],
                op_type=node.op_type,
                depth=candidate.depth,
                file=line.file if line else None,
                line=line.line if line else None,
                code=line.code if line else "",
            )
        return Mutant(
            id=candidate.id,
            fault=fault.name,
            kind=fault.kind,
            words=edit.words,
            source=fault.source,
            site=site,
            fate="survived",
        )

    def _known(self, candidate: SampledFault) -> Mutant | None:
        stored = self.request.known.get(self.key(candidate))
        if stored is None:
            return None
        try:
            mutant = Mutant.model_validate(stored)
        except ValidationError:
            return None
        return mutant if mutant.id == candidate.id else None


def _inputs(checker: Checker) -> list[GraphInput]:
    return [
        GraphInput(graph, name, checker.setting.spec.inputs[name])
        for name, graph in checker.setting.graph_inputs.items()
    ]


def _sizes(
    model: onnx.ModelProto, inputs: Sequence[GraphInput], dims: Mapping[str, tuple[int, ...]]
) -> dict[str, int]:
    """Return the first tested size of each dynamic dimension, by the graph's name for it."""
    shapes = {value.name: value.type.tensor_type.shape.dim for value in model.graph.input}
    return {
        of_graph.dim_param: dims[declared][0]
        for each in inputs
        for of_graph, declared in zip(shapes[each.name], each.spec.shape, strict=False)
        if isinstance(declared, str) and of_graph.dim_param and dims.get(declared)
    }


def _digest(folder: Path, bench: TrialBench) -> str:
    """Return what tells this model, its cases and its judge from any other."""
    digest = KeyHash()
    spec = bench.checker.setting.spec
    versions = (onnx_gate.__version__, ort.__version__, onnx.__version__)
    judged = (spec.tolerance, spec.outputs, spec.where, spec.runtimes, spec.waivers, spec.steps)
    digest.add(versions, judged, bench.checker.setting.threads)
    digest.add(*map(sha256_of, sorted(folder.iterdir())))
    for case, asked in bench.answered:
        outputs = asked.reference.outputs.arrays if asked.reference is not None else ()
        digest.add(case.id, *case.arrays, *case.arrays.values(), *outputs)
    return digest.hex


def _once(mutants: Iterable[Mutant]) -> Iterable[Mutant]:
    """Mark what answers as an earlier one does."""
    seen: set[str] = set()
    for mutant in mutants:
        if mutant.fate in ("caught", "survived"):
            if mutant.answers in seen:
                mutant = mutant.model_copy(update={"fate": "duplicate"})
            seen.add(mutant.answers)
        yield mutant


def _shares(mutants: Sequence[Mutant], of: Callable[[Mutant], str]) -> tuple[Share, ...]:
    names = list(dict.fromkeys(map(of, mutants)))
    shares = (_share(name, [m for m in mutants if of(m) == name]) for name in names)
    return tuple(share for share in shares if share.of)


def _share(name: str, mutants: Sequence[Mutant]) -> Share:
    caught = sum(m.fate == "caught" for m in mutants)
    of = caught + sum(m.fate == "survived" for m in mutants)
    low, high = wilson(caught, of)
    return Share(name=name, caught=caught, of=of, low=low, high=high)
