"""A weight of a file that is not the parameter that it is meant to be."""

from __future__ import annotations

from dataclasses import dataclass

# What a wrong weight is called by at most this many of its rows.
_SHOWN = 3


@dataclass(frozen=True)
class WrongWeight:
    """A weight that is not the parameter that it is meant to be; ``through`` which type, if that is why.

    ``exchanged``: it has the parameter's rows, and some of them in each other's places. ``equal``:
    so many others of the module are equal to the parameter, and it may be that one of these is meant.
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

    def sentence(self) -> str:
        """Return it in words."""
        if self.instead is not None:
            return f"{self.parameter} holds the values of {self.instead}"
        alike = f" (or one of the {self.equal} equal to it)" if self.equal else ""
        name = self.parameter + alike
        if self.through is not None:
            return f"{name} went through {self.through}: off by up to {self.difference:.2g}"
        shown = ", ".join(map(str, self.rows[:_SHOWN]))
        more = len(self.rows) - _SHOWN
        rows = f"row {shown}" + (f" and {more} more" if more > 0 else "") + f" of {self.of}"
        if self.exchanged:
            return f"{name}: {rows} in each other's places"
        where = rows if len(self.rows) < self.of else "all of it"
        return f"{name}: {where} by up to {self.difference:.2g}"
