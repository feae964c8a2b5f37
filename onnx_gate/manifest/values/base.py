"""What all values of a manifest share: mistakes in sentences, and notes of what was read as what."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, TypeAdapter, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from onnx_gate.manifest.problems import describe
from onnx_gate.text import quote

MAX_TEXT = 1000
T = TypeVar("T")


def mistake(message: str) -> PydanticCustomError:
    """An error whose message is shown to the user as it is."""
    return PydanticCustomError("manifest", "{message}", {"message": message})


def checked(check: Callable[..., Any], *values: Any) -> Any:
    """What a function makes of values; its ``ValueError`` is the user's mistake."""
    try:
        return check(*values)
    except ValueError as error:
        raise mistake(str(error)) from None


def words(value: Any, expected: str) -> str:
    """Text of a sane length without control characters."""
    if not isinstance(value, str):
        raise mistake(f"expected {expected}, found {describe(value)}")
    if not value.strip():
        raise mistake(f"expected {expected}, found empty text")
    if len(value) > MAX_TEXT:
        raise mistake(f"{len(value)} characters are too many; write at most {MAX_TEXT}")
    if not value.isprintable():
        raise mistake(f"{quote(value)} has characters that cannot be printed; remove them")
    return value


def unique(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values themselves; an error where one is there twice."""
    seen = set()
    for value in values:
        if value in seen:
            raise mistake(f"{describe(value)} is listed twice; remove one")
        seen.add(value)
    return values


def written(value: Any) -> Any:
    """The value itself; an error where the key has none."""
    if value is None:
        raise mistake("nothing is written here; write a value or remove the key")
    return value


Maybe = Annotated[T | None, BeforeValidator(written)]
Given = Annotated[T, BeforeValidator(written)]
Null = Annotated[None, WithJsonSchema({"type": "null"})]


def text_schema(title: str, **schema: object) -> WithJsonSchema:
    """The JSON Schema of text; the title is the name of the type in the documentation."""
    return WithJsonSchema({"title": title, "type": "string", **schema})


def choice(values: Iterable[str]) -> WithJsonSchema:
    """The JSON Schema of one of several words."""
    return WithJsonSchema({"enum": list(values)})


def note(kind: type) -> BeforeValidator:
    """Note in the context of a validation which mapping was read as what."""

    def noted(value: Any, info: ValidationInfo) -> Any:
        if info.context is not None:
            info.context[id(value)] = kind
        return value

    return BeforeValidator(noted)


def read(kind: Any, value: Any, info: ValidationInfo) -> Any:
    """A value as one of several types, which was told apart already."""
    return _adapter(kind).validate_python(value, context=info.context)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def keys_of(kind: type) -> tuple[str, ...]:
    """The keys of a mapping that is read as a type."""
    if issubclass(kind, BaseModel):
        return tuple(kind.model_fields)
    if is_dataclass(kind):
        return tuple(each.name for each in fields(kind))
    return tuple(kind.__annotations__)
