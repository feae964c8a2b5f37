"""The mappings inside a model: inputs, tolerances, runtimes, exports and waivers, as written."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from onnx_gate.manifest import fields, shapes
from onnx_gate.manifest.nesting import CACHES
from onnx_gate.manifest.problems import describe
from onnx_gate.manifest.readers import mistake, read_cache, read_name
from onnx_gate.manifest.spec import DTYPES
from onnx_gate.text import quote

MAX_STEPS = 512
CRITERIA = (
    "auto",
    "atol",
    "rtol",
    "cosine",
    "snr_db",
    "top1",
    "topk",
    "max_ulp",
    "metric",
)


class Entry(BaseModel):
    """A mapping of the manifest. Validation notes in its context which mapping was read as what."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _note(cls, value: Any, info: ValidationInfo) -> Any:
        if info.context is not None:
            info.context[id(value)] = cls
        return value


class InputEntry(Entry):
    """An input: its dtype, its shape and the values it may take."""

    model_config = ConfigDict(title="Input")

    dtype: fields.DType = Field(description="The dtype of the tensor.")
    shape: fields.Shape = Field(
        description="Sizes, and names of dynamic dimensions; `[]` is a scalar. A name may be used "
        "in several inputs and is the same size in all of them."
    )
    range: fields.Maybe[fields.Range] = Field(
        default=None,
        description="`[low, high]`, both inclusive. Needed by an integer input, unless every suite "
        "of its model brings its own values (`files`, `generator`). An end may be computed from "
        "dynamic dimensions: `[0, nodes - 1]`.",
    )

    @field_validator("range")
    @classmethod
    def _range_fits(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None or "dtype" not in info.data:
            return value
        try:
            return shapes.check_range(info.data["dtype"], *value)
        except ValueError as error:
            raise mistake(str(error)) from None


class CacheEntry(Entry):
    """A cache of transformers: the keys and values of every layer of a decoder."""

    model_config = ConfigDict(title="Cache")

    cache: Annotated[str, PlainValidator(read_cache), WithJsonSchema({"enum": list(CACHES)})] = (
        Field(
            description="`dynamic` is a `DynamicCache`, `encoder_decoder` an `EncoderDecoderCache` of "
            "two of them."
        )
    )
    layers: Annotated[int, Field(strict=True, ge=1, le=1000)] = Field(
        description="How many layers the cache holds."
    )
    shape: fields.Shape = Field(
        description="The shape of the keys, and of the values, of one layer: `[batch, heads, past, "
        "head size]`."
    )
    encoder_shape: fields.Maybe[fields.Shape] = Field(
        default=None, description="The same of what the encoder has left; `encoder_decoder` only."
    )
    dtype: fields.DType = Field(default="float32", description="The dtype of the tensors.")

    @model_validator(mode="after")
    def _consistent(self) -> CacheEntry:
        for name in ("shape", "encoder_shape"):
            shape = getattr(self, name)
            if shape is not None and len(shape) != 4:
                raise mistake(
                    f"the {name.replace('_', ' ')} of a cache has 4 dimensions, [batch, heads, past, "
                    f"head size]; found {len(shape)}"
                )
        if (self.cache == "encoder_decoder") != (self.encoder_shape is not None):
            raise mistake(
                "an encoder_decoder cache needs 'encoder_shape', the shape of what the encoder has left"
                if self.encoder_shape is None
                else "'encoder_shape' belongs to cache: encoder_decoder; remove it"
            )
        return self


def _input(value: Any, info: ValidationInfo) -> InputEntry | CacheEntry:
    if isinstance(value, dict):
        entry = CacheEntry if "cache" in value else InputEntry
        return entry.model_validate(value, context=info.context)
    if not isinstance(value, str):
        raise mistake(
            f"expected an input such as {shapes.EXAMPLE}, found {describe(value)}"
            + ('; inside braces it needs quotes: "float32[1, 3]"' if value is None else "")
        )
    try:
        dtype, shape = shapes.parse(value)
    except ValueError as error:
        raise mistake(str(error)) from None
    return InputEntry(dtype=dtype, shape=shape)


_SHORT_INPUT = Annotated[
    str,
    WithJsonSchema(
        {
            "title": "short form",
            "type": "string",
            "pattern": rf"^\s*({'|'.join(DTYPES)})\s*\[[^\[\]]*\]\s*$",
            "examples": [shapes.EXAMPLE, "float32[]"],
        }
    ),
]
Input = Annotated[
    InputEntry | CacheEntry,
    PlainValidator(_input, json_schema_input_type=_SHORT_INPUT | InputEntry | CacheEntry),
]


class TopKEntry(Entry):
    """Agreement on the largest entries of the last axis."""

    model_config = ConfigDict(title="TopK")

    k: Annotated[int, Field(strict=True, ge=1)] = Field(
        description="How many of the largest entries are compared."
    )
    agreement: fields.Share = Field(
        description="The least share of rows, 0 to 1, in which they are the same."
    )


class ToleranceEntry(Entry):
    """How far the ONNX model may be from PyTorch. Every criterion that is named must hold."""

    model_config = ConfigDict(
        title="Tolerance",
        json_schema_extra={
            "anyOf": [{"required": [name]} for name in CRITERIA],
            "dependentRequired": {"metric": ["max"], "max": ["metric"]},
        },
    )

    auto: fields.Maybe[Annotated[fields.Number, Field(gt=0)]] = Field(
        default=None,
        description="A factor: the candidate may be that many times as far from float64 as PyTorch "
        "itself is, or within the floor of the dtype.",
    )
    atol: fields.Maybe[fields.NotNegative] = Field(
        default=None,
        description="`|actual - expected| <= atol + rtol * |expected|` for every element; "
        "`rtol` is 0 where only `atol` is named.",
    )
    rtol: fields.Maybe[fields.NotNegative] = Field(
        default=None, description="See `atol`, which is 0 where only `rtol` is named."
    )
    mismatch: fields.Maybe[Annotated[fields.Number, Field(ge=0, lt=1)]] = Field(
        default=None,
        description="The share of elements, 0 to below 1, that may exceed `atol` and `rtol`.",
        json_schema_extra={"default": 0},
    )
    cosine: fields.Maybe[Annotated[fields.Number, Field(ge=-1, le=1)]] = Field(
        default=None, description="The least cosine similarity."
    )
    snr_db: fields.Maybe[fields.Number] = Field(
        default=None, description="The least signal-to-noise ratio, in decibels."
    )
    top1: fields.Maybe[fields.Share] = Field(
        default=None, description="The least share of rows, 0 to 1, with the same largest entry."
    )
    topk: fields.Maybe[TopKEntry] = Field(
        default=None, description="The same for the `k` largest entries."
    )
    max_ulp: fields.Maybe[Annotated[int, Field(strict=True, ge=0)]] = Field(
        default=None, description="The largest distance in units in the last place."
    )
    metric: fields.Maybe[fields.Reference] = Field(
        default=None,
        description="A function `(expected, actual) -> float` of yours; needs `max`.",
    )
    max: fields.Maybe[fields.Number] = Field(
        default=None, description="The largest value of `metric` that passes."
    )
    indices: fields.Maybe[Literal["values", "exact"]] = Field(
        default=None,
        description="Whether integer outputs that are positions (of `argmax`, `topk`, `sort`) are "
        "judged by the values they point at, so that ties may differ, or must be equal.",
        json_schema_extra={"default": "values"},
    )

    @model_validator(mode="after")
    def _consistent(self) -> ToleranceEntry:
        _consistent(self)
        return self


class OutputEntry(ToleranceEntry):
    """What holds for one output: a tolerance of its own, and which of its positions count."""

    model_config = ConfigDict(
        title="Output",
        json_schema_extra={
            "anyOf": [{"required": [name]} for name in (*CRITERIA, "where")],
            "dependentRequired": {"metric": ["max"], "max": ["metric"]},
        },
    )

    where: fields.Maybe[fields.TensorName] = Field(
        default=None,
        description="The name of an input, a mask over the output's leading dimensions: elements "
        "are judged where it is not 0, and nowhere else.",
    )

    @property
    def is_tolerance(self) -> bool:
        """Return whether it says more than where the output is judged."""
        return bool(self.model_fields_set - {"where"})

    @model_validator(mode="after")
    def _consistent(self) -> OutputEntry:
        if self.where is None or self.is_tolerance:
            _consistent(self)
        return self


def _consistent(entry: ToleranceEntry) -> None:
    if all(getattr(entry, name) is None for name in CRITERIA):
        alone = ", ".join(quote(name) for name in sorted(entry.model_fields_set - {"where"}))
        what = f"{alone} alone does not say what must hold" if alone else "nothing must hold"
        raise mistake(f"{what}; name a criterion: {', '.join(CRITERIA)}")
    if entry.mismatch is not None and entry.atol is None and entry.rtol is None:
        raise mistake("'mismatch' is a share of what exceeds atol and rtol; name one of them")
    if entry.metric is not None and entry.max is None:
        raise mistake("'metric' needs a limit; add 'max', the largest value that passes")
    if entry.max is not None and entry.metric is None:
        raise mistake("'max' is the limit of a metric; add 'metric' or remove 'max'")


def _tolerance(value: Any, info: ValidationInfo) -> str | ToleranceEntry:
    if isinstance(value, dict):
        return ToleranceEntry.model_validate(value, context=info.context)
    if isinstance(value, str):
        return read_name(value)
    raise mistake(
        f"expected the name of a tolerance or a mapping such as {{atol: 1e-4}}, "
        f"found {describe(value)}"
    )


def _output(value: Any, info: ValidationInfo) -> str | OutputEntry:
    if isinstance(value, dict):
        return OutputEntry.model_validate(value, context=info.context)
    choice = _tolerance(value, info)
    assert isinstance(choice, str)
    return choice


OutputChoice = Annotated[
    str | OutputEntry, PlainValidator(_output, json_schema_input_type=fields.Name | OutputEntry)
]
ToleranceChoice = Annotated[
    str | ToleranceEntry,
    PlainValidator(_tolerance, json_schema_input_type=fields.Name | ToleranceEntry),
]


class RuntimeEntry(Entry):
    """An engine to run the ONNX model with. The name alone is the short form."""

    model_config = ConfigDict(title="Runtime")

    name: fields.Name = Field(
        description="`onnxruntime`, `reference` (the evaluator of the onnx package), or an engine "
        "that a package registers."
    )
    provider: fields.Maybe[fields.Provider] = Field(
        default=None,
        description="The execution provider, such as `cpu`, `cuda` or `tensorrt`.",
        json_schema_extra={"$comment": "default: the engine's own"},
    )
    device: fields.Maybe[fields.Name] = Field(
        default=None,
        description="The device, as the engine calls it: `CPU`, `GPU.1`.",
        json_schema_extra={"$comment": "default: the engine's own"},
    )
    strict: fields.Maybe[bool] = Field(
        default=None,
        description="Whether a node that the provider leaves to another one is an error; where it is "
        "not, the report says which nodes those are.",
        json_schema_extra={"$comment": "default: the engine's own"},
    )
    tolerance: fields.Maybe[ToleranceChoice] = Field(
        default=None,
        description="What holds on this runtime in place of the model's `tolerance`. An output's "
        "own goes first.",
        json_schema_extra={"$comment": "default: the model's"},
    )
    optimization: fields.Maybe[fields.Level] = Field(
        default=None,
        description="The level of graph optimisations.",
        json_schema_extra={"$comment": "default: the engine's own"},
    )
    provider_options: dict[str, fields.Option] = Field(
        default={}, description="Options of the execution provider."
    )
    session_options: dict[str, fields.Option] = Field(
        default={}, description="Configuration entries of the session."
    )
    options: dict[str, Any] = Field(default={}, description="What another engine takes.")


def _runtime(value: Any) -> Any:
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, dict):
        raise mistake(f"expected the name of a runtime or a mapping, found {describe(value)}")
    return value


