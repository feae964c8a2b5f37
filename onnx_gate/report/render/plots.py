"""The pictures of a report: pure functions from its fields to drawings of numbers and escaped labels.

Each says in words what it shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup

from onnx_gate.report.model import Check, ModelResult
from onnx_gate.report.model.diagnosis import Diagnosis, NodeError, Pictures
from onnx_gate.report.render.drawing import (
    BOTTOM,
    HEIGHT,
    LEFT,
    TOP,
    WIDTH,
    Picture,
    along,
    axis,
    below,
    decades,
    dots,
    frame,
    level,
    path,
    rect,
    short,
    span_of,
    text_at,
    x_of,
    y_of,
)
from onnx_gate.report.story import steps, summary
from onnx_gate.text import format_int, number, plain

_MOST = 9.0
_BARS = 12
_WIDE, _PART = 48, 20  # characters of the label of a bar, and of a part of it
_MATTERS = 0.1
_DOTS = 60
_LABEL = 40
_EDGES = ("1e-3", "0.01", "0.1", "1", "10", "100", "1e3", "1e4")
_COLUMNS = len(_EDGES) + 2  # the last is for what is not finite
_WITHIN = _EDGES.index("1") + 1
_CHECKS = 5000
_STEPS = 2000
# Where the largest difference is a smaller part of the values, it is drawn and not the values.
_VISIBLE = 0.02
_THIN = 0.005  # about two pixels of a picture
_FAR = 1e9  # times the tolerance: no picture shows more


def of_model(model: ModelResult) -> list[Picture]:
    """Return the pictures of a model: of one that passes only what happened from step to step."""
    if model.verdict == "pass":
        stepped = by_step(model)
        return [stepped] if stepped is not None else []
    drawn = model.diagnosis.pictures if model.diagnosis is not None else None
    pictures = [
        graph(model.diagnosis) if model.diagnosis is not None else None,
        *((pairs(drawn, model.against), histogram(drawn)) if drawn is not None else ()),
        by_step(model),
        by_size(model),
        by_case(model),
        error_map(drawn) if drawn is not None else None,
    ]
    return [picture for picture in pictures if picture is not None]


def graph(diagnosis: Diagnosis) -> Picture | None:
    """Return the error along the graph, with the first wrong node; nothing for fewer than two nodes."""
    nodes = diagnosis.nodes
    if len(nodes) < 2:
        return None
    allowed = diagnosis.pictures.allowed if diagnosis.pictures is not None else 0.0
    errors = [node.error for node in nodes]
    low, high = span_of((*errors, allowed))
    points = along(errors, low, high)
    body = decades(low, high) + path("line", points)
    body += dots("dot", points if len(points) <= _DOTS else [])
    if 0 < allowed < math.inf:
        y = y_of(level(allowed, low, high), low, high)
        body += path("limit", [(LEFT, y), (WIDTH - 8, y)])
        body += text_at(WIDTH - 8, y - 5, f"allowed {number(allowed)}", "end")
    body += below("1", "node, in the graph's order", str(len(nodes)))
    worst = max(nodes, key=lambda node: level(node.error, low, high))
    text = f"The error at {len(nodes)} nodes, logarithmic; the largest is {_error_at(worst)}"
    # What the graph lacks has no place in it; what comes after is where it shows.
    beyond = (n for n, error in enumerate(errors) if 0 < allowed < error)
    wrong = diagnosis.guilty if diagnosis.guilty is not None else next(beyond, None)
    if wrong is not None and 0 <= wrong < len(nodes):
        x, y = points[wrong]
        right = x > WIDTH * 0.55
        body += Markup('<circle class="bad" cx="{}" cy="{}" r="5"/>').format(short(x), short(y))
        known = diagnosis.guilty is not None
        said = "first wrong" if known else "wrong from here"
        label = f"{said}: {plain(nodes[wrong].op_type, 24)}"
        # Above the plot, where no curve is.
        body += path("tick", [(x, 15), (x, y - 5)]) if y > 22 else Markup("")
        body += text_at(x, 11, label, "end" if right else "start")
        said = "the first wrong one is" if known else "it is wrong from"
        text += f"; {said} {_error_at(nodes[wrong])}, number {wrong + 1}"
    return Picture("The error along the graph", f"{text}.", body)


def pairs(pictures: Pictures, reference: str = "PyTorch") -> Picture | None:
    """Return the reference against ONNX, with the tolerance as a band.

    Where no difference could be seen beside the values, the differences are drawn, in units of the
    tolerance.
    """
    shown = [(e, a) for e, a in pictures.pairs if _ordinary(e) and _ordinary(a)]
    if len(shown) < 2:
        return None
    values = [v for pair in shown for v in pair]
    span = max(values) - min(values)
    far = max(abs(e - a) for e, a in shown)
    outside = sum(not abs(e - a) <= _limit(pictures, e) for e, a in shown)
    looked_at = sum(pictures.histogram)
    sampled = f"{len(shown)} of {format_int(looked_at)} elements, evenly spread ones and the worst"
    text = (
        f"{sampled if len(shown) < looked_at else f'All {len(shown)} elements'}: {reference} across"
    )
    thin = max(_limit(pictures, v) for v in values) < _THIN * span
    what = "thinner than the green line" if thin else "the green band"
    band = f"{outside} of them are outside the tolerance, which is {what}"
    if far >= _VISIBLE * span or not pictures.allowed > 0:
        body = _values(pictures, shown, min(values), span or abs(values[0]) or 1.0, reference)
        text = f"{text} and ONNX upwards; {band} on the diagonal"
    else:
        body = _differences(pictures, shown, reference)
        text = (
            f"{text} and the difference upwards, in units of the tolerance; {outside} of them are "
        )
        text += "outside the tolerance, which is the green band"
    return Picture(f"{reference} against ONNX", f"{text}.", body)


def _values(
    pictures: Pictures,
    shown: Sequence[tuple[float, float]],
    low: float,
    span: float,
    reference: str,
) -> Markup:
    def at(e: float, a: float) -> tuple[float, float]:
        return x_of(e - low, span), y_of(a, low, low + span)

    ends = (low, low + span)
    limits = [min(_limit(pictures, v), span) for v in ends]
    upper = [at(v, min(v + limit, low + span)) for v, limit in zip(ends, limits, strict=True)]
    lower = [at(v, max(v - limit, low)) for v, limit in zip(ends, limits, strict=True)]
    band = [*upper, *reversed(lower)]
    # The band is as thin as the tolerance; its edge shows where it is.
    body = path("band", band, closed=True) + frame() + axis(low, low + span)
    first, last = summary.distinct_digits(low, low + span, 2)
    body += below(first, reference, last)
    return body + _both_kinds(pictures, shown, at) + text_at(LEFT, 12, "ONNX", "start")


def _differences(
    pictures: Pictures, shown: Sequence[tuple[float, float]], reference: str
) -> Markup:
    low = min(e for e, _ in shown)
    span = (max(e for e, _ in shown) - low) or 1.0

    def unit(e: float, a: float) -> float:
        return max(-_FAR, min((a - e) / (_limit(pictures, e) or math.inf), _FAR))

    most = max(1.5, *(abs(unit(*pair)) for pair in shown)) * 1.1

    def at(e: float, a: float) -> tuple[float, float]:
        return x_of(e - low, span), y_of(unit(e, a), -most, most)

    edges = [y_of(edge, -most, most) for edge in (1.0, -1.0)]
    band = [(x, y) for y in edges for x in (LEFT, WIDTH - 8)]
    band[2:] = reversed(band[2:])
    body = path("band", band, closed=True) + frame() + axis(-most, most)
    first, last = summary.distinct_digits(low, low + span, 2)
    body += below(first, reference, last)
    label = text_at(LEFT, 12, "ONNX less the other, times the tolerance", "start")
    return body + _both_kinds(pictures, shown, at) + label


def histogram(pictures: Pictures) -> Picture | None:
    """Return how many elements have which error, in units of the tolerance."""
    counts = [max(0, min(count, 10**12)) for count in pictures.histogram[:_COLUMNS]]
    most = max(counts, default=0)
    if not most:
        return None
    step, floor, room = (WIDTH - 16) / _COLUMNS, HEIGHT - BOTTOM, HEIGHT - BOTTOM - 44
    body, parts = Markup(""), []
    for i, count in enumerate(counts):
        height = room * math.log10(count + 1) / math.log10(most + 1)
        if count:
            x = 8 + i * step
            kind = "bar" if i < _WITHIN else "bar bad"
            body += rect(kind, x + 2, floor - height, step - 4, height)
            body += text_at(x + step / 2, floor - height - 5, _compact(count), "middle")
            parts.append(f"{format_int(count)} {_column(i)}")
    body += path("axis", [(8, floor), (WIDTH - 8, floor)])
    for i, edge in enumerate(_EDGES, 1):
        body += text_at(8 + i * step, floor + 14, edge, "middle")
    body += text_at(WIDTH - 8 - step / 2, floor + 14, "∞", "middle")
    limit = 8 + _WITHIN * step
    body += path("limit", [(limit, 8), (limit, floor)])
    body += text_at(limit - 5, 14, "within", "end") + text_at(limit + 5, 14, "outside", "start")
    body += text_at(WIDTH / 2, HEIGHT - 4, "times the tolerance", "middle")
    text = (
        f"Elements by their error in units of the tolerance, both logarithmic: {', '.join(parts)}."
    )
    return Picture("The errors in units of the tolerance", text, body)


def by_case(model: ModelResult) -> Picture | None:
    """Return the share of the tolerance that each check used, the worst first."""
    checks = _counting(model)
    outputs = {check.output for check in checks}

    def label(check: Check) -> str:
        parts = [check.output] if len(outputs) > 1 else []
        parts += [check.runtime] if check.runtime != checks[0].runtime else []
        rest = "".join(f" · {plain(part, _PART)}" for part in parts)
        # What tells two rows apart is not cut off.
        return plain(check.case, max(_WIDE - len(rest), _PART)) + rest

    rows = [(label(check), check) for check in checks]
    rows.sort(key=lambda row: -_share(row[1]))
    return _bars("The error by case, in units of the tolerance", rows)


def by_step(model: ModelResult) -> Picture | None:
    """Return the error over calls in a row, beside PyTorch's own rounding where it is known."""
    check = steps.shown(model)
    if check is None or check.steps is None or len(check.steps.errors) < 2:
        return None
    errors = check.steps.errors[:_STEPS]
    own = [each for each in check.steps.rounding[:_STEPS] if each is not None]
    own = own if len(own) == len(errors) else []
    low, high = span_of((*errors, *own))
    body = decades(low, high) + path("line", along(errors, low, high))
    body += path("own", along(own, low, high)) if own else Markup("")
    if check.verdict == "diverged" and 0 < check.steps.at <= len(errors):
        x = x_of(check.steps.at - 1, len(errors) - 1)
        body += path("limit", [(x, TOP), (x, HEIGHT - BOTTOM)])
    body += below("step 1", "", f"step {len(errors)}")
    dashed = f"; dashed is {model.against}'s own rounding" if own else ""
    text = f"{plain(check.output, _LABEL)}{dashed}: {steps.sentence(model)}."
    return Picture("The error from step to step", text, body)


