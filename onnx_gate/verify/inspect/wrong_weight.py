"""A weight of a file that is not the parameter that it is meant to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnx_gate.findings.finding import Severity
from onnx_gate.verify.inspect.weight_bits import Mask

# What a wrong weight is called by at most this many of its rows.
_SHOWN = 3


@dataclass(frozen=True)
class WrongWeight:
    """A weight that is not the parameter that it is meant to be; ``through`` which type, if that is why.

    ``exchanged``: it has the parameter's rows, and some of them in each other's places. ``equal``:
    so many others of the module are equal to the parameter, and it may be that one of these is meant.
    ``columns`` of ``across`` are wrong, where all rows are. ``absent``: its ``rows`` are nowhere in the
    file. ``tied`` are other names of the parameter under which it may be meant as well.
    """

    name: str
    parameter: str
    difference: float
    rows: tuple[int, ...]
    of: int
    instead: str | None = None
    through: str | None = None
    exchanged: bool = False
    equal: int = 0
    tied: tuple[str, ...] = ()
    absent: bool = False
    columns: tuple[int, ...] = ()
    across: int = 0

    def in_columns(self, off: Mask) -> WrongWeight:
        """Return it with the columns that are ``off``, where all rows are and not all of these."""
        few = len(self.rows) == self.of and not off.all()
        columns = tuple(map(int, np.flatnonzero(off)))
        return replace(self, columns=columns, across=off.size) if few else self

    def called(self, parameter: str, tied: tuple[str, ...]) -> WrongWeight:
        """Return it by another name of its parameter's, and the ``tied`` ones that it may be meant by."""
        return replace(self, parameter=parameter, tied=tied)

    def sentence(self) -> str:
        """Return it in words."""
        if self.instead is not None:
            return f"{self.parameter} holds the values of {self.instead}"
        alike = f" (or one of the {self.equal} equal to it)" if self.equal else ""
        tied = f" (tied to {', '.join(self.tied)})" if self.tied else ""
        name = self.parameter + tied + alike
        if self.through is not None:
            return f"{name} went through {self.through}: off by up to {self.difference:.2g}"
        rows = f"row {_listed(self.rows)} of {self.of}"
        if self.exchanged:
            return f"{name}: {rows} in each other's places"
        if self.absent:
            return f"{name}: {rows} nowhere in the file" if self.rows else f"{name}: a part alone"
        where = rows if len(self.rows) < self.of else "all of it"
        if self.columns:
            where = f"column {_listed(self.columns)} of {self.across}"
        return f"{name}: {where} by up to {self.difference:.2g}"


def _listed(numbers: Sequence[int]) -> str:
    more = len(numbers) - _SHOWN
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    return shown + (f" and {more} more" if more > 0 else "")


def once_each(
    wrong: Iterable[tuple[WrongWeight, Severity]], names: Callable[[str], tuple[str, ...]]
) -> list[tuple[WrongWeight, Severity]]:
    """Return each parameter that is wrong once, by all ``names`` of it: a file may hold it twice.

    Copies that are wrong in other rows are told apart. What is certain of one copy is of the other.
    """
    found: dict[object, tuple[WrongWeight, Severity]] = {}
    for one, severity in wrong:
        how: tuple[object, ...] = (one.instead,)
        if one.instead is None:
            how = one.rows, one.of, one.through, one.exchanged, one.columns
        key = names(one.parameter), how
        before, known = found.get(key, (one, severity))
        others = dict.fromkeys((*before.tied, one.parameter, *one.tied))
        others.pop(before.parameter, None)
        worst = max(before.difference, one.difference)
        found[key] = (
            replace(before, tied=tuple(others), difference=worst),
            "error" if "error" in (known, severity) else severity,
        )
    return list(found.values())
