"""``auto``: the candidate may be K times as wrong as rounding makes PyTorch, element by element.

``noise`` has the rule. Float64 is a witness: where, at an element, moved rounding explains how far
PyTorch is from it, the candidate may be nearer to float64 instead. Where it does not (``finfo``, a
guard by dtype), float64 computes another function, and is not asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.judge.noise import SURE, Mask, Noise, Part, Terms, Used, distance
from onnx_gate.verify.judge.systematic import Lean, Systematic, lean_of, most
from onnx_gate.verify.reference.answers import FEW, OutputAnswers

# As far beyond its limit a few runs tell enough: sixteen move an element about twice as far as four
# (``resolution``), so what is left is an element that rounding decides, and it in the others only.
_HOPELESS = 100.0
# And so far where no verdict hangs on such an element.
_SETTLED = 4.0


@dataclass(frozen=True)
class AutoResult:
    """How an output was judged, by the element that has used most of its limit.

    ``budget`` is the share that it has used, ``index`` its flat index, ``error`` its difference,
    ``allowed`` its limit and ``moved`` what rounding does to it. ``open`` is where rounding decides,
    ``lean`` what the difference is made of over all elements.
    """

    budget: float
    basis: str
    index: int
    error: float
    allowed: float
    moved: float
    noise: Noise = field(repr=False)
    lean: Lean
    systematic: Systematic | None = None
    open: Mask | None = field(default=None, repr=False)

    @property
    def holds(self) -> bool:
        """Return whether the error is allowed."""
        return self.budget <= 1.0


def auto(
    candidate: Array,
    expected: Array,
    terms: Terms,
    answers: OutputAnswers,
    *,
    refused: bool = False,
    settled: bool = False,
) -> AutoResult:
    """Judge one floating-point output against PyTorch's answer ``expected``, of the same shape.

    All runs are made before one is refused, but where others of this output have been ``refused``
    and this one is so far off that more runs would hardly help it, or change no verdict (``settled``).
    """
    noise, beyond = Noise(expected, terms, answers), _SETTLED if settled else _HOPELESS
    used, lean = _judged(candidate, noise)
    while used.share > (SURE if noise.samples else 1) or _leans(lean, noise):
        hopeless = refused and used.share > beyond and len(noise.runs) >= FEW
        if used.share > SURE and noise.again():
            pass
        elif hopeless or not noise.more():
            break
        used, lean = _judged(candidate, noise)
    basis = "rounding" if noise.samples else "floor"
    if used.share > 1 or lean.systematic:
        witnessed = _witnessed(candidate, noise, answers, used, lean)
        if witnessed is not None:
            used, lean, basis = *witnessed, "float64"
    return _result(candidate, expected, noise, used, lean, basis)


def _judged(candidate: Array, noise: Noise) -> tuple[Used, Lean]:
    """Return what an element has used, and only where none is beyond its limit, what all lean to."""
    used = noise.used(candidate)
    return used, lean_of(candidate, noise) if used.share <= 1 else Lean()


def _leans(lean: Lean, noise: Noise) -> bool:
    """Return whether a difference leans further than rounding was seen to.

    What the last operators do to all elements together is less than all of them do, and so no measure of
    it.
    """
    return not lean.is_slight if noise.ends and not noise.runs else lean.systematic is not None


def against(candidate: Array, base: Array, noise: Noise) -> AutoResult:
    """Hold a candidate against another of PyTorch's answers, with the noise of the first."""
    used = noise.used(candidate, base)
    return _result(candidate, base, noise, used, Lean(), "rounding")


def _result(
    candidate: Array, base: Array, noise: Noise, used: Used, lean: Lean, basis: str
) -> AutoResult:
    opened = noise.opened(candidate)
    if opened is not None and used.share <= 1:  # what was not compared used nothing
        used = noise.used(np.where(opened, base, candidate), base)
    error = allowed = moved = 0.0
    if used.index >= 0:
        part = np.array([used.index])
        error = float(distance(candidate.reshape(-1)[part], base.reshape(-1)[part])[0])
        allowed, moved = float(noise.limits(part, base)[0]), float(noise.moves(part)[0])
    systematic = lean.systematic
    budget = max(used.share, systematic.share if systematic is not None else 0.0)
    return AutoResult(
        budget,
        basis,
        used.index,
        error,
        allowed,
        moved,
        noise,
        lean,
        systematic if used.share <= 1 else None,
        opened,
    )


def _witnessed(
    candidate: Array, noise: Noise, answers: OutputAnswers, used: Used, lean: Lean
) -> tuple[Used, Lean] | None:
    """Return what is left of a difference where float64 says that the candidate is nearer to it."""
    r = answers.float64()
    if r is None or r.shape != candidate.shape:
        return None
    if used.share > 1:
        off = noise.beyond(candidate)
        if not _nearer(candidate, r, noise, off).all():
            return None
        inside = np.array(candidate).reshape(-1)
        inside[off] = noise.expected.reshape(-1)[off]
        used = Used(max(noise.used(inside.reshape(candidate.shape)).share, 1.0), int(off[0]))
        lean = lean_of(candidate, noise)
    if lean.systematic:
        whole = slice(None)
        explained = _apart(noise.expected, r, whole) <= noise.limits(whole)
        base = np.where(explained, r.reshape(-1), noise.expected.reshape(-1))
        lean = min((lean, lean_of(candidate, noise, base)), key=most)
    return used, lean


def _nearer(candidate: Array, r: Array, noise: Noise, part: Part) -> Mask:
    torch, own = _apart(noise.expected, r, part), _apart(candidate, r, part)
    floor = noise.terms.relative * np.abs(r.reshape(-1)[part].astype(np.float64))
    return np.asarray(
        (torch <= noise.limits(part)) & (own <= np.maximum(torch, floor + noise.terms.step)),
        np.bool_,
    )


def _apart(a: Array, b: Array, part: Part) -> Array:
    return distance(a.reshape(-1)[part], b.reshape(-1)[part])
