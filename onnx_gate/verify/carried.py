"""What PyTorch said of one case in a file that another machine reads: arrays, and no pickle.

A run with moved rounding differs from PyTorch's answer in its last bits. So what has the form of
another array is stored as the bits in which it differs, byte by byte of all elements, which a
compressed file holds in little more than a byte for each. The arrays of a case are an ``.npz``.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from pydantic import Field

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Frozen
from onnx_gate.report.model import OpenCause
from onnx_gate.runtimes.base import Array, Outputs, Refusal, first_line
from onnx_gate.verify.compared import Asked
from onnx_gate.verify.context import Reduced
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.judge.judgement import is_floating
from onnx_gate.verify.judge.noise import AGAIN, GROUPS
from onnx_gate.verify.judge.where import Selection
from onnx_gate.verify.reference.answers import (
    CaseAnswers,
    IndexSource,
    OtherAnswer,
    Reference,
    Searched,
)

INDEX = "answers.json"
SCHEMA = 3
# What of a compressed array is read at most, for each of its bytes in the file: deflate makes no more
# than 1032 of one (zlib.net/zlib_tech.html), and the archive names its arrays.
_MOST_INFLATED = 1100
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class CarriedOther(Frozen):
    """One of PyTorch's other answers: why there is one, and how many runs moved its rounding."""

    cause: OpenCause
    moved: int


class CarriedIndex(Frozen):
    """What an integer output points into, but for its arrays; ``moved`` is a number of runs."""

    axis: int | None
    shape: tuple[int, ...]
    distinct: bool
    promises_first: bool
    moved: int


class CarriedCase(Frozen):
    """One case, or a later ``step`` of the case before it, which counts from 1.

    ``inputs`` and ``outputs`` are dtypes by name, ``file`` holds the arrays.

    ``selected`` are the masks that outputs are judged by. ``runs`` is how many runs had their rounding
    moved, ``replays`` how often the last operators alone. ``refusal`` is PyTorch's, which then
    has no outputs.
    """

    id: str
    step: int = 1
    suite: str
    kind: str
    edge: str = ""
    sizes: dict[str, int] = {}
    named: bool = True
    sized: bool = True
    steps: int = 0
    file: str
    inputs: dict[str, str]
    outputs: dict[str, str] = {}
    refusal: str | None = None
    slow: bool = False
    selected: tuple[str | None, ...] = ()
    runs: int = 0
    replays: int = 0
    others: tuple[CarriedOther, ...] = ()
    searched: dict[str, CarriedIndex] = {}


class CarriedModel(Frozen):
    """One model: its file with external data, and the cases that PyTorch was asked about.

    ``files`` are digests (SHA-256) of all files of the folder but this one. ``inputs`` maps the
    manifest's inputs to the graph's. ``left_out`` are the cases that would not have fitted, or their
    last steps, ``whole`` says that there are none, and that all were tried.
    """

    schema_version: int = Field(default=SCHEMA, alias="schema")
    model: str
    file: str
    files: dict[str, str]
    inputs: dict[str, str]
    outputs: tuple[str, ...]
    reduced: Reduced | None = None
    cases: tuple[CarriedCase, ...]
    left_out: tuple[str, ...] = ()
    whole: bool = True


@dataclass(frozen=True)
class CarriedOutput(Reference):
    """One output, as the judge asks about it."""

    in_float64: Array | None = None
    samples: tuple[Array, ...] = ()
    again: tuple[Array, ...] = ()
    otherwise: tuple[Array, ...] = ()
    others: tuple[OtherAnswer, ...] = ()
    source: Searched | None = None

    def float64(self) -> Array | None:
        """Return the output in float64, where PyTorch could be asked."""
        return self.in_float64

    def rounding(self, count: int) -> Sequence[Array]:
        """Return the runs with moved rounding: as many as PyTorch would have made by then."""
        return self.samples[:count]

    def replayed(self, count: int) -> Sequence[Array]:
        """Return up to ``count`` more of the first run."""
        return self.again[:count]

    def reshaped(self) -> Sequence[Array]:
        """Return the runs in which rounding decides another shape."""
        return self.otherwise

    def variants(self) -> Sequence[OtherAnswer]:
        """Return PyTorch's other answers."""
        return self.others

    def searched(self) -> Searched | None:
        """Return what the output points into."""
        return self.source


@dataclass(frozen=True)
class CarriedAnswers:
    """What PyTorch said of one case."""

    outputs: Outputs
    each: tuple[CarriedOutput, ...] = field(repr=False, default=())
    stepped: ClassVar[bool] = False
    rewritten: ClassVar[Mapping[str, str]] = {}

    def output(self, index: int) -> CarriedOutput:
        """Return what can be asked about one output."""
        return self.each[index]


