"""The schema and the documentation are what the types say, and the examples in them hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from onnx_gate.manifest import EDGE_KINDS, load
from onnx_gate.manifest import jsonschema as generated
from tests.support.gate import ROOT
from tools import manifest_page

SCHEMA = generated.json_schema()
ENTRIES: dict[str, Any] = {"ManifestFile": SCHEMA, **SCHEMA["$defs"]}

MINIMAL: dict[str, Any] = {"version": 1, "models": {"m": {"model": "a.b:c", "inputs": {}}}}


def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(generated.json_schema())


def data(text: str) -> Any:
    # BaseLoader would leave numbers as text; dates must stay text, as they are in JSON.
    class Loader(yaml.SafeLoader):
        pass

    Loader.yaml_implicit_resolvers = {
        first: [each for each in resolvers if not each[0].endswith("timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return yaml.load(text, Loader)


def test_the_schema_in_the_repository_is_current() -> None:
    path = ROOT / "schema/onnx-gate.schema.json"
    assert path.read_text(encoding="utf-8") == generated.render(), (
        "run: python -m onnx_gate.manifest.jsonschema > schema/onnx-gate.schema.json"
    )


def test_the_documentation_in_the_repository_is_current() -> None:
    path = ROOT / "docs/manifest.md"
    assert path.read_text(encoding="utf-8") == manifest_page.render(), (
        "run: python -m tools.manifest_page > docs/manifest.md"
    )


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(generated.json_schema())


@pytest.mark.parametrize("text", [manifest_page.SMALLEST, manifest_page.WHOLE])
def test_the_examples_load_and_satisfy_the_schema(text: str, workspace: Path) -> None:
    path = workspace / "onnx-gate.yml"
    path.write_text(text)
    assert load(path).models
    assert list(validator().iter_errors(data(text))) == []


def test_the_whole_example_shows_every_key() -> None:
    shown: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            shown.update(map(str, node))
            node = list(node.values())
        if isinstance(node, list):
            for each in node:
                walk(each)

    walk(data(manifest_page.WHOLE))
    # A cache of its own kind is shown on the page beside it.
    for name in ENTRIES.keys() - {"CacheEntry"}:
        assert set(ENTRIES[name]["properties"]) - {"where"} <= shown, name


def test_every_key_is_documented_with_a_sentence() -> None:
    page = manifest_page.render()
    for name, entry in ENTRIES.items():
        for key, field in entry["properties"].items():
            assert f"| `{key}` |" in page
            assert field["description"].endswith("."), f"{name}.{key}"


def test_every_kind_of_edge_case_is_documented() -> None:
    assert tuple(manifest_page.EDGE_MEANINGS) == EDGE_KINDS


def test_every_link_of_the_documentation_leads_to_a_heading() -> None:
    page = manifest_page.render()
    headings = {
        line[3:].lower().replace(" ", "-") for line in page.splitlines() if line[:3] == "## "
    }
    targets = {part.partition(")")[0] for part in page.split("](#")[1:]}
    assert targets <= headings


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"models": {}},
        {"modles": {}},
        {"models": {"a/b": MINIMAL["models"]["m"]}},
        {"models": {"m": {"model": "a.b:c"}}},
        {"models": {"m": {"model": "a.b", "inputs": {}}}},
        {"models": {"m": {"model": "/a.py:b", "inputs": {}}}},
        {"models": {"m": {"model": "a:b", "inputs": {"x": "flaot32[1]"}}}},
        {"models": {"m": {"model": "a:b", "inputs": {"x": {"dtype": "int8", "shape": [0]}}}}},
        {"models": {"m": {"model": "a:b", "inputs": {}, "timeout": "10 minutes"}}},
        {"models": {"m": {"model": "a:b", "inputs": {}, "memory": "8G"}}},
        {"models": {"m": {"model": "a:b", "inputs": {}, "weights": "/w.bin"}}},
        {"models": {"m": {"model": "a:b", "inputs": {}, "weights": None}}},
        {"models": {"m": {"model": "a:b", "inputs": {}, "onnx": "a.onnx", "export": {}}}},
        {"models": {"m": {"model": "a:b", "inputs": {}, "tolerance": {"mismatch": 0.1}}}},
        {"models": {"m": {"model": "a:b", "inputs": {}, "dims": {"x y": [1]}}}},
        {"models": {"m": {"model": "a:b", "inputs": {}, "outputs": []}}},
        {"suites": {"s": {"random": "normal", "edges": ["zeros"]}}},
        {"suites": {"s": {"edges": ["lage"]}}},
        {"tolerances": {"t": {"metric": "a:b"}}},
        {"dims": {"batch": []}},
    ],
)
def test_the_schema_refuses_what_the_gate_refuses(change: dict[str, Any], workspace: Path) -> None:
    assert list(validator().iter_errors(MINIMAL)) == []
    assert list(validator().iter_errors({**MINIMAL, **change}))


def test_the_schema_leaves_suites_of_other_packages_alone() -> None:
    change = {"suites": {"s": {"fuzz": 3, "depth": {"a": 1}}}}
    assert list(validator().iter_errors({**MINIMAL, **change})) == []
