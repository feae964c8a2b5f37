"""What ``onnx-gate explain OG102`` prints: an entry as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from onnx_gate.errors import UserError
from onnx_gate.findings.explanation import CATALOGUE, Explanation

WIDTH = 88
# What stands before a block of code, by its language.
_LABELS = {"yaml": "onnx-gate.yml:", "text": "onnx-gate says:"}


def explanation(code: str) -> str:
    """Return the text for a terminal; raises ``UserError`` for an unknown code."""
    entry = CATALOGUE.get(code.upper())
    if entry is None:
        hint = f"; did you mean {near}?" if (near := _nearest(code.upper())) else ""
        raise UserError(f"no finding has the code {code!r}{hint} (onnx-gate explain lists them)")
    return plain(entry)


def _nearest(code: str) -> str:
    """Return the code with the most characters in the same place, if three are at least."""

    def alike(other: str) -> int:
        return sum(a == b for a, b in zip(code, other, strict=False))

    best = max(CATALOGUE, key=alike)
    return best if alike(best) > len("OG") else ""


def plain(entry: Explanation, width: int = WIDTH) -> str:
    """Return an entry as text: paragraphs filled to ``width``, code indented and left alone."""
    lines = [
        *textwrap.wrap(f"{entry.code}: {entry.title}", width),
        *textwrap.wrap(f"({entry.appears})", width),
        "",
        *_blocks(entry.meaning, width, ""),
    ]
    for heading, text in (
        ("Why it matters", entry.why),
        ("How to fix it", entry.remedy),
        ("Example", entry.example),
    ):
        lines += ["", heading, "", *_blocks(text, width, "  ")]
    return "\n".join(lines)


def _blocks(text: str, width: int, indent: str) -> Iterator[str]:
    """Yield the lines of the paragraphs and fences of some Markdown, a blank line between them."""
    fence: list[str] | None = None
    paragraph: list[str] = []
    first = True
    for line in [*text.splitlines(), ""]:
        if fence is not None and not line.startswith("```"):
            fence.append(line)
            continue
        if line and not line.startswith("```"):
            paragraph.append(line.strip())
            continue
        if paragraph:
            yield from [] if first else [""]
            yield from _filled(" ".join(paragraph), width, indent)
            paragraph, first = [], False
        if fence is not None:
            yield from [] if first else [""]
            yield from _code(fence, width, indent)
            fence, first = None, False
        elif line:
            fence = [line.removeprefix("```")]


def _code(fence: list[str], width: int, indent: str) -> Iterator[str]:
    language, *lines = fence
    label = _LABELS.get(language)
    if label is not None:
        yield f"{indent}{label}"
    if language == "text":
        for line in lines:
            yield from _filled(line, width, f"{indent}  ")
    else:
        yield from (f"{indent}  {line}".rstrip() for line in lines)


def _filled(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent)