def by_size(model: ModelResult) -> Picture | None:
    """Return the share of the tolerance used at each size of the dimension that decides it, if any does."""
    by_name: dict[str, dict[int, list[Check]]] = {}
    for check in _counting(model):
        for name, size in check.sizes.items():
            by_name.setdefault(name, {}).setdefault(size, []).append(check)
    decides = max(by_name, key=lambda name: (_explained(by_name[name]), name), default="")
    if not decides or _explained(by_name[decides]) < _MATTERS:
        return None
    worst = {size: max(checks, key=_share) for size, checks in by_name[decides].items()}
    ranked = sorted(worst, key=lambda size: -_share(worst[size]))
    # With the best of them, which shows what the others are worse than.
    shown = sorted({*ranked[: _BARS - 1], ranked[-1]})
    rows = [(f"{decides}={format_int(size)}", worst[size]) for size in shown]
    return _bars(
        f"The error by {plain(decides, _PART)}, in units of the tolerance", rows, len(worst)
    )


def _explained(groups: Mapping[int, Sequence[Check]]) -> float:
    """Return how much of the spread of errors the groups account for: the adjusted R² of their means."""
    values = [[level(_share(check), -3.0, _MOST) for check in group] for group in groups.values()]
    count = sum(map(len, values))
    if not 1 < len(values) < count:
        return 0.0
    mean = math.fsum(map(math.fsum, values)) / count
    total = math.fsum((v - mean) ** 2 for group in values for v in group)
    rest = math.fsum((v - math.fsum(g) / len(g)) ** 2 for g in values for v in g)
    return 1 - (rest / (count - len(values))) / (total / (count - 1)) if total > 0 else 0.0


