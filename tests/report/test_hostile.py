"""No text of a report is anything but text on GitHub's page, whatever it is and wherever it is."""

from __future__ import annotations

import functools
from dataclasses import replace
from unicodedata import category, normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_gate.pages import BASE
from onnx_gate.report.model import Report
from onnx_gate.report.render import html, junit, sarif, terminal
from onnx_gate.report.render.escape import code, fence, inline
from onnx_gate.report.render.markdown import Page, View, render
from onnx_gate.report.story import sentence
from onnx_gate.text import plain
from tests.support.profiles import tries
from tests.support.report.everything import (
    HUGE,
    all_replaced,
    everything,
    filled_fields,
    fixed_names,
    free_paths,
    rekeyed,
    replaced,
    text_fields,
)
from tests.support.report.hostile import BLANK, HOSTILE, ids
from tests.support.report.page import OPENING, REFERENCES, Shown, cached_page, page
from tests.support.report.scenes import VIEW

SPITE = (
    "|`</details></code>\n\n# @octocat #1 <!-- [x](http://evil.example) 9b7d0c1e www.a.b $a$\n```"
)
_SAFE_PATH = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-~/%"


@functools.cache
def _harmless(view: View) -> str:
    return render(everything(), view)


def assert_nothing_but_text(report: Report, view: View = VIEW, like: Report | None = None) -> None:
    """``report`` is shown with the elements of a harmless one, and with links of the view's only."""
    hostile = render(report, view)
    harmless = _harmless(view) if like is None else render(like, view)
    assert "<!--" not in hostile
    for raw_html in (True, False):
        seen, expected = page(hostile, raw_html=raw_html), cached_page(harmless, raw_html)
        assert seen.elements == expected.elements
        for address in seen.links:
            own = address in (view.run_url, view.report_url) or address.startswith(BASE)
            assert own or linked_file(address, view), address
        assert all(
            c in "\n\t\u200b" or category(c) == "Zs" or c.isprintable() for c in "".join(seen.text)
        )
        if not raw_html:
            continue
        assert seen.unbalanced == []
        assert openings(seen) == openings(expected)
        for text in seen.loose:
            for kind, reference in REFERENCES.items():
                assert not reference.search(text), f"{kind}: {text!r}"
    # Whatever is stored may be normalised on its way.
    normal = page(normalize("NFC", hostile))
    assert normal.elements == cached_page(harmless, True).elements


def openings(shown: Shown) -> int:
    return sum(OPENING.search(text) is not None for text in shown.loose)


def linked_file(address: str, view: View) -> bool:
    commit = f"{view.repository_url}/commit/{view.sha}"
    files = f"{view.repository_url}/blob/{view.sha}/"
    path, _, line = address.removeprefix(files).partition("#L")
    inside = set(path) <= set(_SAFE_PATH) and not {"", ".", ".."} & set(path.split("/"))
    return address == commit or (
        (address.startswith(files) and inside and line.isdigit()) or not line
    )


def test_there_are_many_of_them() -> None:
    assert len(set(HOSTILE)) >= 200


def test_every_text_field_is_attacked() -> None:
    """Fill a new field of the report in tests/support/report/everything.py, with a harmless text."""
    assert text_fields() - filled_fields() == set()
    words = {
        "verdict",
        "kind",
        "severity",
        "code",
        "criterion",
        "level",
        "base",
        "blame",
        "against",
        "unit",
        "form",
        "how",
        "refused",
        "causes",
        "sha",
        "depth",
        "fate",
        "by",
        "why",
        "never",
        "link",
        "before",
    }
    assert fixed_names() == words


@pytest.mark.parametrize("text", HOSTILE, ids=ids)
@pytest.mark.slow
def test_text_in_every_field_changes_nothing(text: str) -> None:
    assert_nothing_but_text(all_replaced(text))
    assert_nothing_but_text(all_replaced(f"x {text}\n{text}"))


