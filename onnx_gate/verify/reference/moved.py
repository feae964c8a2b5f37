"""A module with the rounding of its operators moved: what another implementation could answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from onnx_gate.errors import GateError
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.file_module import FileModule
from onnx_gate.runtimes.torch_eager import Eager, to_array, to_tensor
from onnx_gate.verify.reference import file as of_file
from onnx_gate.verify.reference.decided import Decided
from onnx_gate.verify.reference.noise import Mover, few_bits
from onnx_gate.verify.reference.operator_mode import OperatorMode, tensors_of
from onnx_gate.verify.reference.perturb import MovedRounding
from onnx_gate.verify.reference.tape import Recording, Tape

_FLOATS = ("float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class MovedRun:
    """The outputs of a run; ``watched`` unless only the inputs' and weights' last bits were moved.

    ``rewritten`` are operators that were moved by what their form in a file loses, with that form.
    """

    arrays: tuple[Array, ...]
    watched: bool = True
    rewritten: Mapping[str, str] = field(default_factory=dict)


def moved(eager: Eager, inputs: Mapping[str, Array], seed: int) -> MovedRun | None:
    """Return a run with moved rounding, ``None`` where it fails."""
    mode = MovedRounding(seed)
    arrays = run_moved(eager, inputs, mode)
    if arrays is not None:
        return MovedRun(arrays, rewritten=mode.rewritten)
    arrays = run_last_bits(eager, inputs, seed)
    return None if arrays is None else MovedRun(arrays, watched=False)


def decided_by(eager: Eager, inputs: Mapping[str, Array]) -> Decided | None:
    """Return what a run decides in which nothing moves; ``None`` where it fails."""
    decided = Decided()
    arrays = run_moved(eager, inputs, MovedRounding(0, times=0.0, decided=decided))
    return None if arrays is None else decided


def recorded(eager: Eager, inputs: Mapping[str, Array]) -> Tape | None:
    """Return the last operators of a run in which nothing is moved, ``None`` where it fails."""
    if isinstance(eager.module, FileModule):
        return None
    tape = Tape()
    try:
        _, outputs = eager.run_tensors(inputs, mode=Recording(tape))
    except (Refusal, GateError):
        return None
    tape.end(outputs)
    return tape


def moved_at_end(tape: Tape, seed: int) -> MovedRun | None:
    """Return a run in which the operators of a tape alone are moved, ``None`` where there is none."""
    mode = MovedRounding(seed)
    try:
        outputs = tape.again(mode.run)
        if outputs is None:
            return None
        return MovedRun(tuple(map(to_array, outputs)), rewritten=mode.rewritten)
    except Exception:  # whatever an operator raises of what it is given, with other numbers in it
        return None


def run_moved(
    eager: Eager, inputs: Mapping[str, Array], mode: MovedRounding
) -> tuple[Array, ...] | None:
    """Return the outputs of one run of the module in its own precision under ``mode``.

    ``None`` where it fails, or no operator was seen that rounds and the module computes elsewhere.
    """
    if isinstance(eager.module, FileModule):
        return of_file.run_moved(eager.module, inputs, mode)
    try:
        _, outputs = eager.run_tensors(inputs, mode=mode)
        arrays = tuple(map(to_array, outputs))
        return arrays if mode.has_moved or _only_selects(eager, inputs) else None
    except (Refusal, GateError):
        return None


def _only_selects(eager: Eager, inputs: Mapping[str, Array]) -> bool:
    """Return whether all of what a module answers was seen to be made, of its inputs and weights."""
    tensors = {name: to_tensor(array) for name, array in inputs.items()}
    known = [*tensors.values(), *state.parameters(eager.module), *state.buffers(eager.module)]
    mode = _Made(known)
    _, outputs = eager.run_prepared(tensors, mode=mode)
    return mode.whole and all(id(output) in mode.made for output in outputs)


class _Made(OperatorMode):
    """Remembers which tensors operators make; ``whole`` until one reads a tensor from elsewhere."""

    def __init__(self, known: Sequence[torch.Tensor]) -> None:
        super().__init__()
        # Kept, so that no other tensor gets the address of one.
        self.made = {id(tensor): tensor for tensor in known}
        self.whole = True

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the operator between a look at what it reads and one at what it makes."""
        self.whole &= all(id(tensor) in self.made for tensor in tensors_of((args, kwargs)))
        result = func(*args, **kwargs)
        self.made |= {id(tensor): tensor for tensor in tensors_of(result)}
        return result


def run_last_bits(eager: Eager, inputs: Mapping[str, Array], seed: int) -> tuple[Array, ...] | None:
    """Return the outputs with the last bits of all inputs and weights moved, if it answers.

    Stands for rounding where the operators cannot be watched: less than they lose in deep models.
    """
    noise, kept = Mover(seed), []

    def off(tensor: torch.Tensor) -> torch.Tensor:
        copy = tensor.clone()
        noise.scale(copy, 1.0, few_bits(copy))
        return copy

    arrays = {
        name: to_array(off(to_tensor(a))) if a.dtype.name in _FLOATS else a
        for name, a in inputs.items()
    }
    try:
        for tensor in (*state.parameters(eager.module), *state.buffers(eager.module)):
            if tensor.is_floating_point() and tensor.layout == torch.strided:
                kept.append((tensor, tensor.data))
                tensor.data = off(tensor.data)
        return eager.run(arrays).arrays
    except (Refusal, GateError):
        return None
    finally:
        for tensor, values in kept:
            tensor.data = values
