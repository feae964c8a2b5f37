"""Who is to blame: the first link that breaks between the module and the runtime that diverged.

nn.Module, itself again, ExportedProgram, ONNX with optimisations off, ONNX with them on, another
provider or runtime. Each link is an experiment, recorded as it comes out.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import get_args

import numpy as np

from onnx_gate.diagnose.bench import Answer
from onnx_gate.diagnose.blame.agreement import Agreement, LinkComparison
from onnx_gate.diagnose.blame.blame_result import BlameResult
from onnx_gate.diagnose.blame.captures import (
    export_again,
    rebuilt,
    run_before_decomposition,
    run_captured,
)
from onnx_gate.diagnose.blame.chain import Chain
from onnx_gate.diagnose.blame.dtype import of_dtype
from onnx_gate.diagnose.blame.kernels import ComparedKernels, audit
from onnx_gate.diagnose.blame.optimisers import find_optimiser
from onnx_gate.diagnose.blame.stale import blame_file
from onnx_gate.diagnose.pictures import pictures_of
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.report.model.diagnosis import Evidence, Experiment, Pictures
from onnx_gate.runtimes.base import first_line
from onnx_gate.runtimes.file_module import PLAIN
from onnx_gate.verify.judge.systematic import Measure
from onnx_gate.verify.subject import Subject

SECONDS = 60.0

_ORT = "ONNX Runtime"
_LEANS = get_args(Measure)
_PLAIN = f"{_ORT}, optimisations off"
# A divergence that is this much smaller when it is looked at again is another one.
_AGAIN_SHARE = 0.5


def find_blame(subject: Subject, seconds: float = SECONDS) -> BlameResult:
    """Run the chain's experiments for ``seconds`` at most; never raises."""
    search: _BlameSearch | None = None
    try:
        search = _BlameSearch(subject, seconds)
        result = search.follow()
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        result = BlameResult("undecided", note=f"the experiments broke off: {reason}")
    if search is None:
        return result
    return replace(
        result,
        evidence=tuple(search.evidence),
        program_agrees=search.program_agrees,
        plain_agrees=search.plain_agrees,
        pictures=search.pictures,
    ).marked()


