"""Which of ONNX Runtime's graph optimisations changes the answer, found by switching them off."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from onnx_gate.diagnose.bench import RUN, Answer, Bench
from onnx_gate.diagnose.blame.agreement import LinkComparison
from onnx_gate.manifest import OPTIMIZATIONS, Optimization, RuntimeSpec
from onnx_gate.report.model.diagnosis import Evidence, Experiment
from onnx_gate.runtimes.open import open_session

LEVELS = OPTIMIZATIONS[1:]

# The log names a group of rewrite rules as one; the rules can be switched off one by one.
RULES = (
    *("Pad_Fusion", "ConvBNFusion", "ConvMulFusion", "ConvAddFusion"),
    *("MatMul_BatchNormalization_Fusion", "NoopElimination", "DivMulFusion", "FuseReluClip"),
    *("GemmSumFusion", "GemmTransposeFusion", "NotWhereFusion", "CastElimination"),
    *("CastChainElimination", "ExpandElimination", "EliminateIdentity", "EliminateSlice"),
    *("EliminateDropout", "UnsqueezeElimination", "PreShapeNodeElimination"),
    *("ConcatSliceElimination", "LabelEncoderFusion", "ClipQuantFusion", "ReluQuantFusion"),
)
_GROUP = "RuleBasedTransformer"
# Optimisers that are named at most: more than these are none in particular.
MOST = 3
_CHANGED = re.compile(rb"GraphTransformer (\S+) modified: 1 ")


@dataclass(frozen=True)
class OptimiserBlame:
    """The lowest level at which the answer changes, and the optimiser, where it has a name.

    Where several change it, each alone, all of them, joined with "and".
    """

    level: Optimization | None
    optimiser: str | None
    evidence: tuple[Evidence, ...]


def find_optimiser(
    bench: Bench, runtime: RuntimeSpec, compare: Callable[[Answer], LinkComparison]
) -> OptimiserBlame:
    """Find which optimisation makes ``runtime`` differ from PyTorch.

    With optimisations off it agrees. ``compare`` holds an answer against PyTorch's.
    """
    evidence: list[Evidence] = []

    def ask(kind: Experiment, experiment: str, spec: RuntimeSpec) -> Evidence:
        told = f"{_engine(runtime)} at level {experiment}, against {bench.subject.spec.against}"
        return compare(bench.runtime(spec, bench.subject.arrays)).evidence(kind, told)

    highest = LEVELS.index(runtime.optimization) if runtime.optimization in LEVELS else 2
    for level in LEVELS[: highest + 1]:
        evidence.append(ask("optimised", level, replace(runtime, optimization=level)))
        if evidence[-1].agrees is False:
            break
    else:
        return OptimiserBlame(None, None, tuple(evidence))
    base = replace(runtime, optimization=level)
    healed: dict[str, Evidence] = {}

    def without(names: Sequence[str]) -> bool:
        shown = " and ".join(names)
        healthy = ask("without an optimiser", f"{level} without {shown}", base.without(names))
        if healthy.agrees:
            healed[shown] = healthy
        return healthy.agrees is True

    names = fewest_without(list(_candidates(bench, base)), without, bench.left)
    group = next((name for name in names if name.endswith(_GROUP)), None)
    if group is not None:
        rest = [name for name in names if name != group]
        rules = fewest_without(list(RULES), lambda rules: without([*rest, *rules]), bench.left)
        names = [*rest, *rules] if rules else names
    name = " and ".join(names)
    if name:
        evidence.append(healed[name])
    return OptimiserBlame(level, name or None, tuple(evidence))


def fewest_without(
    names: list[str], without: Callable[[Sequence[str]], bool], left: Callable[[], float]
) -> list[str]:
    """Return the fewest names without which all is well; none where there are none, or too many.

    By halving; where several do harm each alone, by halving for each (Junker's QuickXplain).
    ``without`` says whether all is well without the names that it is given, ``left`` how many
    seconds there are for it.
    """

    def fewest(off: list[str], known: bool, rest: list[str]) -> list[str]:
        # ``known``: it is known of ``off`` that all is not yet well without it.
        if left() < RUN / 10:
            raise TimeoutError
        if not known and without(off):
            return []
        if len(rest) == 1:
            return rest
        first, last = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        second = fewest([*off, *first], False, last)
        return [*fewest([*off, *second], not second, first), *second]

    if not names or not without(names):
        return []
    try:
        fewest_names = fewest([], True, names)
    except TimeoutError:
        return []
    # What is named is what was tried, in that order and with nothing else.
    return fewest_names if len(fewest_names) <= MOST and without(fewest_names) else []


def _candidates(bench: Bench, spec: RuntimeSpec) -> Iterator[str]:
    """Yield the optimisers that change this model, as ONNX Runtime's log names them."""
    subject = bench.subject

    def work() -> list[str]:
        loud = replace(spec, session_options={**spec.session_options, "log_severity_level": "1"})
        with tempfile.TemporaryFile() as log:
            os.dup2(log.fileno(), 2)
            open_session(subject.exported.path, loud)
            log.seek(0)
            names = [name.decode() for name in _CHANGED.findall(log.read())]
        return list(dict.fromkeys(names))

    yield from bench.apart(work, RUN)[0] or ()


def _engine(spec: RuntimeSpec) -> str:
    return "ONNX Runtime" if spec.provider in (None, "cpu") else f"ONNX Runtime ({spec.provider})"
