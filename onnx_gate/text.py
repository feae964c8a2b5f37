"""Text that somebody else chose, made harmless: the only place that knows how.

Names, messages and logs come from models, manifests and artifacts. Three readers could take a part
of them for something else: a terminal obeys escape sequences, a person is misled by characters
that cannot be seen, and a GitHub runner obeys workflow commands. ``plain`` and ``visible`` are for
the first two, ``unobeyed``, ``fenced``, ``printed`` and ``workflow_command`` for the third. What
Markdown and HTML would obey is ``report/render/escape.py``'s business, which begins with ``plain``.

Counts, lists and numbers of a sentence are put into words here too, so that they read alike.
"""

from __future__ import annotations

import difflib
import math
import re
import secrets
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

MAX_LINE = 500
"""Characters kept of a line of a log."""

COMMAND_LIMIT = 4096
"""Characters and UTF-8 bytes of a workflow command's message, as it is written."""

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS
    r"|\x1b[ -/]*[0-~]?"  # everything else that begins with ESC
)
# Letters and marks by category, blank on the screen.
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0]")
# Runs of what is blank and would begin a line, and the blanks that are no space.
_SPACES = re.compile(r"[\t\r\n\v\f\x1c-\x1f\x85\u2028\u2029]+|[^\S ]")
_MARKS = 4
_BREAK = "\u200b"
# How much more than what is shown is looked at, where escape sequences take up room.
_AHEAD = 8


def without_escapes(text: str) -> str:
    """Return ``text`` without what a terminal would obey: colours, the cursor, titles, links."""
    return _ESCAPES.sub("", text)


def plain(text: object, limit: int | None = None, *, indent: bool = False) -> str:
    """Return one line of visible characters: no control, ANSI or bidirectional characters.

    With a ``limit``, at most that many characters, the last of them an ellipsis where text is
    left out; what lies far beyond it is not even looked at. Blanks at the end go, and those at the
    beginning unless the ``indent`` is to be kept.
    """
    whole = str(text)
    kept = whole if limit is None else whole[: _AHEAD * limit]
    line = _tamed(without_escapes(kept)).rstrip()
    line = line if indent else line.lstrip()
    if limit is not None and (len(line) > limit or len(kept) < len(whole)):
        line = line[: limit - 1] + "…"
    return line


def shortened(text: str, limit: int) -> str:
    """Return a text of at most so many characters, the last an ellipsis where some are left out."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def visible(line: str) -> str:
    """Return a line, what cannot be seen in it but tabs replaced by a question mark in a lozenge."""
    line = unicodedata.normalize("NFC", without_escapes(line))
    if line.isascii() and line.isprintable():
        return line
    return "".join(
        c if c.isprintable() or c == "\t" or unicodedata.category(c) == "Zs" else "\ufffd"
        for c in line
    )


def last_lines(data: bytes, count: int) -> tuple[str, ...]:
    """Return the last ``count`` lines of a log that are not blank, each through ``plain``.

    Of a line that was overwritten with carriage returns (a progress bar) the last state is kept.
    """
    lines: list[str] = []
    for raw in reversed(data.decode("utf-8", "replace").split("\n")):
        states = [plain(state, MAX_LINE, indent=True) for state in raw.split("\r")[-50:]]
        line = next((state for state in reversed(states) if state.strip()), "")
        if line:
            lines.append(line)
        if len(lines) == count:
            break
    return tuple(reversed(lines))


def unobeyed(text: str) -> str:
    """Return ``text`` without the old workflow commands, which a runner finds within a line."""
    return text.replace("##[", "# #[")


def without_commands(text: str) -> str:
    """Return lines of any format of which a runner takes none for a workflow command."""
    return unobeyed(re.sub(r"(?m)^([^\S\n]*)::", rf"\1{_BREAK}::", text))


def fenced(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines so that a GitHub runner shows them and obeys none.

    They are trusted to be lines: no line ends within, no control characters.
    """
    token = secrets.token_hex(16)
    yield f"::stop-commands::{token}"
    for line in lines:
        yield unobeyed(line)
    yield f"::{token}::"


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

    return re.sub(r"\S+", word, unobeyed(plain(text, limit)))


