"""What Python compares numbers with that it takes out of tensors: ``if x.mean().item() > 0.9``.

No operator says so. What the function that takes a number compares anything with stands in its source:
written there, global, or kept by an object that it knows.
"""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Iterator, Sequence
from functools import cache
from types import CodeType, FrameType

from onnx_gate.verify.reach.rules import Kind


def compared_in(frame: FrameType) -> Iterator[tuple[float, Kind]]:
    """Yield the numbers that a running function compares with, and whether for equality."""
    found: dict[tuple[float, Kind], None] = {}
    for operand, kind in _comparisons(frame.f_code):
        number = _number(operand, frame)
        if number is not None:
            found[number, kind] = None
    yield from found


@cache
def _comparisons(code: CodeType) -> Sequence[tuple[ast.expr, Kind]]:
    """Return what stands on either side of each comparison in the source of a function."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return ()
    made: list[tuple[ast.expr, Kind]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            equal = all(isinstance(each, ast.Eq | ast.NotEq) for each in node.ops)
            made += [
                (each, "equality" if equal else "limit") for each in (node.left, *node.comparators)
            ]
    return made


def _number(operand: ast.expr, frame: FrameType) -> float | None:
    """Return the number that an operand is, ``None`` where it is none or follows from tensors."""
    value: object
    match operand:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            value = -value
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
