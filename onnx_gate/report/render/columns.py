"""Tables that keep their words whole, however narrow the terminal is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.containers import Lines
from rich.table import Table
from rich.text import Text

_GAP = 2


@dataclass(frozen=True)
class Column:
    """A column; those that can be spared go where there is no room, the lowest number first."""

    title: str
    numeric: bool = False
    spare: int = 0


@dataclass(frozen=True)
class Fitting:
    """A table as wide as its words, less the columns to spare; or ``records``, a text for each row."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Text]]
    records: Sequence[Text]
    header: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the first that fits: the table, the table with less, the records."""
        spared = sorted({column.spare for column in self.columns} - {0})
        for least in (0, *spared):
            kept = [i for i, each in enumerate(self.columns) if not 0 < each.spare <= least]
            if sum(map(self._width, kept)) - _GAP <= options.max_width:
                yield self._table(kept)
                return
        yield from self.records

    def _width(self, number: int) -> int:
        title = self.columns[number].title if self.header else ""
        cells = [title, *(row[number].plain for row in self.rows)]
        return max(map(cell_len, cells)) + _GAP

    def _table(self, kept: Sequence[int]) -> Table:
        table = Table(
            box=None,
            pad_edge=False,
            padding=(0, _GAP, 0, 0),
            header_style="bold",
            show_header=self.header,
        )
        for number in kept:
            column = self.columns[number]
            table.add_column(
                column.title, justify="right" if column.numeric else "left", no_wrap=True
            )
        for row in self.rows:
            table.add_row(*(row[number] for number in kept))
        return table


class _Words(Text):
    """A text that is wrapped between words, under its own indent; what is too wide stays whole."""

    def wrap(self, console: Console, width: int, **_: object) -> Lines:
        """Return the lines, of which those that are one word may be wider than ``width``."""
        lines = Lines()
        for line in self.split(allow_blank=True):
            indent = " " * (len(line.plain) - len(line.plain.lstrip()))
            for part in line.divide(_breaks(line.plain, width, len(indent))):
                part.rstrip()
                starts = not lines or part.plain.startswith(indent)
                lines.append(part if starts else Text(indent).append_text(part))
        return lines


def _breaks(line: str, width: int, indent: int) -> list[int]:
    """Return where a line is to be broken, as offsets at which a word begins."""
    offsets: list[int] = []
    used = 0
    for word in re.finditer(r"\s*\S+", line):
        needed = cell_len(word.group())
        if used + needed <= width or used <= indent:
            used += needed
            continue
        blanks = len(word.group()) - len(word.group().lstrip())
        offsets.append(word.start() + blanks)
        used = indent + needed - blanks
    return offsets


def words(text: str, style: str = "") -> Text:
    """Return a text that is wrapped between words; one that is wider than the terminal stays whole."""
    return _Words(text, style=style)
