"""Where forward asks for gradients while it is traced, which no graph of operators can do."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from traceback import walk_stack
from typing import Any

import torch

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.source_lines import Frame, at, of_frames

WITHOUT = (
    "gradients inside forward cannot be exported: leave what asks for them "
    "(torch.autograd.grad, backward) out of what is exported, or write the derivative with "
    "operators"
)
"""What to do about it."""


def explained(
    error: GateError, eager: Eager, example: Mapping[str, Array], root: Path
) -> GateError:
    """Return the error of an export, of gradients where these are asked for and no reason is known.

    The module is called once more, where it can be told by whom. ``root`` is the user's folder.
    """
    if error.data.get("recognised", True):
        return error
    lines = (of_frames(stack, root) for stack in _asked(eager, example))
    line = next((each for each in lines if each is not None and each.own), None)
    if line is None:
        return error
    told = f"forward asks for gradients{at(line)}; {error.message}"
    return codes.OG207.error(told, source=(line.file, line.line), remedy=WITHOUT)


def _asked(eager: Eager, example: Mapping[str, Array]) -> list[Sequence[Frame]]:
    """Return the stacks in which a call of the module asks for gradients."""
    stacks: list[Sequence[Frame]] = []

    def recording(original: Any) -> Any:
        def recorded(*args: Any, **options: Any) -> Any:
            stacks.append(
                [(f.f_code.co_filename, line) for f, line in walk_stack(sys._getframe(1))][::-1]
            )
            return original(*args, **options)

        return recorded

    with ExitStack() as patched, suppress(Refusal):
        for name in ("grad", "backward"):
            original = getattr(torch.autograd, name)
            patched.callback(setattr, torch.autograd, name, original)
            setattr(torch.autograd, name, recording(original))
        eager.run(example)
    return stacks
