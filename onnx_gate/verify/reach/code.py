"""Whole numbers that a module's own code names: where no export tells which sizes it asks for."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from torch import nn

from onnx_gate.graph.limits import FEW_APART
from onnx_gate.runtimes import state
from onnx_gate.verify.export.exported import LARGEST_AREA
from onnx_gate.verify.source_lines import is_installed


def named_in_code(module: nn.Module) -> tuple[int, ...]:
    """Return the numbers in what ``forward`` runs: written there, global, or kept by the module.

    Code of installed packages is left out: its sizes are arguments. How far apart windows are is told.
    """
    numbers: set[int] = set()
    for _, part in state.parts(module):
        apart = getattr(part, "stride", ())
        steps = apart if isinstance(apart, tuple) else (apart,)
        numbers |= {each for each in steps if type(each) is int and each > FEW_APART}
        forward = getattr(type(part), "forward", None)
        if isinstance(forward, FunctionType):
            numbers |= set(_named(forward, part, set()))
    return tuple(sorted(n for n in numbers if 2 < n <= LARGEST_AREA))


def _named(function: FunctionType, part: nn.Module, known: set[FunctionType]) -> Iterator[int]:
    file = function.__code__.co_filename
    if function in known or file.startswith("<") or is_installed(file):
        return
    known.add(function)
    for code in _codes(function.__code__):
        yield from (abs(each) for each in code.co_consts if type(each) is int)
        for name in code.co_names:
            for value in (_own(part, name), function.__globals__.get(name)):
                if type(value) is int:
                    yield abs(value)
                elif isinstance(value, FunctionType):
                    yield from _named(value, part, known)


def _own(part: nn.Module, name: str) -> Any:
    """Return what a module keeps under a name, or a method of its class."""
    return vars(part).get(name, getattr(type(part), name, None))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)
