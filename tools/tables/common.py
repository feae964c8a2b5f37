"""What the tables are made of: stored results, Markdown, and where a table comes from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
Table = dict[str, Any]


def load(name: str) -> dict[str, Table]:
    """Return the tables of a stored result, by name; none where there is no such result."""
    path = ROOT / "benchmarks" / f"{name}.json"
    tables: dict[str, Table] = json.loads(path.read_text()) if path.exists() else {}
    return tables


def markdown(head: str, lines: Iterable[Sequence[str]], align: str = "---") -> str:
    """Return a Markdown table; ``head`` has the titles of its columns, the first to the left."""
    cells = head.split("|")
    rule = ["---", *[align] * (len(cells) - 1)]
    rows = [cells, rule, *lines]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows
    )


def measured_on(table: Table) -> str:
    """Return when a table was measured, and how busy the machine was."""
    made = table["environment"]
    load = made["load"]
    noise = f", load {load}" if isinstance(load, float) else f", {load}" if load else ""
    return f"{made['date']}{noise}"


def source(table: Table) -> str:
    """Return the line below a table that says where it comes from."""
    made = table["environment"]
    versions = made["versions"]
    packages = ", ".join(f"{k} {versions[k]}" for k in ("torch", "onnxruntime") if k in versions)
    return (
        f"\n\n(`{table['command']}`; {packages}, {made['cores']} cores, {measured_on(table)}, "
        f"revision {made['revision']}.)"
    )
