"""What a case is, and how it becomes a diverged check."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from torch import nn

from onnx_gate.manifest import ExportSpec, InputSpec, ModelSpec, RuntimeSpec
from onnx_gate.numerics.scaled import scale_error
from onnx_gate.report.model import Check
from onnx_gate.runtimes.torch_eager import Eager, seed_everything
from onnx_gate.verify.export.export import export
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.inspect.inspect import join_inputs
from onnx_gate.verify.subject import Subject

from . import graphs

HERE = Path(__file__).resolve().parent
Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]

# Names of the outputs where there are several.
OUTPUTS: Mapping[str, tuple[str, ...]] = {
    "Encoder": ("hidden", "logits"),
    "Gru": ("states", "last"),
    "Retrieval": ("best", "places", "chosen"),
    "Parts": ("scaled", "next"),
    "Detector": ("corners", "score"),
}
# How a case's file comes to be. All but the first three are committed files: exported once, then
# changed, and known to the gate as files only.
FORMS = ("dynamo", "torchscript", "custom", "names", "renamed", "converted", "traced")


@dataclass(frozen=True)
class Draw:
    """An input: its shape, the case's seed, and a range for integers."""

    shape: tuple[int, ...]
    high: int | None = None
    low: int = 0
    scale: float = 1.0

    def array(self, seed: int) -> Array:
        random = np.random.default_rng(seed)
        if self.high is not None:
            return random.integers(self.low, self.high, self.shape)
        return (random.standard_normal(self.shape) * self.scale).astype(np.float32)


@dataclass(frozen=True)
class DivergingCase:
    """An export that diverges from its module, and what a diagnosis has to say of it.

    ``guilty_op`` are the acceptable types of the first-named operator, ``module`` is the path of
    its module (``None``: not asked), ``line`` a piece of the user's line that has to be named
    (empty: not asked), ``blame`` the verdict.
    """

    name: str
    model: str
    form: str
    inputs: Mapping[str, Draw]
    seed: graphs.Seed
    guilty_op: frozenset[str]
    module: str | None
    blame: str
    line: str = ""
    exporter: str = ""
    change: Callable[[Arrays], None] | None = None
    example: Mapping[str, Draw] | None = None
    opset: int | None = None

    def build(self) -> tuple[nn.Module, Arrays]:
        """The module in ``eval()`` mode and the case's inputs."""
        sys.path[:0] = [] if str(HERE) in sys.path else [str(HERE)]
        import models  # type: ignore[import-not-found]  # as the worker imports a user's file

        arrays = {name: draw.array(7 + i) for i, (name, draw) in enumerate(self.inputs.items())}
        if self.change is not None:
            self.change(arrays)
        return models.build(self.model), arrays

    def make(self, folder: Path, check: bool = True) -> Subject:
        """Export, seed the fault and find the output that diverges most.

        Without ``check`` none need diverge.
        """
        folder.mkdir(parents=True, exist_ok=True)
        module, arrays = self.build()
        spec = self.spec()
        eager = Eager(module, tuple(spec.inputs))
        exported = self._exported(spec, eager, folder)
        joined = join_inputs(spec, exported)
        output = worst_output(eager, exported, joined, arrays) if check else 0
        runtime = RuntimeSpec("onnxruntime")
        made = Check(
            runtime=runtime.label,
            suite="typical",
            case="typical/0",
            output=str(output),
            verdict="diverged",
        )
        return Subject(
            spec=spec,
            eager=eager,
            exported=exported,
            graph_inputs=joined,
            arrays=arrays,
            output=output,
            runtime=runtime,
            check=made,
            workspace=HERE,
            folder=folder / "scratch",
            repro=folder / "repro",
            memory=2**30,
        )

    def spec(self) -> ModelSpec:
        """The entry of a manifest that this case would be."""
        inputs = {
            name: InputSpec(
                "float32" if draw.high is None else "int64",
                draw.shape,
                None if draw.high is None else (draw.low, draw.high - 1),
            )
            for name, draw in self.inputs.items()
        }
        exporter = {"dynamo": "dynamo", "torchscript": "torchscript", "custom": self.exporter}.get(
            self.form, "torchscript" if self.form == "traced" else "dynamo"
        )
        return ModelSpec(
            name=self.name,
            model=f"models.py:{self.model}",
            inputs=inputs,
            outputs=dict.fromkeys(OUTPUTS[self.model]) if self.model in OUTPUTS else None,
            export=ExportSpec(exporter, self.opset),
        )

    def _exported(self, spec: ModelSpec, eager: Eager, folder: Path) -> Exported:
        seed_everything(0)
        draws = self.example or self.inputs
        example = {name: draw.array(100 + i) for i, (name, draw) in enumerate(draws.items())}
        exported = export(spec, eager, example, HERE, folder)
        proto = onnx.load(str(exported.path))
        if self.form in ("names", "renamed", "converted", "traced"):
            graphs.strip(proto)
        self.seed(proto)
        if self.form == "converted":
            graphs.strip(proto)
            proto = onnx.version_converter.convert_version(proto, 21)
        if self.form in ("renamed", "traced"):
            graphs.rename(proto)
        onnx.save(proto, str(exported.path))
        proto = onnx.load(str(exported.path), load_external_data=False)
        if self.form in ("dynamo", "torchscript", "custom"):
            return dataclasses.replace(exported, proto=proto)
        return Exported(exported.path, "file", proto)


def worst_output(
    eager: Eager,
    exported: Exported,
    joined: Mapping[str, str],
    arrays: Arrays,
    least: float = 5e-6,
) -> int:
    """The place of the output that is furthest from PyTorch; raises where none is far."""
    with torch.no_grad():
        expected = eager.run(arrays).arrays
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(exported.path), options)
    try:
        actual = session.run(None, {joined[name]: array for name, array in arrays.items()})
    except Exception:
        return 0
    errors = [scale_error(a, e) for a, e in zip(actual, expected, strict=True)]
    if not max(errors) >= least:
        raise AssertionError(f"the case does not diverge: {errors}")
    return int(np.argmax(errors))
