"""Run a folder in ONNX's own test layout: ``model.onnx`` and ``test_data_set_*/input_*.pb``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnx_gate.errors import GateError, UserError
from onnx_gate.findings.codes import code_of
from onnx_gate.manifest import Optimization, RuntimeSpec
from onnx_gate.numerics.compare import compare, scaled_error
from onnx_gate.numerics.precision import eps_of
from onnx_gate.runtimes.base import Array, Refusal, Session, first_line
from onnx_gate.runtimes.open import open_session
from onnx_gate.verify.judge.noise import FLOOR

MODEL = "model.onnx"
DATA_SET = "test_data_set_"
# One file of a data set; a model may be as large as it likes.
MOST_BYTES = 2**31

_NUMBERED = re.compile(r"(input|output)_(\d{1,6})\.pb")
_FLOATING = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Limits:
    """What is allowed between two floats, as ``numpy.allclose`` has it.

    Without either, ``auto``'s floor: a few units of rounding, relative to |e| + rms(e).
    """

    atol: float | None = None
    rtol: float | None = None


@dataclass(frozen=True)
class Replayed:
    """One output of one data set.

    ``error`` is the largest |a - e| / (|e| + rms(e)), at ``index``; infinite where NaN or an
    infinity stands on one side only. ``reason`` says why nothing could be compared; ``refused``
    that it is because the runtime raises.
    """

    data_set: str
    output: str
    agrees: bool
    error: float = 0.0
    index: tuple[int, ...] = ()
    expected: Any = None
    actual: Any = None
    reason: str = ""
    refused: bool = False

    def __str__(self) -> str:
        """Return a line for a person."""
        name = f"{self.data_set}  {self.output}"
        if self.reason:
            return f"{name}: {self.reason}"
        verdict = "agrees" if self.agrees else "differs"
        where = f" at {list(self.index)}" if self.index else ""
        values = f": {_shown(self.expected)} was expected, {_shown(self.actual)} came out"
        if not self.error:
            return f"{name}: {verdict}, without an error"
        return f"{name}: {verdict}{self._off()}{where}{values}"

    def _off(self) -> str:
        """Return the difference in the output's own unit, where it is a number."""
        if self.expected is None or not math.isfinite(self.error):
            return ""
        return f", error {abs(float(self.actual) - float(self.expected)):.2g}"


@dataclass(frozen=True)
class DataSet:
    """Inputs and outputs in the order of their numbers; names may be empty."""

    name: str
    inputs: tuple[tuple[str, Array], ...]
    outputs: tuple[tuple[str, Array], ...]


def replay(folder: Path, spec: RuntimeSpec, limits: Limits) -> tuple[Replayed, ...]:
    """Run every data set of ``folder`` and hold the outputs against the stored ones.

    Raises ``UserError`` where the folder cannot be read, or the runtime cannot be had. A runtime
    that refuses the model is a result.
    """
    path, _, data_sets = read_folder(folder)
    try:
        session = open_session(path, spec)
    except GateError as error:
        if not code_of(error.code).load_failure:
            raise
        return tuple(_refused(data.name, str(error)) for data in data_sets)
    try:
        return tuple(result for data in data_sets for result in _replay_one(session, data, limits))
    finally:
        session.close()


def replay_arguments(spec: RuntimeSpec) -> tuple[str, ...]:
    """Return the arguments of ``onnx-gate replay`` that mean this runtime."""
    given = spec.options if spec.engine.takes("options") else spec.session_options
    named = {
        "runtime": spec.name,
        "optimization": spec.optimization,
        "provider": spec.provider,
        "device": spec.device,
    }
    words = [word for key, value in named.items() if value for word in (f"--{key}", value)]
    return (*words, *(w for key in sorted(given) for w in ("--option", f"{key}={given[key]}")))


def runtime_of(
    name: str,
    optimization: Optimization | None,
    provider: str | None,
    device: str | None,
    options: Sequence[str],
) -> RuntimeSpec:
    """Return the runtime that arguments mean; raises ``UserError`` for options without a value."""
    given = parse_options(options)
    spec = RuntimeSpec(name, provider=provider, optimization=optimization, device=device)
    if spec.engine.takes("options"):
        return replace(spec, options=given)
    return replace(spec, session_options=given)


def read_folder(folder: Path) -> tuple[Path, onnx.ModelProto, tuple[DataSet, ...]]:
    """Return the model's path, its graph without the weights, and the data sets in order.

    Raises ``UserError`` with what is missing or broken.
    """
    path = folder / MODEL
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; name one that holds {MODEL}")
    if not path.is_file():
        raise UserError(f"{folder} holds no {MODEL}")
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        raise UserError(f"{path} is not an ONNX model: {first_line(error)}") from error
    for value in (*model.graph.input, *model.graph.output):
        kind = value.type.WhichOneof("value")
        if kind not in (None, "tensor_type"):
            raise UserError(
                f"{value.name} of {path} is a {kind.removesuffix('_type').replace('_', ' ')}; only "
                "tensors can be replayed"
            )
    folders = [f for f in folder.iterdir() if f.name.startswith(DATA_SET) and f.is_dir()]
    if not folders:
        raise UserError(f"{folder} holds no {DATA_SET}0 with inputs and outputs")
    ordered = sorted(folders, key=lambda f: (_number(f.name), f.name))
    return path, model, tuple(_data_set(f) for f in ordered)


