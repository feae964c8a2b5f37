"""The JSON Schema of a manifest, generated from the types that validate it."""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from onnx_gate.manifest.schema import ManifestFile

ID = "urn:onnx-gate:manifest:1"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _Generator(GenerateJsonSchema):
    """Without titles made from the names of keys, and without the null that means not written."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def json_schema() -> dict[str, Any]:
    """The schema, draft 2020-12, as plain data."""
    made = ManifestFile.model_json_schema(schema_generator=_Generator)
    tidied: dict[str, Any] = _tidy(made)
    return {"$schema": DIALECT, "$id": ID, **tidied}


def render() -> str:
    """The schema as the text of its file."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _tidy(node: Any) -> Any:
    if isinstance(node, list):
        return [_tidy(each) for each in node]
    if not isinstance(node, dict):
        return node
    made = {key: _tidy(value) for key, value in node.items() if (key, value) != ("default", None)}
    patterns = made.pop("patternProperties", None)
    if patterns:  # pydantic's form for keys with a pattern lets every other key pass
        ((pattern, values),) = patterns.items()
        made |= {"propertyNames": {"pattern": pattern}, "additionalProperties": values}
    return made


if __name__ == "__main__":
    sys.stdout.write(render())
