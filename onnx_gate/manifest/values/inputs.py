"""The inputs of a model."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticKnownError

from onnx_gate.manifest.nesting import CACHES
from onnx_gate.manifest.problems import describe
from onnx_gate.manifest.values import shapes
from onnx_gate.manifest.values.base import (
    Maybe,
    checked,
    choice,
    mistake,
    note,
    read,
    unique,
    words,
)
from onnx_gate.text import did_you_mean, quote


def _read_dtype(value: Any) -> Any:
    return checked(shapes.check_dtype, words(value, "a dtype such as float32"))


def _read_dimension(value: Any) -> Any:
    """A static size, or the name of a dynamic dimension."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise mistake(f"expected a size or the name of a dimension, found {describe(value)}")
    return checked(shapes.check_dimension, value)


def _read_bound(value: Any) -> Any:
    """One end of a range: a finite number, or one that is computed from dynamic dimensions."""
    if isinstance(value, str) and value.strip():
        return checked(shapes.check_bound, value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise mistake(f"expected a finite number, found {describe(value)}")
    return value


def _read_cache(value: Any) -> str:
    if isinstance(value, str) and value in CACHES:
        return value
    if value == "static":
        raise mistake(
            "a static cache keeps its position to itself, which no graph does; use cache: dynamic, or "
            "give the module its keys, values and position as inputs"
        )
    likeness = did_you_mean(value, CACHES) if isinstance(value, str) else ""
    raise mistake(f"unknown kind of cache {quote(value)}{likeness or '; write dynamic'}")


_COMPUTED = "^[A-Za-z0-9_ +*/()-]+$"
DType = Annotated[str, PlainValidator(_read_dtype), choice(shapes.DTYPES)]
_Dimension = Annotated[
    int | str,
    PlainValidator(_read_dimension),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": shapes.MAX_SIZE},
                {"title": "name", "type": "string", "pattern": f"^{shapes.NAME}$"},
                {
                    "title": "computed size",
                    "type": "string",
                    "pattern": _COMPUTED,
                    "description": "Names and integers with `+`, `-`, `*` and `//`: `past + 1`.",
                },
            ]
        }
    ),
]
Shape = Annotated[tuple[_Dimension, ...], Field(max_length=shapes.MAX_RANK)]
_Bound = Annotated[
    float,
    PlainValidator(_read_bound),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number"},
                {
                    "title": "computed",
                    "type": "string",
                    "pattern": _COMPUTED,
                    "description": "Of an integer input: computed from dynamic dimensions, as "
                    "`nodes - 1` is.",
                },
            ]
        }
    ),
]


def _range_fits(value: Any, info: ValidationInfo) -> Any:
    if value is None or "dtype" not in info.data:
        return value
    return checked(shapes.check_range, info.data["dtype"], *value)


def _no_key(value: Any) -> Any:
    raise PydanticKnownError("extra_forbidden")


@dataclass(frozen=True)
class InputSpec:
    """An input: its dtype, its shape and the values it may take."""

    __pydantic_config__ = ConfigDict(title="Input", extra="forbid")

    dtype: Annotated[DType, Field(description="The dtype of the tensor.")]
    shape: Annotated[
        Shape,
        Field(
            description="Sizes, and names of dynamic dimensions; `[]` is a scalar. A name may be used "
            "in several inputs and is the same size in all of them."
        ),
    ]
    range: Annotated[
        Maybe[tuple[_Bound, _Bound]],
        AfterValidator(_range_fits),
        Field(
            description="`[low, high]`, both inclusive. Needed by an integer input, unless every "
            "suite of its model brings its own values (`files`, `generator`). An end may be computed "
            "from dynamic dimensions: `[0, nodes - 1]`."
        ),
    ] = None
    # What is written as ``range`` where an end of it is computed: what it comes to depends on the case.
    bounds: Annotated[
        SkipJsonSchema[tuple[int | str, int | str] | None], PlainValidator(_no_key)
    ] = None

    @property
    def has_range(self) -> bool:
        """Return whether the manifest says which values the input may take."""
        return self.range is not None or self.bounds is not None


