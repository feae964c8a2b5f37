"""What the user writes in ``onnx-gate.yml``: the types that validate, document and complete it.

The descriptions are the reference documentation; the JSON Schema is generated from these types.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    field_validator,
    model_validator,
)

from onnx_gate.manifest.paths import is_program
from onnx_gate.manifest.problems import describe, missing
from onnx_gate.manifest.values.amounts import Duration, Flag, Memory, Seed
from onnx_gate.manifest.values.base import Maybe, Null, mistake, unique
from onnx_gate.manifest.values.coverage import Coverage
from onnx_gate.manifest.values.exports import Export
from onnx_gate.manifest.values.inputs import Input, Sizes
from onnx_gate.manifest.values.names import (
    Identifier,
    Name,
    OnnxPath,
    Program,
    Reference,
    RelativePath,
    TensorName,
    read_model,
)
from onnx_gate.manifest.values.runtimes import Runtime
from onnx_gate.manifest.values.steps import Steps
from onnx_gate.manifest.values.suites import BUILT_IN_SUITES, SuiteChoice, WrittenSuite
from onnx_gate.manifest.values.targets import TargetChoice
from onnx_gate.manifest.values.tolerances import (
    Output,
    OutputChoice,
    ToleranceChoice,
    WrittenTolerance,
)
from onnx_gate.manifest.values.waivers import WaiverChoice
from onnx_gate.manifest.values.weights import Weights
from onnx_gate.text import quote


def _outputs(value: Any) -> Any:
    """A list of names as a mapping from each to nothing."""
    if not isinstance(value, list):
        return value
    for name in value:
        if not isinstance(name, str):
            raise mistake(f"expected the names of outputs, found {describe(name)} among them")
    unique(tuple(value))
    return dict.fromkeys(value)


_OutputNames = Annotated[tuple[TensorName, ...], Field(min_length=1)]
_OutputTolerances = Annotated[dict[TensorName, Name | Output | Null], Field(min_length=1)]
Outputs = Annotated[
    dict[TensorName, OutputChoice | None],
    Field(min_length=1),
    BeforeValidator(_outputs, json_schema_input_type=_OutputNames | _OutputTolerances),
]
Dims = dict[Identifier, Sizes]


class _Mapping(BaseModel):
    """Validation notes in its context which mapping was read as what."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _note(cls, value: Any, info: ValidationInfo) -> Any:
        if info.context is not None:
            info.context[id(value)] = cls
        return value


