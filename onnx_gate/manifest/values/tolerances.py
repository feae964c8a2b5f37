"""How far an output may be from PyTorch's, and where it counts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    JsonValue,
    PlainValidator,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from onnx_gate.manifest.problems import describe
from onnx_gate.manifest.values.amounts import Count, NotNegative, Number, Share
from onnx_gate.manifest.values.base import Given, Maybe, mistake, note, read
from onnx_gate.manifest.values.names import Name, Reference, TensorName, read_name
from onnx_gate.text import quote

CRITERIA = (*("auto", "atol", "rtol", "cosine", "snr_db", "top1", "topk", "max_ulp", "metric"),)
_TOGETHER: dict[str, JsonValue] = {"metric": ["max"], "max": ["metric"]}


@dataclass(frozen=True)
class TopK:
    """Agreement on the largest entries of the last axis."""

    __pydantic_config__ = ConfigDict(title="TopK", extra="forbid")

    k: Annotated[Count, Field(description="How many of the largest entries are compared.")]
    agreement: Annotated[
        Share, Field(description="The least share of rows, 0 to 1, in which they are the same.")
    ]


@dataclass(frozen=True)
class Tolerance:
    """How far the ONNX model may be from PyTorch. Every criterion that is named must hold."""

    __pydantic_config__ = ConfigDict(
        title="Tolerance",
        extra="forbid",
        json_schema_extra={
            "anyOf": [{"required": [name]} for name in CRITERIA],
            "dependentRequired": _TOGETHER,
        },
    )

    auto: Annotated[
        Maybe[Annotated[Number, Field(gt=0)]],
        Field(
            description="A factor: the candidate may be that many times as far from float64 as "
            "PyTorch itself is, or within the floor of the dtype."
        ),
    ] = None
    atol: Annotated[
        Maybe[NotNegative],
        Field(
            description="`|actual - expected| <= atol + rtol * |expected|` for every element; "
            "`rtol` is 0 where only `atol` is named."
        ),
    ] = None
    rtol: Annotated[
        Maybe[NotNegative], Field(description="See `atol`, which is 0 where only `rtol` is named.")
    ] = None
    mismatch: Annotated[
        Given[Annotated[Number, Field(ge=0, lt=1)]],
        Field(
            description="The share of elements, 0 to below 1, that may exceed `atol` and `rtol`.",
            json_schema_extra={"default": 0},
        ),
    ] = 0.0
    cosine: Annotated[
        Maybe[Annotated[Number, Field(ge=-1, le=1)]],
        Field(description="The least cosine similarity."),
    ] = None
    snr_db: Annotated[
        Maybe[Number], Field(description="The least signal-to-noise ratio, in decibels.")
    ] = None
    top1: Annotated[
        Maybe[Share],
        Field(description="The least share of rows, 0 to 1, with the same largest entry."),
    ] = None
    topk: Annotated[
        Maybe[Annotated[TopK, note(TopK)]],
        Field(description="The same for the `k` largest entries."),
    ] = None
    max_ulp: Annotated[
        Maybe[Annotated[int, Field(strict=True, ge=0)]],
        Field(description="The largest distance in units in the last place."),
    ] = None
    metric: Annotated[
        Maybe[Reference],
        Field(description="A function `(expected, actual) -> float` of yours; needs `max`."),
    ] = None
    max: Annotated[
        Maybe[Number], Field(description="The largest value of `metric` that passes.")
    ] = None
    indices: Annotated[
        Given[Literal["values", "exact"]],
        Field(
            description="Whether integer outputs that are positions (of `argmax`, `topk`, `sort`) are "
            "judged by the values they point at, so that ties may differ, or must be equal."
        ),
    ] = "values"


@dataclass(frozen=True)
class NamedTolerance(Tolerance):
    """A tolerance that is written as a name, until it is looked up."""

    name: str = ""


@dataclass(frozen=True)
class Output(Tolerance):
    """What holds for one output: a tolerance of its own, and which of its positions count."""

    __pydantic_config__ = ConfigDict(
        title="Output",
        extra="forbid",
        json_schema_extra={
            "anyOf": [{"required": [name]} for name in (*CRITERIA, "where")],
            "dependentRequired": _TOGETHER,
        },
    )

    where: Annotated[
        Maybe[TensorName],
        Field(
            description="The name of an input, a mask over the output's leading dimensions: elements "
            "are judged where it is not 0, and nowhere else."
        ),
    ] = None

    @property
    def tolerance(self) -> Tolerance | None:
        """The tolerance of its own; nothing where it says only where the output is judged."""
        own = Tolerance(**{each.name: getattr(self, each.name) for each in fields(Tolerance)})
        return None if own == Tolerance() else own


def _consistent(value: Any, inner: ValidatorFunctionWrapHandler) -> Tolerance:
    tolerance: Tolerance = inner(value)
    keys = set(value) if isinstance(value, dict) else set()
    if isinstance(tolerance, Output) and keys == {"where"}:
        return tolerance
    if all(getattr(tolerance, name) is None for name in CRITERIA):
        alone = ", ".join(quote(name) for name in sorted(keys - {"where"}))
        what = f"{alone} alone does not say what must hold" if alone else "nothing must hold"
        raise mistake(f"{what}; name a criterion: {', '.join(CRITERIA)}")
    if "mismatch" in keys and tolerance.atol is None and tolerance.rtol is None:
        raise mistake("'mismatch' is a share of what exceeds atol and rtol; name one of them")
    if tolerance.metric is not None and tolerance.max is None:
        raise mistake("'metric' needs a limit; add 'max', the largest value that passes")
    if tolerance.max is not None and tolerance.metric is None:
        raise mistake("'max' is the limit of a metric; add 'metric' or remove 'max'")
    return tolerance


WrittenTolerance = Annotated[Tolerance, note(Tolerance), WrapValidator(_consistent)]
_WrittenOutput = Annotated[Output, note(Output), WrapValidator(_consistent)]


def _tolerance(value: Any, info: ValidationInfo) -> Tolerance:
    return _named_or(WrittenTolerance, value, info)


def _output(value: Any, info: ValidationInfo) -> Tolerance:
    return _named_or(_WrittenOutput, value, info)


def _named_or(kind: Any, value: Any, info: ValidationInfo) -> Tolerance:
    if isinstance(value, dict):
        made: Tolerance = read(kind, value, info)
        return made
    if isinstance(value, str):
        return NamedTolerance(name=read_name(value))
    raise mistake(
        f"expected the name of a tolerance or a mapping such as {{atol: 1e-4}}, "
        f"found {describe(value)}"
    )


OutputChoice = Annotated[Tolerance, PlainValidator(_output, json_schema_input_type=Name | Output)]
ToleranceChoice = Annotated[
    Tolerance, PlainValidator(_tolerance, json_schema_input_type=Name | Tolerance)
]
