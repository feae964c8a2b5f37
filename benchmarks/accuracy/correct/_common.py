"""What every factory of the corpus shares: a fixed seed and weights that are not degenerate.

A freshly initialised network is an easy case: its norms are the identity, its biases are zero,
its layer scales hide whole branches and its running statistics are 0 and 1. Faults and rounding
hide behind all of these, so they are replaced by values like those of a trained network.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

SEED = 0
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def ready(make: Callable[[], nn.Module], *sample: Tensor) -> nn.Module:
    """Build a module with fixed random weights and put it in evaluation mode.

    Where a ``sample`` is given (a batch for every positional input), the running statistics of
    every batch norm are taken from one pass over it.
    """
    torch.manual_seed(SEED)
    module = make().eval()
    _vary_constants(module)
    if sample:
        _calibrate(module, sample)
    return module.eval()


def noise(*shape: int) -> Tensor:
    """Standard normal float32 values of this shape, the same in every process."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(SEED))


@torch.no_grad()
def _vary_constants(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if parameter.numel() < 2 or not parameter.is_floating_point():
            continue
        first = parameter.flatten()[0]
        if not bool((parameter == first).all()):
            continue
        is_scale = parameter.ndim == 1 and not name.endswith("bias")
        if float(first) == 1.0:
            parameter.copy_(torch.empty_like(parameter).uniform_(0.8, 1.2))
        elif is_scale:
            parameter.copy_(torch.empty_like(parameter).uniform_(0.1, 0.4))
        else:
            parameter.copy_(torch.empty_like(parameter).normal_(0.0, 0.02))


@torch.no_grad()
def _calibrate(module: nn.Module, sample: tuple[Tensor, ...]) -> None:
    norms = [m for m in module.modules() if isinstance(m, _BATCH_NORMS)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()
        norm.momentum = 0.9
    module(*sample)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()
