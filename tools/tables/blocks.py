"""Models that are verified block by block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.tables.common import load, markdown, source


def blocks() -> str:
    """What decoders take that are verified block by block, and what is seen of faults and architectures."""
    tables = load("scale/blocks")
    parts = []
    if "sizes" in tables:
        lines = [
            [
                f"{row['parameters'] / 1e9:.2f} thousand million",
                f"{row['bytes'] / 2**30:.1f} GiB",
                f"{row['blocks']}",
                f"{row['expected'] / 2**30:.2f} GiB",
                f"{row['peak'] / 2**30:.2f} GiB",
                f"{row['memory'] or 'none'}",
                f"{row['seconds'] / 60:.1f}",
                f"{row['verdict']}, {row['checks']}",
                row.get("revision", tables["sizes"]["environment"]["revision"]),
            ]
            for row in tables["sizes"]["rows"]
        ]
        head = "parameters|on disk|blocks|expected|peak|limit|minutes|verdict, checks|revision"
        parts.append(markdown(head, lines) + source(tables["sizes"]))
    if "faults" in tables:
        rows = tables["faults"]["rows"]
        found = sum(row["verdict"] == "diverged" for row in rows)
        right = sum(row["right"] for row in rows)
        kinds = ", ".join(dict.fromkeys(row["fault"] for row in rows))
        parts.append(
            f"Faults that the export of a small model alone has ({kinds}): {found} "
            f"of {len(rows)} found, {right} in the right block and in no other."
            + source(tables["faults"])
        )
    if "agreement" in tables:
        lines = [
            [row["name"], str(row["of blocks"]), row["blocks"], row["whole"]]
            for row in tables["agreement"]["rows"]
        ]
        head = "small models with random weights|blocks|block by block|whole"
        parts.append(markdown(head, lines) + source(tables["agreement"]))
    if "again" in tables:
        lines = [
            [
                row["name"],
                f"{row['known']} of {row['blocks']}",
                f"{row['seconds']:.0f}",
                row["verdict"] + (", the same checks as anew" if row.get("same") else ""),
            ]
            for row in tables["again"]["rows"]
        ]
        head = "a decoder|known blocks|seconds|verdict"
        parts.append(markdown(head, lines) + source(tables["again"]))
    if "sizes" in tables:
        every = [
            f"{_judging(row):.0%} at {row['parameters'] / 1e9:.2f} thousand million parameters"
            for row in tables["sizes"]["rows"]
        ]
        parts.append(
            "Of the time of the decoders above so much was spent on judging, which several machines share: "
            f"{', '.join(every)}. The rest each of them has, and the last has the end."
        )
    if "shared" in tables:
        whole = tables["shared"]["rows"][0]
        lines = [
            [
                row["name"],
                str(row["blocks"]),
                str(row["checks"]),
                f"{row['processor']:.0f}",
                f"{row['processor'] / whole['processor']:.2f}",
                f"{row['peak'] / 2**30:.2f} GiB",
                row["verdict"] + (", together the same checks" if row.get("same") else ""),
            ]
            for row in tables["shared"]["rows"]
        ]
        head = "on several machines|blocks judged|checks|processor's seconds|of the whole's|peak|verdict"
        parts.append(markdown(head, lines) + source(tables["shared"]))
    if "committed" in tables:
        lines = [
            [
                row["name"],
                f"{row['bytes'] / 1e9:.1f} GB",
                str(row["blocks"]),
                f"{row['peak'] / 2**30:.2f} GiB",
                f"{row['seconds'] / 60:.1f}",
                row["verdict"],
                row["said"][0].rpartition(": ")[0].rpartition(": ")[2]
                + ": "
                + row["said"][0].rpartition(": ")[2]
                if row["said"]
                else ", ".join(filter(None, row["wrong"])),
            ]
            for row in tables["committed"]["rows"]
        ]
        head = "a committed file|weights beside it|blocks|peak|minutes|verdict|named"
        parts.append(markdown(head, lines) + source(tables["committed"]))
    return "\n\n".join(parts) or "Not measured yet."


def _judging(row: Mapping[str, Any]) -> float:
    """Return the share of a run's seconds that is spent on its blocks one by one."""
    parts = ("sessions", "runtime", "compare", "float64")
    return sum(row["stages"].get(f"verify: {part}", 0.0) for part in parts) / row["seconds"]
