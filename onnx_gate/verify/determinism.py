"""Does the model agree with itself? Called twice on equal inputs, and looked at before and after."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest.values.shapes import DTYPES
from onnx_gate.numerics.compare import compare
from onnx_gate.numerics.precision import eps_of
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array, Outputs
from onnx_gate.runtimes.torch_eager import Eager, to_array, to_tensor
from onnx_gate.text import quote
from onnx_gate.verify.judge.judgement import is_floating
from onnx_gate.verify.judge.noise import FLOOR
from onnx_gate.verify.reference.operator_mode import OperatorMode
from onnx_gate.verify.source_lines import Line, at, of_frame

# Below this many elements a tensor of the state is compared by value as well.
_SMALL = 4096
TRAINING = "let train(mode) pass its mode on, and leave train() out of forward"

# Times that a module is called again that draws random numbers: a dropout of ten elements at 0.1 answers
# alike at the second call in one of seven times, up to the fifth in one of two hundred.
_DRAWS = 4


@dataclass(frozen=True)
class _Tensor:
    """A parameter or buffer at one moment; the values only of a small one."""

    tensor: torch.Tensor
    shape: tuple[int, ...] | None
    version: int
    values: Array | None

    def changed_since(self, earlier: _Tensor | None) -> bool:
        if earlier is None:
            return True
        if self.values is not None and earlier.values is not None:
            # Writing the same values again, as some models do at every call, changes nothing.
            return self.shape != earlier.shape or not state.equal_values(
                self.values, earlier.values
            )
        return self.tensor is not earlier.tensor or self.version != earlier.version


@dataclass(frozen=True)
class _State:
    """The parameters and buffers at one moment."""

    tensors: Mapping[str, _Tensor]

    def changed_since(self, earlier: _State) -> list[str]:
        gone = [name for name in earlier.tensors if name not in self.tensors]
        return gone + [
            name
            for name, tensor in self.tensors.items()
            if tensor.changed_since(earlier.tensors.get(name))
        ]


@dataclass(frozen=True)
class CallOutcome:
    """The outputs of one call, and what it changed: weights, its inputs, generators, attributes."""

    outputs: Outputs
    changed: tuple[str, ...] = ()
    mutated: tuple[str, ...] = ()
    drawn: tuple[str, ...] = ()
    attributes: bool = False

    @property
    def keeps_state(self) -> bool:
        """Whether the module is another one than before."""
        return bool(self.changed) or self.attributes

    @property
    def leaves_a_trace(self) -> bool:
        """Whether it has changed anything at all, so that another call may answer otherwise."""
        return self.keeps_state or bool(self.mutated or self.drawn)

    def findings(self) -> list[Finding]:
        """Return what is remarkable about a call whose result the next one repeats."""
        return list(_findings(self.changed, self.mutated, self.drawn))


class Before:
    """A module, and the generators of random numbers, before some calls."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module, self._state, self._generators = module, _state(module), _generators()
        self._attributes = state.attributes(module)

    def outcome(self, outputs: Outputs, mutated: Sequence[str] = ()) -> CallOutcome:
        """Return what calls until now have changed, the last of which returned ``outputs``."""
        return CallOutcome(
            outputs,
            tuple(_state(self._module).changed_since(self._state)),
            tuple(mutated),
            tuple(_drawn(self._generators)),
            state.attributes(self._module) != self._attributes,
        )


def call_once(eager: Eager, inputs: Mapping[str, Array]) -> CallOutcome:
    """Call the module once on copies of ``inputs``; raises ``Refusal`` where ``forward`` raises."""
    before = Before(eager.module)
    return before.outcome(*_call(eager, inputs))


def call_twice(eager: Eager, inputs: Mapping[str, Array]) -> tuple[Outputs, list[Finding]]:
    """Call the module twice on copies of ``inputs``; return the first outputs and findings.

    Raises ``GateError`` of kind ``unverified`` (OG106) where the second result is not the first,
    and ``Refusal`` where ``forward`` raises.
    """
    call = call_once(eager, inputs)
    repeat(eager, inputs, call)
    return call.outputs, call.findings()


def repeat(
    eager: Eager, inputs: Mapping[str, Array], call: CallOutcome, root: Path | None = None
) -> None:
    """Call the module again; raises ``GateError`` (OG106) where the result is not the first.

    ``root`` is the folder of the user's code, whose lines can be named.
    """
    # What is drawn for a small example may come out alike by chance.
    for _ in range(_DRAWS if call.drawn else 1):
        difference = second_difference(eager, inputs, call)
        if difference:
            break
    else:
        return
    changed = f"it changes its own state ({', '.join(call.changed[:3])})"
    causes, remedy = ([changed], "") if call.changed else ([], "")
    inputs_ = () if call.drawn or call.attributes else _as_inputs(eager.module, call.changed)
    line = None
    if call.drawn:
        from_where = f"it draws random numbers from {' and '.join(call.drawn)}"
        remedy = "draw outside of the model, and make the numbers an input"
        if "torch" in call.drawn:
            name, line = _first_drawn(eager, inputs, root)
            from_where += f", with {name}{at(line)}" if name else ""
            live = state.in_training(eager.module)
            if live:
                parts = ", ".join(map(quote, live[:3]))
                from_where += f", in training mode ({parts}), though the gate called eval()"
                remedy = TRAINING
            elif "dropout" in name or "bernoulli" in name:
                remedy = "pass training=self.training to F.dropout, or call a nn.Dropout"
        causes.append(from_where)
    raise codes.OG106.error(
        f"the model disagrees with itself: called twice on equal inputs, {difference}; "
        f"{' and '.join(causes) or 'it keeps state between calls, or reads the time or a file'}. "
        "A graph computes the same thing at every call, so there is nothing to compare it with",
        source=(line.file, line.line) if line is not None and line.own else None,
        remedy=remedy,
        changes=inputs_,
    )


