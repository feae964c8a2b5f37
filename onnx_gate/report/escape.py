"""Untrusted text in Markdown, HTML and logs: data is never markup.

A value (a name, a path) is ``<code>`` with HTML escaped and Markdown's punctuation as numeric
entities; a sentence is the same without ``<code>``, and with zero-width spaces in whatever GitHub
would make a link, a mention or a picture of; a block is a fence longer than any run of backticks
inside it.
"""

from __future__ import annotations

import re
import unicodedata

from markupsafe import Markup

_LIMIT = 300
_EMPTY = "(empty)"
_MARKS = 4
_TICKS = 16
_LINE_LIMIT = 500
_BLOCK_LIMIT = 4000

_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links
    r"|\x1b[ -/]*[0-~]?"
)
# Letters and marks by category, blank on the screen.
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0]")
_PUNCTUATION = re.compile(r"[\\`*_{}\[\]()#+\-.!|~<>&\"':$=^/]")
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


def plain(text: object, limit: int | None = None) -> str:
    """Return one line of visible characters: no control, ANSI or bidirectional characters.

    With a ``limit``, at most that many characters, the last of them an ellipsis where text is
    left out; what lies far beyond it is not even looked at.
    """
    whole = str(text)
    kept = whole if limit is None else whole[: 4 * limit]
    line = _tamed(_ANSI.sub("", kept)).strip()
    if limit is not None and (len(line) > limit or len(kept) < len(whole)):
        line = line[: limit - 1] + "…"
    return line


def printed(text: object, limit: int | None = None, whole: int = 60) -> str:
    """Return ``plain`` text of which a workflow's runner takes nothing for a command.

    Words of at most ``whole`` characters are taken to be printed on one line: a command begins a
    line, so in such a word only a beginning is changed.
    """

    def word(match: re.Match[str]) -> str:
        found = match.group()
        if len(found) <= whole and not found.startswith("::"):
            return found
        return found.replace("::", f":{_BREAK}:")

    return re.sub(r"\S+", word, plain(text, limit).replace("##[", "# #["))


def inline(text: object, limit: int = _LIMIT) -> Markup:
    """Return a sentence as Markdown that renders as this text, on one line, linking nothing."""
    # Two dollars make a formula of what is between them, entities or not.
    line = plain(text, limit).replace("$", "＄")
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
    kept = [_cut(visible(line)) for line in split[:lines]]
    if len(split) > lines or len(whole) > _BLOCK_LIMIT:
        kept.append("…")
    # A program that looks for a comment in the text finds none of ours.
    body = "\n".join(kept).replace("<!--", f"<!{_BREAK}--")
    body = re.sub(f"`{{{_TICKS},}}", "`" * (_TICKS - 1) + "…", body)
    runs = [len(run) for run in re.findall(r"`+", body)]
    marks = "`" * max(3, max(runs, default=0) + 1)
    return Markup(f"{marks}{language}\n{body}\n{marks}")


def visible(line: str) -> str:
    """Return a line, what cannot be seen in it but tabs replaced by a question mark in a lozenge."""
    line = unicodedata.normalize("NFC", _ANSI.sub("", line))
    if line.isascii() and line.isprintable():
        return line
    return "".join(c if c.isprintable() or c == "\t" or _is_space(c) else "\ufffd" for c in line)


def _is_space(character: str) -> bool:
    return unicodedata.category(character) == "Zs"


def _cut(line: str) -> str:
    return line if len(line) <= _LINE_LIMIT else line[: _LINE_LIMIT - 1] + "…"


def _entities(line: str) -> str:
    return _PUNCTUATION.sub(lambda match: f"&#{ord(match.group())};", line)


def _tamed(text: str) -> str:
    """``text`` with blanks for what cannot be seen, and with no mark that leaves its own line.

    Marks join the character before them when text is normalised, were it the end of a tag, and
    cover the lines above where they are many: the first has a base of its own, few follow it.
    """
    if text.isascii():
        return text if text.isprintable() else _printable(text)
    # Some characters are others by definition: U+1FEF is a backtick.
    text = _BLANK.sub(" ", _printable(unicodedata.normalize("NFC", text)))
    kept: list[str] = []
    marks = 0
    for character in text:
        if unicodedata.category(character).startswith("M"):
            if not kept or kept[-1] == " ":
                kept.append("◌")
            marks += 1
            if marks > _MARKS:
                continue
        else:
            marks = 0
        kept.append(character)
    return "".join(kept)


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