@pytest.mark.parametrize(("place", "path"), list(enumerate(free_paths())), ids=str)
@pytest.mark.slow
def test_text_in_each_field_changes_nothing(place: int, path: tuple[str | int, ...]) -> None:
    """Each field has all marks at once, and one alone: the marks take turns, a page takes long."""
    # Of two runtimes each is named, where there is one it is not.
    like = replaced({path: "another"}) if path[-1] == "runtime" else None
    alone = ("|", "\n\n<!--", "```", "\u0338", "@a")
    for text in (SPITE, alone[place % len(alone)]):
        assert_nothing_but_text(replaced({path: text}), like=like)


@pytest.mark.parametrize("text", [SPITE, "| a |", "@octocat", "\n# x", "\ud800"], ids=ids)
def test_keys_are_text_too(text: str) -> None:
    assert_nothing_but_text(rekeyed(text))


@settings(max_examples=tries(150))
@given(st.text(max_size=40) | st.text(alphabet="|`<>[]()!-=#*_~@:/\\&; \n\t1a$\u0338", max_size=30))
def test_any_text_changes_nothing(text: str) -> None:
    assert_nothing_but_text(all_replaced(f"x{text}"))


@pytest.mark.parametrize("text", [SPITE, "a`b", *HOSTILE[::3]], ids=ids)
@pytest.mark.parametrize("part", ["headroom", "precision"])
def test_names_in_what_to_do_are_text(part: str, text: str) -> None:
    def named(name: str) -> Report:
        report = everything()
        one = next(m for m in report.models if m.headroom and m.precision and m.diagnosis)
        assert one.headroom is not None
        assert one.precision is not None
        assert one.diagnosis is not None
        own = [p.model_copy(update={"output": name}) for p in one.precision.proposals]
        changed = {
            "error": None,
            "verdict": "diverged",
            "diagnosis": one.diagnosis.model_copy(update={"blame": "reduced precision"}),
            "headroom": one.headroom.model_copy(update={"in_float32": (name,)}),
            "precision": one.precision.model_copy(
                update={"proposals": tuple(own), "names": {name: name}, "suspect": None}
            ),
            **({"headroom": None} if part == "precision" else {}),
        }
        models = [m.model_copy(update=changed) if m is one else m for m in report.models]
        return report.model_copy(update={"models": tuple(models)})

    like = named("another")
    asked = sentence.of_model(next(m for m in like.models if m.precision), "onnx-gate.yml")
    assert "another" in asked.action + asked.remedy
    assert_nothing_but_text(named(text), like=like)


@pytest.mark.parametrize("text", BLANK, ids=ascii)
@pytest.mark.parametrize("level", range(8))
def test_blank_text_breaks_nothing(text: str, level: int) -> None:
    shown = page(render(all_replaced(text), replace(VIEW, level=level)))
    assert shown.unbalanced == []
    assert {element[0] for element in shown.elements} <= {
        element[0] for element in page(render(everything(), VIEW)).elements
    }


@pytest.mark.parametrize("text", [SPITE, *HOSTILE[::7]], ids=ids)
def test_every_level_is_safe(text: str) -> None:
    report = all_replaced(text)
    for level in range(Page(report, VIEW).last + 1):
        assert_nothing_but_text(report, replace(VIEW, level=level))


@pytest.mark.parametrize("text", [SPITE, *HOSTILE[::3]], ids=ids)
def test_the_view_s_own_text_is_text(text: str) -> None:
    """A branch's name is anybody's choice."""
    assert_nothing_but_text(everything(), replace(VIEW, base=text, run_label=text))
    bad = View(repository_url=text, sha=text, run_url=text, report_url=text, manifest_path=text)
    shown = page(render(everything(), bad))
    assert shown.unbalanced == []
    links = [link for link in shown.links if not link.startswith(BASE)]
    assert {link for link in links if link != text} == set()
    assert not links or text.startswith(("http://", "https://"))


@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "https://a.b/)[x](https://evil.example", "https://a b", "//a"],
)
def test_what_is_no_address_is_no_link(address: str) -> None:
    view = replace(VIEW, repository_url=address, run_url=address, report_url=address)
    links = page(render(everything(), view)).links
    assert [link for link in links if not link.startswith(BASE)] == []


