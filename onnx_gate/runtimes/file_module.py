"""An ONNX file in the place of a PyTorch module, so that another file can be held against it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array, Session
from onnx_gate.runtimes.open import open_session
from onnx_gate.runtimes.tensors import to_array, to_tensor

PLAIN = RuntimeSpec("onnxruntime", optimization="off")


class FileModule(nn.Module):
    """Runs an ONNX file in ONNX Runtime, as written: with all optimisations off.

    Takes one tensor for each of the manifest's inputs, in the order of ``inputs``, which maps
    these to the graph's. Returns the outputs by the graph's names.
    """

    def __init__(self, path: Path, inputs: Mapping[str, str]) -> None:
        super().__init__()
        self.path, self.inputs = path, dict(inputs)
        # By process: of a session threads do not come along into a fork, where its end waits for them.
        self._sessions: dict[int, Session] = {}

    @property
    def session(self) -> Session:
        """The file in ONNX Runtime; raises ``GateError`` where it does not load."""
        own = os.getpid()
        if own not in self._sessions:
            self._sessions[own] = open_session(self.path, PLAIN, torch.get_num_threads())
        return self._sessions[own]

    def feeds(self, arrays: Sequence[Array]) -> dict[str, Array]:
        """Return the arrays of the manifest's inputs by the graph's names."""
        return dict(zip(self.inputs.values(), arrays, strict=True))

    def forward(self, *tensors: torch.Tensor) -> dict[str, torch.Tensor]:
        """Run the file once; raises ``Refusal`` with ONNX Runtime's own sentence."""
        outputs = self.session.run(self.feeds([to_array(tensor) for tensor in tensors]))
        return {
            value.name: to_tensor(np.asarray(output))
            for value, output in zip(self.session.outputs, outputs, strict=True)
        }
