"""How a model's ONNX file is made: by an exporter with its options, or by the owner's script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import (
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from onnx_gate.manifest.values.amounts import Count, Flag
from onnx_gate.manifest.values.base import Given, Maybe, mistake, note, read, words, written
from onnx_gate.manifest.values.inputs import Size
from onnx_gate.manifest.values.names import Identifier, Name, OnnxPath, Words, read_reference
from onnx_gate.text import did_you_mean, quote

OUTPUT = "{output}"
"""Stands in a command for the path at which its file is looked for."""
COMMAND = "command"
"""What stands for the exporter where the owner's own script makes the file."""

# How a script's name ends, among the words of a command.
_SCRIPTS = (".py", ".sh")

EXPORTERS = ("dynamo", "torchscript")
"""Those of PyTorch itself, which say in a file what the module says."""

OF_EXPORTER = {
    "dynamo": ("external_data", "keep_initializers_as_inputs"),
    "torchscript": (
        *("do_constant_folding", "keep_initializers_as_inputs"),
        *("autograd_inlining", "custom_opsets"),
    ),
}
"""Which of torch.onnx.export's options an exporter heeds."""

BESIDE_OPTIONS = {
    "dynamo": "write exporter: dynamo or exporter: torchscript",
    "opset_version": "write it as 'opset', beside 'options'",
    "optimize": "write it beside 'options'",
    "dynamic_axes": "dimensions that have a name in 'inputs' are dynamic",
    "dynamic_shapes": "dimensions that have a name in 'inputs' are dynamic",
    "input_names": "they are the names under 'inputs'",
    "output_names": "they are the names under 'outputs'",
    "training": "models are verified, and exported, in eval() mode",
}
"""Arguments of torch.onnx.export that a manifest has another way for."""

# What is also said for an exporter: spelling is no guide to these.
_EXPORTERS_MEANT = {
    "onnxscript": "dynamo",
    "torch.export": "dynamo",
    "torch_export": "dynamo",
    "export": "dynamo",
    "fx": "dynamo",
    "script": "torchscript",
    "scripting": "torchscript",
    "trace": "torchscript",
    "tracing": "torchscript",
    "jit": "torchscript",
    "torch.jit": "torchscript",
    "legacy": "torchscript",
}


def _read_exporter(value: Any) -> str:
    """``dynamo``, ``torchscript`` or a reference to a function."""
    text = words(value, "dynamo, torchscript or package.module:function")
    if text in ("dynamo", "torchscript"):
        return text
    if ":" not in text:
        meant = _EXPORTERS_MEANT.get(text.lower())
        known = ("dynamo", "torchscript")
        likeness = f"; did you mean {quote(meant)}?" if meant else did_you_mean(text, known)
        raise mistake(f"unknown exporter {quote(text)}{likeness} (or package.module:function)")
    return read_reference(text, "export/custom.py:export")


_Exporter = Annotated[
    str,
    PlainValidator(_read_exporter),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["dynamo", "torchscript"]},
                {"title": "reference", "type": "string", "pattern": "^.+:.+$"},
            ]
        }
    ),
]


@dataclass(frozen=True)
class ExportOptions:
    """Further arguments of `torch.onnx.export`."""

    __pydantic_config__ = ConfigDict(title="ExportOptions", extra="forbid")

    external_data: Annotated[
        Maybe[Flag],
        Field(
            description="Whether the weights go beside the graph (dynamo).",
            json_schema_extra={"$comment": "default: from 256 MiB on"},
        ),
    ] = None
    keep_initializers_as_inputs: Annotated[
        Maybe[Flag],
        Field(
            description="Whether weights are inputs of the graph as well.",
            json_schema_extra={"default": False},
        ),
    ] = None
    do_constant_folding: Annotated[
        Maybe[Flag],
        Field(
            description="Whether constants are folded (torchscript).",
            json_schema_extra={"default": True},
        ),
    ] = None
    autograd_inlining: Annotated[
        Maybe[Flag],
        Field(
            description="Whether autograd functions are inlined (torchscript).",
            json_schema_extra={"default": True},
        ),
    ] = None
    custom_opsets: Annotated[
        Maybe[dict[Name, Count]],
        Field(description="Versions of operator sets of your own (torchscript)."),
    ] = None


def _given(value: Any, info: ValidationInfo) -> dict[str, Any]:
    """The options that are written."""
    options = read(Annotated[ExportOptions, note(ExportOptions)], written(value), info)
    return {key: given for key, given in vars(options).items() if given is not None}


@dataclass(frozen=True)
class ExportSpec:
    """How the ONNX file is made: by an exporter, or by a command of yours."""

    __pydantic_config__ = ConfigDict(title="Export", extra="forbid")

    exporter: Annotated[
        Given[_Exporter],
        Field(
            description="`dynamo`, `torchscript`, or a function `(module, example, path) -> None` of "
            "yours that writes the ONNX file."
        ),
    ] = "dynamo"
    opset: Annotated[
        Maybe[Annotated[int, Field(strict=True, ge=1, le=99)]],
        Field(
            description="The version of the operator set.",
            json_schema_extra={"$comment": "default: the exporter's own"},
        ),
    ] = None
    example: Annotated[
        Given[Mapping[Identifier, Annotated[Size, Field(ge=1)]]],
        Field(
            description="The size that a dynamic dimension has in the inputs that the model is "
            "exported with.",
            json_schema_extra={"$comment": "default: a prime of its own, or a size of `dims`"},
        ),
    ] = field(default_factory=dict)
    optimize: Annotated[
        Maybe[Flag],
        Field(
            description="Whether the exported graph is optimised (dynamo).",
            json_schema_extra={"default": True},
        ),
    ] = None
    options: Annotated[
        Mapping[str, Any],
        PlainValidator(_given, json_schema_input_type=ExportOptions),
        Field(description="What else `torch.onnx.export` is called with."),
    ] = field(default_factory=dict)
    command: Annotated[
        Maybe[Words],
        Field(
            description="A command of yours that writes the ONNX file, run by the shell in the "
            f"manifest's folder. `{OUTPUT}` in it stands for the path to write to."
        ),
    ] = None
    file: Annotated[
        Maybe[OnnxPath],
        Field(description=f"Where a `command` leaves its file that takes no `{OUTPUT}`."),
    ] = None

    @property
    def script(self) -> str:
        """The script that ``command`` runs, or its key where none of its words is one."""
        words = (self.command or "").split()
        return next((word for word in words if word.endswith(_SCRIPTS)), f"export.{COMMAND}")


def _one_maker(value: Any, inner: ValidatorFunctionWrapHandler) -> ExportSpec:
    export: ExportSpec = inner(value)
    if export.command is None:
        if export.file is not None:
            raise mistake(
                "'file' is where a 'command' leaves its file; a file that is there already is "
                "named by 'onnx', beside 'export'"
            )
        return export
    others = sorted(value.keys() - {"command", "file"})
    if others:
        raise mistake(
            f"'command' makes the file by itself; remove {', '.join(map(quote, others))}, or say "
            "it in the command"
        )
    if OUTPUT in export.command and export.file is not None:
        raise mistake(f"the command writes to {OUTPUT}; remove 'file'")
    if OUTPUT not in export.command and export.file is None:
        raise mistake(
            f"nothing says where the command leaves its file; write {OUTPUT} in it for the path, "
            "or add 'file: model.onnx'"
        )
    return export


Export = Annotated[ExportSpec, note(ExportSpec), WrapValidator(_one_maker)]
