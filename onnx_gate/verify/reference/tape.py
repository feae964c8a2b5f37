"""The last operators of a run, kept so that these can be run again with their rounding moved.

A run in which the last operators alone are moved is a run with moved rounding, of which the first part has
drawn nothing: it forgives no more than others do, and costs the share of a run that they are. Of what
rounding does to most elements it shows a tenth and more, which K allows for.

The invariant: what is run again is given what it was given, or what has taken its place. So a tape begins
behind what cannot be had again: an operator that writes to what was made before (a buffer, a sum over
layers), draws numbers, or tells Python something, and control flow. Values are known by where they lie, as
two objects may be one tensor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree

from onnx_gate.verify.reference.operator_mode import OperatorMode, given_to, tensors_of

# One in so many of the operators is kept: of BERT-base a layer and a half of twelve.
_SHARE = 8
# What they have made may take so much memory.
_BYTES = 64 * 2**20
_NOT_AGAIN = frozenset(
    {
        torch.Tag.data_dependent_output,
        torch.Tag.dynamic_output_shape,
        torch.Tag.nondeterministic_seeded,
    }
)

# Runs an operator as a mode does: its name, itself, and its arguments.
Run = Callable[[str, Any, Any, dict[str, Any]], Any]


@dataclass(frozen=True)
class _Call:
    """One operator, with the tensors that it was given and has returned."""

    name: str
    func: Any
    args: Any
    kwargs: dict[str, Any]
    result: Any

    @property
    def written(self) -> list[torch.Tensor]:
        """The tensors that it has written to."""
        given = given_to(self.func, self.args, self.kwargs)
        names = (
            a.name
            for a in self.func._schema.arguments
            if a.alias_info is not None and a.alias_info.is_write
        )
        return tensors_of([given[name] for name in names])


class Tape:
    """The last operators of a run, and its ``outputs``."""

    def __init__(self) -> None:
        self._calls: deque[_Call] = deque()
        self._seen = self._bytes = 0
        self._outputs: Sequence[torch.Tensor] = ()

    def take(self, name: str, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        """Keep an operator that was run, and no more of those before it than are wanted."""
        self._seen += 1
        values = tensors_of((args, kwargs, result))
        if not _can_be_had_again(func, args, kwargs) or not all(map(_is_plain, values)):
            self.cut()
            return
        call = _Call(name, func, args, kwargs, result)
        self._calls.append(call)
        self._bytes += _size(call)
        while self._calls and (len(self._calls) > -(-self._seen // _SHARE) or self._bytes > _BYTES):
            self._bytes -= _size(self._calls.popleft())

    def cut(self) -> None:
        """Begin behind what was run so far."""
        self._calls.clear()
        self._bytes = 0

    def end(self, outputs: Sequence[torch.Tensor]) -> None:
        """Begin behind the last operator that has written to what was made before; the run has ended."""
        self._outputs = outputs
        calls, made = list(self._calls), set[int]()
        for place, call in enumerate(calls):
            if any(_storage(each) not in made for each in call.written):
                self._calls, made = deque(calls[place + 1 :]), set()
            given = {_storage(each) for each in tensors_of((call.args, call.kwargs))}
            made |= {_storage(each) for each in tensors_of(call.result)} - given

    def again(self, run: Run) -> list[torch.Tensor] | None:
        """Return the outputs with each operator of the tape run by ``run``.

        ``None`` where none of the outputs is made by them.
        """
        made: dict[Any, torch.Tensor] = {}

        def instead(value: Any) -> Any:
            return made.get(_place(value), value) if isinstance(value, torch.Tensor) else value

        with torch.no_grad():
            for call in self._calls:
                args, kwargs = pytree.tree_map(instead, (call.args, call.kwargs))
                results = tensors_of(run(call.name, call.func, args, kwargs))
                for old, new in zip(tensors_of(call.result), results, strict=True):
                    if old.shape == new.shape:  # else what a kernel keeps for its gradient
                        made[_place(old)] = new
        outputs = [instead(each) for each in self._outputs]
        same = all(a is b for a, b in zip(outputs, self._outputs, strict=True))
        return None if same else outputs


class Recording(OperatorMode):
    """Keeps the last operators of a call on a tape, if it has one."""

    def __init__(self, tape: Tape | None) -> None:
        super().__init__()
        self._tape = tape

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the operator as it is, and keep it."""
        result = func(*args, **kwargs)
        self.keep(name, func, args, kwargs, result)
        return result

    def keep(self, name: str, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        """Keep an operator that was run."""
        if self._tape is not None:
            self._tape.take(name, func, args, kwargs, result)

    def around(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator of control flow: what it asks its condition is not seen."""
        result = super().around(func, args, kwargs)
        if self._tape is not None:
            self._tape.cut()
        return result


def _can_be_had_again(func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether an operator tells Python nothing and draws nothing, as attention does that drops."""
    return _NOT_AGAIN.isdisjoint(func.tags) or given_to(func, args, kwargs).get("dropout_p") == 0.0


def _size(call: _Call) -> int:
    return sum(each.nbytes for each in tensors_of(call.result))


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return what is the same of two objects that are one tensor, and of no others that are alive."""
    return (
        _storage(tensor),
        tensor.storage_offset(),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.is_conj(),
        tensor.is_neg(),
    )