def workflow_command(
    name: str, message: str, properties: Mapping[str, object] | None = None
) -> str:
    """Return one workflow command, on one line, that says what it is given and nothing else.

    Properties that are empty or null are left out; a message that is too long is cut, never
    inside an escape.
    """
    named = [f"{key}={_property(str(value))}" for key, value in (properties or {}).items() if value]
    # Without properties there must be no space: some runners take "::error ::" for plain text.
    return f"::{name}{' ' if named else ''}{','.join(named)}::{_message(message)}"


def quote(text: object, limit: int = 60) -> str:
    """Return a user's text for a line of a message: in quotes, shortened, nothing unprintable."""
    shown = repr(str(text))
    return shown if len(shown) <= limit else f"{shown[: limit - 4]}...{shown[0]}"


def output_called(name: str) -> str:
    """Return an output's name in a sentence: where the manifest names none, it is a place."""
    return f"output {name}" if name[:1].isdigit() else name


def number(value: float | None) -> str:
    """Return a number with two significant digits, and nothing for none."""
    if value is None:
        return ""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    return (
        f"{value:.0f}"
        if 10 <= abs(value) < 10_000
        else f"{value:.1e}"
        if abs(value) < 0.01 or abs(value) >= 10_000
        else f"{value:.2g}"
    )


def group_digits(factor: float) -> str:
    """Return a factor with two significant digits, from 10 to 10^6 in groups of three."""
    if 10 <= factor < 1e6:
        return f"{float(f'{factor:.2g}'):,.0f}".replace(",", " ")
    return number(factor)


def format_int(value: int) -> str:
    """Return an integer, which in a report may be of any length."""
    return str(value) if abs(value) < 10**12 else "very many"


def binary_size(count: float) -> str:
    """``1.5 GiB``, and ``512 MiB`` of what is less than one."""
    if count >= 1 << 30:
        return f"{count / (1 << 30):.1f} GiB"
    return f"{count / (1 << 20):.0f} MiB" if count >= 1 << 20 else f"{count / (1 << 10):.0f} KiB"


def counted(count: int, noun: str) -> str:
    """Return ``1 case``, ``2 cases``."""
    return f"{format_int(count)} {noun}{'' if count == 1 else 's'}"


def listed(items: Iterable[object], most: int, noun: str = "") -> str:
    """Return the first items in a line, and how many are left out: ``a, b and 3 more nodes``."""
    shown = [str(item) for item in items]
    left = len(shown) - most
    more = f" and {format_int(left)} more{f' {noun}' if noun else ''}" if left > 0 else ""
    return ", ".join(shown[:most]) + more


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the one of some names that an unknown one is nearly, ``None`` where it is like none."""
    folded = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower()[:100], list(folded), n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: its likeness, or all that is known."""
    names = sorted(set(known))
    close = nearest(name, names)
    if close is not None:
        return f"; did you mean {quote(close)}?"
    if not names:
        return "; none is defined"
    shown = ", ".join(quote(each) for each in names[:20])
    return f"; known: {shown}" + (", ..." if len(names) > 20 else "")


def _message(message: str) -> str:
    lines = message[:COMMAND_LIMIT].splitlines()
    text = "\n".join(unobeyed(visible(line)) for line in lines).strip() or "(empty)"
    parts = [{"%": "%25", "\n": "%0A"}.get(character, character) for character in text]
    ends = list(accumulate(len(part.encode("utf-8", "replace")) for part in parts))
    if ends[-1] <= COMMAND_LIMIT and len(message) <= COMMAND_LIMIT:
        return "".join(parts)
    kept = bisect_right(ends, COMMAND_LIMIT - len("…".encode()))
    return "".join(parts[:kept]) + "…"


def _property(value: str) -> str:
    text = unobeyed(plain(value))
    for character, escape in (("%", "%25"), (":", "%3A"), (",", "%2C")):
        text = text.replace(character, escape)
    return text


def _tamed(text: str) -> str:
    """Return ``text`` with nothing that cannot be seen, and no mark that leaves its own line.

    Marks join the character before them when text is normalised, were it the end of a tag, and
    cover the lines above where they are many: the first has a base of its own, few follow it.
    """
    if not text.isprintable():
        text = "".join(c for c in _SPACES.sub(" ", text) if c.isprintable())
    if text.isascii():
        return text
    # Some characters are others by definition: U+1FEF is a backtick.
    text = _BLANK.sub(" ", unicodedata.normalize("NFC", text))
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