def error_map(pictures: Pictures) -> Picture | None:
    """Return the errors over the last two axes of the output, around the worst element."""
    rows = pictures.map
    width = max((len(row) for row in rows), default=0)
    if not width or len(rows) * width < 2:
        return None
    side = min(24.0, (WIDTH - 16) / max(width, len(rows)))
    tile = short(side - 1)
    body = Markup("")
    kinds = (("m0", -1.0, 1.0), ("m1", 1.0, 10.0), ("m2", 10.0, 1e3), ("m3", 1e3, math.inf))
    for kind, low, high in kinds:
        cells = "".join(
            f"M{short(8 + x * side)} {short(2 + y * side)}h{tile}v{tile}h-{tile}z"
            for y, row in enumerate(rows)
            for x, share in enumerate(row)
            if low < share <= high or (math.isnan(share) and kind == "m3")
        )
        body += Markup('<path class="{}" d="{}"/>').format(kind, cells) if cells else Markup("")
    outside = sum(not share <= 1 for row in rows for share in row)
    size = " × ".join(format_int(n) for n in pictures.map_of)
    y, x = 2 + len(rows) * side + 16, 8.0
    for kind, label in (("m0", "≤ 1"), ("m1", "≤ 10"), ("m2", "≤ 1000"), ("m3", "more")):
        body += rect(kind, x, y - 10, 11, 11) + text_at(x + 16, y, label, "start")
        x += 76
    text = (
        f"The last two axes ({size}) where the worst element is, in units of the tolerance: {outside} "
        f"of {len(rows) * width} tiles have an error outside the tolerance; the darker, the larger."
    )
    return Picture("Where in the output", text, body, height=y + 6)


