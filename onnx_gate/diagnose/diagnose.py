"""From a diverged result to its diagnosis: which check, whom to blame, where, and a repro."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psutil

from onnx_gate.deadline import Deadline, OutOfTime
from onnx_gate.diagnose.bench import RUN, Bench
from onnx_gate.diagnose.blame.blame import find_blame
from onnx_gate.diagnose.blame.blame_result import BlameResult
from onnx_gate.diagnose.further import further
from onnx_gate.diagnose.half import of_half
from onnx_gate.diagnose.hints.hints import explaining, possible
from onnx_gate.diagnose.known_fault import known_fault
from onnx_gate.diagnose.localize.localize import Located, has_own_kernels, localize
from onnx_gate.diagnose.nonfinite import first_nonfinite, told_of_nonfinite
from onnx_gate.diagnose.reduced.precision import (
    clearest,
    cut_off,
    is_beyond_bits,
    of_layers,
    suspicion,
    with_layers,
)
from onnx_gate.diagnose.reduced.saturation import saturated
from onnx_gate.diagnose.repro.replay import replay_arguments
from onnx_gate.diagnose.repro.write import make_repro, repro_path
from onnx_gate.diagnose.single_out import single_out
from onnx_gate.diagnose.tie_break import decide_on_node
from onnx_gate.diagnose.whole import Cause, of_the_whole
from onnx_gate.findings.finding import Finding
from onnx_gate.graph.constants import array_of
from onnx_gate.graph.module_path import props_of
from onnx_gate.graph.walk import constants
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.manifest.spec import Against
from onnx_gate.report.io import to_message
from onnx_gate.report.layout import REPRO
from onnx_gate.report.model import Check, ModelResult
from onnx_gate.report.model.diagnosis import Diagnosis, Precision
from onnx_gate.report.story.summary import failing
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.context import Context
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.sessions import without_optimisations
from onnx_gate.verify.subject import Subject

# Where onnxscript's optimiser names the rule that wrote a node.
_RULE = "pkg.onnxscript.rewriter.rule_name"
_SHAPED = ("Reshape", "Expand")
# What is left of the time is for telling the result.
_SHARE = 0.9
# Where several runtimes diverge, what the first diagnosis may take of it.
_FIRST_SHARE = 0.6
_BLAME_SHARE = 0.4
_LOCALIZE_SHARE = 0.8
_LAYERS_SHARE = 0.5
_HALF_SHARE = 0.6
_SATURATION_SHARE = 0.2
_MEMORY_SHARE = 0.2
_LEAST_MEMORY = 64 << 20
_MOST_MEMORY = 2 << 30
_NOWHERE = ("model", "ill-conditioned")
_IN_THE_FILE = (
    *("capture", "exporter", "stale artifact", "conversion", "reduced precision", "undecided"),
)


def explain(
    result: ModelResult, checker: Checker, exported: Exported, context: Context, seconds: float
) -> dict[str, Any]:
    """Return ``{"diagnosis": ..., "findings": [...]}`` as JSON data, the diagnosis of the worst check.

    The diagnosis is null where the check cannot be run again, and where nothing diverged. ``further``
    has those of the other runtimes that diverge otherwise. Of a file
    that computes in fewer bits ``precision`` is there too, with what its layers cost. ``seconds`` is
    all the time there is.
    """
    explained = _Explained(result, checker, exported, context)
    whole = Deadline(_SHARE * seconds)
    several = len({check.runtime for check in failing(result)}) > 1
    told = explained.first(Deadline(whole.left * (_FIRST_SHARE if several else 1.0)))
    if several and told["diagnosis"] is not None:
        first = Diagnosis.model_validate(told["diagnosis"])
        for diagnosis, check in further(result, first, explained.subject, diagnose, whole):
            also = explained.told(diagnosis, check)
            told["further"] = [*told.get("further", ()), also["diagnosis"]]
            known = told["findings"]
            told["findings"] = known + [each for each in also["findings"] if each not in known]
    return told


@dataclass(frozen=True)
class _Explained:
    """A model that was checked, and what explains how it did."""

    result: ModelResult
    checker: Checker
    exported: Exported
    context: Context

    def first(self, deadline: Deadline) -> dict[str, Any]:
        """Return what explains the worst check."""
        result = self.result
        left = Deadline(_HALF_SHARE * deadline.left)
        try:
            half = of_half(result, self.checker, self.subject, left)
        except OutOfTime:
            half = None
        if half is not None:
            diagnosis, headroom, finding = half
            found = {"diagnosis": None, "findings": [to_message(finding)]}
            if diagnosis is not None:
                key = diagnosis.runtime, diagnosis.case, diagnosis.output
                about = next(c for c in result.checks if (c.runtime, c.case, c.output) == key)
                found = self.told(diagnosis, about, (finding,))
            return found | {"headroom": to_message(headroom)}
        if result.precision is not None:
            answer = self._precision(result.precision, deadline)
            if answer is not None:
                return answer
        check = worst(result, self.checker.setting.spec.runtimes)
        subject = self.subject(check)
        if check is None or subject is None:
            return {"diagnosis": None, "findings": []}
        return self.told(diagnose(subject, deadline), check)

    def _precision(self, precision: Precision, deadline: Deadline) -> dict[str, Any] | None:
        """Return what the layers cost, and as the diagnosis where that is what diverged.

        ``None`` where the runtime, or its optimisations, are more to blame than the bits.
        """
        diverged = self.result.verdict == "diverged"
        check = clearest(self.result)
        if diverged and is_beyond_bits(check, self.checker.setting.reduced):
            return None
        subject = self.subject(check)
        if check is None or subject is None:
            return None if diverged else {}
        precision, weighed = with_layers(subject, precision, _LAYERS_SHARE * deadline.left)
        cut = saturated(self.checker, subject, _SATURATION_SHARE * deadline.left)
        precision = precision.model_copy(update={"saturated": cut})
        findings = (*suspicion(precision, subject.spec.against), *cut_off(precision))
        told: dict[str, Any] = {"precision": to_message(precision)}
        if not diverged and not any(f.severity == "error" for f in findings):
            return told | {"findings": [to_message(finding) for finding in findings]}
        diagnosis = of_layers(subject, precision, weighed, deadline.left)
        diagnosis = diagnosis or diagnose(subject, deadline)
        return told | self.told(diagnosis, check, findings)

    def told(
        self, diagnosis: Diagnosis, check: Check, known: Sequence[Finding] = ()
    ) -> dict[str, Any]:
        """Say what explains a divergence, and where neither a number nor the book does, what may."""
        proto, checker = self.exported.proto, self.checker
        fault = known_fault(diagnosis, self.exported, check, checker.setting.spec.runtimes)
        said = self.result.findings
        leading = (*known, *explaining(diagnosis, proto, check, checker.tally.checks, said))
        codes = tuple(dict.fromkeys(finding.code for finding in leading))
        lacking = diagnosis.beside is not None
        if diagnosis.nonfinite is not None and not (diagnosis.cause or leading or lacking):
            cause = told_of_nonfinite(diagnosis.nonfinite)
            diagnosis = diagnosis.model_copy(update={"cause": cause})
        others = (
            () if leading or lacking or fault is not None else possible(diagnosis, proto, check)
        )
        return {
            "diagnosis": to_message(diagnosis.model_copy(update={"hints": codes, "known": fault})),
            "findings": [to_message(finding) for finding in (*leading, *others)],
        }

    def subject(self, check: Check | None) -> Subject | None:
        """Return a check with all that it takes to run it again, ``None`` where it cannot be."""
        checker, folder = self.checker, self.context.folder
        again = checker.again(check) if check is not None else None
        if check is None or again is None:
            return None
        case, output, runtime = again
        noise, known = checker.tally.kept.get(
            (check.runtime, check.case, check.output), (None, None)
        )
        subject = Subject(
            spec=checker.setting.spec,
            eager=checker.setting.eager,
            exported=self.exported,
            graph_inputs=checker.setting.graph_inputs,
            arrays=case.arrays,
            output=output,
            runtime=runtime,
            check=check,
            workspace=self.context.workspace,
            folder=folder / "diagnose",
            repro=folder / REPRO,
            memory=_memory(checker),
            noise=noise,
            known=known,
            weights=self.result.weights,
            reduced=checker.setting.reduced,
        )
        subject.folder.mkdir(parents=True, exist_ok=True)
        return subject


def worst(result: ModelResult, runtimes: Iterable[RuntimeSpec] = ()) -> Check | None:
    """Return the check to diagnose: the worst of which there are numbers, else the worst.

    Of an engine that runs the file as it is written, where one diverges: what is wrong in the file
    itself is wrong in every engine, and is no fault of the one that it makes the largest error in. And of
    a model's own runtimes before the one without optimisations, which answers one case alone.
    """
    bad, runtimes = failing(result), tuple(runtimes)
    others = {runtime.label for runtime in runtimes if not runtime.engine.plain}
    others |= {each.label for each in [without_optimisations(runtimes)] if each is not None}
    plain = [check for check in bad if check.runtime not in others]
    bad = plain or bad
    return next((check for check in bad if check.metrics is not None), bad[0] if bad else None)


def diagnose(subject: Subject, deadline: Deadline) -> Diagnosis:
    """Blame, locate and cut out one diverged check, before ``deadline``."""
    blamed = find_blame(subject, _BLAME_SHARE * deadline.left)
    located = _located(subject, blamed, deadline)
    blamed = decide_on_node(subject, blamed, located, deadline.left)
    other = located.beside is not None or is_beyond_bits(subject.check, subject.reduced)
    if other and blamed.blame == "reduced precision":
        # Of fewer bits there is no operator less, and no integer makes NaN of a number.
        blamed = replace(blamed, blame="exporter" if subject.spec.writer else "graph")
    cause = Cause(blamed.cause)
    if blamed.blame in _IN_THE_FILE and not blamed.cause and deadline.left > 1:
        outside = of_the_whole(subject, located, deadline.left)
        baked = rewritten(subject, located, blamed) if blamed.program_agrees else None
        cause = outside or baked or single_out(subject, located, deadline.left)
    nonfinite = None
    if deadline.left > 1:
        nonfinite, _ = Bench(subject, deadline.left).apart(lambda: first_nonfinite(subject), RUN)
    told = cause.told or blamed.likely
    notes = [_at_step(subject.check, subject.spec.against), blamed.note, located.note]
    said = {told, *(each.outcome for each in blamed.evidence if each.decisive)}
    path = None
    left = deadline.left
    if blamed.blame not in _NOWHERE and left > 1:
        repro = make_repro(subject, located, plain_agrees=blamed.plain_agrees, seconds=left)
        notes.append(repro.reason)
        path = repro_path(subject, repro)
    return Diagnosis(
        runtime=subject.check.runtime,
        case=subject.check.case,
        output=subject.check.output,
        blame=blamed.blame,
        refused="runtime" in subject.check.refused,
        against=subject.spec.against,
        evidence=blamed.evidence,
        node=located.node,
        beside=located.beside,
        fused_by=blamed.fused_by,
        cause=told,
        remedy=cause.remedy or blamed.remedy,
        source=cause.source or located.source,
        nonfinite=nonfinite,
        nodes=located.nodes,
        guilty=located.guilty,
        repro=path,
        replay=replay_arguments(subject.runtime) if has_own_kernels(subject.runtime) else (),
        note="; ".join(note for note in notes if note and note not in said),
        pictures=blamed.pictures,
    )


def _at_step(check: Check, against: Against) -> str:
    """Say which of many calls was looked into; what was wrong before it is not in its inputs."""
    steps = check.steps
    if steps is None or steps.at == 1:
        return ""
    return (
        f"this is step {steps.at} of {steps.count} on {against}'s own inputs of it: where both sides "
        "agree on them, the difference has built up over the steps before"
    )


def _located(subject: Subject, blamed: BlameResult, deadline: Deadline) -> Located:
    """Return where the error is born, and nothing where there is no node to look for, or no time."""
    left = deadline.left
    # Where the plain graph agrees there is no node of it to name, only the fusion: unless it is
    # another engine's kernels that run it.
    plain = blamed.plain_agrees is True and not has_own_kernels(subject.runtime)
    # A file of the owner's own that declares an input's axis as fixed is refused before any node.
    fixed = bool(subject.spec.writer) and "expected" in subject.check.refusal
    if blamed.blame in _NOWHERE or plain or fixed or left < 1:
        return Located()
    # What PyTorch has elsewhere is tried in the place of values, and may end a runtime's process.
    located, trouble = Bench(subject, left).apart(
        lambda: localize(subject, _LOCALIZE_SHARE * left), left
    )
    return located or Located(note=f"the search for the node gave none: {trouble}")


def _memory(checker: Checker) -> int:
    limit = checker.setting.spec.memory or psutil.virtual_memory().available
    return int(min(_MOST_MEMORY, max(_LEAST_MEMORY, _MEMORY_SHARE * limit)))


def rewritten(subject: Subject, located: Located, blamed: BlameResult) -> Cause | None:
    """Return that a wrong shape is of onnxscript's optimiser, of a graph whose program is right.

    It goes by the shapes that torch's exporter writes beside values, and that is wrong about recurrent
    layers with time first: no line of the module's has made a number of that size.
    """
    node = located.proto
    rule = props_of(node).get(_RULE) if node is not None and node.op_type in _SHAPED else None
    if node is None or rule is None:
        return None
    tensor = constants(subject.exported.proto).get(node.input[1])
    if tensor is None:
        return None
    shape = array_of(tensor, subject.exported.path.parent).tolist()
    told = f"onnxscript's optimiser ({rule}) made the shape of {node.op_type} a constant, {shape}"
    if subject.spec.exported_here:
        # A remedy that was tried and holds is known, and none that was tried in vain is one.
        tried = any(
            each.kind == "fresh export" and each.agrees is not None for each in blamed.evidence
        )
        untried = "try it without that optimiser, `export: {optimize: false}`"
        return Cause(told, blamed.remedy if tried else untried)
    return Cause(told, "leave that optimiser out where the file is made, `optimize=False`")