class _BlameSearch(Chain):
    program_agrees: bool | None = None
    plain_agrees: bool | None = None
    evaluator_agrees: bool | None = None
    pictures: Pictures | None = None

    @property
    def _plain(self) -> str:
        return _PLAIN if self.plain == PLAIN else self.plain.label

    def follow(self) -> BlameResult:
        """Follow the chain to the link that breaks."""
        decided = self._itself()
        if decided is not None:
            return decided
        arrays, runtime = self.subject.arrays, self.subject.runtime
        final = self.bench.runtime(runtime, arrays)
        measured = self.ask("runtime", runtime.label, final)
        with contextlib.suppress(MemoryError, ValueError):
            expected = self.agreement.expected.array
            self.pictures = pictures_of(final.array, expected, self.subject.check)
        if measured.error == 0.0 or (measured.agrees and not self._shows_again(final)):
            return BlameResult(
                "undecided",
                note=f"run again, {runtime.label} agrees: it does not repeat its answer",
            )
        deviation = self.subject.check.deviation
        if measured.agrees and deviation is not None and deviation.measure in _LEANS:
            return BlameResult(
                "undecided",
                note="every case alone is within rounding: it is all of them together that lean one way",
            )
        if measured.agrees and self.agreement.trivial(measured.error):
            return BlameResult(
                "ill-conditioned",
                "runtime",
                note="the two agree to a few units of rounding: the tolerance is tighter than another "
                "correct implementation can meet",
            )
        self.total, self.explained = measured.error, measured.agrees is True
        program = self._program()
        plain = self._as_written(final)
        if not self.plain_agrees and not measured.systematic:
            decided = self._ill_conditioned()
            if decided is not None:
                return decided
        if self.plain_agrees is None:
            return BlameResult("undecided", note=f"{_ORT} could not be run with optimisations off")
        return self._after_plain(final) if self.plain_agrees else self._before_plain(program, plain)

    def _as_written(self, final: Answer) -> Answer:
        """Run the file as it is written: in ONNX Runtime, or where that has no kernels, as it was run."""
        plain = self.bench.runtime(PLAIN, self.subject.arrays)
        expected = self.agreement.expected
        if not plain.refused or final.refused or expected.refused:
            self.plain_agrees = self.ask("unoptimised", _PLAIN, plain).agrees
            return plain
        # What it refuses says nothing of a file that another engine runs.
        self.ask("unoptimised", _PLAIN, Answer(failed=plain.refused))
        self.plain, self.plain_agrees = self.subject.runtime, False
        return final

    def _itself(self) -> BlameResult | None:
        twice = self.bench.twice()
        self.agreement = Agreement(self.bench, self.subject.arrays, twice.answer)
        outcome, agrees, decided = "; ".join(["equal both times", *twice.noticed]), True, None
        if twice.difference:
            outcome, agrees, decided = twice.difference, False, BlameResult("model", "repeated")
        elif twice.answer.failed:
            outcome = f"could not be run: {twice.answer.failed}"
            decided = BlameResult("undecided", note=f"{self.against} could not be run again")
        elif twice.answer.refused:
            outcome = f"it refuses: {twice.answer.refused}"
        self.evidence.append(
            Evidence(
                kind="repeated",
                experiment=f"{self.against} against itself, called twice on equal inputs",
                outcome=outcome,
                agrees=None if twice.answer.failed and agrees else agrees,
            )
        )
        return decided

    def _shows_again(self, final: Answer) -> bool:
        """Return whether the runtime is as far off as the check has recorded."""
        metrics, expected = self.subject.check.metrics, self.agreement.expected.array
        if metrics is None or final.array is None or expected is None:
            return True
        if metrics.nonfinite:
            return False
        difference = np.abs(final.array.astype(np.float64) - expected.astype(np.float64))
        finite = difference[np.isfinite(difference)]
        largest = float(finite.max()) if finite.size else 0.0
        return largest >= _AGAIN_SHARE * float(metrics.max_abs)

    def _program(self) -> Answer | None:
        if self.subject.exported.program is None:
            return None
        answer = run_captured(self.bench, self.subject.arrays)
        self.program_agrees = self.ask("program", "ExportedProgram", answer).agrees
        return answer

    # -- after the plain graph: an optimisation, a provider, another runtime

    def _after_plain(self, final: Answer) -> BlameResult:
        runtime, arrays = self.subject.runtime, self.subject.arrays
        if not runtime.engine.plain:
            default = self.bench.runtime(replace(PLAIN, optimization="all"), arrays)
            self.ask("optimised", f"{_ORT}, optimisations on", default)
            known = BlameResult("kernel", "optimised", note=f"{_ORT} runs the same graph rightly")
            return of_dtype(self, final) or known
        if runtime.processor != "cpu":
            cpu = replace(runtime, provider=None, provider_options={})
            answer = self.bench.runtime(cpu, arrays)
            if self.ask("other provider", cpu.label, answer).agrees:
                return self._after_cpu(runtime)
            runtime = cpu
        elif runtime.session_options or runtime.provider_options:
            return self._after_cpu(runtime)
        return self._optimiser(runtime)

    def _after_cpu(self, runtime: RuntimeSpec) -> BlameResult:
        """Tell a provider's kernels, or what options make of the CPU's, from its optimisations."""
        off = replace(runtime, optimization="off")
        answer = self.bench.runtime(off, self.subject.arrays)
        own = self.ask("other provider", off.label, answer)
        if own.agrees:
            return self._optimiser(runtime)
        note = "the CPU's kernels, without any options, run the same graph rightly"
        return BlameResult("kernel", "other provider", note=note)

    def _optimiser(self, runtime: RuntimeSpec) -> BlameResult:
        found = find_optimiser(self.bench, runtime, self.against_torch)
        self.evidence += found.evidence
        if found.level is None:
            return BlameResult(
                "undecided", note="no level of optimisation shows the divergence again"
            )
        note = "" if found.optimiser else "no single optimiser could be measured to be at fault"
        by: Experiment = "without an optimiser" if found.optimiser else "optimised"
        return BlameResult("optimiser", by, fused_by=found.optimiser, note=note)

    def _ill_conditioned(self) -> BlameResult | None:
        """Return whether rounding explains the divergence at every element of it."""
        if not self.explained:
            return None
        note = f"rounding moves {self.against} as far, at every element"
        return BlameResult("ill-conditioned", "runtime", note=note)

    # -- before it: capture, lowering, a kernel, an old file

    def _before_plain(self, program: Answer | None, plain: Answer) -> BlameResult:
        against_file = self.subject.spec.reference is not None
        if not against_file:
            self.on_the_example(f"{self._plain}, against {self.against}")
        if program is not None and self.program_agrees is False:
            return self._capture(program)
        graph_is_wrong = self._evaluator(plain)
        decided_by: Experiment = "same error"
        if not graph_is_wrong:
            audited, kernel = self._kernels()
            if kernel is not None:
                return kernel
            if self.evaluator_agrees and audited is not None and audited.all_agree:
                return BlameResult("undecided", "all nodes")
            if self.evaluator_agrees:
                return BlameResult("kernel", "evaluator")
            graph_is_wrong = audited is not None and audited.checked > audited.nodes / 2
            decided_by = "all nodes"
        if self.subject.reduced is not None:
            # It is another graph than a fresh export on purpose, and as old as that may be.
            return BlameResult("reduced precision", decided_by if graph_is_wrong else None)
        if against_file:
            return BlameResult("conversion", "unoptimised")
        if self.subject.exported.exporter == "file":
            return blame_file(self, plain)
        if program is None:
            traced = self.subject.exported.torch_exporter == "torchscript"
            if self.trace(plain, by_tracing=traced).alike:
                return BlameResult("capture", "traced")
        if graph_is_wrong:
            return self._lowered(program, decided_by)
        optimised = self.bench.runtime(replace(PLAIN, optimization="all"), self.subject.arrays)
        if self.ask("optimised", f"{_ORT}, optimisations on", optimised).agrees:
            return BlameResult(
                "kernel", "optimised", note="the same graph is right once it is optimised"
            )
        return BlameResult("undecided", note="nothing decides between the exporter and the runtime")

    def _lowered(self, program: Answer | None, decided_by: Experiment) -> BlameResult:
        """Blame the exporter, and see whether it is its own optimiser that makes another graph."""
        lost = bool(self.agreement.expected.refused)
        note = "the graph has lost a check of the model's" * lost
        known = BlameResult("exporter", decided_by, note=note)
        spec, exporter = self.subject.spec, self.subject.exported.exporter
        if program is None or not spec.exported_here or spec.export.optimize is False:
            return known
        opset = self.subject.exported.opset
        fresh = export_again(self.bench, exporter, opset, optimize=False)
        answer = Answer(failed=fresh.failed)
        if not fresh.failed:
            answer = self.bench.runtime(PLAIN, self.subject.arrays, fresh)
        experiment = f"a fresh export ({exporter}) that its own optimiser has not changed"
        if self.ask("fresh export", experiment, answer, exporter=exporter).agrees:
            likely = "the exporter's own optimiser changed what the graph computes"
            remedy = "leave that optimiser out, `export: {optimize: false}`"
            return replace(known, likely=likely, remedy=remedy)
        return known

    def _capture(self, program: Answer) -> BlameResult:
        """Tell what torch.export baked in from what the module forgot and the exporter rewrote."""
        arrays = self.subject.arrays
        if program.refused:
            free = run_captured(self.bench, arrays, guards=False)
            self.ask("program", "ExportedProgram without its guards", free)
        anew = rebuilt(self.bench)
        if not anew.failed and not anew.refused:
            measured = self.record(
                "rebuilt",
                "the module built anew, against the one that was called before",
                self.against_torch(anew),
            )
            if measured.agrees is False:
                return BlameResult("model", "rebuilt", note="it keeps state between calls")
        if program.refused:
            return BlameResult("capture", "program")
        whole = run_before_decomposition(self.bench, arrays)
        measured = self.against_torch(whole)
        if measured.agrees is not None:
            self.record(
                "captured again",
                f"captured again, before operators are decomposed, against {self.against}",
                measured,
            )
        if not measured.agrees:
            decided_by: Experiment = "program" if measured.agrees is None else "captured again"
            return BlameResult("capture", decided_by)
        again = export_again(self.bench, "dynamo").program
        measured = self.ask("captured again", "captured again, and decomposed", again or whole)
        if measured.agrees:
            note = "captured now it is right: it reads what has changed since"
            return BlameResult("capture", "captured again", note=note)
        note = "it is the decomposition of an operator that is wrong"
        return BlameResult("exporter", "captured again", note=note)

    def _evaluator(self, plain: Answer) -> bool:
        """Run the reference evaluator; say that it makes the error that ONNX Runtime makes."""
        answer = self.bench.evaluator(self.subject.arrays)
        measured = self.ask("evaluator", "ONNX reference evaluator", answer)
        self.evaluator_agrees = measured.agrees
        if measured.agrees is not False or bool(answer.refused) != bool(plain.refused):
            return False
        same = self.record(
            "same error",
            f"ONNX reference evaluator against {self._plain}",
            self.agreement.near(answer, plain),
        )
        return same.agrees is True

    def _kernels(self) -> tuple[ComparedKernels | None, BlameResult | None]:
        """Hold the kernels against the reference evaluator, node by node; return one that is wrong."""
        audited, trouble = audit(self.bench)
        experiment = (
            "each node in the ONNX reference evaluator, on the values that ONNX Runtime had"
        )
        if audited is None:
            self.record(
                "all nodes", experiment, LinkComparison(None, None, f"could not be run: {trouble}")
            )
            return None, None
        for suspect in audited.suspects:
            name = f"{suspect.op_type} {suspect.name}"
            healed = self.ask(
                "node", f"{_PLAIN}, with the evaluator's value for {name}", suspect.answer
            )
            if healed.agrees:
                note = f"the kernel of {name} is wrong"
                return audited, BlameResult("kernel", "node", note=note)
        differing = ", ".join(f"{s.op_type} {s.name}" for s in audited.suspects)
        outcome = f"{audited.checked} of {audited.nodes} nodes could be compared" + (
            f"; they differ at {differing}, and with the evaluator's value there it is as wrong"
            if differing
            else " and agree"
        )
        lacking = ", ".join(each.op_type for each in audited.refused if not each.why)
        outcome += f"; it does not run {lacking}" * bool(lacking)
        for each in audited.refused:
            outcome += f"; it fails at {each.op_type}: {each.why}" * bool(each.why)
        self.record("all nodes", experiment, LinkComparison(not differing, None, outcome))
        return audited, None