class Settings(_Mapping):
    """What a model may say of itself, and ``defaults`` of all models."""

    args: Maybe[tuple[Any, ...]] = Field(
        default=None,
        description="Positional arguments of the class or the factory.",
        json_schema_extra={"default": []},
    )
    kwargs: Maybe[dict[Identifier, Any]] = Field(
        default=None,
        description="Keyword arguments of the class or the factory.",
        json_schema_extra={"default": {}},
    )
    call: Maybe[dict[Identifier, Any]] = Field(
        default=None,
        description="Arguments of `forward` that are no tensors and the same in every call, such as "
        "`{use_cache: false}`.",
        json_schema_extra={"default": {}},
    )
    outputs: Maybe[Outputs] = Field(
        default=None,
        description="The names of the outputs, in order; or each name with a tolerance of its own "
        "(a name, a mapping, or nothing for the model's). Of a model whose outputs have names, some "
        "of them are enough; a name stands for all that is below it (`present`).",
        json_schema_extra={"$comment": "default: the exporter's names"},
    )
    export: Maybe[Export] = Field(
        default=None, description="How the ONNX file is made; not together with `onnx`."
    )
    dims: Maybe[Dims] = Field(
        default=None,
        description="The tested sizes of dynamic dimensions, over those of the whole manifest.",
        json_schema_extra={"default": {}},
    )
    runtimes: Maybe[Annotated[tuple[Runtime, ...], Field(min_length=1)]] = Field(
        default=None,
        description="The engines to verify.",
        json_schema_extra={"default": ["onnxruntime"]},
    )
    suites: Maybe[Annotated[tuple[SuiteChoice, ...], Field(min_length=1)]] = Field(
        default=None,
        description="The names of input suites (those under `suites`, and the built-in "
        f"{', '.join(f'`{name}`' for name in BUILT_IN_SUITES)}), or suites written here, which are "
        "called by their kind.",
        json_schema_extra={"$comment": "default: chosen by the gate"},
    )
    tolerance: Maybe[ToleranceChoice] = Field(
        default=None,
        description="The name of a tolerance, or one written here.",
        json_schema_extra={"default": {"auto": 10}},
    )
    coverage: Maybe[Coverage] = Field(
        default=None,
        description="How much of the model its cases have to show.",
        json_schema_extra={"$comment": "default: any"},
    )
    targets: Maybe[Annotated[tuple[TargetChoice, ...], Field(min_length=1)]] = Field(
        default=None,
        description="What has to load the file wherever it is deployed: `onnxruntime>=1.17`, and so "
        "`onnxruntime-web`, `openvino` and `opencv`.",
        json_schema_extra={"default": []},
    )
    timeout: Maybe[Duration] = Field(
        default=None,
        description="How long verifying the model may take.",
        json_schema_extra={"default": "10m"},
    )
    memory: Maybe[Memory] = Field(
        default=None,
        description="How much memory verifying the model may take.",
        json_schema_extra={"$comment": "default: no limit"},
    )
    seed: Maybe[Seed] = Field(
        default=None,
        description="The seed that is set before the model is built.",
        json_schema_extra={"default": 0},
    )
    required: Maybe[Flag] = Field(
        default=None,
        description="`false`: reported, never fails the check.",
        json_schema_extra={"default": True},
    )
    waivers: Maybe[tuple[WaiverChoice, ...]] = Field(
        default=None,
        description="Known divergences, each with a reason and an end.",
        json_schema_extra={"default": []},
    )

    verify: Maybe[Literal["whole", "blocks"]] = Field(
        default=None,
        description="`blocks`: block by block, with the memory that one block needs.",
        json_schema_extra={
            "$comment": "default: `blocks` where `weights` are too large for `memory`"
        },
    )

    @field_validator("suites")
    @classmethod
    def _unique(cls, value: Any) -> Any:
        if value is not None:
            unique(tuple(each for each in value if isinstance(each, str)))
        return value


_Inputs = dict[TensorName, Input]
ABSENT: Any = object()


def _needed(value: Any, key: str, info: ValidationInfo) -> bool:
    """Return whether a key is written; raise a mistake where it is not and has to be."""
    if value is not ABSENT:
        return True
    # A reference that could not be read is a mistake of its own.
    if "reference" in info.data and info.data["reference"] is None:
        raise mistake(missing(key))
    return False


def _model(value: Any, info: ValidationInfo) -> str | None:
    return read_model(value) if _needed(value, "model", info) else None


