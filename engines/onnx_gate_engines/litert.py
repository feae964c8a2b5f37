"""LiteRT, once TensorFlow Lite (``pip install 'onnx-gate[litert]'``), by way of ``onnx2tf``.

The converter pins old versions of NumPy and ONNX, so it lives in an environment of its own, and is
called as a program.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array, Refusal, ValueInfo, installed_version, package
from onnx_gate.runtimes.declared import (
    lacking,
)
from onnx_gate_engines.converted import ConvertedSession, option

_CONVERTER = "onnx2tf"
_SIGNATURE = "serving_default"
# What TensorFlow adds to the name of a value where it is a tensor.
_TENSOR = re.compile(r"^serving_default_|:\d+$")
# What it tries models of images with, and downloads where the working directory does not have it.
_SAMPLES = "calibration_image_sample_data_20x128x128x3_float32.npy"
_SAMPLES_OF = (20, 128, 128, 3)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_NO_OPERATOR = re.compile(r"ERROR:\s*(\w+) OP is not yet implemented")
_AT_OPERATOR = re.compile(r"onnx_op_name: (\S+)")
_FLEX = re.compile(r"Node number \d+ \(Flex(\w+)\)")
_ERROR = re.compile(r"^(?:ERROR:\s*|\w*Error: )(.+)$", re.M)


class LiteRt:
    """``name: litert`` of a manifest."""

    isolated = True

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> LiteRtSession:
        """Take ``model``; ``options`` may have the ``converter``, the path of ``onnx2tf``."""
        interpreter = package(spec, "ai_edge_litert.interpreter")
        named = str(option(spec, "litert", "converter", "converter", _CONVERTER))
        converter = shutil.which(named)
        if converter is None:
            raise codes.OG302.error(
                f"{spec.label}: the converter {named!r} is not there: python -m venv .onnx2tf && "
                ".onnx2tf/bin/pip install onnx2tf ai-edge-litert, then options: {converter: "
                ".onnx2tf/bin/onnx2tf}"
            )
        converter = str(Path(converter).absolute())
        session = LiteRtSession(model, spec, threads, converter, interpreter)
        session.start()
        return session

    def environment(self) -> dict[str, Any]:
        """Return the version of the interpreter."""
        return installed_version("ai-edge-litert")


class LiteRtSession(ConvertedSession[Any]):
    """One model: what runs it at some sizes."""

    def __init__(
        self, model: Path, spec: RuntimeSpec, threads: int, converter: str, interpreter: Any
    ) -> None:
        super().__init__(model, spec, threads, "LiteRT")
        self._converter, self._interpreter = converter, interpreter
        self._turned: dict[str, bool] = {}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Which inputs and outputs have their channels last in the converted file."""
        turned = [name for name, is_turned in self._turned.items() if is_turned]
        if not turned:
            return ()
        return (
            codes.OG309.finding(
                f"onnx2tf puts the channels last: {', '.join(turned)} of the .tflite file have another "
                "layout than in the ONNX file, which was turned back for the comparison",
                data={"turned": turned},
            ),
        )

    def answer(self, network: Any, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Run once; raises ``Refusal`` with LiteRT's own sentence."""
        given = {}
        details = {
            _letters(name): (name, each) for name, each in network.get_input_details().items()
        }
        for name, array in feeds.items():
            key, own = details[_letters(name)]
            turned = self._is_turned(name, array.shape, tuple(map(int, own["shape"])), least=3)
            given[key] = np.ascontiguousarray(
                (np.moveaxis(array, 1, -1) if turned else array).astype(own["dtype"])
            )
        try:
            results = network(**given)
        except (RuntimeError, ValueError) as error:
            raise Refusal(_last_line(str(error))) from error
        return [self._output(value, feeds, results) for value in self.outputs]

    def convert(self, shapes: Mapping[str, Sequence[int]]) -> Any:
        """Have onnx2tf write the file and load it."""
        content = self._converted(shapes)
        try:
            interpreter = self._interpreter.Interpreter(
                model_content=content, num_threads=self._threads
            )
            interpreter.allocate_tensors()
            if _SIGNATURE in interpreter.get_signature_list():
                return interpreter.get_signature_runner(_SIGNATURE)
            return _Unsigned(interpreter, self._spec, self.inputs, self.outputs)
        except (RuntimeError, ValueError) as error:
            raise lacking(self._spec, self._model, set(_FLEX.findall(str(error)))) or (
                codes.OG303.error(f"{self._spec.label}: {_last_line(str(error))}")
            ) from error

    def _converted(self, shapes: Mapping[str, Sequence[Any]]) -> bytes:
        with tempfile.TemporaryDirectory(prefix="onnx-gate-litert-") as folder:
            sizes = [
                f"{name}:{','.join(map(str, shape))}" for name, shape in shapes.items() if shape
            ]
            command = [self._converter, "-i", str(self._model), "-o", folder, "-n", "-osd"]
            np.save(
                Path(folder, _SAMPLES), np.random.default_rng(0).random(_SAMPLES_OF, np.float32)
            )
            # It calls programs that were installed with it, and converts less where it lacks them.
            own = Path(self._converter).resolve().parent
            done = subprocess.run(
                [*command, *(["-ois", *sizes] if sizes else [])],
                cwd=folder,
                env={**os.environ, "PATH": os.pathsep.join((str(own), os.environ.get("PATH", "")))},
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            files = sorted(Path(folder).glob("*_float32.tflite"))
            if done.returncode == 0 and files:
                return files[0].read_bytes()
        text = _COLOURS.sub("", done.stdout + done.stderr)
        errors = _ERROR.findall(text)
        at = _AT_OPERATOR.search(text)
        where = f" at the node {at[1]!r}" if at else ""
        raise lacking(self._spec, self._model, set(_NO_OPERATOR.findall(text))) or (
            codes.OG303.error(
                f"{self._spec.label}: onnx2tf does not convert the file{where}: "
                f"{(errors or [_last_line(text)])[-1][:400]}"
            )
        )

    def _output(
        self, value: ValueInfo, feeds: Mapping[str, Array], results: Mapping[str, Array]
    ) -> Array:
        by_letters = {_letters(name): array for name, array in results.items()}
        array = np.array(by_letters[_letters(value.name)])
        sizes = {
            size: actual
            for each in self.inputs
            for size, actual in zip(each.shape, feeds[each.name].shape, strict=True)
        }
        shape = tuple(sizes.get(size, size) for size in value.shape)
        if self._is_turned(value.name, shape, array.shape, least=4):
            array = np.moveaxis(array, -1, 1)
        return array.astype(value.dtype)

    def _is_turned(
        self, name: str, shape: tuple[Any, ...], own: tuple[int, ...], *, least: int
    ) -> bool:
        """Return whether the channels of a value of this ``shape`` are last in the converted file.

        ``own`` is its shape there. Where the sizes do not tell, it is as it was at others, or else
        as the converter does it with values of at least ``least`` axes.
        """
        if len(own) < 3 or len(own) != len(shape):
            return False
        plain, last = _fits(own, shape), _fits(own, (shape[0], *shape[2:], shape[1]))
        if plain != last:
            self._turned[name] = last
        return self._turned.setdefault(name, len(own) >= least)


class _Unsigned:
    """Runs a file without a signature, which some converters leave out, as one that has it.

    Its inputs and outputs are known by the names of their tensors; a single one needs none. Raises
    ``GateError`` (OG303) where they have others than in the ONNX file.
    """

    def __init__(
        self,
        interpreter: Any,
        spec: RuntimeSpec,
        inputs: Sequence[ValueInfo],
        outputs: Sequence[ValueInfo],
    ) -> None:
        self._interpreter = interpreter
        self._inputs = _by_name(interpreter.get_input_details(), inputs, spec)
        self._outputs = _by_name(interpreter.get_output_details(), outputs, spec)

    def get_input_details(self) -> dict[str, Any]:
        """Return what is known of each input, by its name in the ONNX file."""
        return self._inputs

    def __call__(self, **given: Array) -> dict[str, Array]:
        """Return the outputs by their names in the ONNX file."""
        for name, array in given.items():
            self._interpreter.set_tensor(self._inputs[name]["index"], array)
        self._interpreter.invoke()
        return {
            name: self._interpreter.get_tensor(each["index"])
            for name, each in self._outputs.items()
        }


def _by_name(
    details: Sequence[Mapping[str, Any]], values: Sequence[ValueInfo], spec: RuntimeSpec
) -> dict[str, Any]:
    if len(details) == len(values) == 1:
        return {values[0].name: details[0]}
    named = {_letters(_TENSOR.sub("", each["name"])): each for each in details}
    missing = [value.name for value in values if _letters(value.name) not in named]
    if missing or len(named) != len(values):
        raise codes.OG303.error(
            f"{spec.label}: the converted file has no signature, and its tensors "
            f"{', '.join(each['name'] for each in details)} do not say which is {missing[0]}"
            if missing
            else f"{spec.label}: the converted file has no signature, and {len(details)} values where "
            f"the ONNX file has {len(values)}"
        )
    return {value.name: named[_letters(value.name)] for value in values}


def _fits(own: tuple[int, ...], shape: tuple[Any, ...]) -> bool:
    """Return whether a shape is this one, as far as its sizes are known."""
    return all(a == b for a, b in zip(own, shape, strict=True) if isinstance(b, int))


def _letters(name: str) -> str:
    """Return what is left of a name in a signature, which has letters, digits and ``_`` only."""
    return re.sub(r"\W", "_", name)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:400] if lines else "it says nothing"
