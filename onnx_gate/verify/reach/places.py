"""Where in the code of a model an operator is called, by the frames that have led there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import FrameType

import torch
from torch import nn

_TORCH = f"{Path(torch.__file__).parent}/"
_GATE = f"{Path(__file__).parents[2]}/"
# Frames that are no lines of the model's.
_NOT_CALLERS = (_TORCH, _GATE, "<")


def caller_from(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame that runs a line which is neither torch's own nor the gate's."""
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_CALLERS):
        frame = frame.f_back
    return frame


def place_from(frame: FrameType | None, paths: Mapping[int, str]) -> tuple[str, str, int, int]:
    """Return the path of the running module, the innermost line that is not torch's own, and where.

    That is the place in the line, and in each that has called it: a function, or a part, that is
    called from two decides twice. ``paths`` are those of modules, by their ``id``.
    """
    module: str | None = None
    file, line, at = "", 0, 0
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_NOT_CALLERS):
            if not line:
                file, line = code.co_filename, frame.f_lineno
            at = hash((at, frame.f_lasti))
        elif line and code.co_filename.startswith(_GATE):
            break
        if module is None and code.co_varnames[:1] == ("self",):
            own = frame.f_locals.get("self")
            if isinstance(own, nn.Module):
                module = paths.get(id(own))
        frame = frame.f_back
    return module or "", file, line, at