@dataclass(frozen=True)
class CacheEntry:
    """A cache of transformers: the keys and values of every layer of a decoder."""

    __pydantic_config__ = ConfigDict(title="Cache", extra="forbid")

    cache: Annotated[
        str,
        PlainValidator(_read_cache),
        choice(CACHES),
        Field(
            description="`dynamic` is a `DynamicCache`, `encoder_decoder` an `EncoderDecoderCache` of "
            "two of them."
        ),
    ]
    layers: Annotated[
        int, Field(strict=True, ge=1, le=1000, description="How many layers the cache holds.")
    ]
    shape: Annotated[
        Shape,
        Field(
            description="The shape of the keys, and of the values, of one layer: `[batch, heads, "
            "past, head size]`."
        ),
    ]
    value_shape: Annotated[
        Maybe[Shape],
        Field(
            description="The shape of the values where their last size is another than that of the keys, "
            "as with DeepSeek's latent attention; `dynamic` only."
        ),
    ] = None
    encoder_shape: Annotated[
        Maybe[Shape],
        Field(description="The same of what the encoder has left; `encoder_decoder` only."),
    ] = None
    dtype: Annotated[DType, Field(description="The dtype of the tensors.")] = "float32"


def _whole(cache: CacheEntry) -> CacheEntry:
    for name in ("shape", "value_shape", "encoder_shape"):
        shape = getattr(cache, name)
        if shape is not None and len(shape) != 4:
            raise mistake(
                f"the {name.replace('_', ' ')} of a cache has 4 dimensions, [batch, heads, past, "
                f"head size]; found {len(shape)}"
            )
    if (cache.cache == "encoder_decoder") != (cache.encoder_shape is not None):
        raise mistake(
            "an encoder_decoder cache needs 'encoder_shape', the shape of what the encoder has left"
            if cache.encoder_shape is None
            else "'encoder_shape' belongs to cache: encoder_decoder; remove it"
        )
    if cache.value_shape is not None and cache.cache != "dynamic":
        raise mistake("'value_shape' belongs to cache: dynamic; remove it")
    if cache.value_shape is not None and cache.value_shape[:-1] != cache.shape[:-1]:
        keys, values = (", ".join(map(str, s)) for s in (cache.shape, cache.value_shape))
        raise mistake(
            "keys and values of a cache differ in their last size alone, the head size; found "
            f"[{keys}] and [{values}]"
        )
    return cache


def _with_bounds(spec: InputSpec) -> InputSpec:
    ends = cast("tuple[int | str, int | str] | None", spec.range)
    if ends is not None and any(isinstance(end, str) for end in ends):
        return replace(spec, range=None, bounds=ends)
    return spec


_WrittenInput = Annotated[InputSpec, note(InputSpec), AfterValidator(_with_bounds)]
_WrittenCache = Annotated[CacheEntry, note(CacheEntry), AfterValidator(_whole)]


def _input(value: Any, info: ValidationInfo) -> InputSpec | CacheEntry:
    if isinstance(value, dict):
        made: InputSpec | CacheEntry = read(
            _WrittenCache if "cache" in value else _WrittenInput, value, info
        )
        return made
    if not isinstance(value, str):
        raise mistake(
            f"expected an input such as {shapes.EXAMPLE}, found {describe(value)}"
            + ('; inside braces it needs quotes: "float32[1, 3]"' if value is None else "")
        )
    return InputSpec(*checked(shapes.parse, value))


_SHORT_INPUT = Annotated[
    str,
    WithJsonSchema(
        {
            "title": "short form",
            "type": "string",
            "pattern": rf"^\s*({'|'.join(shapes.DTYPES)})\s*\[[^\[\]]*\]\s*$",
            "examples": [shapes.EXAMPLE, "float32[]"],
        }
    ),
]
Input = Annotated[
    InputSpec | CacheEntry,
    PlainValidator(_input, json_schema_input_type=_SHORT_INPUT | InputSpec | CacheEntry),
]


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


Size = Annotated[int, Field(strict=True, ge=0, le=shapes.MAX_SIZE)]
_Sizes = Annotated[tuple[Size, ...], Field(min_length=1, max_length=100)]
Sizes = Annotated[
    _Sizes,
    BeforeValidator(_one_or_more, json_schema_input_type=Size | _Sizes),
    AfterValidator(unique),
]
