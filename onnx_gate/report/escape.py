"""Untrusted text in Markdown: data is never markup.

An inline value is ``<code>`` with HTML escaped and Markdown's punctuation as numeric entities; a
block is a fence longer than any run of backticks inside it.
"""

from __future__ import annotations

import re
import unicodedata

from markupsafe import Markup

_PUNCTUATION = re.compile(r"[\\`*_{}\[\]()#+\-.!|~<>&\"':$=^/]")
_INLINE_LIMIT = 300


def plain(text: object) -> str:
    """Return one line of visible characters: no control, ANSI or bidirectional characters."""
    return "".join(
        character if not unicodedata.category(character).startswith(("C", "Z")) else " "
        for character in str(text)
    ).strip()


def inline(text: object, limit: int = _INLINE_LIMIT) -> Markup:
    """Return untrusted text as Markdown that renders as exactly this text, on one line."""
    line = plain(text)
    if len(line) > limit:
        line = line[: limit - 1] + "…"
    escaped = _PUNCTUATION.sub(lambda match: f"&#{ord(match.group())};", line)
    # GitHub links @names and #1 even where the sign is an entity: a zero-width space breaks both.
    return Markup(re.sub(r"@|&#35;", lambda match: f"{match.group()}\u200b", escaped))


def code(text: object, limit: int = _INLINE_LIMIT) -> Markup:
    """Return untrusted text as inline code."""
    return Markup("<code>") + inline(text, limit) + Markup("</code>")


def fence(text: object, language: str = "text", lines: int = 40) -> Markup:
    """Return untrusted text as a fenced block of at most ``lines`` lines."""
    kept = [_visible(line) for line in str(text).splitlines()]
    if len(kept) > lines:
        kept = [*kept[:lines], "…"]
    body = "\n".join(kept)
    runs = [len(run) for run in re.findall(r"`+", body)]
    marks = "`" * max(3, max(runs, default=0) + 1)
    return Markup(f"{marks}{language}\n{body}\n{marks}")


def _visible(line: str) -> str:
    return "".join(
        c if c == "\t" or not unicodedata.category(c).startswith("C") else "�" for c in line
    )
