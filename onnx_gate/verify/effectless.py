"""Weights that move no output: whatever a file does with them, no comparison shows it.

A branch behind a factor that begins at zero, or next to it (LayerScale, a last norm of a residual block,
LoRA), answers nothing until it is trained. Idea: to first order, an output moves by its gradient times a
weight where that weight is another one. One pass backwards from outputs of random signs, each in units of
its own floor, says of all weights which can be without effect; these are then exchanged for others of the
same size, at once, and what the outputs do is held against what moved rounding explains.

The invariant: nothing is said that an exchange did not show, in every ordinary case that is asked. Cost: a
pass with gradients of the smallest case; and where there is a suspicion one of the largest (a norm over one
position has no effect, and over two it has), and up to four plain ones of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import nn

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest.spec import DEFAULT_AUTO
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array, Outputs, Refusal
from onnx_gate.runtimes.torch_eager import Eager, to_array, to_tensor
from onnx_gate.text import counted, listed
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.judge.judgement import is_floating
from onnx_gate.verify.judge.noise import Noise, Terms
from onnx_gate.verify.reference.oracle import CaseReference

# So many ordinary cases are asked.
_CASES = 8
# Floors that outputs may move by, to first order, with what is exchanged: more than K times the units that
# rounding moves most outputs by, as the exchange decides.
_SUSPECTED = 100.0
# So often the half of the suspected weights that moves most is let go.
_HALVES = 4
_NAMED = 3
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def effectless(checker: Checker) -> Iterator[Finding]:
    """Yield a finding about the matrices of weights that can be exchanged for others."""
    eager = checker.setting.eager
    weights = {name: tensor for name, tensor in state.tensors(eager.module) if _is_matrix(tensor)}
    drawn = list(islice(checker.ordinary(), _CASES)) if weights else []
    drawn.sort(key=lambda each: sum(array.nbytes for array in each.arrays.values()))
    suspected = [*weights]
    for case in drawn[:1] + drawn[1:][-1:]:
        if suspected:
            by = moves(eager, case.arrays, {name: weights[name] for name in suspected})
            suspected = [name for name in sorted(by, key=by.__getitem__) if by[name] < _SUSPECTED]
    asked = [(case, checker.ask(case).reference) for case in reversed(drawn) if suspected]
    for _ in range(_HALVES):
        if not asked or not suspected:
            return
        exchanged = [weights[name] for name in suspected]
        if all(_are_same(_with_others(eager, c.arrays, exchanged), r) for c, r in asked):
            yield codes.OG421.finding(
                f"{len(suspected)} of {len(weights)} matrices of weights move no output "
                f"({listed(sorted(suspected), _NAMED)}): with others in their place the answers to "
                f"{counted(len(drawn), 'case')} were the same but for rounding, and whatever the file does "
                "with them passes",
                data={"weights": sorted(suspected)},
            )
            return
        suspected = suspected[: len(suspected) // 2]


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether it is a plain parameter, which gradients may lead to."""
    plain = type(tensor) is nn.Parameter and tensor.layout == torch.strided and tensor.is_leaf
    return plain and tensor.dtype in _DTYPES and not tensor.is_inference()


def _is_matrix(tensor: torch.Tensor) -> bool:
    """Return whether it is such a parameter with rows, and not zero."""
    # One row tells it of most, and all of them are read from memory.
    return is_plain(tensor) and tensor.ndim > 1 and (bool(tensor[:1].any()) or bool(tensor.any()))


def moves(
    eager: Eager, arrays: Mapping[str, Array], weights: Mapping[str, torch.Tensor]
) -> dict[str, float]:
    """Return by how many floors the outputs move with each weight, of those that gradients lead to."""
    found: dict[str, float] = {}

    def take(name: str, weight: torch.Tensor) -> None:
        grad, weight.grad = weight.grad, None  # all of them at once are as large as the model
        assert grad is not None
        wide = grad if grad.dtype.itemsize > 2 else grad.float()
        # What overflows has an effect, and what underflows is decided by the exchange.
        found[name] = float(wide.mul_(weight.detach()).norm())

    tensors = {name: to_tensor(array) for name, array in arrays.items()}
    try:
        with _gradients(weights) as stack:
            for name, weight in weights.items():
                hook = weight.register_post_accumulate_grad_hook(partial(take, name))
                stack.callback(hook.remove)
            _, outputs = eager.run_prepared(tensors, mode=torch.enable_grad())
            ends = [o for o in outputs if o.requires_grad and o.numel() and o.isfinite().all()]
            if ends:
                torch.autograd.backward(ends, [*map(_in_floors, ends)], inputs=[*weights.values()])
    except (
        Exception
    ):  # it writes to its weights, or an operator has no gradient, or one that raises
        return {}
    return found


@contextmanager
def _gradients(weights: Mapping[str, torch.Tensor]) -> Iterator[ExitStack]:
    """Let gradients lead to these weights, and leave them as they were."""
    with ExitStack() as stack:
        for weight in weights.values():
            stack.callback(setattr, weight, "grad", weight.grad)
            stack.callback(weight.requires_grad_, weight.requires_grad)
            weight.grad = None
            weight.requires_grad_()
        yield stack


def _in_floors(end: torch.Tensor) -> torch.Tensor:
    """Return a random sign for each element, in units of the floor of what is usual in the output."""
    size = end.detach().abs()
    terms = Terms.of(DEFAULT_AUTO, to_array(size).dtype)
    scale = torch.maximum(size, size.mean()).mul(terms.relative).clamp(min=terms.least)
    drawn = torch.randint(0, 2, end.shape, generator=torch.Generator().manual_seed(0))
    return (drawn * 2 - 1) / scale


@contextmanager
def exchanged(weights: Sequence[torch.Tensor], others: Iterable[torch.Tensor]) -> Iterator[None]:
    """Have others in the place of weights, and leave these as they were."""
    own = [weight.data for weight in weights]
    try:
        for weight, other in zip(weights, others, strict=True):
            weight.data = other
        yield
    finally:
        for weight, data in zip(weights, own, strict=True):
            weight.data = data


def _with_others(
    eager: Eager, arrays: Mapping[str, Array], weights: Sequence[torch.Tensor]
) -> Outputs | None:
    """Return what the module answers with others of the same size in the place of these, if it does.

    With their own, the other way round and of the other sign.
    """
    turned = (-weight.data.flip([*range(weight.ndim)]) for weight in weights)
    with exchanged(weights, turned), suppress(Refusal):
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
