"""Every code that a report can hold, with its text.

OG1xx speak of the model and its graph, OG2xx of building and exporting, OG3xx of runtimes, OG4xx
of verdicts, OG5xx of workers, OG6xx of the manifest's waivers, OG7xx of what usually is behind a
divergence at one operator. The text of each is a file of its own in ``texts``: Markdown with a title,
three sections and an example.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files

from onnx_gate.findings.codes import ALL

_HEADING = re.compile(r"^## (.+)$", re.M)
_TITLE = re.compile(r"# (OG\d{3}): (.+)")
_SECTIONS = ("Why it matters", "How to fix it", "Example")


@dataclass(frozen=True)
class Explanation:
    """One code: what it means, why it matters, the remedy, and an example; all but the title Markdown.

    A code that comes with an error says why a model has no verdict of its own.
    """

    code: str
    title: str
    meaning: str
    why: str
    remedy: str
    example: str

    @property
    def appears(self) -> str:
        """How it shows: ``finding of severity error; error of kind export``."""
        code = ALL[self.code]
        return "; ".join(
            [
                *(f"finding of severity {severity}" for severity in code.severities),
                *(f"error of kind {kind}" for kind in code.kinds),
            ]
        )


def parse(text: str) -> Explanation:
    """Read a finding's file; raises ``ValueError`` where a part is missing or not in its place."""
    title = _TITLE.match(text)
    parts = _HEADING.split(text)
    if title is None or tuple(parts[1::2]) != _SECTIONS:
        raise ValueError(f"{text[:40]!r} is no finding: {', '.join(_SECTIONS)} in this order")
    return Explanation(
        code=title[1],
        title=title[2],
        meaning=parts[0][title.end() :].strip(),
        why=parts[2].strip(),
        remedy=parts[4].strip(),
        example=parts[6].strip(),
    )


class Catalogue(Mapping[str, Explanation]):
    """All entries by code, in the order of the codes; read when the first is asked for."""

    @cached_property
    def _entries(self) -> Mapping[str, Explanation]:
        folder = files("onnx_gate.findings") / "texts"
        names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".md"))
        entries = (parse((folder / name).read_text(encoding="utf-8")) for name in names)
        return {entry.code: entry for entry in entries}

    def __getitem__(self, code: str) -> Explanation:
        return self._entries[code]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


CATALOGUE: Mapping[str, Explanation] = Catalogue()
