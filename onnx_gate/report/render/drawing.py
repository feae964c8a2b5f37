"""Drawings as SVG: lines, bars and labels of numbers and escaped text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from onnx_gate.text import number

# A drawing is as wide as a phone, so that its labels can be read there.
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 340.0, 214.0, 46.0, 34.0, 20.0
_LEAST, _MOST = -16, 9


@dataclass(frozen=True)
class Picture:
    """A drawing of ``width`` by ``height``, its title, and a sentence that says what it shows."""

    title: str
    text: str
    body: Markup
    width: float = WIDTH
    height: float = HEIGHT


def span_of(errors: Iterable[float]) -> tuple[float, float]:
    """Return the powers of ten that errors are drawn between, with a line for none and for infinite."""
    logs = [math.log10(error) for error in errors if 0 < error < math.inf]
    low = max(math.floor(min(logs, default=0.0)), _LEAST) - 1
    return low, max(min(math.ceil(max(logs, default=0.0)), _MOST) + 1, low + 2)


def along(errors: Sequence[float], low: float, high: float) -> list[tuple[float, float]]:
    """Return the points of errors one after the other, on a logarithmic scale."""
    levels = [level(error, low, high) for error in errors]
    return [(x_of(i, len(levels) - 1), y_of(each, low, high)) for i, each in enumerate(levels)]


def below(first: str, name: str, last: str) -> Markup:
    """Return the labels of the axis below."""
    y = HEIGHT - 12
    ends = text_at(LEFT, y, first, "start") + text_at(WIDTH - 8, y, last, "end")
    return ends + text_at((LEFT + WIDTH) / 2, y, name, "middle")


def level(error: float, low: float, high: float) -> float:
    """Return where an error is drawn: the lowest line is for none, the highest for infinite ones."""
    if math.isnan(error) or error == math.inf:
        return high
    return min(max(math.log10(error), low), high) if error > 0 else low


def _power(exponent: float) -> str:
    return "1" if exponent == 0 else f"1e{exponent:g}"


def x_of(part: float, of: float) -> float:
    """Return where a part of a whole is drawn."""
    return LEFT + (WIDTH - LEFT - 8) * (part / of if of else 0.5)


def y_of(value: float, low: float, high: float) -> float:
    """Return where a value between two others is drawn."""
    return TOP + (HEIGHT - BOTTOM - TOP) * (1 - (value - low) / ((high - low) or 1.0))


def short(value: float) -> str:
    """Return a coordinate."""
    return f"{value:.1f}".removesuffix(".0")


def path(kind: str, points: Sequence[tuple[float, float]], closed: bool = False) -> Markup:
    """Return a line through points, or a shape."""
    line = "L".join(f"{short(x)} {short(y)}" for x, y in points)
    return Markup('<path class="{}" d="M{}{}"/>').format(kind, line, "z" if closed else "")


def dots(kind: str, points: Iterable[tuple[float, float]]) -> Markup:
    """Return dots at points."""
    line = "".join(f"M{short(x)} {short(y)}h0" for x, y in points)
    return Markup('<path class="{}" d="{}"/>').format(kind, line) if line else Markup("")


def rect(kind: str, x: float, y: float, width: float, height: float) -> Markup:
    """Return a rectangle."""
    shape = (short(part) for part in (x, y, width, height))
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(kind, *shape)


def text_at(x: float, y: float, text: str, anchor: str) -> Markup:
    """Return a label."""
    form = Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>')
    return form.format(short(x), short(y), anchor, text)


def frame() -> Markup:
    """Return a frame around what is drawn."""
    height = HEIGHT - BOTTOM - TOP
    return rect("frame", LEFT, TOP, WIDTH - LEFT - 8, height)


def axis(low: float, high: float) -> Markup:
    """Return the labels of the axis on the left."""
    ends = ((low, HEIGHT - BOTTOM), (high, TOP + 10))
    return Markup("").join(text_at(LEFT - 5, y, number(value), "end") for value, y in ends)


def decades(low: float, high: float) -> Markup:
    """Return the lines of powers of ten; the lowest is no error, the highest an infinite one."""
    step = max(round((high - low) / 5), 1)
    body = Markup("")
    values = [low, *range(int(low) + 1, int(high), step), high]
    for value in values:
        y = y_of(value, low, high)
        label = "0" if value == low else "∞" if value == high else _power(value)
        body += path("grid", [(LEFT, y), (WIDTH - 8, y)])
        # The two ends are always named; of what lies too close to them only the line is drawn.
        if value in (low, high) or min(y_of(low, low, high) - y, y - y_of(high, low, high)) > 12:
            body += text_at(LEFT - 5, y + 4, label, "end")
    return body
