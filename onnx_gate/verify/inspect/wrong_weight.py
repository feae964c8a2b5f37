"""A weight of a file that is not the parameter that it is meant to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from onnx_gate.findings.finding import Severity

# What a wrong weight is called by at most this many of its rows.
_SHOWN = 3


@dataclass(frozen=True)
class WrongWeight:
    """A weight that is not the parameter that it is meant to be; ``through`` which type, if that is why.

    ``exchanged``: it has the parameter's rows, and some of them in each other's places. ``equal``:
    so many others of the module are equal to the parameter, and it may be that one of these is meant.
    ``tied`` are other names of the parameter under which it may be meant as well.
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
        shown = ", ".join(map(str, self.rows[:_SHOWN]))
        more = len(self.rows) - _SHOWN
        rows = f"row {shown}" + (f" and {more} more" if more > 0 else "") + f" of {self.of}"
        if self.exchanged:
            return f"{name}: {rows} in each other's places"
        where = rows if len(self.rows) < self.of else "all of it"
        return f"{name}: {where} by up to {self.difference:.2g}"


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
            how = one.rows, one.of, one.through, one.exchanged
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
