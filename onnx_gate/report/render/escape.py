"""Untrusted text in Markdown: data is never markup.

A value (a name, a path) is ``<code>`` with HTML escaped and Markdown's punctuation as numeric
entities; a sentence is the same without ``<code>``, and with zero-width spaces in whatever GitHub
would make a link, a mention or a picture of; a block is a fence longer than any run of backticks
inside it.
"""

from __future__ import annotations

import re

from markupsafe import Markup

from onnx_gate.text import plain, shortened, visible

_LIMIT = 300
_EMPTY = "(empty)"
_TICKS = 16
_LINE_LIMIT = 500
_BLOCK_LIMIT = 4000

# Where they stand so, these are no markup, and are left as they are, for whoever reads the text as it
# was written. A number at the beginning may be a list's; a bracket only holds an index or a shape after
# a word, so that no link, box or definition begins with it; a point after www begins a link.
_PUNCTUATION = re.compile(
    r"(?P<list>^\d{1,9})[.)](?=\s|$)"
    r"|(?P<harmless>(?<=\w) ?\[\d[\d, ]*\](?![\[(:])"
    r"|(?<=\w)(?<!www)\.(?=[\w\s]|$)|(?<=\))\.(?=\s|$)|(?<=[^\W_])[-+=/,](?=[^\W_])"
    r"|(?<=[^\W_])_(?=[^\W_])|(?<=[\w:]):(?=[\s:])|(?<=:):(?=\w)|(?<=\w):(?=\d+\b)(?!\d+:)"
    r"|(?<= )-(?=\d)|(?<= )--(?=[a-z])|(?<= )->(?= )|(?<=.)[(')\"])"
    r"|[\\`*_{}\[\]()#+\-.!|~<>&\"':$=^/]",
    re.IGNORECASE,
)
# GitHub looks for these in the text of the finished page, where an entity is the character.
_REFERENCES = re.compile(
    r"(?<=@)|(?<=#)"
    r"|(?<=[a-z]{2}-)(?=\d)|(?<=GHSA)(?=-)"  # GH-1, CVE-2026-1, TICKET-1
    r"|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=mailto:)|(?<=xmpp:)"
    r"|(?<=:)(?=[\w+-]+:)"  # :emoji:
    r"|^(?=\[)",  # a task's box, an alert's kind
    re.IGNORECASE,
)
_COMMIT = re.compile(r"[0-9a-f]{6}(?=[0-9a-f])", re.IGNORECASE)
_BREAK = "\u200b"


def inline(text: object, limit: int = _LIMIT) -> Markup:
    """Return a sentence as Markdown that renders as this text, on one line, linking nothing."""
    return _text(plain(text, limit))


def prose(text: object, limit: int = 2 * _LINE_LIMIT) -> Markup:
    """Return a sentence in which what stands between backticks is code, whoever has set them."""
    line = plain(text, limit)
    parts = line.removesuffix(".").split("`")
    told = Markup("").join(code(part) if n % 2 else _text(part) for n, part in enumerate(parts))
    return told + Markup("." if line.endswith(".") else "")


def _text(line: str) -> Markup:
    # Two dollars make a formula of what is between them, entities or not.
    line = line.replace("$", "＄")
    line = _COMMIT.sub(rf"\g<0>{_BREAK}", _REFERENCES.sub(_BREAK, line))
    return Markup(_entities(line))


def code(text: object, limit: int = _LIMIT) -> Markup:
    """Return a value as inline code, which GitHub searches for nothing."""
    line = (plain(text, limit) or _EMPTY).replace("@", f"@{_BREAK}")
    return Markup(f"<code>{_entities(line)}</code>")


def fence(text: object, language: str = "text", lines: int = 40) -> Markup:
    """Return a block of at most ``lines`` lines and 4,000 characters."""
    whole = str(text)
    split = whole[:_BLOCK_LIMIT].splitlines()
    kept = [shortened(visible(line), _LINE_LIMIT) for line in split[:lines]]
    if len(split) > lines or len(whole) > _BLOCK_LIMIT:
        kept.append("…")
    # A program that looks for a comment in the text finds none of ours.
    body = "\n".join(kept).replace("<!--", f"<!{_BREAK}--")
    body = re.sub(f"`{{{_TICKS},}}", "`" * (_TICKS - 1) + "…", body)
    marks = fence_of(body)
    return Markup(f"{marks}{language}\n{body}\n{marks}")


def fence_of(body: str) -> str:
    """Return the marks of a fence that nothing in a text can end."""
    runs = [len(run) for run in re.findall(r"`+", body)]
    return "`" * max(3, max(runs, default=0) + 1)


def _entities(line: str) -> str:
    return _PUNCTUATION.sub(_entity, line)


def _entity(match: re.Match[str]) -> str:
    if match["harmless"]:
        return match.group()
    number = match["list"] or ""
    return f"{number}&#{ord(match.group()[-1])};"
