"""Calls in a row: how the error went from step to step, in a line and as a chart. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup, escape

from onnx_gate.report.model import Check, ModelResult, Steps
from onnx_gate.report.summary import failing, format_int, number
from onnx_gate.text import plain

_NAME = 40
_CASE = 80
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 480, 150, 70, 24, 12
# Below this an error is no error, and a logarithm shows nothing.
_LEAST, _MOST = 1e-12, 1e3


def shown(model: ModelResult) -> Check | None:
    """Return the check whose steps stand for a model's: the first wrong, or the best measured.

    Of those that pass it is the one of which PyTorch's own rounding is known and that chooses
    tokens, or else the one that ended with the largest error.
    """
    wrong = next((check for check in failing(model) if check.steps is not None), None)
    measured = [check for check, steps in _stepped(model) if steps.errors]
    return wrong or max(measured, key=_weight, default=None)


def sentence(model: ModelResult) -> str:
    """Return the steps of a model in one line, empty where it has none.

    ``16 steps: logits 1.2e-06 at step 1, 3.4e-06 at step 16 (PyTorch's own rounding 2.9e-06); 32 of 32
    tokens the same``
    """
    check = shown(model)
    if check is None or check.steps is None:
        return ""
    steps, output = check.steps, plain(check.output, _NAME)
    parts = [f"{format_int(steps.count)} steps: {output} {_errors(steps)}".rstrip()]
    if check.verdict == "diverged":
        first = f"first wrong at step {format_int(steps.at)}"
        case, errors = plain(check.case, _CASE), _errors(steps)
        parts = [f"{format_int(steps.count)} steps: {output} is {first} ({case})"]
        parts += [f"its error {errors}"] if errors else []
    tokens = [s.tokens for _, s in _stepped(model) if s.tokens is not None]
    if tokens:
        same, of = sum(t.same for t in tokens), sum(t.of for t in tokens)
        parts.append(f"{format_int(same)} of {format_int(of)} tokens the same")
    return "; ".join(parts)


def chart(model: ModelResult) -> Markup:
    """Return the error over the steps as an SVG image, empty where there is nothing to draw."""
    check = shown(model)
    if check is None or check.steps is None or len(check.steps.errors) < 2:
        return Markup("")
    steps = check.steps
    known = [each for each in steps.rounding if each is not None]
    own = known if len(known) == len(steps.errors) else []
    values = [_clamped(each) for each in (*steps.errors, *own)]
    low = math.floor(math.log10(min(values)))
    high = max(math.ceil(math.log10(max(values))), low + 1)

    def points(series: Sequence[float]) -> str:
        return " ".join(
            f"{_x(n, len(series)):.1f},{_y(math.log10(_clamped(each)), low, high):.1f}"
            for n, each in enumerate(series)
        )

    parts = [_line(points(steps.errors), "")]
    parts += [_line(points(own), ' stroke-dasharray="4 3" opacity=".6"')] if own else []
    if check.verdict == "diverged" and steps.at <= len(steps.errors):
        x = _x(steps.at - 1, len(steps.errors))
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" stroke="#d33"/>'
        )
    parts += [
        _text(_LEFT - 6, _TOP + 4, "end", f"1e{high}"),
        _text(_LEFT - 6, _HEIGHT - _BOTTOM, "end", f"1e{low}"),
        _text(_LEFT, _HEIGHT - 6, "start", "step 1"),
        _text(_WIDTH - 6, _HEIGHT - 6, "end", f"step {len(steps.errors)}"),
    ]
    legend = "the error" + (", dashed: PyTorch's own rounding" if own else "")
    title = escape(f"{plain(check.output, _NAME)} over the steps: {legend}. {sentence(model)}")
    return Markup(
        f'<figure style="margin: .5rem 0"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'role="img" font-size="11" style="max-width: 100%; height: auto"><title>{title}</title>'
        f"{''.join(parts)}</svg>"
        f"<figcaption><small>{escape(plain(check.output, _NAME))} over the steps: {legend}"
        "</small></figcaption></figure>"
    )


def _stepped(model: ModelResult) -> Iterator[tuple[Check, Steps]]:
    return ((check, check.steps) for check in model.checks if check.steps is not None)


def _weight(check: Check) -> tuple[bool, bool, float]:
    steps = check.steps
    assert steps is not None
    measured = all(each is not None for each in steps.rounding)
    return measured, steps.tokens is not None, _clamped(steps.errors[-1])


def _errors(steps: Steps) -> str:
    if not steps.errors:
        return ""
    last = len(steps.errors)
    shown = [f"{number(steps.errors[0])} at step 1"]
    if last > 1:
        shown.append(f"{number(steps.errors[-1])} at step {last}")
    own = steps.rounding[-1] if steps.rounding else None
    return ", ".join(shown) + (
        f" (PyTorch's own rounding {number(own)})" if own is not None else ""
    )


def _clamped(value: float) -> float:
    return _MOST if math.isnan(value) else min(max(value, _LEAST), _MOST)


def _x(index: int, count: int) -> float:
    return _LEFT + (_WIDTH - 6 - _LEFT) * index / max(count - 1, 1)


def _y(power: float, low: int, high: int) -> float:
    return _TOP + (_HEIGHT - _BOTTOM - _TOP) * (high - power) / (high - low)


def _line(points: str, style: str) -> str:
    return f'<polyline points="{points}" fill="none" stroke="currentColor"{style}/>'


def _text(x: float, y: float, anchor: str, words: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="currentColor">{words}</text>'
