"""What many rows are where each is a pass of its own: looked at all, and few of them kept as cases."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.draw import numpy_dtype
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.sites import DecisionSite, Seen

# So many passes have to be cheap: of large networks there are a few, as many as ways of drawing.
CHEAP = 250
# And so many are looked at, unless there are more constants; of what shows nothing new so many are cases.
MOST, PLAIN = 500, 8
# Of one kind of them at most so many are.
CASES = 32


def told(seen: Mapping[DecisionSite, Seen], rows: bool) -> dict[DecisionSite, tuple[int, int]]:
    """Return how much was shown of each decision; ``rows``: those of every table may be others."""
    return {
        site: (len(s.sides), s.read if rows or s.computed or not site.is_table else 0)
        for site, s in seen.items()
    }


def in_turn(known: Mapping[str, Domain], base: Mapping[str, Array]) -> dict[str, Array]:
    """Return rows in which each element of an input has each of its constants once, others by its side.

    Elements begin at constants that are far from each other; where there are none, nothing is changed.
    """
    counts = {name: len(each.constants) for name, each in known.items() if each.constants}
    rows, made = max(counts.values(), default=0), {}
    for place, name in enumerate(known):
        own = base[name]
        made[name] = np.repeat(own[None], rows, axis=0)
        if name not in counts:
            continue
        constants = np.array(known[name].constants, np.float64 if known[name].is_float else object)
        # A step that shares no divisor with most counts: neighbours are of other limits.
        first = (7 * np.arange(own.size) + 3 * place) % len(constants)
        chosen = constants[(first + np.arange(rows)[:, None]) % len(constants)]
        made[name] = chosen.reshape(rows, *own.shape).astype(numpy_dtype(known[name].spec.dtype))
    return made
