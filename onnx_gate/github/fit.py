"""What GitHub has room for: the longest rendering that a comment or a step summary takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from onnx_gate.report.model import Report
from onnx_gate.report.render.markdown import Page, View

COMMENT_LIMIT = 65_536
"""UTF-16 code units of a comment's body: at least its characters, whichever way they are counted."""
SUMMARY_LIMIT = 2**20
"""UTF-8 bytes of a step summary; one byte more and it is dropped whole."""


def comment_text(report: Report, view: View, room: int = COMMENT_LIMIT) -> str:
    """Return the longest rendering of at most ``room`` UTF-16 units, which 1,500 always hold."""
    return _longest(report, replace(view, times=False), room, _utf16_units)


def summary_text(report: Report, view: View, room: int = SUMMARY_LIMIT) -> str:
    """Return the longest rendering of at most ``room`` UTF-8 bytes, which 1,500 always hold."""
    return _longest(report, view, room, _utf8_bytes)


def _longest(report: Report, view: View, room: int, measure: Callable[[str], int]) -> str:
    """Search the levels between one that is too long and one that is not."""
    page = Page(report, view)
    first = min(max(view.level, 0), page.last)
    text = _within(page, first, room, measure)
    if text is not None:
        return text
    long, short = first, page.last
    text = _within(page, short, room, measure)
    if text is None:
        # Nothing but the links of the last level can be long, and they are not what must arrive.
        return Page(report, replace(view, run_url=None, report_url=None)).render(page.last)
    while short - long > 1:
        middle = (long + short) // 2
        fitting = _within(page, middle, room, measure)
        if fitting is None:
            long = middle
        else:
            short, text = middle, fitting
    return text


def _within(page: Page, level: int, room: int, measure: Callable[[str], int]) -> str | None:
    """Return the text at one level, or ``None`` as soon as it is longer than ``room``."""
    kept = []
    for part in page.parts(level):
        kept.append(part)
        room -= measure(part)
        if room < 0:
            return None
    return "".join(kept)


def _utf16_units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
