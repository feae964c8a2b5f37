"""The first line of a comment can be read back, and nothing else can be taken for one."""

from __future__ import annotations

import json
import re
from dataclasses import asdict

import cmarkgfm
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onnx_gate.errors import UserError
from onnx_gate.github.header import Header, parse, path_named
from tests.support.github.strategies import JSON

NUMBERS = st.integers(0, 2**63 - 1)
IDS = st.text(min_size=1, max_size=64).filter(str.isprintable)
HEADERS = st.builds(
    Header,
    IDS | st.sampled_from(["--><script>", "<!-- x", "a-->b\\", "ünï 🎉 code", '"}']),
    NUMBERS,
    NUMBERS,
    st.text("0123456789abcdef", max_size=40),
    st.sampled_from(["pass", "diverged", "error"]),
    st.text(max_size=300).map(path_named),
    st.text(max_size=300).map(path_named),
)


def test_the_line_is_the_documented_one() -> None:
    header = Header("default", 17301, 1, "9b7d0c1e", "diverged", "gate.yml", "ml/onnx-gate.yml")
    assert header.line() == (
        '<!-- onnx-gate {"v":1,"id":"default","run":17301,"attempt":1,"sha":"9b7d0c1e",'
        '"verdict":"diverged","workflow":"gate.yml","manifest":"ml/onnx-gate.yml"} -->'
    )


@given(HEADERS, st.text())
def test_round_trip(header: Header, rest: str) -> None:
    line = header.line()
    assert parse(line) == parse(f"{line}\n{rest}") == parse(f"{line}\r\n{rest}") == header
    assert parse(f" {line}\n{rest}") is None
    assert parse(f"x\n{line}\n{rest}") is None
    assert re.findall("--+>|<", line[4:]) == ["-->"]
    assert len(line) < 4100


@given(HEADERS)
def test_it_is_invisible_on_github(header: Header) -> None:
    page = cmarkgfm.github_flavored_markdown_to_html(f"{header.line()}\n## Title\n")
    assert re.sub("(?s)<!--.*?-->", "", page).strip() == "<h2>Title</h2>"


@given(HEADERS, st.sampled_from(["v", *asdict(Header("x", 1, 1, "", "pass"))]), JSON)
@example(Header("default", 1, 1, "", "pass"), "run", 1.0)
@example(Header("default", 1, 1, "", "pass"), "v", True)
@example(Header("default", 1, 1, "", "pass"), "v", 2)
@example(Header("default", 1, 1, "", "pass"), "attempt", -1)
@example(Header("default", 1, 1, "", "pass"), "id", "a\nb")
@example(Header("default", 1, 1, "", "pass"), "manifest", "a\nb")
def test_every_field_is_checked(header: Header, name: str, value: object) -> None:
    fields = {"v": 1, **asdict(header), name: value, "more": "is allowed"}
    read = parse(f"<!-- onnx-gate {json.dumps(fields)} -->")
    if read is not None:
        assert type(getattr(read, name)) is type(getattr(header, name))
        assert parse(read.line()) == read
        assert (read.v, read.verdict in ("pass", "diverged", "error")) == (1, True)
    del fields[name]
    assert parse(f"<!-- onnx-gate {json.dumps(fields)} -->") is None


@given(st.text() | st.binary() | JSON)
def test_nothing_else_is_one(body: object) -> None:
    assert parse(body) is None


@pytest.mark.parametrize(
    "text",
    ["[" * 1000, "{" * 500, '{"v":' + "9" * 1000 + "}", "{" + '"a":{' * 150 + "}" * 151, "{}"],
)
def test_hostile_json_is_no_header(text: str) -> None:
    assert parse(f"<!-- onnx-gate {text} -->\n") is None


def test_a_wrong_id_is_the_users_error() -> None:
    for name in ("", "a\nb", "x" * 65, "a\u202eb"):
        with pytest.raises(UserError, match="comment-id"):
            Header(name, 1, 1, "", "pass")
    with pytest.raises(ValueError, match="verdict"):
        Header("default", 1, 1, "", "green")
