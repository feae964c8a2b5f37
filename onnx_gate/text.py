"""Text from a model, made safe to print on one line."""

from __future__ import annotations

import re
import unicodedata

MAX_LINE = 500
"""Characters kept of a line."""

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS
    r"|\x1b[ -/]*[0-~]?"  # everything else that begins with ESC
)
# Cf holds the bidirectional overrides, which make a line read as what it does not say.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def plain(text: str, limit: int = MAX_LINE) -> str:
    """``text`` without terminal escapes, control and formatting characters, at most ``limit`` long.

    Tabs and line breaks become single spaces, so the result is always one line.
    """
    text = _ESCAPES.sub("", text[: limit * 20])
    text = re.sub(r"[\t\r\n\v\f\x85\u2028\u2029]+", " ", text)
    text = "".join(c for c in text if unicodedata.category(c) not in _UNPRINTABLE)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def last_lines(data: bytes, count: int) -> tuple[str, ...]:
    """The last ``count`` lines of a log that are not blank, each through ``plain``.

    Of a line that was overwritten with carriage returns (a progress bar) the last state is kept.
    """
    lines: list[str] = []
    for raw in reversed(data.decode("utf-8", "replace").split("\n")):
        states = [plain(state).rstrip() for state in raw.split("\r")[-50:]]
        line = next((state for state in reversed(states) if state.strip()), "")
        if line:
            lines.append(line)
        if len(lines) == count:
            break
    return tuple(reversed(lines))
