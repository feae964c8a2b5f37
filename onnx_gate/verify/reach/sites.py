"""Decisions in the code of a module, and what was shown of each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch

from onnx_gate.verify.reach.rules import SIDES, Kind

# What reads rows of weights.
READ = frozenset(("embedding", "index", "_unsafe_index", "index_select", "gather"))
# Of no more columns than this each is gone to on both sides: two for each row that climbs.
MOST_COLUMNS = 64
# Tables with more rows than this are known by their first and last; ids of more are hashes.
MOST_ROWS = 4096


@dataclass(frozen=True)
class DecisionSite:
    """One decision in the code: an operator's limit, the module that calls it, and the line.

    ``limit`` is its number where it is one and the same in every run: one that follows from an
    input's size or values is none. ``file`` is as Python knows it, ``at`` the place among what the line
    does.
    """

    module: str
    operator: str
    kind: Kind
    limit: float | None
    file: str = ""
    line: int = 0
    at: int = 0
    part: int = 0

    @property
    def sides(self) -> tuple[str, ...]:
        """What its sides are called."""
        return SIDES[self.kind]

    @property
    def is_table(self) -> bool:
        """Whether it reads rows of a weight, as buckets and choices do not."""
        return self.kind == "rows" and self.operator in READ

    @property
    def has_rows(self) -> bool:
        """Whether it is shown row by row, of a table or of what may be chosen."""
        return self.kind in ("rows", "pairs")

    @property
    def place(self) -> DecisionSite:
        """The decision whatever its limit."""
        return replace(self, limit=None)


# A side of a decision that was compared at its operator.
ComparedSide = tuple[DecisionSite, str]


@dataclass
class Seen:
    """What was shown of one decision.

    ``low`` and ``high`` are the operand's least and largest distance above its limit, ``at``
    whether an element was exactly at it. ``rows`` are the rows of a table that were read.
    ``whole``: the operand holds integers. ``follows``: it has a gradient to the inputs, where asked.
    ``computed``: it, or what points into a table, is made of the inputs' values and is none of them.
    ``named``: the limit is a number of the module's, or a list of its own, and follows from no input.
    ``columns``: which columns of an operand of few were on each side, one row a side.
    """

    sides: set[str] = field(default_factory=set)
    low: float = math.inf
    high: float = -math.inf
    at: bool = False
    whole: bool = False
    rows: torch.Tensor | None = None
    follows: bool | None = None
    computed: bool = False
    named: bool = False
    columns: torch.Tensor | None = None

    @property
    def read(self) -> int:
        """How many rows were read."""
        return 0 if self.rows is None else int(self.rows.sum())

    def add(self, other: Seen) -> None:
        """Take in what another run has shown of the same decision."""
        self.sides |= other.sides
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.at, self.whole = self.at or other.at, self.whole or other.whole
        self.computed |= other.computed
        self.named |= other.named
        self.follows = other.follows if self.follows is None else self.follows or other.follows
        self.rows = _joined(self.rows, other.rows)
        self.columns = _joined(self.columns, other.columns)

    @property
    def moves(self) -> bool:
        """Whether the inputs' values may change it: a gradient, whole numbers or a truth."""
        return self.follows is not False or self.whole

    def left(self, site: DecisionSite) -> tuple[str, ...]:
        """Return the sides that were not seen."""
        if not site.has_rows:
            return tuple(side for side in site.sides if side not in self.sides)
        if self.rows is None:
            return ()
        whole = self.rows if len(self.rows) <= MOST_ROWS else self.rows[[0, -1]]
        return () if bool(whole.all()) else site.sides

    @property
    def narrow(self) -> bool:
        """Whether a column has been on one side only."""
        return self.columns is not None and not bool(self.columns.all())

    def columns_left(self, site: DecisionSite) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the sides that some columns alone have not shown, with their numbers."""
        if self.columns is not None:
            for side, seen in zip(site.sides, self.columns, strict=True):
                if seen.any() and not seen.all():
                    yield side, (~seen).nonzero().reshape(-1)


def _joined(one: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    if one is None or other is None or one.shape != other.shape:
        return other if one is None else one
    return one | other


def parts_of(site: DecisionSite, side: str) -> tuple[str, ...]:
    """Return what the name of a case that shows a side consists of."""
    limit = "" if site.limit is None else f"{site.limit:g}"
    name = ".".join(part for part in (site.operator, limit) if part)
    return (site.module, f"{name}@{site.line}" if site.line else name, side)
