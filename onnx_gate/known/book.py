"""The book itself, the versions that are installed, and the errors that it is asked about."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata, resources
from types import MappingProxyType

import yaml

from onnx_gate.errors import GateError
from onnx_gate.known.public_fault import Failure, Known, PublicFault, fits
from onnx_gate.text import without_escapes

# Distributions that bring a package along, the usual one first.
_DISTRIBUTIONS = {
    "torch": ("torch",),
    "onnxscript": ("onnxscript",),
    "onnxruntime": (
        "onnxruntime",
        "onnxruntime-gpu",
        "onnxruntime-openvino",
        "onnxruntime-directml",
    ),
    "onnx": ("onnx",),
    "openvino": ("openvino",),
}


@functools.cache
def faults() -> tuple[PublicFault, ...]:
    """Return all entries; raises ``ValidationError`` where one says too little to be right."""
    text = resources.files("onnx_gate.known").joinpath("faults.yml").read_text(encoding="utf-8")
    return tuple(PublicFault.model_validate(entry) for entry in yaml.safe_load(text))


@functools.cache
def versions() -> Mapping[str, str]:
    """Return the versions that are installed of what the book is about."""
    return MappingProxyType(
        {
            package: found
            for package, names in _DISTRIBUTIONS.items()
            if (found := next(_installed(names), None)) is not None
        }
    )


def find(facts: Failure, entries: Sequence[PublicFault] | None = None) -> Known | None:
    """Return the first fault that fits, ``None`` where none does."""
    among = faults() if entries is None else entries
    return next((fault.known for fault in among if fits(fault, facts)), None)


def of_error(error: GateError, exporter: str = "") -> Known | None:
    """Return the fault that an export, or to load a file, has failed of."""
    stages = {"export": "export", "runtime": "load"}
    stage = stages.get(error.kind)
    if stage is None:
        return None
    data = error.data
    return find(
        Failure(
            stage="export" if stage == "export" else "load",
            versions=versions(),
            message=message_of(error),
            exporter=exporter,
            engine=str(data.get("engine", "")),
            provider=str(data.get("provider", "")),
            operator=str(data.get("operator", "")),
            dtypes=tuple(data.get("dtypes", ())),
        )
    )


def message_of(error: BaseException) -> str:
    """Return the words of an error and of all that it was raised from."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        current = current.__cause__ or current.__context__
    return "\n".join(f"{type(e).__name__}: {without_escapes(str(e))}" for e in seen)


def _installed(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        try:
            yield metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
