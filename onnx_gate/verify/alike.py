"""Weights that are alike: whatever a file takes in their place, no comparison shows it.

A norm begins with ones and zeros, a copied layer with the weights of the one that it is a copy of. A file
that leaves the norm out, takes another's in its place, or does something else behind a factor of zero,
answers as PyTorch does, until the model is trained and exported once more. Idea: what torch.export has
captured, which the file is a translation of, takes its weights from outside. So the module and its program
answer the export's example once more, both with the same other weights in the place of those that are
alike, and have to agree again.

The invariant: an error is a difference between two answers that were both given, judged as any other. How
the program was translated is not asked. Cost: a look at every weight's first numbers, and one call of each
side; a few more, and a pass with gradients, where they part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import nn

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.report.model import Check
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Refusal
from onnx_gate.text import listed
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.export.program import run_program
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.other_weights import drawn, exchanged, is_plain, moves
from onnx_gate.verify.prepare import Prepared

# Numbers that tell two weights apart before all of them are looked at.
_SOME = 16
_NAMED = 3


def alike_weights(checker: Checker, prepared: Prepared, exported: Exported) -> Iterator[Finding]:
    """Yield an error where the program answers otherwise with other weights for those that are alike."""
    call, program = prepared.call, exported.program
    if program is None or call.keeps_state or call.drawn or call.mutated:
        return
    weights = dict(_alike(prepared.eager.module))
    names = state.names(prepared.eager.module)
    own = program.state_dict.keys()
    if not all(own & {*names[id(weight)]} for weight in weights.values()):
        return  # it calls them otherwise
    # What forward takes from a dictionary of its own is a constant of the program, in the weight's memory.
    held = {n: c for n, c in program.constants.items() if isinstance(c, torch.Tensor)}
    taken = {
        id(weight): (own & {*names[id(weight)]})
        | {n for n, c in held.items() if c.dtype == weight.dtype and c.is_set_to(weight)}
        for weight in weights.values()
    }
    case = Case("", "other weights", "weights", prepared.example, prepared.sizes, advice=True)

    def parts(chosen: Sequence[str]) -> Check | None:
        """Return the check that diverges with others in the place of these."""
        judge = Checker(replace(checker.setting, graph_outputs=()))
        tensors = [weights[name] for name in chosen]
        with exchanged(tensors, [drawn(name, weights[name]) for name in chosen]):
            # One object under all of its names: two of one tensor are refused.
            values = ((weight, weight.data) for weight in tensors)
            given = {n: value for weight, value in values for n in taken[id(weight)]}
            asked = judge.ask(case)
            if asked.reference is None:
                return None
            try:
                answers = run_program(program, prepared.eager, prepared.example, weights=given)
            except Refusal:
                return None
            if len(answers) != len(asked.reference.outputs.arrays):
                return None
            checks = judge.one(case, "torch.export", asked, (answers, None))
            return next((check for check in checks if check.verdict == "diverged"), None)

    chosen, check = [*weights], parts([*weights]) if weights else None
    if check is None or parts(()) is not None:
        return
    # What the module has made of a weight beforehand is of the weight before: that is not the file's fault.
    reached = moves(prepared.eager, prepared.example, weights)
    chosen = [name for name in chosen if name in reached]
    check = parts(chosen) if chosen else None
    if check is None:
        return
    while len(chosen) > 1:
        halves = chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]
        fewer = next(((half, found) for half in halves if (found := parts(half))), None)
        if fewer is None:
            break
        chosen, check = fewer
    yield codes.OG422.finding(
        f"with other weights in the place of those that are alike ({listed(chosen, _NAMED)}), on both "
        f"sides, the export answers otherwise than the module: {check.output}: {check.reason}",
        data={"parameters": chosen},
    )


def _alike(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the parameters that hold one number only, or begin with the numbers of others.

    One that is frozen beside others that are trained is a constant, as a mask is.
    """
    begins: dict[object, list[tuple[str, torch.Tensor]]] = {}
    plain = [(name, weight) for name, weight in state.tensors(module) if is_plain(weight)]
    trained = any(weight.requires_grad for _, weight in plain)
    for name, weight in plain:
        if not weight.numel() or weight.requires_grad != trained:
            continue
        first = weight.data[(0,) * (weight.ndim - 1)] if weight.ndim else weight.data[None]
        numbers = tuple(first[:_SOME].tolist())
        if len({*numbers}) == 1 and bool((weight.data == numbers[0]).all()):
            yield name, weight
        else:
            key = weight.shape, weight.dtype, numbers
            begins.setdefault(key, []).append((name, weight))
    for like in begins.values():
        if len(like) > 1:
            yield from like
