"""An entry of the book of known faults, and the facts of a failure that it is held against."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from packaging.specifiers import SpecifierSet
from pydantic import BaseModel, ConfigDict, Field, model_validator

Package = Literal["torch", "onnxscript", "onnxruntime", "onnx", "openvino"]
Stage = Literal["export", "load", "run", "diverged"]


class Known(BaseModel):
    """What is to be said of a known fault: its title, where it is discussed, and since when it is fixed.

    ``fixed`` is the release of ``package`` with the fix, empty where none is known to have one.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    title: str
    link: str
    package: str
    fixed: str = ""
    workaround: str = ""


class PublicFault(Known):
    """A known fault with its fingerprint: what is given has to fit, all of it.

    ``affected`` are versions of ``package`` (PEP 440). ``stage`` says what fails: the ``export``,
    to ``load`` or to ``run`` the file, or the answers (``diverged``), where the diagnosis has singled
    out an ``operator`` of the graph and whom to ``blame``. ``error`` and ``source`` are regular
    expressions, of the words of the exceptions, and of the call that the exporter says to have made
    the node from. ``provider`` is where an engine computes, empty for the CPU. ``dtypes`` are all
    among those of the node's inputs, ``attributes`` its own or ONNX's defaults, ``nonfinite`` whether
    NaN or infinity meets something else.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    link: str = Field(pattern=r"^https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+$")
    package: Package
    affected: str = Field(min_length=3)
    stage: Stage
    exporter: Literal["", "dynamo", "torchscript"] = ""
    engine: str = ""
    provider: str = ""
    blame: tuple[str, ...] = ()
    operator: tuple[str, ...] = ()
    attributes: dict[str, Any] = {}
    dtypes: tuple[str, ...] = ()
    fused_by: str = ""
    source: str = ""
    error: str = ""
    nonfinite: bool | None = None

    @model_validator(mode="after")
    def _is_precise(self) -> PublicFault:
        """Refuse an entry that the mere presence of an operator would fit."""
        SpecifierSet(self.affected)
        re.compile(self.error), re.compile(self.source)
        if self.stage == "diverged":
            which = (self.attributes, self.dtypes, self.source, self.nonfinite is not None)
            if not self.blame or not (self.fused_by or (self.operator and any(which))):
                raise ValueError(f"{self.link}: says too little of what diverges")
        elif not (self.error or (self.operator and self.dtypes)):
            raise ValueError(f"{self.link}: says too little of the error")
        elif self.stage == "export" and not self.exporter and self.package != "onnx":
            raise ValueError(f"{self.link}: which exporter?")
        if self.stage in ("load", "run") and not self.engine:
            raise ValueError(f"{self.link}: which engine?")
        return self

    @property
    def known(self) -> Known:
        """The part of it that a report has."""
        return Known.model_validate(self.model_dump(include=set(Known.model_fields)))


@dataclass(frozen=True)
class Failure:
    """What has failed, as far as it is known; ``versions`` are those installed, by package."""

    stage: Stage
    versions: Mapping[str, str]
    message: str = ""
    exporter: str = ""
    engine: str = ""
    provider: str = ""
    blame: str = ""
    operator: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()
    fused_by: str = ""
    source: str = ""
    nonfinite: bool = False


def fits(fault: PublicFault, facts: Failure) -> bool:
    """Return whether all that an entry says is so."""
    version = facts.versions.get(fault.package)
    if version is None or fault.stage != facts.stage:
        return False
    equal = (
        (fault.exporter, facts.exporter),
        (fault.engine, facts.engine),
        (fault.fused_by, facts.fused_by),
    )
    return (
        SpecifierSet(fault.affected).contains(version, prereleases=True)
        and all(wanted in ("", found) for wanted, found in equal)
        and fault.provider == facts.provider
        and (not fault.blame or facts.blame in fault.blame)
        and (not fault.operator or facts.operator in fault.operator)
        and all(facts.attributes.get(name) == value for name, value in fault.attributes.items())
        and set(fault.dtypes) <= set(facts.dtypes)
        and fault.nonfinite in (None, facts.nonfinite)
        and all(
            not pattern or re.search(pattern, text) is not None
            for pattern, text in ((fault.error, facts.message), (fault.source, facts.source))
        )
    )
