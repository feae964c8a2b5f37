"""A diverged check, as the gate would hand it to the diagnosis, of any small module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch.nn.functional as F
from torch import Tensor, nn

from onnx_gate.manifest import ExportSpec, InputSpec, ModelSpec, RuntimeSpec
from onnx_gate.report.model import Check
from onnx_gate.runtimes.torch_eager import Eager, to_tensor
from onnx_gate.verify.export.export import export
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.inputs.example import examples
from onnx_gate.verify.inspect.inspect import join_inputs
from onnx_gate.verify.subject import Subject

ORT = RuntimeSpec("onnxruntime")


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Of(nn.Module):
    """A module around a function of one tensor."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def make(
    folder: Path,
    module: nn.Module,
    x: np.ndarray,
    *,
    shape: tuple[int | str, ...] | None = None,
    exporter: str | Callable[[nn.Module, Tensor, Path], None] = "dynamo",
    file: Path | None = None,
    runtime: RuntimeSpec = ORT,
    **spec_values: Any,
) -> Subject:
    """A diverged check of ``module`` on ``x``, exported (or not) as a manifest would have it."""
    module.eval()
    shape = shape or x.shape
    spec = ModelSpec(
        name="model",
        model="nowhere.py:Model",
        inputs={"x": InputSpec(str(x.dtype), shape)},
        dims={d: (1, 2, 7) for d in shape if isinstance(d, str)},
        export=ExportSpec(exporter if isinstance(exporter, str) else "mine:export"),
        **spec_values,
    )
    eager = Eager(module, ("x",))
    _, arrays = next(examples(spec, folder))
    path = folder / "model.onnx"
    if file is not None:
        exported = Exported(file, "file", onnx.load(str(file)))
    elif isinstance(exporter, str):
        exported = export(spec, eager, arrays, folder, folder)
    else:
        exporter(module, to_tensor(arrays["x"]), path)
        exported = Exported(path, "mine:export", onnx.load(str(path)))
    return Subject(
        spec=spec,
        eager=eager,
        exported=exported,
        graph_inputs=join_inputs(spec, exported),
        arrays={"x": x},
        output=0,
        runtime=runtime,
        check=Check(
            runtime=runtime.label,
            suite="typical",
            case="typical/0",
            output="output",
            verdict="diverged",
        ),
        workspace=folder,
        folder=folder / "scratch",
        repro=folder / "repro",
        memory=2**30,
    )


def padded(x: Tensor) -> Tensor:
    return F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 2)
