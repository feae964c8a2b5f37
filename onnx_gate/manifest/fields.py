"""The types of the single values of a manifest, and what an editor is told about each.

The title in a type's JSON Schema is the name of the type in the documentation.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, WithJsonSchema

from onnx_gate.manifest import readers, shapes
from onnx_gate.manifest.spec import DTYPES, EDGE_KINDS, OPTIMIZATIONS, Feed


def _schema(title: str, **schema: object) -> WithJsonSchema:
    return WithJsonSchema({"title": title, "type": "string", **schema})


def _choice(values: Iterable[str]) -> WithJsonSchema:
    return WithJsonSchema({"enum": list(values)})


T = TypeVar("T")
Maybe = Annotated[T | None, BeforeValidator(readers.written)]
Null = Annotated[None, WithJsonSchema({"type": "null"})]

_DOTTED_PATTERN = rf"{shapes.NAME}(\.{shapes.NAME})*"
_RELATIVE = r"(?![/~])[^\\\n]+"

Name = Annotated[
    str,
    PlainValidator(readers.read_name),
    _schema("name", maxLength=100, pattern="^[^/]*[^/.][^/]*$"),
]
TensorName = Annotated[str, PlainValidator(readers.read_tensor_name), _schema("name", minLength=1)]
FeedFrom = Annotated[
    Feed,
    PlainValidator(readers.read_feed),
    _schema("feed", minLength=1, examples=["argmax(logits)", "frame", "position_ids + 1"]),
]
Identifier = Annotated[
    str, PlainValidator(readers.read_identifier), _schema("name", pattern=f"^{shapes.NAME}$")
]
Provider = Annotated[
    str, PlainValidator(readers.read_provider), _schema("name", pattern=f"^{shapes.NAME}$")
]
Words = Annotated[str, PlainValidator(readers.read_reason), _schema("text", minLength=1)]
Reference = Annotated[
    str,
    PlainValidator(readers.read_reference),
    _schema(
        "reference",
        pattern=rf"^({_RELATIVE}\.py|{_DOTTED_PATTERN}):{_DOTTED_PATTERN}$",
        examples=["models/resnet.py:build", "package.module:Class"],
    ),
]
RelativePath = Annotated[
    str, PlainValidator(readers.read_path), _schema("path", pattern=f"^{_RELATIVE}$")
]
Program = Annotated[
    str,
    PlainValidator(readers.read_model),
    _schema("path", pattern=rf"^{_RELATIVE}\.(pt|pth|ts|jit|torchscript)$"),
]
WeightsPath = Annotated[
    str,
    PlainValidator(readers.read_path),
    _schema("path", pattern=f"^{_RELATIVE}$", examples=["checkpoints/model.safetensors"]),
]
OnnxPath = Annotated[
    str, PlainValidator(readers.read_onnx), _schema("path", pattern=rf"^{_RELATIVE}\.onnx$")
]
Glob = Annotated[
    str, PlainValidator(readers.read_path), _schema("glob", examples=["tests/data/*.npz"])
]
_Globs = Annotated[tuple[Glob, ...], Field(min_length=1)]
Globs = Annotated[
    _Globs,
    BeforeValidator(readers.read_globs, json_schema_input_type=Glob | _Globs),
]
Exporter = Annotated[
    str,
    PlainValidator(readers.read_exporter),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["dynamo", "torchscript"]},
                {"title": "reference", "type": "string", "pattern": "^.+:.+$"},
            ]
        }
    ),
]
DType = Annotated[str, PlainValidator(readers.read_dtype), _choice(DTYPES)]
Dimension = Annotated[
    int | str,
    PlainValidator(readers.read_dimension),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": shapes.MAX_SIZE},
                {"title": "name", "type": "string", "pattern": f"^{shapes.NAME}$"},
                {
                    "title": "computed size",
                    "type": "string",
                    "pattern": "^[A-Za-z0-9_ +*/()-]+$",
                    "description": "Names and integers with `+`, `-`, `*` and `//`: `past + 1`.",
                },
            ]
        }
    ),
]
Shape = Annotated[tuple[Dimension, ...], Field(max_length=shapes.MAX_RANK)]
Size = Annotated[int, Field(strict=True, ge=0, le=shapes.MAX_SIZE)]
_Sizes = Annotated[tuple[Size, ...], Field(min_length=1, max_length=100)]
Sizes = Annotated[
    _Sizes,
    BeforeValidator(readers.read_sizes, json_schema_input_type=Size | _Sizes),
    AfterValidator(readers.unique),
]
Bound = Annotated[
    float | str,
    PlainValidator(readers.read_bound),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number"},
                {
                    "title": "computed",
                    "type": "string",
                    "pattern": "^[A-Za-z0-9_ +*/()-]+$",
                    "description": "Of an integer input: computed from dynamic dimensions, as "
                    "`nodes - 1` is.",
                },
            ]
        }
    ),
]
Range = tuple[Bound, Bound]
EdgeKind = Annotated[str, PlainValidator(readers.read_edge), _choice(EDGE_KINDS)]
Duration = Annotated[
    float,
    PlainValidator(readers.read_duration),
    WithJsonSchema(
        {
            "anyOf": [
                {
                    "title": "seconds",
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": readers.LONGEST,
                },
                {
                    "title": "duration",
                    "type": "string",
                    "pattern": r"^([0-9]+h ?)?([0-9]+m ?)?([0-9]+s)?$",
                    "examples": ["90s", "10m", "1h30m"],
                },
            ]
        }
    ),
]
Memory = Annotated[
    int,
    PlainValidator(readers.read_memory),
    WithJsonSchema(
        {
            "anyOf": [
                {"title": "bytes", "type": "integer", "minimum": readers.LEAST_MEMORY},
                {
                    "title": "amount",
                    "type": "string",
                    "pattern": r"^[0-9]+(\.[0-9]+)? *([KMGT]i?B|B)$",
                    "examples": ["8GiB", "512MiB"],
                },
            ]
        }
    ),
]
Day = Annotated[datetime.date, PlainValidator(readers.read_date), _schema("date", format="date")]
Flag = Annotated[bool, PlainValidator(readers.read_flag), WithJsonSchema({"type": "boolean"})]
Level = Annotated[str, PlainValidator(readers.read_optimization), _choice(OPTIMIZATIONS)]
Option = Annotated[
    str,
    PlainValidator(readers.read_option),
    WithJsonSchema({"type": ["string", "number", "boolean"], "title": "text"}),
]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)]
Share = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1)]