def _as_inputs(
    module: torch.nn.Module, changed: Sequence[str]
) -> tuple[tuple[str, dict[str, object]], ...]:
    """Return what a manifest says of buffers that are inputs: all of those, or none."""
    found: list[tuple[str, dict[str, object]]] = []
    for name in changed:
        tensor = module._buffers.get(name)
        dtype = str(tensor.dtype).removeprefix("torch.") if tensor is not None else ""
        if tensor is None or dtype not in DTYPES:
            return ()
        given: dict[str, object] = {"dtype": dtype, "shape": list(tensor.shape)}
        if not (tensor.is_floating_point() or tensor.dtype == torch.bool):
            # What it has come to is what it is known to hold.
            given["range"] = [min(0, int(tensor.min())), max(1, int(tensor.max()))]
        found.append((f"inputs.{name}", given))
    return tuple(found)


def second_difference(eager: Eager, inputs: Mapping[str, Array], call: CallOutcome) -> str:
    """Call the module again; return how the result differs from ``call``'s, or ''."""
    return disagreement(call.outputs, eager.run(inputs))


class _Drawing(OperatorMode):
    """Notes the first operator that draws from torch's generator, and the user's line of it."""

    def __init__(self, root: Path | None) -> None:
        super().__init__()
        self._root = root
        self.name = ""
        self.line: Line | None = None

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if not self.name and torch.Tag.nondeterministic_seeded in func.tags:
            self.name = name
            self.line = of_frame(sys._getframe(), self._root) if self._root is not None else None
        return func(*args, **kwargs)


def _first_drawn(
    eager: Eager, inputs: Mapping[str, Array], root: Path | None
) -> tuple[str, Line | None]:
    drawing = _Drawing(root)
    try:
        with drawing:
            eager.run(inputs)
    except Exception:  # what a module does under a mode is no reason to be silent about the rest
        return "", None
    return drawing.name, drawing.line


def disagreement(first: Outputs, second: Outputs, room: float = 1.0) -> str:
    """Return how the two differ beyond rounding, ``room`` times the usual, or an empty string."""
    if first.names != second.names:
        return f"the outputs were {', '.join(first.names)} and then {', '.join(second.names)}"
    for name, a, b in zip(first.names, first.arrays, second.arrays, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{name} was {a.dtype}{list(a.shape)} and then {b.dtype}{list(b.shape)}"
        found = compare(b, a)
        if not found.exceeding:
            continue
        allowed = 0.0
        if is_floating(a.dtype) and not found.nonfinite:
            allowed = room * FLOOR[str(a.dtype)] * eps_of(a.dtype) * found.expected_rms
        if found.nonfinite or found.max_abs > allowed:
            return f"{name} differs by up to {found.max_abs:.3g}"
    return ""


def _call(eager: Eager, inputs: Mapping[str, Array]) -> tuple[Outputs, list[str]]:
    tensors = {name: to_tensor(array) for name, array in inputs.items()}
    names, outputs = eager.run_prepared(tensors)
    arrays = tuple(to_array(tensor) for tensor in outputs)
    held = {name for each in eager.binding.nested.values() for name in each.names}
    mutated = [
        name
        for name, tensor in tensors.items()
        # What fills a cache in place and returns it leaves nothing to miss.
        if not (name in held and _is_returned(tensor, arrays))
        if tensor.shape != inputs[name].shape
        or (
            tensor._version > 0
            and not np.array_equal(
                to_array(tensor).view(np.uint8) if tensor.ndim else to_array(tensor),
                inputs[name].copy().view(np.uint8) if tensor.ndim else inputs[name],
            )
        )
    ]
    return Outputs(names, arrays), mutated


def _is_returned(tensor: torch.Tensor, arrays: Sequence[Array]) -> bool:
    """Return whether an input, as a call has left it, is among the outputs."""
    if not tensor._version:
        return False
    value = to_array(tensor)
    return any(each.dtype == value.dtype and state.equal_values(each, value) for each in arrays)


def _findings(
    changed: Sequence[str], mutated: Sequence[str], drawn: Sequence[str]
) -> Iterator[Finding]:
    if changed:
        yield codes.OG109.finding(
            f"forward changes the model's own state ({', '.join(changed[:3])}); a graph "
            "keeps none. The result did not change with it here"
        )
    if mutated:
        yield codes.OG110.finding(
            f"forward changes its input {', '.join(mutated)} in place; the graph leaves its "
            "inputs alone, so code that relies on the change will miss it"
        )
    if drawn:
        yield codes.OG111.finding(
            f"forward draws random numbers from {' and '.join(drawn)}, though the result did "
            "not change with them here"
        )


def _state(module: torch.nn.Module) -> _State:
    return _State(
        {
            name: _Tensor(
                tensor,
                state.shape(tensor),
                state.version(tensor),
                state.small_values(tensor, _SMALL),
            )
            for name, tensor in state.tensors(module)
        }
    )


def _generators() -> dict[str, Any]:
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy.random": repr(np.random.get_state()),
        "random": random.getstate(),
    }


def _drawn(before: Mapping[str, Any]) -> list[str]:
    return [name for name, state in _generators().items() if state != before[name]]
