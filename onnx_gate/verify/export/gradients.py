"""Where forward asks for gradients while it is traced, which no graph of operators can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_stack
from typing import Any

import torch

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.verify.source_lines import Frame, at, of_frames

WITHOUT = (
    "gradients inside forward cannot be exported: leave what asks for them "
    "(torch.autograd.grad, backward) out of what is exported, or write the derivative with "
    "operators"
)
"""What to do about it."""


@contextmanager
def explaining_gradients(root: Path | None) -> Iterator[None]:
    """Say of an export that fails for no reason that is known that gradients are asked for, where they are.

    ``root`` is the user's folder.
    """
    stacks: list[Sequence[Frame]] = []
    originals = {name: getattr(torch.autograd, name) for name in ("grad", "backward")}

    def recording(original: Any) -> Any:
        def recorded(*args: Any, **options: Any) -> Any:
            stacks.append([(f.f_code.co_filename, line) for f, line in walk_stack(None)][::-1])
            return original(*args, **options)

        return recorded

    for name, original in originals.items():
        setattr(torch.autograd, name, recording(original))
    try:
        yield
    except GateError as error:
        if not stacks or error.code != codes.OG207.code or error.remedy:
            raise
        lines = (of_frames(stack, root) for stack in stacks)
        # Torch calls them, too, whatever it exports.
        line = next((each for each in lines if each is not None and each.own), None)
        if line is None:
            raise
        told = f"forward asks for gradients{at(line)}; {error.message}"
        raise codes.OG207.error(told, source=(line.file, line.line), remedy=WITHOUT) from error
    finally:
        for name, original in originals.items():
            setattr(torch.autograd, name, original)
