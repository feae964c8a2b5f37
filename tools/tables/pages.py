"""The tables of the documentation that come from benchmarks, written from their stored results.

A page holds them between two comments, ``<!-- results: NAME -->`` and ``<!-- end of results -->``;
what lies between is replaced. NAME is a function of ``TABLES``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tools.tables.accuracy import (
    decoders,
    diagnosis,
    false_alarms,
    families,
    faults,
    foreign,
    limits,
    sharpness,
)
from tools.tables.blocks import blocks
from tools.tables.common import ROOT
from tools.tables.cost import (
    cold_start,
    compare,
    first_verdict,
    half,
    leftovers,
    localize_cost,
    many,
    memory,
    overhead,
    page,
    self_test,
    shards,
)
from tools.tables.coverage import audit, blunt, decisions
from tools.tables.remedies import known, remedies
from tools.tables.runtimes import bisected, bumps, devices, runtimes, runtimes_red, versions

PAGES = (
    "README.md",
    "docs/action.md",
    "docs/audit.md",
    "docs/compatibility.md",
    "docs/diagnosis-measured.md",
    "docs/evidence.md",
    "docs/green.md",
    "docs/foreign.md",
    "docs/how-to/browser.md",
    "docs/large-models.md",
    "docs/performance.md",
    "docs/remedies.md",
    "docs/runtimes.md",
    "docs/since.md",
    "docs/tolerances.md",
    "docs/workflows.md",
    "benchmarks/README.md",
)
_BLOCK = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end of results -->)", re.S)


def pages() -> dict[Path, str]:
    """Return the text of every page that holds such tables."""
    return {ROOT / page: fill((ROOT / page).read_text(encoding="utf-8")) for page in PAGES}


def fill(text: str) -> str:
    """Return a page with its tables written anew."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{TABLES[block[2]]()}\n\n{block[3]}", text)


TABLES: dict[str, Callable[[], str]] = {
    "bisected": bisected,
    "bumps": bumps,
    "known": known,
    "remedies": remedies,
    "blocks": blocks,
    "overhead": overhead,
    "self-test": self_test,
    "half": half,
    "memory": memory,
    "shards": shards,
    "cold-start": cold_start,
    "many": many,
    "compare": compare,
    "page": page,
    "leftovers": leftovers,
    "false-alarms": false_alarms,
    "sharpness": sharpness,
    "first-verdict": first_verdict,
    "false-alarms-by-family": families,
    "limits": limits,
    "faults": faults,
    "audit": audit,
    "blunt": blunt,
    "decisions": decisions,
    "diagnosis": diagnosis,
    "localize-cost": localize_cost,
    "decoders": decoders,
    "versions": versions,
    "foreign": foreign,
    "runtimes": runtimes,
    "runtimes-red": runtimes_red,
    "devices": devices,
}
