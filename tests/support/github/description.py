"""GitHub's OpenAPI description: checks requests and answers, and completes answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parent / "openapi"


@dataclass(frozen=True)
class Operation:
    """One method of one path, with the values that stood in the path."""

    method: str
    template: str
    arguments: dict[str, str]
    definition: dict[str, Any]


class Description:
    """A trimmed description: ``api.github.com`` or ``ghes-3.19``."""

    def __init__(self, edition: str) -> None:
        self._whole = json.loads((FOLDER / f"{edition}.json").read_text("utf-8"))
        self.prefix: str = self._whole["prefix"]
        self._validators: dict[str, Draft202012Validator] = {}

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], str]]:
        return [(_pattern(template), template) for template in self._whole["paths"]]

    def find(self, method: str, path: str) -> Operation | None:
        """Return the operation for a path without prefix and query."""
        for pattern, template in self._patterns:
            match = pattern.fullmatch(path)
            definition = self._whole["paths"][template].get(method.lower())
            if match and definition:
                return Operation(method, template, match.groupdict(), definition)
        return None

    def check_request(self, operation: Operation, query: str, body: object) -> Iterator[str]:
        """Yield what is wrong with a request."""
        for name, value in operation.arguments.items():
            yield from self._check(operation.definition["path"].get(name, {}), _typed(value), name)
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name not in operation.definition["query"]:
                yield f"{name}: no parameter of {operation.method} {operation.template}"
                continue
            schema = operation.definition["query"][name]
            number = schema.get("type") in ("integer", "boolean")
            yield from self._check(schema, _typed(value) if number else value, name)
        schema = operation.definition["body"]
        if schema is None:
            if body is not None:
                yield f"{operation.method} {operation.template} takes no body"
            return
        yield from self._check(schema, body, "body")
        for name in body if isinstance(body, dict) else ():
            if name not in schema["properties"]:
                yield f"body: unknown {name}"

    def check_answer(self, operation: Operation, status: int, body: object) -> Iterator[str]:
        """Yield what is wrong with an answer."""
        answers = operation.definition["answers"]
        if str(status) in answers:
            schema = answers[str(status)]
        elif status >= 400:
            schema = {"$ref": "#/schemas/basic-error"}
        else:
            yield f"{operation.method} {operation.template} never answers {status}"
            return
        if schema is None:
            if body is not None and status < 400:
                yield f"answer {status} has no body"
            return
        yield from self._check(schema, body, f"answer {status}")

    def complete(self, operation: Operation, status: int, given: Any) -> Any:
        """Return an answer with every required field that is not given made up."""
        schema = operation.definition["answers"].get(str(status))
        return given if schema is None else self._fill(schema, given)

    def _fill(self, schema: dict[str, Any], given: Any) -> Any:
        schema = self._resolve(schema, array=isinstance(given, list))
        if isinstance(given, list):
            return [self._fill(schema.get("items", {}), item) for item in given]
        if not isinstance(given, dict):
            return given
        filled = dict(given)
        properties = schema.get("properties", {})
        for name, part in properties.items():
            if name in given:
                filled[name] = self._fill(part, given[name])
            elif name in schema.get("required", ()):
                filled[name] = self._fill(part, self._example(part))
        return filled

    def _resolve(self, schema: dict[str, Any], array: bool = False) -> dict[str, Any]:
        while True:
            if "$ref" in schema:
                schema = self._whole["schemas"][schema["$ref"].rpartition("/")[2]]
            elif any(key in schema for key in ("oneOf", "anyOf", "allOf")):
                key = next(key for key in ("oneOf", "anyOf", "allOf") if key in schema)
                schema = max(schema[key], key=lambda part: self._weight(part, array))
            else:
                return schema

    def _weight(self, schema: dict[str, Any], array: bool) -> tuple[bool, int, bool]:
        """Prefer what can be an answer of that form, and then the fullest."""
        resolved = self._resolve(schema)
        fits = (resolved.get("type") == "array") == array
        return fits, len(resolved.get("required", ())), "properties" in resolved

    def _example(self, schema: dict[str, Any]) -> Any:
        if _nullable(schema):
            return None
        schema = self._resolve(schema)
        if "enum" in schema:
            return schema["enum"][0]
        kind = schema.get("type", "object")
        kind = kind if isinstance(kind, str) else ("null" if "null" in kind else kind[0])
        made = {"null": None, "string": "", "boolean": False, "array": [], "object": {}}
        return made.get(kind, schema.get("minimum", 0))

    def _check(self, schema: dict[str, Any], value: object, place: str) -> Iterator[str]:
        key = json.dumps(schema)
        if key not in self._validators:
            root = {**schema, "schemas": self._whole["schemas"]}
            self._validators[key] = Draft202012Validator(root)
        for error in self._validators[key].iter_errors(value):
            yield f"{place}: {error.json_path}: {error.message[:200]}"


@cache
def describe(edition: str) -> Description:
    """Return a description, read only once."""
    return Description(edition)


def _pattern(template: str) -> re.Pattern[str]:
    # Only a file's path may hold slashes.
    named = re.sub(
        r"\{(\w+)\}",
        lambda match: f"(?P<{match[1]}>{'.+' if match[1] == 'path' else '[^/]+'})",
        template,
    )
    return re.compile(named)


def _nullable(schema: dict[str, Any]) -> bool:
    return "null" in schema.get("type", "") or {"type": "null"} in schema.get("anyOf", [])


def _typed(value: str) -> object:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if re.fullmatch(r"-?[0-9]+", value) else value