def _data_set(folder: Path) -> DataSet:
    numbered: dict[str, dict[int, Path]] = {"input": {}, "output": {}}
    for file in folder.iterdir():
        number = _NUMBERED.fullmatch(file.name)
        if number:
            numbered[number[1]][int(number[2])] = file
    for kind, files in numbered.items():
        missing = [i for i in range(len(files)) if i not in files]
        if missing:
            raise UserError(f"{folder} has {len(files)} {kind}s and no {kind}_{missing[0]}.pb")
    if not numbered["output"]:
        raise UserError(f"{folder} holds no output_0.pb to compare with")
    inputs, outputs = (
        tuple(_tensor(files[i]) for i in range(len(files))) for files in numbered.values()
    )
    return DataSet(folder.name, inputs, outputs)


def _tensor(path: Path) -> tuple[str, Array]:
    proto = onnx.TensorProto()
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UserError(f"{path} is larger than {MOST_BYTES >> 30} GiB")
        proto.ParseFromString(path.read_bytes())
        if proto.data_location == onnx.TensorProto.EXTERNAL:
            raise UserError(f"{path} points at another file, which data sets may not")
        array = np.asarray(numpy_helper.to_array(proto))
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path} is not a tensor: {first_line(error)}") from error
    return proto.name, array


def _replay_one(session: Session, data: DataSet, limits: Limits) -> Iterator[Replayed]:
    feeds = _feeds(session, data)
    try:
        answers = [np.asarray(answer) for answer in session.run(feeds)]
    except Refusal as refusal:
        yield _refused(data.name, f"it refuses: {refusal}")
        return
    names = [value.name for value in session.outputs]
    if len(answers) != len(data.outputs):
        yield Replayed(
            data.name,
            "*",
            False,
            math.inf,
            reason=f"{len(answers)} outputs came out where {len(data.outputs)} are stored",
        )
        return
    stored = dict(data.outputs)
    by_name = len(stored) == len(names) and set(stored) == set(names)
    for name, answer, (_, array) in zip(names, answers, data.outputs, strict=True):
        yield _compare(data.name, name, answer, stored[name] if by_name else array, limits)


def _refused(data: str, reason: str) -> Replayed:
    return Replayed(data, "*", False, math.inf, reason=reason, refused=True)


def _feeds(session: Session, data: DataSet) -> Mapping[str, Array]:
    names = [value.name for value in session.inputs]
    given = dict(data.inputs)
    if len(given) == len(data.inputs) and set(given) == set(names):
        return given
    if len(data.inputs) != len(names):
        raise UserError(
            f"{data.name} has {len(data.inputs)} inputs and the model takes {len(names)}: "
            f"{', '.join(names)}"
        )
    return {name: array for name, (_, array) in zip(names, data.inputs, strict=True)}


def _compare(data: str, name: str, actual: Array, expected: Array, limits: Limits) -> Replayed:
    def differs(reason: str) -> Replayed:
        return Replayed(data, name, False, math.inf, reason=f"differs: {reason}")

    if actual.shape != expected.shape:
        return differs(f"shape {list(actual.shape)} where {list(expected.shape)} was expected")
    if actual.dtype.kind in "OSU" or expected.dtype.kind in "OSU":
        same = bool(np.array_equal(actual.astype(str), expected.astype(str)))
        return Replayed(data, name, True) if same else differs("the strings are others")
    if actual.dtype != expected.dtype:
        return differs(f"dtype {actual.dtype} where {expected.dtype} was expected")
    try:
        return _compare_numbers(data, name, actual, expected, limits)
    except TypeError as error:
        raise UserError(f"{name} cannot be compared: {first_line(error)}") from error


def _compare_numbers(
    data: str, name: str, actual: Array, expected: Array, limits: Limits
) -> Replayed:
    own = limits.atol is not None or limits.rtol is not None
    comparison = compare(actual, expected, atol=limits.atol or 0.0, rtol=limits.rtol or 0.0)
    scaled = scaled_error(actual, expected, comparison.expected_rms or 1.0)
    error, flat = scaled.max, scaled.index
    if comparison.nonfinite:
        error, flat = math.inf, comparison.nonfinite_index
    floating = expected.dtype.name in _FLOATING
    floor = FLOOR[expected.dtype.name] * eps_of(expected.dtype) if floating else 0.0
    index = np.unravel_index(max(flat, 0), expected.shape) if expected.size else ()
    at = tuple(int(i) for i in index)
    return Replayed(
        data,
        name,
        agrees=not comparison.exceeding if own else error <= floor,
        error=error,
        index=at,
        expected=expected[at].item() if expected.size else None,
        actual=actual[at].item() if expected.size else None,
    )


def _number(name: str) -> int:
    digits = name.removeprefix(DATA_SET)
    return int(digits) if digits.isdecimal() and len(digits) < 10 else 2**31


def _shown(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def parse_options(texts: Sequence[str]) -> dict[str, str]:
    """Return ``KEY=VALUE`` texts as a mapping; raises ``UserError`` for any other text."""
    options: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UserError(f"--option takes KEY=VALUE, not {text!r}")
        options[key] = value
    return options
