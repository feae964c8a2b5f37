"""Every code that a report can hold, with its text.

OG1xx speak of the model and its graph, OG2xx of building and exporting, OG3xx of runtimes, OG4xx
of verdicts, OG5xx of workers, OG6xx of the manifest's waivers, OG7xx of what usually is behind a
divergence at one operator. The text of each is a file of its own in ``texts``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.resources import files

from onnx_gate.findings.explanation import Explanation, parse


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