def _inputs(value: Any, inner: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    return inner(value) if _needed(value, "inputs", info) else None


class DefaultsEntry(Settings):
    """Merged under every model: `dims` and `export` key by key, everything else as a whole."""

    model_config = ConfigDict(title="Defaults")


class ModelEntry(Settings):
    """A model to verify."""

    model_config = ConfigDict(
        title="Model",
        json_schema_extra={
            "not": {"required": ["onnx", "export"]},
            "oneOf": [{"required": ["model", "inputs"]}, {"required": ["reference", "onnx"]}],
        },
    )

    reference: Maybe[OnnxPath] = Field(
        default=None,
        description="Instead of `model`: an ONNX file that the one called `onnx` is held against, "
        "such as the one that it was quantised, optimised or converted from.",
    )
    model: Annotated[
        str | None, PlainValidator(_model, json_schema_input_type=Reference | Program)
    ] = Field(
        default_factory=lambda: ABSENT,
        validate_default=True,
        description="An `nn.Module`, a class, or a factory: `file.py:attribute` or "
        "`package.module:attribute`; or a TorchScript file (`torch.jit.save`).",
        json_schema_extra={"$comment": "default: **required**, or `reference`"},
    )
    inputs: Annotated[
        dict[TensorName, Input] | None, WrapValidator(_inputs, json_schema_input_type=_Inputs)
    ] = Field(
        default_factory=lambda: ABSENT,
        validate_default=True,
        description="The inputs of `forward`, by name: `dtype[shape]`, or a mapping. A dotted name "
        "(`batch.image`, `past.0.key`) is below a parameter that holds several. `{}` where it takes "
        "none. With `reference` they may be left out: then they are the file's.",
        json_schema_extra={"$comment": "default: **required** with `model`"},
    )
    weights: Maybe[Weights] = Field(
        default=None, description="A checkpoint to load: a path, or a mapping."
    )
    onnx: Maybe[OnnxPath] = Field(
        default=None, description="A committed ONNX file: verified as it is, nothing is exported."
    )
    steps: Maybe[Steps] = Field(
        default=None,
        description="Calls in a row, in which outputs come back as inputs: caches of decoders, hidden "
        "states of streaming networks.",
        json_schema_extra={"$comment": "default: every case is one call"},
    )

    @model_validator(mode="after")
    def _one_source(self) -> ModelEntry:
        if self.reference is not None:
            if self.onnx is None:
                raise mistake("'reference' is held against another file; name that one with 'onnx'")
            others = [
                key
                for key in ("model", "weights", "export", "args", "kwargs", "call")
                if key in self.model_fields_set
            ]
            if others:
                raise mistake(
                    f"'reference' stands for a model; remove it, or {', '.join(map(quote, others))}"
                )
        if is_program(self.model):
            others = [k for k in ("args", "kwargs", "weights") if k in self.model_fields_set]
            if others:
                raise mistake(
                    f"'model' is a file, which is loaded as it is; remove "
                    f"{', '.join(map(quote, others))}, or name a factory"
                )
        if self.onnx is not None and self.export is not None:
            raise mistake(
                "'onnx' and 'export' exclude each other; a committed file is not exported"
            )
        return self


def _version(value: Any) -> int:
    if isinstance(value, bool) or value != 1 or not isinstance(value, int):
        raise mistake(f"must be 1, found {describe(value)}; this onnx-gate reads version 1")
    return 1


class ManifestFile(_Mapping):
    """The manifest of onnx-gate: models, and what each must hold to."""

    model_config = ConfigDict(title="onnx-gate manifest")

    version: Annotated[int, PlainValidator(_version), WithJsonSchema({"const": 1})] = Field(
        description="The version of the manifest's form: 1."
    )
    requirements: Maybe[RelativePath] = Field(
        default=None,
        description="A requirements file that the action installs before any model is built.",
    )
    dims: Maybe[Dims] = Field(
        default=None,
        description="The sizes at which dynamic dimensions are tested, for all models. One that is "
        "named nowhere is tested at 1, 2 and 7, or at sizes of images, frames or audio where it is "
        "one of theirs.",
        json_schema_extra={"default": {}},
    )
    suites: Maybe[dict[Name, WrittenSuite]] = Field(
        default=None, description="Named input suites.", json_schema_extra={"default": {}}
    )
    tolerances: Maybe[dict[Name, WrittenTolerance]] = Field(
        default=None, description="Named tolerances.", json_schema_extra={"default": {}}
    )
    defaults: Maybe[DefaultsEntry] = Field(
        default=None, description="Settings of every model that does not set them itself."
    )
    models: Annotated[dict[Name, ModelEntry], Field(min_length=1)] = Field(
        description="The models, by name."
    )