def packed(case: Case, asked: Asked[Any], file: str, step: int = 1) -> tuple[CarriedCase, bytes]:
    """Return a case with all that PyTorch can be asked about it; PyTorch is asked here."""
    arrays = {f"in.{n}": _bits(array) for n, array in enumerate(case.arrays.values())}
    about = CarriedCase(
        id=case.id,
        step=step,
        suite=case.suite,
        kind=case.kind,
        edge=case.edge,
        sizes=dict(case.sizes),
        named=case.named,
        sized=case.sized,
        steps=case.steps,
        file=file,
        inputs={name: array.dtype.name for name, array in case.arrays.items()},
        refusal=None if asked.refusal is None else str(asked.refusal),
    )
    if asked.reference is not None:
        about = about.model_copy(update=_answers(asked.reference, asked, arrays))
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays)
    return about, stream.getvalue()


def _answers(
    reference: CaseAnswers, asked: Asked[Any], arrays: dict[str, Array]
) -> dict[str, object]:
    """Put what PyTorch says into ``arrays`` and return what says how to read it."""
    names, own = reference.outputs.names, reference.outputs.arrays
    runs: list[int] = []
    replays: list[int] = []
    others: dict[int, CarriedOther] = {}
    searched: dict[str, CarriedIndex] = {}
    for n, (name, array) in enumerate(zip(names, own, strict=True)):
        arrays[f"out.{n}"] = _bits(array)
        selection = asked.selected[n]
        if selection is not None:
            arrays[f"mask.{n}"] = selection.positions
        if array.dtype.kind in "OSU":
            continue
        answers = reference.output(n)
        r = answers.float64() if is_floating(array.dtype) else None
        if r is not None:
            _put(arrays, f"float64.{n}", r, array.astype(np.float64))
        samples = [*answers.rounding(GROUPS[-1]), *answers.reshaped()]
        runs.append(len(samples))
        for s, run in enumerate(samples):
            _put(arrays, f"run.{n}.{s}", run, array)
        again = answers.replayed(AGAIN[-1])
        replays.append(len(again))
        for s, run in enumerate(again):
            _put(arrays, f"again.{n}.{s}", run, array)
        for v, other in enumerate(answers.variants()):
            others[v] = CarriedOther(cause=other.cause, moved=len(other.moved))
            _put(arrays, f"other.{n}.{v}", other.array, array)
            for s, run in enumerate(other.moved):
                _put(arrays, f"other.{n}.{v}.{s}", run, other.array)
        found = answers.searched() if array.dtype.kind in "iu" else None
        # What is computed of an index goes without: it is judged by the runs.
        if found is not None and found.own.derived is None:
            source = found.own
            searched[name] = CarriedIndex(
                axis=source.axis,
                shape=source.index_shape,
                distinct=source.distinct,
                promises_first=source.promises_first,
                moved=len(found.moved),
            )
            arrays[f"slots.{n}"] = source.slots
            arrays[f"values.{n}.dtype"] = np.array(source.values.dtype.name)
            arrays[f"values.{n}"] = _bits(source.values)
            for s, each in enumerate(found.moved):
                _put(arrays, f"values.{n}.{s}", each.values, source.values)
    return {
        "outputs": {name: array.dtype.name for name, array in zip(names, own, strict=True)},
        "slow": asked.slow,
        "selected": tuple(s.name if s is not None else None for s in asked.selected),
        "runs": max(runs, default=0),
        "replays": max(replays, default=0),
        "others": tuple(others[v] for v in sorted(others)),
        "searched": searched,
    }


def unpacked(about: CarriedCase, path: Path) -> tuple[Case, Asked[CarriedAnswers]]:
    """Return a case as it was written; raises ``GateError`` (OG431) where its file is broken."""
    try:
        with zipfile.ZipFile(path) as archive:
            inflated = sum(entry.file_size for entry in archive.infolist())
        if inflated > _MOST_INFLATED * path.stat().st_size:
            raise ValueError("it holds more than a compressed file of its size can")
        with np.load(path, allow_pickle=False) as arrays:
            return _read(about, arrays)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise codes.OG431.error(
            f"{path}: the answers of {about.id} cannot be read: {first_line(error)}; "
            "write them again: onnx-gate run --answers DIR"
        ) from error


