"""Input suites as written; the kind of a suite is told by the key that it has."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from onnx_gate.manifest import fields
from onnx_gate.manifest.entry import Entry
from onnx_gate.manifest.problems import describe
from onnx_gate.manifest.readers import mistake, read_name, unique
from onnx_gate.text import quote


class SuiteEntry(Entry):
    """A suite; ``kind`` is the key that tells it from the others."""

    kind: ClassVar[str]


class RandomEntry(SuiteEntry):
    """Cases drawn at random, within each input's dtype and range."""

    model_config = ConfigDict(title="Random suite")
    kind: ClassVar[str] = "random"

    random: Literal["normal", "uniform", "lognormal"] = Field(
        description="The distribution of the values."
    )
    count: Annotated[int, Field(strict=True, ge=1, le=1000)] = Field(
        default=2, description="How many cases are drawn for each combination of sizes."
    )
    seed: fields.Seed = Field(default=0, description="The seed of the draw.")


class EdgesEntry(SuiteEntry):
    """One case for each kind of unusual input, where the dtype allows it."""

    model_config = ConfigDict(title="Edges suite")
    kind: ClassVar[str] = "edges"

    edges: Annotated[tuple[fields.EdgeKind, ...], Field(min_length=1)] = Field(
        description="The kinds of unusual inputs."
    )
    seed: fields.Seed = Field(
        default=0, description="The seed of the values that a kind leaves open."
    )

    _unique = field_validator("edges")(unique)


class FilesEntry(SuiteEntry):
    """Cases that are stored in the repository."""

    model_config = ConfigDict(title="Files suite")
    kind: ClassVar[str] = "files"

    files: fields.Globs = Field(
        description="A glob, or a list of them: `.npz`, `.npy`, `.safetensors`, `.pt` (read with "
        "`weights_only`) and ONNX `test_data_set_*` folders. Stored `output_*` values are compared "
        "too."
    )


class GeneratorEntry(SuiteEntry):
    """Cases from a function of yours."""

    model_config = ConfigDict(title="Generator suite")
    kind: ClassVar[str] = "generator"

    generator: fields.Reference = Field(
        description="A function `(inputs, seed) -> iterable of dicts` of named arrays."
    )
    seed: fields.Seed = Field(default=0, description="The seed that the function is given.")


class PluginEntry(Entry):
    """A suite of a kind that another package brings; its keys are that package's."""

    model_config = ConfigDict(extra="allow")

    @property
    def options(self) -> dict[str, Any]:
        """The whole mapping as written."""
        return dict(self.model_extra or {})

    @property
    def kind(self) -> str:
        """The first key, after which a suite without a name is called."""
        return next(iter(self.options))


BUILT_IN_KINDS: dict[str, type[SuiteEntry]] = {
    each.kind: each for each in (RandomEntry, EdgesEntry, FilesEntry, GeneratorEntry)
}


def _suite(value: Any, info: ValidationInfo) -> SuiteEntry | PluginEntry:
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
        return BUILT_IN_KINDS[kinds[0]].model_validate(value, context=info.context)
    if not value:
        raise mistake(f"a suite needs a kind; write one of {', '.join(BUILT_IN_KINDS)}")
    return PluginEntry.model_validate(value)


def _choice(value: Any, info: ValidationInfo) -> str | SuiteEntry | PluginEntry:
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
_WRITTEN = RandomEntry | EdgesEntry | FilesEntry | GeneratorEntry | _PLUGIN_SUITE
Suite = Annotated[SuiteEntry | PluginEntry, PlainValidator(_suite, json_schema_input_type=_WRITTEN)]
SuiteChoice = Annotated[
    str | SuiteEntry | PluginEntry,
    PlainValidator(_choice, json_schema_input_type=fields.Name | _WRITTEN),
]
