"""The module before and after the export: inputs that it accepts, and whether it stays the same.

The module is called on the export's example before the export, after it, and once more after all
cases. That the second answer is the first says two things at once, which are told apart where it
is not: the model agrees with itself, and exporting has not changed it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.change import of_input
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.torch_eager import Eager, seed_everything
from onnx_gate.text import counted
from onnx_gate.verify.build import build
from onnx_gate.verify.context import Context
from onnx_gate.verify.determinism import CallOutcome, call_once, call_twice, disagreement, repeat
from onnx_gate.verify.export.gradients import WITHOUT
from onnx_gate.verify.inputs.example import example_at, examples
from onnx_gate.verify.inputs.sizes import Sizes, cheapest, sizes_label
from onnx_gate.verify.source_lines import at, of_error
from onnx_gate.verify.taken import Taken, what_it_takes

_CHANGED = codes.OG109.finding(
    "exporting changes the model: called again afterwards it answers differently. The gate "
    "compared with a fresh one"
)

# What autograd says of a tensor that was made without gradients.
_NO_GRADIENT = "does not require grad and does not have a grad_fn"


@dataclass(frozen=True)
class Prepared:
    """A module, inputs for its export and their sizes, and what the module said to them.

    ``findings`` are what preparing it, or preparing it once more, has brought to light.
    """

    eager: Eager
    example: Mapping[str, Array]
    sizes: Sizes
    call: CallOutcome
    findings: tuple[Finding, ...]

    def agrees_still(self) -> str:
        """Call the module again; return how the answer differs from the first, or ''."""
        try:
            return disagreement(self.call.outputs, self.eager.run(self.example))
        except Refusal as refusal:
            return f"it raises {refusal}"


def prepare(spec: ModelSpec, context: Context, module: torch.nn.Module) -> Prepared:
    """Find inputs of the export's example that ``module`` accepts.

    Raises ``GateError``: OG105 where it accepts none, OG106 where it disagrees with itself and
    the first call has left a trace of that already.
    """
    eager = Eager.of(module, spec)
    first: tuple[Sizes, Refusal, Mapping[str, Array]] | None = None
    tried: list[Sizes] = []
    for sizes, arrays in examples(spec, context.workspace):
        try:
            _initialise(eager, arrays, spec.seed)
            call = call_once(eager, arrays)
            if call.keeps_state or call.drawn:
                repeat(eager, arrays, call, context.workspace.resolve())
        except Refusal as refusal:
            first = first or (sizes, refusal, arrays)
            tried += [sizes] if sizes not in tried else []
            continue
        if not call.outputs.arrays:
            raise codes.OG107.error("the model returns no tensor")
        return Prepared(eager, arrays, sizes, call, tuple(call.findings()))
    if first is None:
        raise codes.OG402.error("no suite holds a case that the model could be exported with")
    sizes, refused, arrays = first
    taken = what_it_takes(eager, arrays, refused)
    error = _refused(tried, refused, taken, spec, context)
    # Where the manifest has an input wrong, the line that refuses it is not to blame.
    raise error from None if taken is not None and taken.wrong else refused


def focus_of(eager: Eager, spec: ModelSpec, example: Sizes) -> Sizes:
    """Return the cheapest sizes at which values can be tried: the example's where it refuses others."""
    focus = cheapest(spec, example)
    if focus != example and not spec.suites:
        try:
            eager.run(example_at(spec, focus))
        except Refusal:
            return example
    return focus


def _initialise(eager: Eager, arrays: Mapping[str, Array], seed: int) -> None:
    """Let lazy modules give their weights shapes and values, as a first call does for its owner."""
    if not state.uninitialized(eager.module):
        return
    seed_everything(seed)
    eager.run(arrays)
    left = state.uninitialized(eager.module)
    if left:
        raise codes.OG204.error(
            f"forward never uses lazy parts of the model ({', '.join(left[:3])}), so they have no "
            "shape and cannot be exported: remove them"
        )


def _refused(
    tried: Sequence[Sizes], refusal: Refusal, taken: Taken | None, spec: ModelSpec, context: Context
) -> GateError:
    cause = refusal.__cause__
    line = of_error(cause, context.workspace.resolve()) if cause is not None else None
    others = f", and at {counted(len(tried) - 1, 'other size')}" if tried[1:] else ""
    where = f"at {sizes_label(tried[0]).replace(',', ', ')}{others}: " if tried[0] else ""
    raised = f"forward raises on example inputs: {where}{refusal}{at(line)}"
    if taken is not None:
        wrong = f"; {taken.wrong}" if taken.wrong else ""
        about = [of_input(key)[0] for key, _ in taken.changes[:1]]
        entry = next((spec.lines[name] for name in about if name in spec.lines), None)
        return codes.OG105.error(
            raised + wrong, remedy=taken.remedy, changes=taken.changes, line=entry
        )
    if cause is not None and _NO_GRADIENT in str(cause):
        return codes.OG105.error(
            f"{raised}: the gate calls it without gradients, as whoever runs a file does",
            remedy=WITHOUT,
        )
    dims = ", ".join(f"{name}: [...]" for name in spec.dims if name not in spec.named_dims)
    certain = f"takes certain sizes only, name some (dims: {{{dims}}}); where it " if dims else ""
    return codes.OG105.error(
        raised,
        remedy=f"where it {certain}wants more of its inputs than a range says, add a generator or "
        "files suite",
    )


def restore_after_export(spec: ModelSpec, context: Context, before: Prepared) -> Prepared:
    """Return the module as it was before the export, built again where the export changed it.

    Raises ``GateError`` (OG106) where it is the model that disagrees with itself.
    """
    with contextlib.suppress(NotImplementedError):  # a captured program has one mode only
        before.eager.module.eval()
    difference = before.agrees_still()
    if not difference:
        return before
    return replace(_rebuild(spec, context, before, difference), findings=(_CHANGED,))


def _rebuild(spec: ModelSpec, context: Context, before: Prepared, difference: str) -> Prepared:
    """Build the model again; raises ``GateError`` (OG106) unless it is now what it was at first."""
    when = "called again after the export"
    try:
        module = build(spec, context.workspace).module
        rebuilt = Eager.of(module, spec)
        _initialise(rebuilt, before.example, spec.seed)
        outputs, _ = call_twice(rebuilt, before.example)
        difference = disagreement(before.call.outputs, outputs)
        if not difference:
            return replace(before, eager=rebuilt)
        when = "after the export, and built anew with the same seed"
    except Refusal as refusal:
        difference = str(refusal)
        when = "after the export, and built anew with the same seed"
    except GateError as error:
        if error.code == codes.OG106.code:
            raise
    raise codes.OG106.error(f"the model disagrees with itself: {when}, {difference}")
