"""Input suites; the kind of a suite is told by the key that it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
)

from onnx_gate.manifest.problems import describe
from onnx_gate.manifest.values.amounts import Seed
from onnx_gate.manifest.values.base import choice, mistake, note, read, unique
from onnx_gate.manifest.values.names import Globs, Name, Reference, read_name
from onnx_gate.text import did_you_mean, quote

EDGE_KINDS = (
    *("zeros", "ones", "negative", "large", "tiny", "subnormal", "ties", "sweep", "bounds"),
    *("masks", "empty", "nan", "inf", "int_extremes"),
)
Distribution = Literal["normal", "uniform", "lognormal"]


def _read_edge(value: Any) -> Any:
    if value not in EDGE_KINDS or not isinstance(value, str):
        likeness = did_you_mean(value, EDGE_KINDS) if isinstance(value, str) else ""
        raise mistake(f"unknown kind of edge case {quote(value)}{likeness}")
    return value


_EdgeKind = Annotated[str, PlainValidator(_read_edge), choice(EDGE_KINDS)]


@dataclass(frozen=True)
class RandomSuite:
    """Cases drawn at random, within each input's dtype and range."""

    __pydantic_config__ = ConfigDict(title="Random suite", extra="forbid")
    kind: ClassVar[str] = "random"

    random: Annotated[Distribution, Field(description="The distribution of the values.")]
    count: Annotated[
        int,
        Field(
            strict=True,
            ge=1,
            le=1000,
            description="How many cases are drawn for each combination of sizes.",
        ),
    ] = 2
    seed: Annotated[Seed, Field(description="The seed of the draw.")] = 0


@dataclass(frozen=True)
class EdgesSuite:
    """One case for each kind of unusual input, where the dtype allows it."""

    __pydantic_config__ = ConfigDict(title="Edges suite", extra="forbid")
    kind: ClassVar[str] = "edges"

    edges: Annotated[
        tuple[_EdgeKind, ...],
        Field(min_length=1, description="The kinds of unusual inputs."),
        AfterValidator(unique),
    ]
    seed: Annotated[Seed, Field(description="The seed of the values that a kind leaves open.")] = 0


@dataclass(frozen=True)
class FilesSuite:
    """Cases that are stored in the repository."""

    __pydantic_config__ = ConfigDict(title="Files suite", extra="forbid")
    kind: ClassVar[str] = "files"

    files: Annotated[
        Globs,
        Field(
            description="A glob, or a list of them: `.npz`, `.npy`, `.safetensors`, `.pt` (read with "
            "`weights_only`) and ONNX `test_data_set_*` folders. Stored `output_*` values are "
            "compared too."
        ),
    ]


@dataclass(frozen=True)
class GeneratorSuite:
    """Cases from a function of yours."""

    __pydantic_config__ = ConfigDict(title="Generator suite", extra="forbid")
    kind: ClassVar[str] = "generator"

    generator: Annotated[
        Reference,
        Field(description="A function `(inputs, seed) -> iterable of dicts` of named arrays."),
    ]
    seed: Annotated[Seed, Field(description="The seed that the function is given.")] = 0


@dataclass(frozen=True)
class PluginSuite:
    """A suite of a kind that another package registered under ``onnx_gate.suites``.

    ``options`` is the whole mapping as written, the key that names the kind included.
    """

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)


Suite = RandomSuite | EdgesSuite | FilesSuite | GeneratorSuite | PluginSuite
BUILT_IN_KINDS: Mapping[str, type[Suite]] = {
    each.kind: each for each in (RandomSuite, EdgesSuite, FilesSuite, GeneratorSuite)
}
BUILT_IN_SUITES: Mapping[str, Suite] = {
    "typical": RandomSuite("normal", count=3),
    "edges": EdgesSuite(
        ("zeros", "ones", "negative", "ties", "sweep", "bounds", "masks", "int_extremes")
    ),
    "advice": EdgesSuite(("large", "empty", "nan", "inf")),
}
# What a model gets that names no suites: what reveals faults, by measurement.
DEFAULT_SUITES: Mapping[str, Suite] = {n: BUILT_IN_SUITES[n] for n in ("typical", "edges")}
# Tried as well, and reported as warnings: what many correct models promise nothing about.
ADVICE_SUITES: Mapping[str, Suite] = {"advice": BUILT_IN_SUITES["advice"]}


def _suite(value: Any, info: ValidationInfo) -> Suite:
    if not isinstance(value, dict):
        raise mistake(
            f"expected a mapping such as {{random: normal}}, found {describe(value)}"
            + ("; a model names its suites under 'suites'" if isinstance(value, list) else "")
        )
    kinds = [kind for kind in BUILT_IN_KINDS if kind in value]
    if len(kinds) > 1:
        raise mistake(
            f"{quote(kinds[0])} and {quote(kinds[1])} are two kinds; write them as two suites"
        )
    if kinds:
        kind = BUILT_IN_KINDS[kinds[0]]
        made: Suite = read(Annotated[kind, note(kind)], value, info)
        return made
    if not value:
        raise mistake(f"a suite needs a kind; write one of {', '.join(BUILT_IN_KINDS)}")
    # Called by its first key, until it is looked up which of them is a kind.
    return PluginSuite(next(iter(value)), value)


def _choice(value: Any, info: ValidationInfo) -> str | Suite:
    if isinstance(value, str):
        return read_name(value)
    if isinstance(value, dict):
        return _suite(value, info)
    raise mistake(
        "expected the name of a suite or a mapping such as {random: normal}, "
        f"found {describe(value)}"
    )


_PLUGIN_SUITE = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "title": "Suite of another package",
            "description": "A suite of a kind registered under the entry points onnx_gate.suites.",
            "type": "object",
            "minProperties": 1,
            "not": {"anyOf": [{"required": [kind]} for kind in BUILT_IN_KINDS]},
        }
    ),
]
_WRITTEN = RandomSuite | EdgesSuite | FilesSuite | GeneratorSuite | _PLUGIN_SUITE
WrittenSuite = Annotated[Suite, PlainValidator(_suite, json_schema_input_type=_WRITTEN)]
SuiteChoice = Annotated[
    str | Suite, PlainValidator(_choice, json_schema_input_type=Name | _WRITTEN)
]
