"""TorchScript for the exporters: neither takes it as it is inside another module.

The TorchScript exporter takes a whole program of it, with tensors in and out; torch.export takes
none, but what torch's own converter makes of one.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import first_line
from onnx_gate.runtimes.outputs import SINGLE, in_graph
from onnx_gate.runtimes.torch_eager import Eager


def has_script(module: nn.Module) -> bool:
    """Return whether a module is TorchScript, or a part of it is."""
    return any(isinstance(part, torch.jit.ScriptModule) for _, part in state.parts(module))


class Flat(nn.Module):
    """Takes its tensors by position and returns them one by one, as a whole program has to."""

    def __init__(self, eager: Eager) -> None:
        super().__init__()
        self.inner = eager.module
        self._binding = eager.binding

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Call the module within as the manifest does."""
        args, kwargs = self._binding.split(self._binding.named(tensors, {}))
        named = in_graph(self.inner(*args, **kwargs))
        if [name for name, _ in named] == [SINGLE]:
            single: torch.Tensor = named[0][1]
            return single
        return tuple(tensor for _, tensor in named)


def as_script(eager: Eager, tensors: Mapping[str, torch.Tensor]) -> torch.jit.ScriptModule:
    """Return the model as one program: itself, or a trace in which scripted parts stay scripts."""
    module, returned, flat = eager.module, eager.returned, not eager.binding.nested
    if isinstance(module, torch.jit.ScriptModule) and returned is not None and flat:
        names = list(returned.names)
        if names == [SINGLE] or all(name.isdecimal() for name in names):
            return module
    order = tuple(tensors[name].clone() for name in eager.binding.order)
    traced = torch.jit.trace(Flat(eager), order, check_trace=False, strict=False)
    assert isinstance(traced, torch.jit.ScriptModule)
    return traced


def converted(
    script: torch.jit.ScriptModule, eager: Eager, tensors: Mapping[str, torch.Tensor]
) -> nn.Module:
    """Return what torch's converter makes of a program, which torch.export takes.

    Raises whatever the converter raises.
    """
    from torch._export.converter import TS2EPConverter

    order = tuple(tensors[name].clone() for name in eager.binding.order)
    module: nn.Module = TS2EPConverter(script, order, {}).convert().module()
    return module


def refused(error: BaseException) -> str:
    """Return what to do where the dynamo exporter does not take TorchScript, in torch's words."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (
        "the dynamo exporter takes TorchScript only as torch's converter can make a program of "
        f"torch.export's of it ({type(error).__name__}: {first_line(error, 200)}). Export it with "
        "export: {exporter: torchscript}, or return the module that it was made from"
    )