def _bars(title: str, rows: Sequence[tuple[str, Check]], of: int = 0) -> Picture | None:
    if len(rows) < 2:
        return None
    shown, room = rows[:_BARS], WIDTH - 78
    logs = [level(_share(check), -3.0, _MOST) for _, check in shown]
    span = max(*logs, 1.0) + 3
    body, height = Markup(""), 34.0 * len(shown)
    limit = 8 + room * 3 / span
    for i, ((label, check), value) in enumerate(zip(shown, logs, strict=True)):
        y, length = 34.0 * i, max(room * (value + 3) / span, 2)
        kind = "bar bad" if check.verdict == "diverged" else "bar"
        body += text_at(8, y + 12, plain(label, 48), "start") + rect(kind, 8, y + 17, length, 10)
        body += text_at(max(8 + length, limit) + 6, y + 26, summary.used(check), "start")
        body += path("tick", [(limit, y + 16), (limit, y + 28)])
    label, worst = max(rows, key=lambda row: _share(row[1]))
    of = of or len(rows)
    more = f" {len(shown)} of {of} are shown." if of > len(shown) else ""
    text = "Logarithmic, and the mark on each bar is the tolerance; the worst is "
    text += plain(label, _WIDE)
    return Picture(title, f"{text}: {summary.used(worst)}.{more}", body, height=height)


def _both_kinds(
    pictures: Pictures,
    shown: Sequence[tuple[float, float]],
    at: Callable[[float, float], tuple[float, float]],
) -> Markup:
    within = [abs(e - a) <= _limit(pictures, e) for e, a in shown]
    inside = [at(*pair) for pair, fits in zip(shown, within, strict=True) if fits]
    outside = [at(*pair) for pair, fits in zip(shown, within, strict=True) if not fits]
    return dots("dot", inside) + dots("dot bad", outside)


def _error_at(node: NodeError) -> str:
    return f"{plain(node.op_type, _LABEL)} with an error of {number(node.error)}"


def _limit(pictures: Pictures, value: float) -> float:
    allowed = pictures.allowed * (abs(value) + pictures.scale)
    return allowed if allowed >= 0 else 0.0


def _counting(model: ModelResult) -> list[Check]:
    counting = [c for c in model.checks[:_CHECKS] if not c.advice]
    return [c for c in counting if c.budget is not None or c.verdict == "diverged"]


def _share(check: Check) -> float:
    budget = check.budget
    if budget is None or math.isnan(budget):
        return math.inf
    return max(budget, 0.0)


def _column(index: int) -> str:
    if index >= len(_EDGES):
        return "not finite" if index == _COLUMNS - 1 else f"above {_EDGES[-1]}"
    return f"up to {_EDGES[index]}"


def _compact(count: int) -> str:
    """Return a count in at most four characters, where it has no more than twelve digits."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= 10 * size or (size > 10**3 and count >= size):
            return f"{count // size}{letter}"
    return str(count)


def _ordinary(value: float) -> bool:
    return math.isfinite(value) and abs(value) < 1e300