Runtime = Annotated[
    RuntimeEntry, BeforeValidator(_runtime, json_schema_input_type=fields.Name | RuntimeEntry)
]


class WeightsEntry(Entry):
    """A checkpoint, and where in it the model's weights are. The path alone is the short form."""

    model_config = ConfigDict(title="Weights")

    file: fields.WeightsPath = Field(
        description="A file (`.safetensors`, or `.pt`, `.pth`, `.pth.tar`, `.bin`, `.ckpt` read with "
        "`weights_only`), the index of a sharded one (`.index.json`), or a folder of "
        "`save_pretrained`."
    )
    key: fields.Maybe[fields.Words] = Field(
        default=None,
        description="Where in the file the state dict is, such as `state_dict` or `ema.model`.",
        json_schema_extra={"$comment": "default: looked for"},
    )
    strip: fields.Maybe[fields.Words] = Field(
        default=None,
        description="What the keys in the file begin with that the model's do not, such as `model.`. "
        "Keys that do not begin so are left out.",
    )


def _weights(value: Any) -> Any:
    if isinstance(value, str):
        return {"file": value}
    if not isinstance(value, dict):
        raise mistake(f"expected the path of a checkpoint or a mapping, found {describe(value)}")
    return value


Weights = Annotated[
    WeightsEntry,
    BeforeValidator(_weights, json_schema_input_type=fields.WeightsPath | WeightsEntry),
]


