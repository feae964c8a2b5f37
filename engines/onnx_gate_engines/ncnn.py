"""ncnn (``pip install 'onnx-gate[ncnn]'``): the file is converted with ncnn's own ``pnnx``, then run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import EncodeError

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import (
    Array,
    Refusal,
    ValueInfo,
    contiguous,
    first_line,
    installed_version,
    package,
)
from onnx_gate.runtimes.declared import (
    handed_over_otherwise,
    lacking,
)
from onnx_gate_engines.converted import ConvertedSession, option
from onnx_gate_engines.native import stderr_and_stdout

# What pnnx calls the dtypes that ncnn computes with, and it takes no others: an integer's bits are
# read as those of a floating-point number there.
_DTYPES = {"float32": "f32", "float16": "f16", "float64": "f64"}
_FP16 = ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic")
_MOST_AXES = 4
# pnnx says only in the program that it writes which axis of a value is the batch, this for none.
_BATCH_AXIS = re.compile(
    r"ncnn\.Mat\((in\d+)\.numpy\(\), batch_index=(\d+)\)|(out\d+)\.numpy\(batch_index=(\d+)\)"
)
_NO_BATCH = 233
_NO_OPERATOR = re.compile(r"(\S+)\(-?\d+\) is not a registered function/op")
# What pnnx says of an operator before it goes on, and ends with status 0.
_NOT_CONVERTED = re.compile(r"^[a-z][^\n\[]* not supported(?: yet)?!?$", re.M)
_WHY = re.compile(r"^.*(?:fail|error|unsupported|not supported).*$", re.I | re.M)


class Ncnn:
    """``name: ncnn`` of a manifest."""

    isolated = True

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> NcnnSession:
        """Take ``model``; ``options`` may have ``fp16: true``, ncnn's shorter arithmetic."""
        ncnn = package(spec, "ncnn")
        fp16 = option(spec, "ncnn", "fp16", "fp16: true or false", False, (False, True))
        session = NcnnSession(model, spec, threads, ncnn, _converter(spec), fp16=fp16)
        session.start()
        return session

    def environment(self) -> dict[str, Any]:
        """Return the versions of the engine and of its converter."""
        return {**installed_version("ncnn"), **installed_version("pnnx")}


