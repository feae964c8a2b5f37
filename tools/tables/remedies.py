"""Remedies that were tried, and public faults that were known."""

from __future__ import annotations

from collections import Counter

from tools.tables.common import load, source


def remedies() -> str:
    """How many red models have a remedy that holds, of which kinds, and what it costs."""
    table = load("accuracy/remedies").get("remedies")
    if table is None:
        return "Not measured yet."
    rows = [row for row in table["rows"] if row["verdict"] != "pass"]
    held = [row for row in rows if row["kinds"]]
    kinds = Counter(kind for row in held for kind in row["kinds"])
    none = Counter(row["why"] for row in rows if not row["kinds"])
    verdicts, trying = (sum(row[key] for row in rows) for key in ("seconds", "trying"))
    return (
        f"Of {len(rows)} red models, those of `examples/broken` and further kinds, {len(held)} have a "
        f"remedy that holds: {_counts(kinds)}; some have two. Of those without one the reason of the "
        f"verdict is: {_counts(none)}. The verdicts of all took {verdicts:.0f} s, and trying "
        f"{trying:.0f} s." + source(table)
    )


def known() -> str:
    """How often the book of known faults gives a link, and how often a wrong one."""
    table = load("accuracy/known").get("links")
    if table is None:
        return "Not measured yet."
    rows = table["rows"]
    linked = [row for row in rows if row["link"]]
    right = sum(row["judged"] == "right" for row in linked)
    red = sum(row["verdict"] != "pass" for row in rows)
    return (
        f"On {len(rows)} models, {red} of them red, the book gives {len(linked)} links: {right} are about "
        f"that very fault, {len(linked) - right} are wrong." + source(table)
    )


def _counts(counted: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counted.most_common())