CONTEXTS = {
    "paragraph": "{}",
    "item": "- {} x",
    "cell": "| a |\n|---|\n| {} |",
    "summary": "<details><summary>{}</summary>\n\nx\n\n</details>",
    "quote": "> [!NOTE]\n> x {}",
    "heading": "## x {}",
    "link": "[{}](https://a.example)",
}


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("escape", [inline, code])
@settings(max_examples=tries(60))
@given(text=st.text(max_size=60) | st.sampled_from(HOSTILE))
def test_what_is_written_is_what_is_read(context: str, escape: object, text: str) -> None:
    assert callable(escape)
    template = CONTEXTS[context]
    shown = page(template.format(f"«{escape(text)}»"))
    read = "".join(shown.text).partition("«")[2].rpartition("»")[0]
    expected = plain(text, 300) or ("(empty)" if escape is code else "")
    read, expected = (t.replace("\u200b", "").replace("＄", "$") for t in (read, expected))
    assert " ".join(read.split()) == " ".join(expected.split())


@pytest.mark.parametrize(
    "text",
    [
        "0.039 of shape [2, 4] at logits[0, 3] on x86_64 (AVX2).",
        'aten::add has "mean" of 12 (of 0.1).',
        "onnx-gate run --model resnet18: a -> b",
    ],
)
def test_a_sentence_is_written_as_it_is_read(text: str) -> None:
    assert inline(text) == text


@pytest.mark.parametrize("text", ["1. a", "12) a", "[x] a", "a [b](c)", "a [1](c)", "a [^1]", "7."])
def test_what_would_be_markup_is_not(text: str) -> None:
    assert "&#" in inline(text)


@settings(max_examples=tries(200))
@given(st.text(max_size=200) | st.text(alphabet="`~a\n\r\u2028\u1fef|<-!>", max_size=80))
def test_a_block_holds_all_of_its_text_and_nothing_else(text: str) -> None:
    shown = page(f"{fence(text)}\n\nend")
    assert [element[0] for element in shown.elements] == ["pre", "code", "/code", "/pre", "p", "/p"]
    assert "".join(shown.loose).strip() == "end"


@pytest.mark.parametrize("text", HOSTILE, ids=ids)
@pytest.mark.slow
def test_the_other_renderings_stand_it_too(text: str) -> None:
    report = all_replaced(text)
    for line in terminal.render(report).splitlines():
        assert not line.lstrip().startswith("::")
        assert "##[" not in line
        assert all(c == "\u200b" or c.isprintable() for c in line)
    junit.render(report).encode()
    sarif.render(report).encode()
    html.render(report).encode()


@pytest.mark.parametrize("number", HUGE, ids=lambda n: str(type(n).__name__))
def test_numbers_of_any_size_are_shown(number: float) -> None:
    """``report.json`` is schema-checked, and no schema says how long a number is."""
    data = everything().model_dump()

    def walk(value: object) -> object:
        if isinstance(value, dict):
            # Parts of blocks are counted from 1, as shards are.
            return {key: walk(item) for key, item in value.items() if key != "portion"}
        if isinstance(value, list | tuple):
            return [walk(item) for item in value]
        right = isinstance(value, type(number)) and not isinstance(value, bool)
        return number if right and value != 1 else value

    report = Report.model_validate(walk(data) | {"shard": None, "run": None})
    assert_nothing_but_text(report, like=report)
    for module in (terminal, junit, sarif, html):
        module.render(report).encode()


ODD = [
    None,
    1,
    [],
    {},
    [[]],
    {"torch": None},
    {"torch": "2"},
    {"torch": ["1"]},
    {"torch": [1, 2]},
    {"torch": [["a"], {"b": 1}]},
    {"x" * 10**6: ["y" * 10**6, "z"]},
    [{"a": {"b": {}}}] * 1000,
]


@pytest.mark.parametrize("value", ODD, ids=lambda v: ascii(v)[:20])
def test_an_environment_of_any_shape_is_shown(value: object) -> None:
    names = ("torch", "onnx", "onnxruntime", "machine", "cpu_capability", "replaced", "other")
    report = everything().model_copy(update={"environment": dict.fromkeys(names, value)})
    assert_nothing_but_text(report)
    assert len(render(report)) < 20_000
    terminal.render(report)
    html.render(report)
