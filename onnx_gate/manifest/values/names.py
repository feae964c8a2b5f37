"""Names, references and paths."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainValidator

from onnx_gate.manifest.paths import is_program
from onnx_gate.manifest.values.base import mistake, text_schema, words
from onnx_gate.manifest.values.shapes import NAME
from onnx_gate.text import quote

_IDENTIFIER = re.compile(NAME)
_DOTTED_PATTERN = rf"{NAME}(\.{NAME})*"
_DOTTED = re.compile(_DOTTED_PATTERN)
_RELATIVE = r"(?![/~])[^\\\n]+"


def read_reason(value: Any) -> str:
    """Any text that is not empty, on one line or several."""
    if isinstance(value, str):
        value = " ".join(value.split())
    return words(value, "text")


def read_name(value: Any) -> str:
    """A name that is safe in reports, case ids and file names."""
    name = words(value, "a name")
    if len(name) > 100:
        raise mistake(f"a name of {len(name)} characters is too long; use at most 100")
    if "/" in name:
        raise mistake(f"{quote(name)} cannot be a name; leave out '/', as files are named by it")
    if not name.strip("."):
        raise mistake(f"{quote(name)} cannot be a name; write more than dots")
    return name


def read_identifier(value: Any) -> str:
    """The name of a Python argument or of a dynamic dimension."""
    name = words(value, "a name")
    if not _IDENTIFIER.fullmatch(name) or len(name) > 100:
        raise mistake(f"{quote(name)} is not a name; use letters, digits and '_', no digit first")
    return name


def read_reference(value: Any, example: str = "models/resnet.py:build") -> str:
    """``path/to/file.py:attribute`` or ``package.module:attribute``."""
    text = words(value, f"file.py:attribute or package.module:attribute, such as {example}")
    where, colon, attribute = text.rpartition(":")
    if not colon:
        raise mistake(f"{quote(text)} names no attribute; write it after a colon, as in {example}")
    if not _DOTTED.fullmatch(attribute):
        raise mistake(
            f"{quote(attribute)} is not the name of an attribute; write one as in {example}"
        )
    if where.endswith(".py"):
        read_path(where)
    elif not _DOTTED.fullmatch(where):
        raise mistake(
            f"{quote(where)} is neither a .py file nor a dotted module; write {example} "
            f"or {example.replace('/', '.').replace('.py:', ':')}"
        )
    return text


def read_model(value: Any) -> str:
    """A reference to what makes the module, or the path of a TorchScript file."""
    if is_program(value):
        return read_path(value)
    return read_reference(value)


def read_path(value: Any) -> str:
    """A path below the manifest's folder; whether anything is there is checked later."""
    path = words(value, "a path relative to the manifest's folder")
    if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:", path):
        raise mistake(f"{quote(path)} is absolute; write it relative to the manifest's folder")
    if "\\" in path:
        raise mistake(f"{quote(path)} has a backslash; write / between folders")
    if ".." in path.split("/"):
        raise mistake(f"{quote(path)} leaves the manifest's folder; keep the file inside it")
    return path


def _read_onnx(value: Any) -> str:
    path = read_path(value)
    if not path.endswith(".onnx"):
        raise mistake(f"{quote(path)} cannot be read; the file must end in .onnx")
    return path


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _read_tensor_name(value: Any) -> str:
    return words(value, "the name of a tensor")


Name = Annotated[
    str, PlainValidator(read_name), text_schema("name", maxLength=100, pattern="^[^/]*[^/.][^/]*$")
]
TensorName = Annotated[str, PlainValidator(_read_tensor_name), text_schema("name", minLength=1)]
Identifier = Annotated[
    str, PlainValidator(read_identifier), text_schema("name", pattern=f"^{NAME}$")
]
Words = Annotated[str, PlainValidator(read_reason), text_schema("text", minLength=1)]
Reference = Annotated[
    str,
    PlainValidator(read_reference),
    text_schema(
        "reference",
        pattern=rf"^({_RELATIVE}\.py|{_DOTTED_PATTERN}):{_DOTTED_PATTERN}$",
        examples=["models/resnet.py:build", "package.module:Class"],
    ),
]
RelativePath = Annotated[
    str, PlainValidator(read_path), text_schema("path", pattern=f"^{_RELATIVE}$")
]
Program = Annotated[
    str,
    PlainValidator(read_model),
    text_schema("path", pattern=rf"^{_RELATIVE}\.(pt|pth|ts|jit|torchscript)$"),
]
WeightsPath = Annotated[
    str,
    PlainValidator(read_path),
    text_schema("path", pattern=f"^{_RELATIVE}$", examples=["checkpoints/model.safetensors"]),
]
OnnxPath = Annotated[
    str, PlainValidator(_read_onnx), text_schema("path", pattern=rf"^{_RELATIVE}\.onnx$")
]
_Glob = Annotated[
    str, PlainValidator(read_path), text_schema("glob", examples=["tests/data/*.npz"])
]
_Globs = Annotated[tuple[_Glob, ...], Field(min_length=1)]
Globs = Annotated[_Globs, BeforeValidator(_one_or_more, json_schema_input_type=_Glob | _Globs)]
