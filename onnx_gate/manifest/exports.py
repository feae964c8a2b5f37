"""How a model's ONNX file is made, as written: an exporter and its options, or the owner's script."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from onnx_gate.manifest import fields
from onnx_gate.manifest.entry import Entry
from onnx_gate.manifest.readers import mistake
from onnx_gate.text import quote

OUTPUT = "{output}"
"""Stands in a command for the path at which its file is looked for."""

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


class ExportOptionsEntry(Entry):
    """Further arguments of `torch.onnx.export`."""

    model_config = ConfigDict(title="ExportOptions")

    external_data: fields.Maybe[fields.Flag] = Field(
        default=None,
        description="Whether the weights go beside the graph (dynamo).",
        json_schema_extra={"$comment": "default: from 256 MiB on"},
    )
    keep_initializers_as_inputs: fields.Maybe[fields.Flag] = Field(
        default=None,
        description="Whether weights are inputs of the graph as well.",
        json_schema_extra={"default": False},
    )
    do_constant_folding: fields.Maybe[fields.Flag] = Field(
        default=None,
        description="Whether constants are folded (torchscript).",
        json_schema_extra={"default": True},
    )
    autograd_inlining: fields.Maybe[fields.Flag] = Field(
        default=None,
        description="Whether autograd functions are inlined (torchscript).",
        json_schema_extra={"default": True},
    )
    custom_opsets: fields.Maybe[dict[fields.Name, Annotated[int, Field(strict=True, ge=1)]]] = (
        Field(default=None, description="Versions of operator sets of your own (torchscript).")
    )


class ExportEntry(Entry):
    """How the ONNX file is made: by an exporter, or by a command of yours."""

    model_config = ConfigDict(title="Export")

    exporter: fields.Maybe[fields.Exporter] = Field(
        default=None,
        description="`dynamo`, `torchscript`, or a function `(module, example, path) -> None` of "
        "yours that writes the ONNX file.",
        json_schema_extra={"default": "dynamo"},
    )
    opset: fields.Maybe[Annotated[int, Field(strict=True, ge=1, le=99)]] = Field(
        default=None,
        description="The version of the operator set.",
        json_schema_extra={"$comment": "default: the exporter's own"},
    )
    example: fields.Maybe[dict[fields.Identifier, Annotated[fields.Size, Field(ge=1)]]] = Field(
        default=None,
        description="The size that a dynamic dimension has in the inputs that the model is exported "
        "with.",
        json_schema_extra={"$comment": "default: a prime of its own, or a size of `dims`"},
    )
    optimize: fields.Maybe[fields.Flag] = Field(
        default=None,
        description="Whether the exported graph is optimised (dynamo).",
        json_schema_extra={"default": True},
    )
    options: fields.Maybe[ExportOptionsEntry] = Field(
        default=None, description="What else `torch.onnx.export` is called with."
    )
    command: fields.Maybe[fields.Words] = Field(
        default=None,
        description="A command of yours that writes the ONNX file, run by the shell in the "
        f"manifest's folder. `{OUTPUT}` in it stands for the path to write to.",
    )
    file: fields.Maybe[fields.OnnxPath] = Field(
        default=None,
        description=f"Where a `command` leaves its file that takes no `{OUTPUT}`.",
    )

    @model_validator(mode="after")
    def _one_maker(self) -> ExportEntry:
        if self.command is None:
            if self.file is not None:
                raise mistake(
                    "'file' is where a 'command' leaves its file; a file that is there already is "
                    "named by 'onnx', beside 'export'"
                )
            return self
        others = sorted(self.model_fields_set - {"command", "file"})
        if others:
            raise mistake(
                f"'command' makes the file by itself; remove {', '.join(map(quote, others))}, or say "
                "it in the command"
            )
        if OUTPUT in self.command and self.file is not None:
            raise mistake(f"the command writes to {OUTPUT}; remove 'file'")
        if OUTPUT not in self.command and self.file is None:
            raise mistake(
                f"nothing says where the command leaves its file; write {OUTPUT} in it for the path, "
                "or add 'file: model.onnx'"
            )
        return self