class StepsEntry(Entry):
    """Calls in a row, in which outputs come back as inputs."""

    model_config = ConfigDict(
        title="Steps",
        json_schema_extra={"anyOf": [{"required": ["carry"]}, {"required": ["feed"]}]},
    )

    count: Annotated[int, Field(strict=True, ge=2, le=MAX_STEPS)] = Field(
        description=f"How many calls in a row, 2 to {MAX_STEPS}."
    )
    carry: dict[fields.TensorName, fields.TensorName] = Field(
        default={},
        description="An input and the output that is its value in the next step: a cache, a hidden "
        "state. A name of several tensors (`past_key_values`) stands for all below it.",
    )
    feed: dict[fields.TensorName, fields.FeedFrom] = Field(
        default={},
        description="An input and what it is given in the next step: `argmax(output)` (the token "
        "that is chosen), an output, or `input + 1` (itself, counted on).",
    )

    @model_validator(mode="after")
    def _comes_back(self) -> StepsEntry:
        if not self.carry and not self.feed:
            raise mistake("nothing comes back; name outputs under 'carry' or 'feed'")
        for name in self.carry.keys() & self.feed.keys():
            raise mistake(f"{quote(name)} is under 'carry' and under 'feed'; remove one")
        for name, feed in self.feed.items():
            if feed.add and feed.source != name:
                raise mistake(
                    f"{quote(name)} can be counted on from itself only; write "
                    f"{quote(f'{name} + {feed.add}')}"
                )
        return self


class WaiverEntry(Entry):
    """A known divergence that does not fail the check until a day."""

    model_config = ConfigDict(title="Waiver")

    check: fields.Words = Field(
        description="A glob over the ids of the cases, such as `edges/large/*`."
    )
    until: fields.Day = Field(description="The last day on which the waiver holds.")
    reason: fields.Words = Field(description="Why it is accepted, and where it is tracked.")
    ceiling: fields.Maybe[fields.NotNegative] = Field(
        default=None,
        description="The largest error that it forgives, in the unit of the report's column Error: "
        "relative to the output's scale; of `cosine`, `top1` and `topk` what is lacking to 1, of "
        "`snr_db` the noise over the signal.",
        json_schema_extra={"$comment": "default: any"},
    )