class NcnnSession(ConvertedSession[tuple[Any, dict[str, int]]]):
    """One model: its network for some sizes, and which axis of its values is the batch."""

    def __init__(
        self,
        model: Path,
        spec: RuntimeSpec,
        threads: int,
        ncnn: Any,
        converter: Path,
        *,
        fp16: bool,
    ) -> None:
        super().__init__(model, spec, threads, "ncnn")
        self._ncnn, self._converter, self._fp16 = ncnn, converter, fp16
        for value in (*self.inputs, *self.outputs):
            if value.dtype not in _DTYPES:
                raise codes.OG303.error(
                    f"{spec.label}: ncnn has floating-point numbers only, and {value.name} is "
                    f"{value.dtype}: export the part of the model that has no such inputs and outputs"
                )
        single = [value.name for value in self.inputs if not value.shape]
        if single:
            raise codes.OG303.error(
                f"{spec.label}: ncnn has no single numbers as inputs: give {single[0]} an axis of size 1"
            )
        self._batched: dict[str, None] = {}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Which values have another form in ncnn than in the file, and how it computes."""
        findings = handed_over_otherwise(
            "ncnn", (*self.inputs, *self.outputs), dict.fromkeys(_DTYPES, np.float32)
        )
        if self._batched:
            findings.append(
                codes.OG309.finding(
                    f"in ncnn the batch is no axis of an array but beside it: {', '.join(self._batched)} "
                    "were handed over so, and turned back for the comparison",
                    data={"batched": list(self._batched)},
                )
            )
        if self._fp16:
            findings.append(
                codes.OG309.finding(
                    "ncnn stores and computes in float16, as the manifest asks",
                    data={"precision": "fp16"},
                )
            )
        return tuple(findings)

    def answer(
        self, network: tuple[Any, dict[str, int]], feeds: Mapping[str, Array]
    ) -> Sequence[Array]:
        """Run once; raises ``Refusal`` where ncnn has no form of a value, or no answer."""
        loaded, batch_axes = network
        with loaded.create_extractor() as extractor:
            for index, value in enumerate(self.inputs):
                own = f"in{index}"
                array = contiguous(feeds[value.name].astype(np.float32))
                axes = array.ndim - (batch_axes[own] != _NO_BATCH)
                if axes > _MOST_AXES:
                    raise Refusal(f"{value.name} has {axes} axes, of which ncnn has {_MOST_AXES}")
                # Copied: ncnn writes over its inputs.
                extractor.input(own, self._ncnn.Mat(array, batch_index=batch_axes[own]).clone())
            return [
                self._output(extractor, f"out{index}", value, batch_axes)
                for index, value in enumerate(self.outputs)
            ]

    def convert(self, shapes: Mapping[str, Sequence[int]]) -> tuple[Any, dict[str, int]]:
        """Have pnnx write the file; raises ``GateError`` where it does not, or ncnn lacks an operator."""
        with tempfile.TemporaryDirectory(prefix="onnx-gate-ncnn-") as folder:
            batch_axes = self._write(Path(folder), [shapes[value.name] for value in self.inputs])
            network = self._load(Path(folder))
        own = {f"in{index}": value.name for index, value in enumerate(self.inputs)}
        own |= {f"out{index}": value.name for index, value in enumerate(self.outputs)}
        self._batched |= {own[name]: None for name, a in batch_axes.items() if a != _NO_BATCH}
        return network, batch_axes

    def _write(self, folder: Path, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """Write the file in ncnn's format into ``folder``; return the batch axis of its values."""
        # With its weights in itself, and where the converter may write beside it.
        try:
            onnx.save(onnx.load(str(self._model)), str(folder / "model.onnx"))
        except (EncodeError, ValueError) as error:
            raise codes.OG303.error(
                f"{self._spec.label}: pnnx takes one file with its weights, which has at most 2 GiB "
                f"({first_line(error)})"
            ) from error
        sizes = (
            f"[{','.join(map(str, shape))}]{_DTYPES[value.dtype]}"
            for value, shape in zip(self.inputs, shapes, strict=True)
        )
        done = subprocess.run(
            [str(self._converter), "model.onnx", f"inputshape={','.join(sizes)}", "fp16=0"],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": str(self._threads)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        program = folder / "model_ncnn.py"
        if done.returncode or not program.is_file():
            ended = f" ({signal.Signals(-done.returncode).name})" if done.returncode < 0 else ""
            raise self._error(f"pnnx does not convert the file{ended}", done.stdout)
        refused = _NOT_CONVERTED.findall(done.stdout)
        if refused:  # and written all the same, as something else
            raise self._error("pnnx does not convert all of the file", "\n".join(refused))
        return {
            name or output: int(axis or output_axis)
            for name, axis, output, output_axis in _BATCH_AXIS.findall(program.read_text())
        }

    def _load(self, folder: Path) -> Any:
        param, weights = folder / "model.ncnn.param", folder / "model.ncnn.bin"
        layers = {line.split()[0] for line in param.read_text().splitlines()[2:]}
        missing = {name for name in layers if self._ncnn.layer_to_index(name) < 0}
        lacks = lacking(self._spec, self._model, missing)
        if lacks:
            raise lacks
        network = self._ncnn.Net()
        network.opt.num_threads = self._threads
        for name in _FP16:
            setattr(network.opt, name, self._fp16)
        with stderr_and_stdout() as written:
            status = network.load_param(str(param)) or network.load_model(str(weights))
        if status:
            raise self._error("ncnn does not load what pnnx made", written())
        return network

    def _error(self, what: str, text: str) -> GateError:
        lines = _WHY.findall(text) or text.strip().splitlines() or ["it says nothing"]
        return lacking(self._spec, self._model, _NO_OPERATOR.findall(text)) or codes.OG303.error(
            f"{self._spec.label}: {what}: {lines[-1].strip()[:400]}"
        )

    def _output(
        self, extractor: Any, own: str, value: ValueInfo, batch_axes: Mapping[str, int]
    ) -> Array:
        status, mat = extractor.extract(own)
        if status or own not in batch_axes:
            raise Refusal(f"ncnn has no value for {value.name}")
        array = np.array(mat.numpy(batch_index=batch_axes[own])).astype(value.dtype)
        # It has no scalars.
        return array.reshape(()) if not value.shape and array.size == 1 else array


def _converter(spec: RuntimeSpec) -> Path:
    """Return pnnx's program; the command of that name would import torch to call it."""
    module = find_spec("pnnx")
    path = Path(module.origin).with_name("pnnx") if module and module.origin else None
    if path is None or not path.is_file():
        raise codes.OG302.error(
            f"{spec.label}: its converter is not installed: pip install 'onnx-gate[ncnn]'"
        )
    return path
