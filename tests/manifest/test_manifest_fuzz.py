"""Whatever stands in the file, the answer is a manifest or a list of problems with places."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from onnx_gate.manifest import DTYPES, Manifest, ManifestError, load, yaml_source
from onnx_gate.manifest.values import shapes
from tests.support.profiles import tries
from tools import manifest_page

KEYS = (
    *("version", "models", "suites", "tolerances", "defaults", "dims", "requirements", "m", "<<"),
    *("model", "inputs", "weights", "onnx", "outputs", "export", "runtimes", "tolerance", "args"),
    *("kwargs", "timeout", "memory", "seed", "required", "waivers", "check", "until", "reason"),
    *("ceiling", "random", "count", "edges", "files", "generator", "auto", "atol", "topk", "k"),
    *("agreement", "metric", "max", "mismatch", "dtype", "shape", "range", "name", "provider"),
    *("options", "session_options", "optimization", "exporter", "opset", "image", "a/b", "[key]"),
)
VALUES: tuple[Any, ...] = (
    *("a.b:c", "models/resnet.py:f", "../x.py:f", "float32[batch, 3]", "int64[n]", "float32[", "x"),
    *("normal", "typical", "serving", "onnxruntime", "off", "no", "10m", "8GiB", "2027-03-31"),
    *("a\0b", "\ud800", "\u202e", "é" * 200, ":", "", "*", "&a", "{", "!!python/name:os.system"),
    *(True, False, None, 0, 1, 2, -1, 0.5, 1e-4, 1e400, float("nan"), 10**30, [], {}),
)
SECTIONS = ("suites", "tolerances", "defaults", "dims", "requirements")
scalars = st.sampled_from(VALUES) | st.text(max_size=8) | st.integers() | st.floats()
keys = st.sampled_from(KEYS) | st.text(max_size=4)
structures = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=6),
    max_leaves=25,
)
FUZZ = settings(
    max_examples=tries(80),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def outcome(workspace: Path, content: bytes) -> Manifest | None:
    """Load the content; check that its problems, if any, are ones that a user can read."""
    path = workspace / "onnx-gate.yml"
    path.write_bytes(content)
    try:
        return load(path)
    except ManifestError as error:
        problems = error.problems
    lines = len((content.decode(errors="replace") + " ").splitlines())
    assert problems
    for problem in problems:
        assert 1 <= problem.line <= lines
        assert problem.column >= 1
        assert problem.message
        assert str(problem).partition("onnx-gate.yml:")[2].isprintable()
        assert "validation error" not in problem.message
        assert "pydantic" not in problem.message
    places = [(problem.line, problem.column) for problem in problems]
    assert places == sorted(places)
    return None


def as_yaml(value: Any) -> bytes:
    try:
        return yaml.safe_dump(value, allow_unicode=True).encode()
    except (UnicodeEncodeError, yaml.YAMLError):
        return json.dumps(value).encode()


@FUZZ
@given(content=st.binary(max_size=200))
@example(content=b"\xff\xfeversion")
def test_bytes(workspace: Path, content: bytes) -> None:
    outcome(workspace, content)


@FUZZ
@given(text=st.text(alphabet=string.printable + "é\u2028\x85", max_size=120))
@example(text="---")
def test_text(workspace: Path, text: str) -> None:
    outcome(workspace, text.encode())


@FUZZ
@given(value=structures)
def test_structures(workspace: Path, value: Any) -> None:
    outcome(workspace, as_yaml(value))


@FUZZ
@given(
    parts=st.fixed_dictionaries(
        {"version": st.just(1) | scalars, "models": st.dictionaries(keys, structures, max_size=3)},
        optional=dict.fromkeys(SECTIONS, structures),
    )
)
def test_structures_that_look_like_a_manifest(workspace: Path, parts: Any) -> None:
    outcome(workspace, as_yaml(parts))


def places_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value if isinstance(value, list) else ())
    )
    return [path] + [each for key, child in children for each in places_of(child, (*path, key))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


WHOLE = yaml_source.read(manifest_page.WHOLE).data


# Once read for ever: nothing was left to cut out, and the rest was tried again and again.
ENDLESS = {
    "shape": "off",
    "\x0bH\x080": {
        "[key]": 135321,
        "BÎf\U000763b3": "2027-03-31",
        "onnx": [
            "",
            "ó\U00031cb7큛Ä\U00049a1f¢\U000be68dW",
            "°hrÇ\x17\x9de\x02",
            "\x14\U00053fe3K",
        ],
        "kwargs": "kì~XÃwì\U000ba69d",
    },
}


@settings(FUZZ, max_examples=tries(120))
@given(path=st.sampled_from(places_of(WHOLE)), new=structures)
@example(path=("models", "resnet18", "kwargs"), new=ENDLESS)
def test_one_value_of_a_good_manifest_replaced(
    workspace: Path, path: tuple[Any, ...], new: Any
) -> None:
    outcome(workspace, as_yaml(replaced(WHOLE, path, new)))


@FUZZ
@given(data=st.data())
def test_a_piece_of_a_good_manifest_cut_out(workspace: Path, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(manifest_page.WHOLE)))
    end = data.draw(st.integers(begin, min(len(manifest_page.WHOLE), begin + 60)))
    filling = data.draw(st.sampled_from(["", "\t", "{", "]", "'", "&a ", "*a", "<<: ", "- ", "#"]))
    outcome(workspace, (manifest_page.WHOLE[:begin] + filling + manifest_page.WHOLE[end:]).encode())


@FUZZ
@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(
        st.integers(1, shapes.MAX_SIZE) | st.from_regex(rf"\A{shapes.NAME}\Z"), max_size=8
    ),
    space=st.sampled_from(["", " ", "  "]),
)
def test_the_short_form_of_every_input_is_read_back(
    dtype: str, shape: list[int | str], space: str
) -> None:
    text = f"{space}{dtype}{space}[{f',{space}'.join(map(str, shape))}]{space}"
    assert shapes.parse(text) == (dtype, tuple(shape))


@FUZZ
@given(text=st.text(alphabet="float32in[], -09azAZ_\u0663", max_size=30))
def test_any_text_is_an_input_or_a_sentence(text: str) -> None:
    try:
        dtype, shape = shapes.parse(text)
    except ValueError as error:
        message = str(error)
    else:
        message = "read"
        assert dtype in DTYPES
        assert all(isinstance(each, str) or each >= 1 for each in shape)
    assert message.isprintable()


def test_the_good_manifest_is_good(workspace: Path) -> None:
    assert outcome(workspace, as_yaml(WHOLE)) is not None


@pytest.mark.parametrize("key", ["m", "x" * 100, "no", "1", "a.b", "é", "a b", "[key]", "<>"])
def test_any_name_of_a_model(workspace: Path, key: str) -> None:
    manifest = outcome(
        workspace, as_yaml({"version": 1, "models": {key: {"model": "a:b", "inputs": {}}}})
    )
    assert manifest is not None
    assert [model.name for model in manifest.models] == [key]
