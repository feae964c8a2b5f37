"""Where torch.export decided something of a dynamic size, while it traces: the lines that led there."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from torch.fx.experimental import symbolic_shapes

from onnx_gate.verify.source_lines import Frame

Stack = tuple[Frame, ...]


@dataclass(frozen=True)
class Stacks:
    """The stacks, outermost first, at which something was decided.

    ``sizes`` are those that fixed a size, by torch's name for it: ``L['x'].size()[0]``.
    ``conditions`` are those that asked for one, by what torch keeps of it.
    """

    sizes: dict[str, Stack] = dataclasses.field(default_factory=dict)
    conditions: dict[Any, Stack] = dataclasses.field(default_factory=dict)

    def of_condition(self, expression: Any) -> Stack:
        """Return the stack that asked for a condition first, empty where none is known."""
        return self.conditions.get(_canonical(expression), ())


def size_name(path: str, axis: int) -> str:
    """Return what torch.export calls the size of the axis of an input at ``['x']`` or ``['past'][0]``."""
    return f"L{path}.size()[{axis}]"


@contextmanager
def specialising() -> Iterator[Stacks]:
    """Yield the stacks of what is decided of sizes inside of the block, the first one of each.

    A loop over a size, a format or a list of that length leaves nothing in the traced graph, and
    torch's message has no line; a branch on a size leaves a node at the line of the operator before
    it. What decides is private to torch: where a version has it not, nothing is recorded.
    """
    stacks = Stacks()
    # What called the export is no part of the model.
    outside = len(_stack(0))

    def fixed(environment: Any, symbol: Any, target: Any, *_: Any, **__: Any) -> None:
        if getattr(target, "is_number", False):
            stack: Stack = ()
            for source in environment.var_to_sources.get(symbol, ()):
                name = source.name if isinstance(source.name, str) else source.name()
                if name not in stacks.sizes:
                    stack = stack or _stack(outside)
                    stacks.sizes[name] = stack

    def asked(environment: Any, _: Any, condition: Any, *__: Any, **___: Any) -> None:
        if not environment._suppress_guards_tls():
            key = _canonical(condition)
            if key not in stacks.conditions:
                stacks.conditions[key] = _stack(outside)

    with _heard("_set_replacement", fixed), _heard("_log_guard", asked):
        yield stacks


@contextmanager
def _heard(name: str, listener: Callable[..., None]) -> Iterator[None]:
    """Let ``listener`` be called before a method of torch's environment of sizes."""
    kind: Any = symbolic_shapes.ShapeEnv
    original = getattr(kind, name, None)
    if original is None:
        yield
        return

    def recorded(*args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            listener(*args, **kwargs)
        return original(*args, **kwargs)

    setattr(kind, name, recorded)
    try:
        yield
    finally:
        setattr(kind, name, original)


def _canonical(condition: Any) -> Any:
    """Return what torch makes of a condition before it keeps it: ``Eq(a, b)`` and ``Eq(b, a)`` are one."""
    with contextlib.suppress(Exception):
        return symbolic_shapes.canonicalize_bool_expr(condition)
    return condition


def _stack(outside: int) -> Stack:
    """Return the stack without as many of its outermost frames, and without this file's."""
    frames: list[Frame] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    while frame is not None:
        frames.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(reversed(frames[: max(len(frames) - outside, 0)]))
