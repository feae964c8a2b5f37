"""Weights that move no output: whatever a file does with them, no comparison shows it.

A branch behind a factor that begins at zero, or next to it (LayerScale, a last norm of a residual block,
LoRA), answers nothing until it is trained. Idea: to first order, an output moves by its gradient times a
weight where that weight is another one. One pass backwards from outputs of random signs, each in units of
its own floor, says of all weights which can be without effect; these are then exchanged for others of the
same size, at once, and what the outputs do is held against what moved rounding explains.

The invariant: nothing is said that an exchange did not show, in every ordinary case that is asked. Cost: a
pass with gradients of the smallest case; and where there is a suspicion one of the largest (a norm over one
position has no effect, and over two it has), and up to four plain ones of each. What is suspected hangs on
no file, and is asked ahead of it where there is a core for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

import numpy as np
import torch

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest.spec import DEFAULT_AUTO
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array, Outputs, Refusal
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.text import counted, listed
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.judge.judgement import is_floating
from onnx_gate.verify.judge.noise import Noise, Terms
from onnx_gate.verify.other_weights import exchanged, is_plain, moves, turned
from onnx_gate.verify.reference.oracle import CaseReference

# So many ordinary cases are asked.
_CASES = 8
# Floors that outputs may move by, to first order, with what is exchanged: more than K times the units that
# rounding moves most outputs by, as the exchange decides.
_SUSPECTED = 100.0
# So often the half of the suspected weights that moves most is let go.
_HALVES = 4
_NAMED = 3


def effectless(checker: Checker, told: Sequence[str] | None) -> Iterator[Finding]:
    """Yield a finding about the matrices of weights that can be exchanged for others.

    ``told`` is what ``suspects`` has said of the module, where that is known.
    """
    eager = checker.setting.eager
    suspected = list(suspects(eager, checker.ordinary()) if told is None else told)
    if not suspected:
        return
    weights = _matrices(eager)
    drawn = _by_size(checker.ordinary())
    asked = [(case, checker.ask(case).reference) for case in reversed(drawn)]
    for _ in range(_HALVES):
        if not asked or not suspected:
            return
        exchanged = [weights[name] for name in suspected]
        if all(_are_same(_with_others(eager, c.arrays, exchanged), r) for c, r in asked):
            yield codes.OG421.finding(
                f"{len(suspected)} of {len(weights)} matrices of weights "
                f"{'moves' if len(suspected) == 1 else 'move'} no output "
                f"({listed(sorted(suspected), _NAMED)}): with other numbers in place the answers to "
                f"{counted(len(drawn), 'case')} were the same but for rounding, and whatever the file does "
                "with them passes",
                data={"weights": sorted(suspected)},
            )
            return
        suspected = suspected[: len(suspected) // 2]


def suspects(eager: Eager, ordinary: Iterable[Case]) -> list[str]:
    """Return the matrices of weights that may be without effect on ordinary cases, the least first."""
    weights = _matrices(eager)
    drawn = _by_size(ordinary) if weights else []
    suspected = [*weights] if drawn else []
    for case in drawn[:1] + drawn[1:][-1:]:
        if suspected:
            by = moves(eager, case.arrays, {name: weights[name] for name in suspected})
            suspected = [name for name in sorted(by, key=by.__getitem__) if by[name] < _SUSPECTED]
    return suspected


def _matrices(eager: Eager) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in state.tensors(eager.module) if _is_matrix(tensor)}


def _by_size(ordinary: Iterable[Case]) -> list[Case]:
    """Return the first cases, those of the smallest inputs first."""
    drawn = islice(ordinary, _CASES)
    return sorted(drawn, key=lambda each: sum(array.nbytes for array in each.arrays.values()))


def _is_matrix(tensor: torch.Tensor) -> bool:
    """Return whether it is such a parameter with rows, and not zero."""
    # One row tells it of most, and all of them are read from memory.
    return is_plain(tensor) and tensor.ndim > 1 and (bool(tensor[:1].any()) or bool(tensor.any()))


def _with_others(
    eager: Eager, arrays: Mapping[str, Array], weights: Sequence[torch.Tensor]
) -> Outputs | None:
    """Return what the module answers with others of the same size in the place of these, if it does."""
    with exchanged(weights, map(turned, weights)), suppress(Refusal):
        return eager.run(arrays)
    return None


def _are_same(other: Outputs | None, reference: CaseReference | None) -> bool:
    """Return whether answers are PyTorch's but for what moved rounding explains.

    Not while weights are exchanged: its runs have those that the module has.
    """
    if reference is None:
        return True  # nothing was compared there
    own = reference.outputs.arrays
    if other is None or [a.shape for a in other.arrays] != [a.shape for a in own]:
        return False
    return all(
        _is_same(*each, reference, n) for n, each in enumerate(zip(other.arrays, own, strict=True))
    )


def _is_same(other: Array, own: Array, reference: CaseReference, place: int) -> bool:
    if not is_floating(own.dtype):
        return bool(np.array_equal(other, own))
    noise = Noise(own, Terms.of(DEFAULT_AUTO, own.dtype), reference.output(place))
    while (share := noise.used(other).share) > 1 and noise.again():
        pass
    return share <= 1 and bool(np.array_equal(np.isfinite(other), np.isfinite(own)))
