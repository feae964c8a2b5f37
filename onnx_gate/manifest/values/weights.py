"""Where a model's weights are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from onnx_gate.manifest.problems import describe
from onnx_gate.manifest.values.base import Maybe, mistake, note
from onnx_gate.manifest.values.names import WeightsPath, Words


@dataclass(frozen=True)
class WeightsSpec:
    """A checkpoint, and where in it the model's weights are. The path alone is the short form."""

    __pydantic_config__ = ConfigDict(title="Weights", extra="forbid")

    file: Annotated[
        WeightsPath,
        Field(
            description="A file (`.safetensors`, or `.pt`, `.pth`, `.pth.tar`, `.bin`, `.ckpt` read "
            "with `weights_only`), the index of a sharded one (`.index.json`), or a folder of "
            "`save_pretrained`."
        ),
    ]
    key: Annotated[
        Maybe[Words],
        Field(
            description="Where in the file the state dict is, such as `state_dict` or `ema.model`.",
            json_schema_extra={"$comment": "default: looked for"},
        ),
    ] = None
    strip: Annotated[
        Maybe[Words],
        Field(
            description="What the keys in the file begin with that the model's do not, such as "
            "`model.`. Keys that do not begin so are left out."
        ),
    ] = None


def _weights(value: Any) -> Any:
    if isinstance(value, str):
        return {"file": value}
    if not isinstance(value, dict):
        raise mistake(f"expected the path of a checkpoint or a mapping, found {describe(value)}")
    return value


Weights = Annotated[
    WeightsSpec,
    note(WeightsSpec),
    BeforeValidator(_weights, json_schema_input_type=WeightsPath | WeightsSpec),
]
