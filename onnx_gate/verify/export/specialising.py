"""Where torch.export made a number of a dynamic size, while it traces: the lines that led there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_stack
from typing import Any

from torch.fx.experimental import symbolic_shapes

from onnx_gate.verify.source_lines import Frame

Stacks = dict[str, tuple[Frame, ...]]
"""The stack that fixed a size, by torch's name for the size: ``L['x'].size()[0]``."""


def size_name(path: str, axis: int) -> str:
    """Return what torch.export calls the size of the axis of an input at ``['x']`` or ``['past'][0]``."""
    return f"L{path}.size()[{axis}]"


@contextmanager
def specialising() -> Iterator[Stacks]:
    """Yield the stacks of the sizes that are fixed inside of the block, the first one of each.

    A loop over a size, a format or a list of that length leaves nothing in the traced graph, and
    torch's message has no line. What decides it is private to torch: where a version has it not,
    nothing is recorded.
    """
    stacks: Stacks = {}
    kind: Any = symbolic_shapes.ShapeEnv
    original = getattr(kind, "_set_replacement", None)
    if original is None:
        yield stacks
        return

    def recorded(environment: Any, symbol: Any, target: Any, *rest: Any) -> Any:
        if getattr(target, "is_number", False):
            stack: tuple[Frame, ...] = ()
            for source in environment.var_to_sources.get(symbol, ()):
                name = source.name if isinstance(source.name, str) else source.name()
                if name not in stacks:
                    stack = stack or _stack()
                    stacks[name] = stack
        return original(environment, symbol, target, *rest)

    kind._set_replacement = recorded
    try:
        yield stacks
    finally:
        kind._set_replacement = original


def _stack() -> tuple[Frame, ...]:
    return tuple(reversed([(f.f_code.co_filename, line) for f, line in walk_stack(None)]))
