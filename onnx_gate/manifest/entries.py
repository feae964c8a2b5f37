"""The mappings inside a model: inputs, tolerances, runtimes, exports and waivers, as written."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
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
from onnx_gate.manifest.entry import Entry
from onnx_gate.manifest.nesting import CACHES
from onnx_gate.manifest.problems import describe
from onnx_gate.manifest.readers import mistake, read_cache
from onnx_gate.manifest.spec import DTYPES
from onnx_gate.manifest.tolerance_entries import ToleranceChoice
from onnx_gate.text import quote

MAX_STEPS = 512


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
