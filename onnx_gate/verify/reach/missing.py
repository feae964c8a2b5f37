"""NaN and infinity among inputs, for modules that ask for them: missing values, and readings out of range.

A row that is still finite where its own elements are not is one that the module cares for. So half of the
rows have one such element, each another one, and the others have one in four.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.draw import Stream
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.rules import Missing

_ASKED: Mapping[Missing, float] = {"isnan": math.nan, "isinf": math.inf}


def missing(
    asked: Collection[Missing], known: Mapping[str, Domain]
) -> Iterator[tuple[str, float, tuple[str, ...]]]:
    """Yield a name for what the module asks for, its value, and the inputs that may have it.

    All of those that nobody has declared a range for, and each alone.
    """
    free = [n for n, each in known.items() if each.is_float and each.drawn and not each.spec.range]
    for what in sorted(asked, key=str):
        value = _ASKED[what] if isinstance(what, str) else what
        label = what if isinstance(what, str) else f"equals/{what:g}"
        # What is in a domain is drawn there.
        names = tuple(n for n in free if not known[n].low <= value <= known[n].high)
        if names:
            yield label, value, names
        for name in names if len(names) > 1 else ():
            yield f"{label}/{name}", value, (name,)


def strewn(
    arrays: Mapping[str, Array], names: Collection[str], value: float, parts: str
) -> dict[str, Array]:
    """Return the arrays with ``value``, of either sign, at some elements of the named ones, row by row."""
    made = dict(arrays)
    for name in names:
        array = np.array(arrays[name])
        rows = array.reshape(len(array), -1) if array.ndim else array.reshape(1, 1)
        words = Stream("missing", parts, name).words(rows.size).reshape(rows.shape)
        chosen = words % np.uint64(4) == 0
        alone = np.arange(0, len(rows), 2)
        chosen[alone] = np.arange(rows.shape[1]) == (alone // 2 % max(rows.shape[1], 1))[:, None]
        rows[chosen] = np.where(words >> np.uint64(63), -value, value)[chosen]
        made[name] = rows.reshape(array.shape)
    return made
