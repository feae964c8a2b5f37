"""YAML with places: what is read, what is refused, and where it stands."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from onnx_gate.manifest import yaml_source
from onnx_gate.pages import page

Complaints = Callable[[str | bytes], list[str]]


@pytest.fixture(params=["libyaml", "pure"], autouse=True)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both parsers of PyYAML: wheels without libyaml exist."""
    if request.param == "pure":
        monkeypatch.setattr(yaml_source, "_LOADER", yaml.SafeLoader)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("PyYAML without libyaml")
    return str(request.param)


def refusal(text: str) -> str:
    with pytest.raises(yaml_source.Unreadable) as caught:
        yaml_source.read(text)
    return f"{caught.value.location.line}:{caught.value.location.column}: {caught.value.message}"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-0", 0),
        ("017", 17),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("1e-4", 1e-4),
        ("1.", 1.0),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        (".", "."),
        ("-", None),
        ("e5", "e5"),
        ("true", True),
        ("FALSE", False),
        ("yes", "yes"),
        ("off", "off"),
        ("~", None),
        ("", None),
        ("null", None),
        ("'1'", "1"),
        ('"true"', "true"),
        ("!!str 1", "1"),
        ("! 1", "1"),
        ("2027-03-31", "2027-03-31"),
        ("=", "="),
        ("<<", "<<"),
        ("|\n  a\n  b\n", "a\nb\n"),
    ],
)
def test_scalars(text: str, value: Any) -> None:
    read = yaml_source.read(f"key: {text}" if text != "-" else "key:\n  -")
    expected = [None] if text == "-" else value
    assert read.data == {"key": expected}
    assert type(read.data["key"]) is type(expected)


def test_places_are_those_of_the_text() -> None:
    read = yaml_source.read("a:\n  - b: [1, x]\n    c: {}\n'd e':   5\nf:\n")
    assert read.data == {"a": [{"b": [1, "x"], "c": {}}], "d e": 5, "f": None}
    shown = {json.dumps(path): (at.line, at.column) for path, at in read.values.items()}
    assert shown == {
        "[]": (1, 1),
        '["a"]': (2, 3),
        '["a", 0]': (2, 5),
        '["a", 0, "b"]': (2, 8),
        '["a", 0, "b", 0]': (2, 9),
        '["a", 0, "b", 1]': (2, 12),
        '["a", 0, "c"]': (3, 8),
        '["d e"]': (4, 10),
        '["f"]': (5, 1),
    }
    assert (read.keys[("d e",)].line, read.keys[("d e",)].column) == (4, 1)


def test_aliases_and_merge_keys() -> None:
    read = yaml_source.read(
        "a: &a {x: 1, y: 2}\nb: *a\nc: {y: 3, <<: *a, z: 4}\nd: {<<: [{x: 5}, *a]}\ne: {'<<': 1}\n"
    )
    assert read.mistakes == []
    assert read.data["b"] == {"x": 1, "y": 2}
    assert read.data["c"] == {"x": 1, "y": 3, "z": 4}
    assert read.data["d"] == {"x": 5, "y": 2}
    assert read.data["e"] == {"<<": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"1:1: the file is empty; write one: {page('manifest.md')}"),
        ("# only this\n", f"1:1: the file is empty; write one: {page('manifest.md')}"),
        ("a: 1\n---\nb: 2\n", "2:1: a second document begins here"),
        ("a:\n\tb: 1\n", "indent with spaces, never with tabs"),
        ("a: 'x\n", "this is not YAML"),
        ("a: [1, 2\nb: 3\n", "this is not YAML"),
        ("a: {b: [\n", "something is open; close the bracket or the quote"),
        ("a: b: c\n", "1:5: this is not YAML: mapping values are not allowed"),
        ("i: {x: float32[a, 3]}\n", 'inside braces a shape needs quotes: {image: "float32[1, 3]"}'),
        ("f: *.npz\n", "a value that begins with a special character needs quotes"),
        ("a: *nope\n", "1:4: no anchor &nope before this alias"),
        ("a: &a [1, *a]\n", "1:11: the anchor &a contains itself; write it out"),
        ("a: \x07\n", "1:4: the character U+0007 is not allowed in YAML; remove it"),
        ("a: 1\nb: x\ufffe\n", "2:5: the character U+FFFE is not allowed in YAML; remove it"),
        ("a: " + "9" * 41, "1:4: a number of 41 digits; at most 40 are read"),
        ('a: "\\U00110000"\n', "this is not YAML"),
    ],
)
def test_text_that_cannot_be_read(text: str, message: str) -> None:
    assert message in refusal(text)


@pytest.mark.parametrize("pair", ["[]", "{}"])
def test_depth_has_a_limit(pair: str) -> None:
    opening = pair[0] + ("a: " if pair == "{}" else "")
    assert yaml_source.read(opening * 40 + "1" + pair[1] * 40)
    assert "nested deeper than 40 levels" in refusal(opening * 41 + "1" + pair[1] * 41)
    assert "nested deeper than 40 levels" in refusal(opening * 200_000)


def test_depth_counts_what_aliases_bring() -> None:
    lines = ["x0: &x0 [1]"]
    lines += [f"x{level}: &x{level} [[[[*x{level - 1}]]]]" for level in range(1, 12)]
    assert "nested deeper" in refusal("\n".join(lines))


@pytest.mark.parametrize("form", ["[{0}]", "{{a: {1}}}", "{{<<: [{0}]}}"])
def test_a_billion_laughs_are_not_laughed(form: str) -> None:
    lines = ["x0: &x0 {k: [" + ", ".join("0" * 20) + "]}"]
    for level in range(1, 12):
        before = f"*x{level - 1}"
        several = ", ".join([before] * 9)
        lines.append(f"x{level}: &x{level} " + form.format(several, f"[{several}]"))
    assert "more than 100000 values" in refusal("\n".join(lines))


def test_duplicates_are_found_at_every_level(complaints: Complaints) -> None:
    assert complaints(
        "version: 1\nmodels:\n  m: {model: 'a:b', inputs: {}, seed: 1, seed: 2}\nversion: 1\n"
    ) == [
        "3:42: models.m: the key 'seed' is already on line 3; keep one of them",
        "4:1: the key 'version' is already on line 1; keep one of them",
    ]


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system [ls]", "!!python/name:os.system", "!x y", "!!binary x"]
)
def test_tags_are_refused(tag: str, complaints: Complaints) -> None:
    found = complaints(f"version: 1\nmodels:\n  m:\n    model: a:b\n    inputs: {tag}\n")
    assert found[0].startswith("5:13: the tag ")
    assert found[0].endswith(" is not allowed; write plain values")


def test_keys_must_be_text(complaints: Complaints) -> None:
    (line,) = complaints("version: 1\nmodels: {m: {model: 'a:b', inputs: {}, kwargs: {[1]: 2}}}\n")
    assert line == "2:49: models.m.kwargs: a key must be plain text; remove the brackets"
