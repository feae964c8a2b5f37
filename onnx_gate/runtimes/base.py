"""What every engine looks like to the gate: a runtime opens a model, a session answers feeds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from onnx_gate.findings import codes
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.text import shortened

Array = npt.NDArray[Any]


class Refusal(Exception):
    """An engine will not run this model on these inputs; the message is its own, shortened.

    ``data`` holds as values what the message says: ``input``, ``axis`` and ``expected`` of a size
    that the graph does not take; ``op_type``, ``node`` and ``words`` of a node that gave up, with
    ``index``, ``low`` and ``high`` where it was given an index that is out of bounds, and ``sizes``
    where the words are about sizes; the ``operator`` and ``dtypes`` of a ``node`` that no kernel is
    for, whatever the inputs.
    """

    def __init__(self, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.data: Mapping[str, Any] = data or {}


@dataclass(frozen=True)
class ValueInfo:
    """An input or output as an engine declares it: NumPy dtype name, sizes or names of sizes."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]


@dataclass(frozen=True)
class Outputs:
    """The flattened outputs of one call: ``arrays[i]`` is called ``names[i]``."""

    names: tuple[str, ...]
    arrays: tuple[Array, ...]

    @property
    def finite(self) -> bool:
        """Whether all floating-point numbers are."""
        return not self.endless

    @property
    def endless(self) -> frozenset[str]:
        """The names of those with NaN or infinity."""
        return frozenset(
            name
            for name, array in zip(self.names, self.arrays, strict=True)
            if array.dtype.kind in "fV" and not np.isfinite(array.astype(np.float64)).all()
        )

    def without(self, names: Collection[str]) -> Outputs:
        """Return these outputs but those of the given names."""
        kept = [(n, a) for n, a in zip(self.names, self.arrays, strict=True) if n not in names]
        return Outputs(tuple(name for name, _ in kept), tuple(array for _, array in kept))


class Session(Protocol):
    """A model loaded into an engine.

    A session may have ``findings`` besides, a tuple of what its engine says of the way it runs the
    model: nodes that went elsewhere, inputs whose layout it turns. They are read before ``close``.
    """

    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Return the outputs in the model's order.

        Raises ``Refusal`` where the engine refuses these inputs, and ``GateError`` where it can
        answer nothing any more, as one whose process has ended.
        """
        ...

    def close(self) -> None:
        """Give back what the session holds."""
        ...


class Runtime(Protocol):
    """An engine, registered under its name in the group ``onnx_gate.runtimes``.

    One whose class says ``isolated = True`` is opened and run in a process of its own: an engine
    whose crash would take the model's process along, or whose threads do not survive a fork.
    """

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> Session:
        """Load ``model``.

        Raises ``GateError`` of kind ``runtime`` where the engine cannot load it, and where the
        execution provider that was asked for would not run it.
        """
        ...

    def environment(self) -> dict[str, Any]:
        """Versions and devices, for the report."""
        ...


def package(spec: RuntimeSpec, module: str) -> Any:
    """Return the module of an engine; raises ``GateError`` (OG302) with what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]
        why = "is not installed" if missing else f"cannot be imported ({first_line(error)})"
        raise codes.OG302.error(
            f"{spec.label}: the package of this runtime {why}: pip install 'onnx-gate[{spec.name}]'"
        ) from error


def installed_version(distribution: str) -> dict[str, str]:
    """Return ``{distribution: its version}``, or nothing where it is not installed."""
    try:
        return {distribution: version(distribution)}
    except PackageNotFoundError:
        return {}


def contiguous(array: Array) -> Array:
    """Return ``array`` in C order with its shape kept (0-d included), copying only where needed."""
    return array if array.flags.c_contiguous else np.array(array, order="C", copy=True)


def first_line(error: BaseException, limit: int = 300) -> str:
    """Return the first line of an error that says something, cut at ``limit`` characters.

    An error of somebody else's may be unable to say what it is, or say it in half characters.
    """
    try:
        said = str(error).encode("utf-8", "replace").decode()
    except Exception:
        said = ""
    for line in said.splitlines():
        if line.strip():
            return shortened(line.strip(), limit)
    return type(error).__name__
