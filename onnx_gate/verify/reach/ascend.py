"""Inputs that raise what layers make: values as large as trained networks have and draws do not show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.leaves import InputLeaves, moved_by, run_with_gradients
from onnx_gate.verify.reach.watcher import Watcher
from onnx_gate.verify.reference.operator_mode import OperatorMode

# Layers whose results are raised, and steps for each: outliers were found within twenty.
LAYERS, STEPS = 6, 20
# A step along the gradient's signs, as a share of the domain; one that raises nothing halves the next.
_SHARE = 1 / 8
# What is raised by less than this shows what the start has shown.
_RAISED = 1.25
_PRODUCTS = frozenset(("convolution", "addmm", "mm", "bmm", "baddbmm", "linear", "_trilinear"))


class _Layers(OperatorMode):
    """Keeps what products of a pass make."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[torch.Tensor] = []

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the operator and keep its result where it is a layer's."""
        result = func(*args, **kwargs)
        if name in _PRODUCTS and isinstance(result, torch.Tensor) and result.numel():
            self.made.append(result)
        return result


def ascend(
    watcher: Watcher,
    start: Mapping[str, Array],
    known: Mapping[str, Domain],
    pays: Callable[[], bool],
) -> Iterator[tuple[int, Mapping[str, Array]]]:
    """Yield a layer's number and inputs that raise its largest magnitude, for some of the layers.

    ``pays`` is asked before each pass.
    """
    if not known or not pays():
        return
    count = len(_pass(watcher, start, known)[1])
    for number in sorted({count * (n + 1) // LAYERS - 1 for n in range(LAYERS) if count} - {-1}):
        first, best, share = 0.0, 0.0, _SHARE
        raised = candidate = dict(start)
        signs: dict[str, torch.Tensor] = {}
        for _ in range(STEPS + 1):
            if not pays():
                break
            leaves, made = _pass(watcher, candidate, known)
            if leaves is None or number >= len(made):
                break
            largest, towards = _largest(made[number], leaves)
            first = first or largest
            if largest > best:
                best, raised, signs = largest, candidate, towards
            else:
                share /= 2
            if not signs:
                break
            candidate = raised | _moved(raised, signs, known, share)
        if best > _RAISED * first:
            yield number, raised


def _pass(
    watcher: Watcher, arrays: Mapping[str, Array], known: Mapping[str, Domain]
) -> tuple[InputLeaves | None, list[torch.Tensor]]:
    """Run with gradients; return the inputs that may change, and what layers make."""
    layers = _Layers()
    leaves = run_with_gradients(watcher.eager, arrays, known, layers, own=watcher.kept)
    return leaves, [each for each in layers.made if each.requires_grad and leaves is not None]


def _largest(made: torch.Tensor, leaves: InputLeaves) -> tuple[float, dict[str, torch.Tensor]]:
    """Return the largest magnitude, and which way each input raises it."""
    flat = made.reshape(-1)
    index = int(flat.detach().abs().nan_to_num(0.0, 0.0, 0.0).argmax())
    size = flat[index].abs()
    signs = {name: g.sign() for name, g in leaves.gradients([size]).items() if g.any()}
    return float(size.detach()), signs


def _moved(
    arrays: Mapping[str, Array],
    signs: Mapping[str, torch.Tensor],
    known: Mapping[str, Domain],
    share: float,
) -> dict[str, Array]:
    moved = {}
    for name, sign in signs.items():
        step = share * (known[name].high - known[name].low)
        moved[name] = moved_by(arrays[name], step * sign, known[name])
    return moved