def _read(about: CarriedCase, arrays: Mapping[str, Array]) -> tuple[Case, Asked[CarriedAnswers]]:
    case = Case(
        suite=about.suite,
        id=about.id,
        kind=about.kind,
        arrays={
            name: _of_bits(arrays[f"in.{n}"], dtype)
            for n, (name, dtype) in enumerate(about.inputs.items())
        },
        sizes=about.sizes,
        edge=about.edge,
        named=about.named,
        sized=about.sized,
        steps=about.steps,
    )
    if about.refusal is not None:
        return case, Asked(None, Refusal(about.refusal))
    own = tuple(
        _of_bits(arrays[f"out.{n}"], dtype) for n, dtype in enumerate(about.outputs.values())
    )
    selected = tuple(
        None if name is None else Selection(name, arrays[f"mask.{n}"])
        for n, name in enumerate(about.selected)
    )
    each = tuple(_output(about, n, name, own[n], arrays) for n, name in enumerate(about.outputs))
    answers = CarriedAnswers(Outputs(tuple(about.outputs), own), each)
    return case, Asked(answers, None, about.slow, selected)


def _output(
    about: CarriedCase, n: int, name: str, own: Array, arrays: Mapping[str, Array]
) -> CarriedOutput:
    if own.dtype.kind in "OSU":
        return CarriedOutput()
    others = []
    for v, other in enumerate(about.others):
        array = _get(arrays, f"other.{n}.{v}", own)
        if array is not None:
            runs = (_get(arrays, f"other.{n}.{v}.{s}", array) for s in range(other.moved))
            others.append(OtherAnswer(other.cause, array, tuple(r for r in runs if r is not None)))
    made = (_get(arrays, f"run.{n}.{s}", own) for s in range(about.runs))
    samples = [run for run in made if run is not None]
    again = (_get(arrays, f"again.{n}.{s}", own) for s in range(about.replays))
    return CarriedOutput(
        _get(arrays, f"float64.{n}", own.astype(np.float64)) if is_floating(own.dtype) else None,
        tuple(run for run in samples if run.shape == own.shape),
        tuple(run for run in again if run is not None),
        tuple(run for run in samples if run.shape != own.shape),
        tuple(others),
        _searched(about.searched[name], n, arrays) if name in about.searched else None,
    )


def _searched(about: CarriedIndex, n: int, arrays: Mapping[str, Array]) -> Searched:
    values = _of_bits(arrays[f"values.{n}"], str(arrays[f"values.{n}.dtype"]))
    source = IndexSource(
        values, about.axis, arrays[f"slots.{n}"], about.shape, about.distinct, about.promises_first
    )
    moved = (_get(arrays, f"values.{n}.{s}", values) for s in range(about.moved))
    return Searched(source, tuple(replace(source, values=v) for v in moved if v is not None))


def _put(arrays: dict[str, Array], key: str, array: Array, base: Array) -> None:
    """Store an array, as what it differs by from ``base`` where both have one form."""
    if array.shape != base.shape or array.dtype != base.dtype:
        arrays[key] = _bits(array)
        return
    differs = np.bitwise_xor(_bits(array), _bits(base)).reshape(-1)
    planes = differs.view(np.uint8).reshape(-1, differs.itemsize).T
    arrays[f"{key}^"] = np.ascontiguousarray(planes)


def _get(arrays: Mapping[str, Array], key: str, base: Array) -> Array | None:
    if f"{key}^" in arrays:
        planes = np.ascontiguousarray(arrays[f"{key}^"].T)
        bits = _bits(base)
        return _of_bits(
            np.bitwise_xor(planes.reshape(-1).view(bits.dtype).reshape(bits.shape), bits),
            base.dtype.name,
        )
    # Of another shape, and of the same dtype: a run of the same output.
    return _of_bits(arrays[key], base.dtype.name) if key in arrays else None


def _bits(array: Array) -> Array:
    """Return what any NumPy reads without a pickle: unsigned integers, and text."""
    if array.dtype.kind in "OSU":
        return array.astype(np.str_)
    array = np.ascontiguousarray(array).reshape(array.shape)
    return array.view(_BITS[array.dtype.itemsize]) if array.ndim else _scalar(array)


def _scalar(array: Array) -> Array:
    return array.reshape(1).view(_BITS[array.dtype.itemsize]).reshape(())


def _of_bits(bits: Array, dtype: str) -> Array:
    if bits.dtype.kind == "U":
        return bits.astype(object) if dtype == "object" else bits
    known = np.dtype(getattr(ml_dtypes, dtype) if hasattr(ml_dtypes, dtype) else dtype)
    array: Array = bits.reshape(bits.shape or (1,)).view(known).reshape(bits.shape)
    return array
