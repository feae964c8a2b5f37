"""Whether the packages that a verdict rests on are of versions that the gate is known to work with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding

# The others would fail for the gate, and not for a model.
_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "numpy")


def version_findings(requirements: list[str] | None = None) -> Iterator[Finding]:
    """Yield a finding for each package whose installed version is outside of the gate's range.

    ``requirements`` are the gate's own where they are not given. A package that is not installed under
    its own name (onnxruntime-gpu) is left to whoever installed it.
    """
    if requirements is None:
        requirements = _own_requirements()
    for needed in filter(None, map(_parsed, requirements)):
        version = _installed(needed.name)
        if version is None or needed.specifier.contains(version, prereleases=True):
            continue
        asked = f"{needed.name}{_ordered(str(needed.specifier))}"
        yield codes.OG214.finding(
            f"{needed.name} {version} is installed, and onnx-gate is known to work with {asked} only: "
            f"pip install '{asked}'. What goes wrong with this model may come from that",
            data={"package": needed.name, "version": version},
        )


def _own_requirements() -> list[str]:
    try:
        return metadata.requires("onnx-gate") or []
    except metadata.PackageNotFoundError:  # run from its sources
        return []


def _parsed(text: str) -> Requirement | None:
    try:
        needed = Requirement(text)
    except InvalidRequirement:
        return None
    return needed if needed.name in _PACKAGES and needed.marker is None else None


def _installed(name: str) -> str | None:
    try:
        return re.sub(r"\+.*", "", metadata.version(name))
    except metadata.PackageNotFoundError:
        return None


def _ordered(specifier: str) -> str:
    return ",".join(sorted(specifier.split(","), key=lambda part: part.startswith("<")))
