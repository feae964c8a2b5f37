"""The pictures of a report as SVG: pure functions to markup of numbers and escaped labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

from onnx_gate.report import summary
from onnx_gate.report.diagnosis import Diagnosis, Pictures
from onnx_gate.report.model import Check, ModelResult
from onnx_gate.text import plain

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 480.0, 200.0, 46.0, 26.0
_LEAST, _MOST = -9.0, 9.0
_BARS = 24
_LABEL = 44
_COLUMNS = ("≤1e-3", "1e-2", "0.1", "1", "10", "100", "1e3", "1e4", ">1e4", "not finite")
_WITHIN = 4
"""Columns of the histogram that are within the tolerance."""


def graph(diagnosis: Diagnosis) -> Markup:
    """Return the error along the graph, with the first wrong node; empty for fewer than two nodes."""
    nodes = diagnosis.nodes
    if len(nodes) < 2:
        return Markup("")
    logs = [_log(node.error) for node in nodes]
    low, high = math.floor(min(logs)), math.ceil(max(logs)) + 1
    points = [(_x(i, len(nodes) - 1), _y(value, low, high)) for i, value in enumerate(logs)]
    body = _path("line", points) + _scale(low, high)
    wrong = diagnosis.guilty
    text = f"The error at {len(nodes)} nodes in the order of the graph, logarithmic"
    if wrong is not None and 0 <= wrong < len(nodes):
        x, y = points[wrong]
        node = nodes[wrong]
        name = plain(node.op_type, _LABEL)
        error = summary.number(node.error)
        anchor = "end" if x > _WIDTH / 2 else "start"
        body += Markup('<circle class="bad" cx="{}" cy="{}" r="5"/>').format(_n(x), _n(y))
        body += _text(x + (-9 if anchor == "end" else 9), y, f"first wrong: {name}", anchor)
        text += f"; the first wrong node is {name}, number {wrong + 1}, with an error of {error}"
    return _svg("The error along the graph", text, body)


def pairs(pictures: Pictures, reference: str = "PyTorch") -> Markup:
    """Return the reference against ONNX, with the tolerance as a band around equality."""
    shown = [(e, a) for e, a in pictures.pairs if _ordinary(e) and _ordinary(a)]
    if len(shown) < 2:
        return Markup("")
    values = [v for pair in shown for v in pair]
    low, high = min(values), max(values)
    span = high - low or abs(high) or 1.0

    def at(e: float, a: float) -> tuple[float, float]:
        return _x(e - low, span), _y(a, low, low + span)

    def limit(v: float) -> float:
        allowed = pictures.allowed * (abs(v) + pictures.scale)
        return min(allowed, span) if allowed >= 0 else 0.0

    ends = (low, low + span)
    upper = [at(v, min(v + limit(v), low + span)) for v in ends]
    lower = [at(v, max(v - limit(v), low)) for v in reversed(ends)]
    body = _path("band", [*upper, *lower], closed=True) + _path("equal", [at(v, v) for v in ends])
    outside = [p for p in shown if not abs(p[0] - p[1]) <= limit(p[0])]
    inside = [p for p in shown if abs(p[0] - p[1]) <= limit(p[0])]
    body += _dots("dot", [at(*p) for p in inside]) + _dots("dot bad", [at(*p) for p in outside])
    body += _text(_LEFT, _HEIGHT - 4, f"{reference}: {summary.number(low)}", "start")
    body += _text(_WIDTH, _HEIGHT - 4, summary.number(high), "end")
    text = (
        f"{len(shown)} elements, {reference} across and ONNX upwards; {len(outside)} of them are outside "
        f"the tolerance, which is the band around the diagonal"
    )
    return _svg(f"{reference} against ONNX", text, body)


def histogram(pictures: Pictures) -> Markup:
    """Return how many elements have which error, in units of the tolerance."""
    counts = pictures.histogram[: len(_COLUMNS)]
    most = max((min(count, 10**12) for count in counts), default=0)
    if most <= 0:
        return Markup("")
    body, step = Markup(""), (_WIDTH - _LEFT) / len(_COLUMNS)
    words = []
    for i, count in enumerate(counts):
        count = max(0, min(count, 10**12))
        height = (_HEIGHT - _BOTTOM - 18) * (math.log10(count + 1) / math.log10(most + 1))
        kind = "bar" if i < _WITHIN else "bar bad"
        x = _LEFT + i * step
        body += _rect(kind, x + 2, _HEIGHT - _BOTTOM - height, step - 4, height)
        body += _text(x + step / 2, _HEIGHT - 8, _COLUMNS[i], "middle")
        if count:
            top = _HEIGHT - _BOTTOM - height - 4
            body += _text(x + step / 2, top, summary.format_int(count), "middle")
            words.append(f"{summary.format_int(count)} at {_COLUMNS[i]}")
    text = f"Elements by their error in units of the tolerance, up to: {', '.join(words)}"
    return _svg("The errors in units of the tolerance", text, body)


def by_case(model: ModelResult) -> Markup:
    """Return the share of the tolerance that each check used, the worst first."""
    rows = [(f"{plain(c.case, 60)} {plain(c.output, 20)}", _share(c)) for c in _counting(model)]
    rows = sorted(rows, key=lambda row: -row[1])[:_BARS]
    return _bars("The error by case, in units of the tolerance", rows)


def by_size(model: ModelResult) -> Markup:
    """Return the share of the tolerance that was used at each size of each dimension."""
    worst: dict[tuple[str, int], float] = {}
    for check in _counting(model):
        for size in check.sizes.items():
            worst[size] = max(worst.get(size, 0.0), _share(check))
    rows = [(f"{plain(n, 20)}={summary.format_int(s)}", share) for (n, s), share in worst.items()]
    return _bars("The error by size, in units of the tolerance", sorted(rows)[:_BARS])


def error_map(pictures: Pictures) -> Markup:
    """Return the errors over the last two axes of the output, around the worst element."""
    rows = pictures.map
    width = max((len(row) for row in rows), default=0)
    if not width or len(rows) * width < 2:
        return Markup("")
    body = Markup("")
    side = max(len(rows), width)
    for kind, low, high in (("m1", 1.0, 10.0), ("m2", 10.0, 1e3), ("m3", 1e3, math.inf)):
        cells = "".join(
            f"M{x} {y}h1v1h-1z"
            for y, row in enumerate(rows)
            for x, share in enumerate(row)
            if (low < share <= high) or (math.isnan(share) and high == math.inf)
        )
        body += Markup('<path class="{}" d="{}"/>').format(kind, cells)
    outside = sum(not share <= 1 for row in rows for share in row)
    size = " × ".join(summary.format_int(n) for n in pictures.map_of)
    text = (
        f"The last two axes ({size}) where the worst element is: {outside} of {len(rows) * width} "
        "tiles have an error outside the tolerance; the darker, the larger"
    )
    frame = Markup('<rect class="frame" width="{}" height="{}"/>').format(width, len(rows))
    box = f"-1 -1 {side + 2} {len(rows) + 2}"
    return _svg("Where in the output", text, frame + body, box)


def _bars(title: str, rows: Sequence[tuple[str, float]]) -> Markup:
    if len(rows) < 2:
        return Markup("")
    body, height, room = Markup(""), 18.0 * len(rows) + 4, _WIDTH - 240
    logs = [min(max(_log(share), -3.0), _MOST) for _, share in rows]
    span = max(*logs, 1.0) + 3
    limit = 160 + room * 3 / span
    for i, ((label, share), value) in enumerate(zip(rows, logs, strict=True)):
        y = 18.0 * i + 2
        kind = "bar" if share <= 1 else "bar bad"
        body += _rect(kind, 160, y, max(room * (value + 3) / span, 1), 14)
        body += _text(154, y + 11, plain(label, 22), "end")
        used = summary.percent(share)
        body += _text(164 + max(room * (value + 3) / span, 1), y + 11, used, "start")
    body += Markup('<path class="limit" d="M{x} 0V{h}"/>').format(x=_n(limit), h=_n(height))
    worst = max(rows, key=lambda row: row[1])
    text = f"The worst of {len(rows)} is {plain(worst[0], _LABEL)}: {summary.percent(worst[1])}"
    return _svg(title, text, body, f"0 0 {_n(_WIDTH)} {_n(height)}")


def _counting(model: ModelResult) -> list[Check]:
    return [c for c in model.checks[:5000] if not c.advice and c.budget is not None]


def _share(check: Check) -> float:
    budget = check.budget
    return math.inf if budget is None or math.isnan(budget) else max(budget, 0.0)


def _log(value: float) -> float:
    if math.isnan(value) or value == math.inf:
        return _MOST
    return min(max(math.log10(value), _LEAST), _MOST) if value > 0 else _LEAST


def _ordinary(value: float) -> bool:
    return math.isfinite(value) and abs(value) < 1e300


def _x(part: float, of: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - 8) * (part / of if of else 0.5)


def _y(value: float, low: float, high: float) -> float:
    return 8 + (_HEIGHT - _BOTTOM - 8) * (1 - (value - low) / ((high - low) or 1.0))


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _path(kind: str, points: Sequence[tuple[float, float]], closed: bool = False) -> Markup:
    line = "L".join(f"{_n(x)} {_n(y)}" for x, y in points)
    return Markup('<path class="{}" d="M{}{}"/>').format(kind, line, "z" if closed else "")


def _dots(kind: str, points: Sequence[tuple[float, float]]) -> Markup:
    line = "".join(f"M{_n(x)} {_n(y)}h0" for x, y in points)
    return Markup('<path class="{}" d="{}"/>').format(kind, line)


def _rect(kind: str, x: float, y: float, width: float, height: float) -> Markup:
    shape = (_n(part) for part in (x, y, width, height))
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(kind, *shape)


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    form = Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>')
    return form.format(_n(x), _n(y), anchor, text)


def _scale(low: int, high: int) -> Markup:
    step = max((high - low) // 4, 1)
    marks = [
        _text(_LEFT - 6, _y(value, low, high) + 4, f"1e{value}", "end")
        for value in range(low, high + 1, step)
    ]
    return Markup("").join(marks)


def _svg(title: str, text: str, body: Markup, box: str = "") -> Markup:
    """Return a figure that says in words what it shows."""
    form = (
        '<figure><figcaption>{}</figcaption><svg role="img" viewBox="{}" aria-label="{}">{}</svg>'
        "<p>{}</p></figure>"
    )
    box = box or f"0 0 {_n(_WIDTH)} {_n(_HEIGHT)}"
    return Markup(form).format(title, box, escape(text), body, f"{text}.")
