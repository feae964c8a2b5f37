"""What torch.export has captured, run by PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.func import functional_call

from onnx_gate.runtimes.base import Array, Refusal, first_line
from onnx_gate.runtimes.outputs import flatten
from onnx_gate.runtimes.torch_eager import Eager, to_array, to_tensor


def run_program(
    program: torch.export.ExportedProgram,
    eager: Eager,
    arrays: Mapping[str, Array],
    *,
    guards: bool = False,
    weights: Mapping[str, torch.Tensor] | None = None,
) -> list[Array]:
    """Return the flat outputs of an exported program; raises ``Refusal`` where it raises.

    ``weights`` stand in the place of its own of these names.
    """
    args, kwargs = eager.binding.for_export({n: to_tensor(a) for n, a in arrays.items()})
    try:
        with torch.no_grad():
            value = functional_call(
                program.module(check_guards=guards), dict(weights or {}), args, kwargs
            )
    except Exception as error:
        raise Refusal(f"{type(error).__name__}: {first_line(error)}") from error
    return [to_array(tensor) for _, tensor in flatten(value)]
