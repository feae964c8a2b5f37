"""What a pair is: a model, a file that really differs from it, and one that does not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import onnx
import torch
from torch import nn

# What the faulty one has to be. ``refused`` is a divergence, or an error that does not come from a
# model that could not be built or a file that could not be read; ``unverified`` is anything but a pass
# (where nothing can be compared, that error is what is expected); ``remarked`` is not a pass, or a
# warning that the correct twin does not have.
Expectation = Literal["refused", "unverified", "remarked"]

Witness = Callable[[np.random.Generator], dict[str, Any]]


@dataclass(frozen=True)
class Pair:
    """A model with the manifest entry that its owner would write, and two files.

    ``faulty`` builds the module that is exported as the faulty file, by default the model with
    ``wrong=True``; ``twin`` that of the correct one, by default nobody's: the gate exports the
    model itself. ``gate_exports_fault`` is where the gate's own export is the wrong one.
    ``edit`` makes the faulty file of the correct one, in place. ``witness`` draws inputs that show
    the fault, where arbitrary ones do not.
    """

    name: str
    what: str
    model: Callable[..., nn.Module]
    inputs: Mapping[str, Any]
    faulty: Callable[[], nn.Module] | None = None
    twin: Callable[[], nn.Module] | None = None
    gate_exports_fault: bool = False
    same_file: bool = False  # the manifest is at fault: the faulty one has the correct file
    entry: Mapping[str, Any] = field(default_factory=dict)
    faulty_entry: Mapping[str, Any] = field(default_factory=dict)
    twin_entry: Mapping[str, Any] = field(default_factory=dict)
    suites: Mapping[str, Any] = field(default_factory=dict)
    expect: Expectation = "refused"
    witness: Witness | None = None
    example: Mapping[str, int] = field(default_factory=dict)
    edit: Callable[[onnx.ModelProto], None] | None = None
    reference: bool = False  # no PyTorch: both files are held against an export of the model
    missed: str = ""  # why the faulty one passes as yet

    def faulty_module(self) -> nn.Module:
        """The module that the faulty file is an export of."""
        if self.edit:
            return self.model().eval()
        return (self.faulty or (lambda: self.model(wrong=True)))().eval()


class Net(nn.Module):
    """A module with weights of its own, the same ones in every process; ``wrong`` is the fault."""

    def __init__(self, wrong: bool = False, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.wrong = wrong


def mlp(*sizes: int) -> nn.Sequential:
    """Linear layers with GELU between them."""
    layers: list[nn.Module] = []
    for n, m in itertools.pairwise(sizes):
        layers += [nn.Linear(n, m), nn.GELU()]
    return nn.Sequential(*layers[:-1])


def tokens(shape: Sequence[int | str], high: int) -> dict[str, Any]:
    """An int64 input from 0 to ``high``."""
    return {"dtype": "int64", "shape": list(shape), "range": [0, high]}


def ranged(dtype: str, shape: Sequence[int | str], low: float, high: float) -> dict[str, Any]:
    """An input with a range."""
    return {"dtype": dtype, "shape": list(shape), "range": [low, high]}
