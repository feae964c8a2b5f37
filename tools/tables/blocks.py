"""Models that are verified block by block."""

from __future__ import annotations

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
            ]
            for row in tables["sizes"]["rows"]
        ]
        head = "parameters|on disk|blocks|expected|peak|limit|minutes|verdict, checks"
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
                else "",
            ]
            for row in tables["committed"]["rows"]
        ]
        head = "a committed file|weights beside it|blocks|peak|minutes|verdict|named"
        parts.append(markdown(head, lines) + source(tables["committed"]))
    return "\n\n".join(parts) or "Not measured yet."
