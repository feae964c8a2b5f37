"""What Python compares numbers with that it takes out of tensors: ``if x.mean().item() > 0.9``.

No operator says so. The source of the function that takes a number does, where the number itself, or the
name that it gets, stands on one side of a comparison, and on the other a number that is written there,
global, or kept by an object.
"""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import CodeType, FrameType

from onnx_gate.verify.reach.rules import Kind

# What makes a number of a tensor.
_METHODS, _FUNCTIONS = frozenset(("item",)), frozenset(("float", "int"))


@dataclass(frozen=True)
class _Comparison:
    """What a number is compared with that is taken in one of the ``lines``."""

    other: ast.expr
    kind: Kind
    lines: range


def compared_in(frame: FrameType) -> Iterator[tuple[float, Kind]]:
    """Yield what a running function compares the number with that it takes now, and if for equality."""
    found: dict[tuple[float, Kind], None] = {}
    for each in _comparisons(frame.f_code):
        number = _number(each.other, frame) if frame.f_lineno in each.lines else None
        if number is not None:
            found[number, each.kind] = None
    yield from found


@cache
def _comparisons(code: CodeType) -> Sequence[_Comparison]:
    """Return the comparisons of numbers that the source of a function takes out of tensors."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return ()
    names: dict[str, range] = {}
    made: list[_Comparison] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _takes(node.value):
            lines = _lines(node, code)
            names |= {each.id: lines for each in node.targets if isinstance(each, ast.Name)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        equal = all(isinstance(each, ast.Eq | ast.NotEq) for each in node.ops)
        operands = (node.left, *node.comparators)
        for own in operands:
            lines = (
                _lines(own, code) if _takes(own) else names.get(getattr(own, "id", ""), range(0))
            )
            kind: Kind = "equality" if equal else "limit"
            made += (
                _Comparison(each, kind, lines) for each in operands if lines and each is not own
            )
    return made


def _takes(value: ast.expr) -> bool:
    """Return whether an expression is a number that is taken out of something."""
    match value:
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in _METHODS
        case ast.Call(func=ast.Name(id=name)):
            return name in _FUNCTIONS
    return False


def _lines(node: ast.stmt | ast.expr, code: CodeType) -> range:
    """Return the lines of a file in which a part of a function stands."""
    first = code.co_firstlineno - 1
    return range(first + node.lineno, first + (node.end_lineno or node.lineno) + 1)


def _number(operand: ast.expr, frame: FrameType) -> float | None:
    """Return the number that an operand is, ``None`` where it is none or follows from tensors."""
    value: object
    match operand:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            value = -number
        case ast.Constant():
            value = operand.value
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            value = getattr(_known(name, frame), attribute, None)
        case ast.Name(id=name):
            value = frame.f_globals.get(name)
        case _:
            return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) else None


def _known(name: str, frame: FrameType) -> object:
    return frame.f_locals.get(name, frame.f_globals.get(name))
