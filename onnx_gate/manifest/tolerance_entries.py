"""What is written of how far an output may be from PyTorch's, and where it counts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PlainValidator, ValidationInfo, model_validator

from onnx_gate.manifest import fields
from onnx_gate.manifest.entry import Entry
from onnx_gate.manifest.problems import describe
from onnx_gate.manifest.readers import mistake, read_name
from onnx_gate.text import quote

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
