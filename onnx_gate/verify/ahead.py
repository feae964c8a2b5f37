"""What PyTorch says of the cases, asked in a fork while the exporter works.

To export takes most of a run, and is one thread of Python: other cores wait. What PyTorch says of the cases
hangs on no file. So a fork of the process, with the module as it was built, asks it meanwhile, and tells
the process what it said: answers, what they have shown, the runs with moved rounding that are asked for as
a rule, and which weights move nothing.

The invariant: nobody can tell from a result that there was a fork. It has the same threads, hands over data
alone, and nothing of a case that leaves a trace in the module: that one, and those after it, are the
process's own. Nor where the module, once it has answered, answers otherwise than at first: what it keeps
elsewhere has to be seen there. It acts on nothing that others see: a file, a process, shared memory.
Whatever becomes of the fork costs what it would have told. Cost: the time of another core, and the memory
of the module's runs beside that of the export.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from torch import nn

from onnx_gate.errors import GateError
from onnx_gate.manifest import ModelSpec
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Refusal
from onnx_gate.verify.afterwards import room_for_a_fork
from onnx_gate.verify.asked import Ahead, ToldCase, digest
from onnx_gate.verify.context import Context
from onnx_gate.verify.determinism import Before
from onnx_gate.verify.effectless import suspects
from onnx_gate.verify.experience import KEPT_BYTES
from onnx_gate.verify.inputs.cases import cases, kind_of, suite_reader
from onnx_gate.verify.judge.judgement import is_floating
from onnx_gate.verify.judge.noise import AGAIN
from onnx_gate.verify.prepare import Prepared, focus_of
from onnx_gate.verify.reach.drawn import DrawnInputs
from onnx_gate.verify.reach.watcher import Watcher
from onnx_gate.verify.reference.answers import FEW
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.workers import forked

# What is told: a case, that all so far stand, or of all of them which weights are suspected.
Told = ToldCase | list[str] | None
Tell = Callable[[Told], None]

# Of the memory a process may use, what it takes itself: an export holds some three times the weights, and
# a module whose rounding is moved twice.
_MEMORY = 0.1
# Bytes of what is told: outputs of some cases with the runs of each.
_MOST_BYTES = 4 * KEPT_BYTES


@contextmanager
def asked_ahead(
    spec: ModelSpec, context: Context, prepared: Prepared, *, beside: bool
) -> Iterator[Callable[[], Ahead]]:
    """Ask the module while the body exports it; yield what returns, afterwards, what was told.

    Nothing is, where no fork may be ``beside`` this process.
    """
    if not beside or not spec.exported_here or prepared.call.leaves_a_trace:
        yield Ahead
        return

    def ask(tell: Tell) -> None:
        with suppress(GateError):  # a suite that cannot be read, which the process says itself
            _ask(spec, context, prepared, tell)

    with suppress(GateError):  # what suites are is looked up in files, once
        for suite in cases(spec, prepared.sizes, context.workspace).suites.values():
            suite_reader(kind_of(suite))
    with forked.beside(ask) as told:
        yield lambda: _standing(told)


def may_fork_beside(spec: ModelSpec, context: Context, module: nn.Module) -> bool:
    """Return whether a core is idle, and a fork has room and can do no harm beside this process."""
    idle = context.threads > 1 and sys.platform == "linux"
    return idle and not _shares(module) and room_for_a_fork(spec, _MEMORY)


def _shares(module: nn.Module) -> bool:
    """Return whether a fork would change what its parent has: tensors, or a lock that it is ended with."""
    shared = any(state.is_shared(each) for _, each in state.tensors(module))
    return shared or "multiprocessing.synchronize" in sys.modules


def _standing(told: Sequence[Told]) -> Ahead:
    """Return what was told before the last time that it was found to stand, and what of all of it."""
    last = max((place for place, each in enumerate(told) if each is None), default=0)
    suspects = next((each for each in told[last:] if isinstance(each, list)), None)
    return Ahead([each for each in told[:last] if isinstance(each, ToldCase)], suspects)


def _ask(spec: ModelSpec, context: Context, prepared: Prepared, tell: Tell) -> None:
    """Ask about each case as the process itself does, until one is refused or leaves a trace."""
    eager = prepared.eager
    watcher, float64 = Watcher(eager), Float64Reference(eager)
    watcher.axes = DrawnInputs(spec).row_axes
    before, resolved, whole, size = Before(eager.module), False, False, 0
    focus = focus_of(eager, spec, prepared.sizes)
    made = partial(cases, spec, prepared.sizes, context.workspace, context.patterns, focus=focus)
    for number, case in enumerate(made(), start=1):
        try:
            outputs = watcher.run(case.arrays)
        except Refusal:
            break
        reference = CaseReference(eager, float64, case.arrays, outputs, tape=watcher.recorded())
        if spec.by_rounding and any(is_floating(each.dtype) for each in outputs.arrays):
            reference.replayed(AGAIN[-1])  # who needs one more has no tape to go on with
            if not case.edge and not resolved:
                reference.rounding(FEW)
                resolved = True
        runs = len(reference.said.samples) + len(reference.said.replayed)
        size += (1 + runs) * sum(each.nbytes for each in outputs.arrays)
        if before.outcome(outputs).leaves_a_trace or size > _MOST_BYTES:
            break
        tell(ToldCase(digest(case.arrays), outputs, watcher.told(), reference.said))
        if number & (number - 1) == 0 and not _stands(prepared, tell):
            return
    else:
        whole = True
    if _stands(prepared, tell) and whole:
        tell(suspects(eager, (case for case in made() if not case.is_edge)))


def _stands(prepared: Prepared, tell: Tell) -> bool:
    """Say that all that was told so far stands, if the module still answers as at first."""
    if prepared.agrees_still():
        return False
    tell(None)
    return True
