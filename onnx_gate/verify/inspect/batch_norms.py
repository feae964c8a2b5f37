"""The batch norms of a module, which exporters fold into the layers before them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import nn

from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inspect.weight_bits import FoldedNorms

# The scale, the mean and the bias of a batch norm, by channel, in float64.
_Terms = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]

_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class BatchNorms:
    """The batch norms of a module, by how many channels they have."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def of(self, array: Array) -> list[tuple[int, FoldedNorms]]:
        """Return the batch norms with as many channels as one of the first two sizes, and its axis.

        Of a transposed convolution in groups, the second size is that of one group.
        """
        norms = self._by_channels
        grouped = {shape[1] * groups for shape, groups in self._groups if shape == array.shape}
        sizes = [*enumerate(array.shape[:2]), *((1, size) for size in sorted(grouped))]
        return [(axis, norms[size]) for axis, size in sizes if size in norms]

    @cached_property
    def tensors(self) -> frozenset[str]:
        """The names of their parameters and buffers."""
        return frozenset(
            f"{name}.{key}" if name else key
            for name, part in state.parts(self._module)
            if terms_of(part) is not None
            for key in ("weight", "bias", "running_mean", "running_var")
        )

    @cached_property
    def _by_channels(self) -> Mapping[int, FoldedNorms]:
        found: dict[int, list[_Terms]] = {}
        for _, part in state.parts(self._module):
            if (norm := terms_of(part)) is not None:
                found.setdefault(norm[0].size, []).append(norm)
        return {
            size: FoldedNorms(*map(np.stack, zip(*norms, strict=True)))
            for size, norms in found.items()
        }

    @cached_property
    def _groups(self) -> frozenset[tuple[tuple[int, ...], int]]:
        return frozenset(
            (tuple(part.weight.shape), part.groups)
            for _, part in state.parts(self._module)
            if isinstance(part, _TRANSPOSED) and part.groups > 1
        )


def terms_of(part: nn.Module) -> _Terms | None:
    """Return what folding a module into the layer before it does, ``None`` for all but batch norms."""
    with suppress(Exception):
        mean, var, weight, bias = (
            None if held is None else held.detach().double().cpu().numpy()
            for held in (
                getattr(part, n) for n in ("running_mean", "running_var", "weight", "bias")
            )
        )
        if mean is not None and var is not None:
            scale = 1 / np.sqrt(var + getattr(part, "eps", 0.0))
            return (
                scale if weight is None else scale * weight,
                mean,
                np.zeros_like(scale) if bias is None else bias,
            )
    return None
