"""Cut GitHub's OpenAPI description down to the operations that onnx-gate uses.

The source is the npm package ``@octokit/openapi`` (MIT licence, see LICENSE beside this file):

    npm pack @octokit/openapi@23.0.2 && tar xzf octokit-openapi-23.0.2.tgz
    python trim.py package/generated/api.github.com.json api.github.com.json
    python trim.py package/generated/ghes-3.19.json ghes-3.19.json

Prose and examples go, ``nullable`` of OpenAPI 3.0 becomes a type of JSON Schema, and of the
schemas those stay that an answer can reach.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

REPOSITORY = "/repos/{owner}/{repo}"
OPERATIONS = {
    "/user": ("get",),
    f"{REPOSITORY}/issues/{{issue_number}}/comments": ("get", "post"),
    f"{REPOSITORY}/issues/comments/{{comment_id}}": ("patch", "delete"),
    f"{REPOSITORY}/commits/{{commit_sha}}/pulls": ("get",),
    f"{REPOSITORY}/pulls": ("get",),
    f"{REPOSITORY}/pulls/{{pull_number}}": ("get",),
    f"{REPOSITORY}/pulls/{{pull_number}}/files": ("get",),
    f"{REPOSITORY}/pulls/{{pull_number}}/comments": ("get", "post"),
    f"{REPOSITORY}/pulls/comments/{{comment_id}}": ("delete",),
    f"{REPOSITORY}/actions/runs/{{run_id}}": ("get",),
    f"{REPOSITORY}/actions/runs/{{run_id}}/artifacts": ("get",),
    f"{REPOSITORY}/actions/artifacts/{{artifact_id}}/{{archive_format}}": ("get",),
    f"{REPOSITORY}/actions/workflows/{{workflow_id}}/runs": ("get",),
    f"{REPOSITORY}/contents/{{path}}": ("get",),
}
KEYWORDS = {
    *("type", "enum", "required", "properties", "items", "additionalProperties", "nullable"),
    *("oneOf", "anyOf", "allOf", "not", "pattern", "default", "$ref"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
}


def main(source: Path, target: Path) -> None:
    """Read a whole description and write the trimmed one, one schema a line."""
    whole = json.loads(source.read_text("utf-8"))
    schemas: dict[str, Any] = {}
    paths = {
        path: {
            method: operation(whole, whole["paths"][path][method], schemas) for method in methods
        }
        for path, methods in OPERATIONS.items()
    }
    prefix = whole["servers"][0]["url"].partition("hostname}")[2]
    lines = [
        f'"source": "@octokit/openapi {whole["info"]["version"]}, {source.name}, MIT licence"',
        f'"prefix": {json.dumps(prefix)}',
        _block("paths", paths),
        _block("schemas", dict(sorted(schemas.items()))),
    ]
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def operation(whole: dict[str, Any], full: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """Return what of an operation can be checked: parameters, body, and answers by status."""
    parameters = {"path": {}, "query": {}}
    for entry in full.get("parameters", []):
        entry = resolve(whole, entry)
        if entry["in"] in parameters:
            parameters[entry["in"]][entry["name"]] = schema(whole, entry["schema"], schemas)
    answers = {}
    for status, answer in full["responses"].items():
        content = resolve(whole, answer).get("content", {})
        answers[status] = (
            schema(whole, content["application/json"]["schema"], schemas)
            if "application/json" in content
            else None
        )
    body = full.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    return {
        **parameters,
        "body": schema(whole, body, schemas) if body else None,
        "answers": answers,
    }


def schema(whole: dict[str, Any], full: Any, schemas: dict[str, Any]) -> Any:
    """Return a schema of JSON Schema 2020-12, and add those that it refers to."""
    if not isinstance(full, dict):
        return full
    kept = {key: value for key, value in full.items() if key in KEYWORDS}
    kept.pop("default", None)
    nullable = kept.pop("nullable", False)
    if "$ref" in kept:
        name = kept["$ref"].rpartition("/")[2]
        if name not in schemas:
            schemas[name] = {}
            schemas[name] = schema(whole, whole["components"]["schemas"][name], schemas)
        kept = {"$ref": f"#/schemas/{name}"}
    if "properties" in kept:
        kept["properties"] = {
            name: schema(whole, value, schemas) for name, value in kept["properties"].items()
        }
    for key in ("oneOf", "anyOf", "allOf"):
        if key in kept:
            kept[key] = [schema(whole, value, schemas) for value in kept[key]]
    for key in ("items", "additionalProperties", "not"):
        if key in kept:
            kept[key] = schema(whole, kept[key], schemas)
    if not nullable:
        return kept
    if isinstance(kept.get("type"), str) and "enum" not in kept:
        return {**kept, "type": [kept["type"], "null"]}
    return {"anyOf": [kept, {"type": "null"}]}


def resolve(whole: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference to a shared parameter or answer."""
    while "$ref" in entry:
        _, _, group, name = entry["$ref"].split("/")
        entry = whole["components"][group][name]
    return entry


def _block(name: str, entries: dict[str, Any]) -> str:
    rows = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())
    return f"{json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
