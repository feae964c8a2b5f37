"""A weight of a file that is not the parameter that it is meant to be."""

from __future__ import annotations

from dataclasses import dataclass

# What a wrong weight is called by at most this many of its rows.
_SHOWN = 3


@dataclass(frozen=True)
class WrongWeight:
    """A weight that is not the parameter that it is meant to be; ``through`` which type, if that is why.

    ``exchanged``: it has the parameter's rows, and some of them in each other's places.
    """

    name: str
    parameter: str
    difference: float
    rows: tuple[int, ...]
    of: int
    instead: str | None = None
    through: str | None = None
    exchanged: bool = False

    def sentence(self) -> str:
        """Return it in words."""
        if self.instead is not None:
            return f"{self.parameter} holds the values of {self.instead}"
        if self.through is not None:
            return (
                f"{self.parameter} went through {self.through}: off by up to {self.difference:.2g}"
            )
        shown = ", ".join(map(str, self.rows[:_SHOWN]))
        more = len(self.rows) - _SHOWN
        rows = f"row {shown}" + (f" and {more} more" if more > 0 else "") + f" of {self.of}"
        if self.exchanged:
            return f"{self.parameter}: {rows} in each other's places"
        where = rows if len(self.rows) < self.of else "all of it"
        return f"{self.parameter}: {where} by up to {self.difference:.2g}"
