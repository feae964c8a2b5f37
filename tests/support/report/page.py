"""Markdown as GitHub shows it: its own parser, then the page's elements, links and loose text."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

import cmarkgfm
from cmarkgfm.cmark import Options

# What makes a box of a list's item, or an alert of a quotation: the templates' own alone.
OPENING = re.compile(r"^\s*\[")
_VOID = {"br", "hr", "img", "input"}
_LITERAL = {"code", "pre"}
# What GitHub looks for in the text of a page, outside code and links.
REFERENCES = {
    "mention": re.compile(r"@[A-Za-z0-9]"),
    "issue": re.compile(r"#\d|\bGH-\d|\b[A-Z]{2,}-\d|GHSA-", re.I),
    "commit": re.compile(r"[0-9a-f]{7}", re.I),
    "address": re.compile(r"://|\bwww\.|(mailto|xmpp):[^\u200b]", re.I),
    "emoji": re.compile(r":[\w+-]+:"),
    "formula": re.compile(r"\$"),
}


@dataclass
class Shown:
    """``elements`` are the tags in order, but for links, whose addresses are ``links``.

    ``loose`` is the text outside code and links; ``unbalanced`` are end tags without a start and
    starts without an end.
    """

    elements: list[tuple[str, ...]] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    unbalanced: list[str] = field(default_factory=list)


def page(markdown: str, *, raw_html: bool = True) -> Shown:
    """Return what ``markdown`` is shown as; without ``raw_html``, as cmark leaves tags out."""
    options = Options.CMARK_OPT_FOOTNOTES | Options.CMARK_OPT_GITHUB_PRE_LANG
    if raw_html:
        options |= Options.CMARK_OPT_UNSAFE
    parser = _Parser()
    parser.feed(cmarkgfm.github_flavored_markdown_to_html(markdown, options))
    parser.close()
    parser.shown.unbalanced += parser.open
    return parser.shown


@functools.cache
def cached_page(markdown: str, raw_html: bool) -> Shown:
    return page(markdown, raw_html=raw_html)


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.shown = Shown()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.shown.links.append(dict(attrs).get("href") or "")
        else:
            shown = (f"{name}={value}" for name, value in attrs)
            self.shown.elements.append((tag, *shown))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "a":
            self.shown.elements.append((f"/{tag}",))
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.shown.unbalanced.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.shown.text.append(data)
        if not {*_LITERAL, "a"} & set(self.open):
            self.shown.loose.append(data)

    def handle_comment(self, data: str) -> None:
        self.shown.elements.append(("comment", data))

    def handle_decl(self, decl: str) -> None:
        self.shown.elements.append(("declaration", decl))

    def unknown_decl(self, data: str) -> None:
        self.shown.elements.append(("section", data))

    def handle_pi(self, data: str) -> None:
        self.shown.elements.append(("instruction", data))
