"""What the user writes in ``onnx-gate.yml``: the types that validate, document and complete it.

The descriptions are the reference documentation; the JSON Schema is generated from these types.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from onnx_gate.manifest import fields
from onnx_gate.manifest.entries import (
    Entry,
    ExportEntry,
    Input,
    OutputChoice,
    OutputEntry,
    Runtime,
    ToleranceChoice,
    ToleranceEntry,
    WaiverEntry,
)
from onnx_gate.manifest.problems import describe
from onnx_gate.manifest.readers import mistake, unique
from onnx_gate.manifest.spec import BUILT_IN_SUITES
from onnx_gate.manifest.suites import Suite


def _outputs(value: Any) -> Any:
    """A list of names as a mapping from each to nothing."""
    if not isinstance(value, list):
        return value
    for name in value:
        if not isinstance(name, str):
            raise mistake(f"expected the names of outputs, found {describe(name)} among them")
    unique(tuple(value))
    return dict.fromkeys(value)


_OutputNames = Annotated[tuple[fields.TensorName, ...], Field(min_length=1)]
_OutputTolerances = Annotated[
    dict[fields.TensorName, fields.Name | OutputEntry | fields.Null], Field(min_length=1)
]
Outputs = Annotated[
    dict[fields.TensorName, OutputChoice | None],
    Field(min_length=1),
    BeforeValidator(_outputs, json_schema_input_type=_OutputNames | _OutputTolerances),
]
Dims = dict[fields.Identifier, fields.Sizes]


class Settings(Entry):
    """What a model may say of itself, and ``defaults`` of all models."""

    args: fields.Maybe[tuple[Any, ...]] = Field(
        default=None,
        description="Positional arguments of the class or the factory.",
        json_schema_extra={"default": []},
    )
    kwargs: fields.Maybe[dict[fields.Identifier, Any]] = Field(
        default=None,
        description="Keyword arguments of the class or the factory.",
        json_schema_extra={"default": {}},
    )
    call: fields.Maybe[dict[fields.Identifier, Any]] = Field(
        default=None,
        description="Arguments of `forward` that are no tensors and the same in every call, such as "
        "`{use_cache: false}`.",
        json_schema_extra={"default": {}},
    )
    outputs: fields.Maybe[Outputs] = Field(
        default=None,
        description="The names of the outputs, in order; or each name with a tolerance of its own "
        "(a name, a mapping, or nothing for the model's). Of a model whose outputs have names, some "
        "of them are enough; a name stands for all that is below it (`present`).",
        json_schema_extra={"$comment": "default: the exporter's names"},
    )
    export: fields.Maybe[ExportEntry] = Field(
        default=None, description="How the ONNX file is made; not together with `onnx`."
    )
    dims: fields.Maybe[Dims] = Field(
        default=None,
        description="The tested sizes of dynamic dimensions, over those of the whole manifest.",
        json_schema_extra={"default": {}},
    )
    runtimes: fields.Maybe[Annotated[tuple[Runtime, ...], Field(min_length=1)]] = Field(
        default=None,
        description="The engines to verify.",
        json_schema_extra={"default": ["onnxruntime"]},
    )
    suites: fields.Maybe[Annotated[tuple[fields.Name, ...], Field(min_length=1)]] = Field(
        default=None,
        description="The names of input suites: those under `suites`, and the built-in "
        f"{', '.join(f'`{name}`' for name in BUILT_IN_SUITES)}.",
        json_schema_extra={"$comment": "default: chosen by the gate"},
    )
    tolerance: fields.Maybe[ToleranceChoice] = Field(
        default=None,
        description="The name of a tolerance, or one written here.",
        json_schema_extra={"default": {"auto": 10}},
    )
    timeout: fields.Maybe[fields.Duration] = Field(
        default=None,
        description="How long verifying the model may take.",
        json_schema_extra={"default": "10m"},
    )
    memory: fields.Maybe[fields.Memory] = Field(
        default=None,
        description="How much memory verifying the model may take.",
        json_schema_extra={"$comment": "default: no limit"},
    )
    seed: fields.Maybe[fields.Seed] = Field(
        default=None,
        description="The seed that is set before the model is built.",
        json_schema_extra={"default": 0},
    )
    required: fields.Maybe[fields.Flag] = Field(
        default=None,
        description="`false`: reported, never fails the check.",
        json_schema_extra={"default": True},
    )
    waivers: fields.Maybe[tuple[WaiverEntry, ...]] = Field(
        default=None,
        description="Known divergences, each with a reason and an end.",
        json_schema_extra={"default": []},
    )

    @field_validator("suites")
    @classmethod
    def _unique(cls, value: Any) -> Any:
        return value if value is None else unique(value)


class DefaultsEntry(Settings):
    """Merged under every model: `dims` and `export` key by key, everything else as a whole."""

    model_config = ConfigDict(title="Defaults")


class ModelEntry(Settings):
    """A model to verify."""

    model_config = ConfigDict(
        title="Model", json_schema_extra={"not": {"required": ["onnx", "export"]}}
    )

    model: fields.Reference = Field(
        description="An `nn.Module`, a class, or a factory: `file.py:attribute` or "
        "`package.module:attribute`."
    )
    inputs: dict[fields.TensorName, Input] = Field(
        description="The inputs of `forward`, by name: `dtype[shape]`, or a mapping. A dotted name "
        "(`batch.image`, `past.0.key`) is below a parameter that holds several. `{}` where it takes "
        "none."
    )
    weights: fields.Maybe[fields.WeightsPath] = Field(
        default=None,
        description="A file of weights to load: `.safetensors`, or `.pt`/`.pth` read with "
        "`weights_only`.",
    )
    onnx: fields.Maybe[fields.OnnxPath] = Field(
        default=None,
        description="A committed ONNX file: verified as it is, nothing is exported.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> ModelEntry:
        if self.onnx is not None and self.export is not None:
            raise mistake(
                "'onnx' and 'export' exclude each other; a committed file is not exported"
            )
        return self


def _version(value: Any) -> int:
    if isinstance(value, bool) or value != 1 or not isinstance(value, int):
        raise mistake(f"must be 1, found {describe(value)}; this onnx-gate reads version 1")
    return 1


class ManifestFile(Entry):
    """The manifest of onnx-gate: models, and what each must hold to."""

    model_config = ConfigDict(title="onnx-gate manifest")

    version: Annotated[int, PlainValidator(_version), WithJsonSchema({"const": 1})] = Field(
        description="The version of the manifest's form: 1."
    )
    requirements: fields.Maybe[fields.RelativePath] = Field(
        default=None,
        description="A requirements file that the action installs before any model is built.",
    )
    dims: fields.Maybe[Dims] = Field(
        default=None,
        description="The sizes at which dynamic dimensions are tested, for all models. One that is "
        "named nowhere is tested at 1, 2 and 7, or at sizes of images, frames or audio where it is "
        "one of theirs.",
        json_schema_extra={"default": {}},
    )
    suites: fields.Maybe[dict[fields.Name, Suite]] = Field(
        default=None, description="Named input suites.", json_schema_extra={"default": {}}
    )
    tolerances: fields.Maybe[dict[fields.Name, ToleranceEntry]] = Field(
        default=None, description="Named tolerances.", json_schema_extra={"default": {}}
    )
    defaults: fields.Maybe[DefaultsEntry] = Field(
        default=None, description="Settings of every model that does not set them itself."
    )
    models: Annotated[dict[fields.Name, ModelEntry], Field(min_length=1)] = Field(
        description="The models, by name."
    )
