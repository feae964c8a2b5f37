"""What its inputs reach, and what a manifest would miss."""

from __future__ import annotations

from statistics import median

from tools.tables.common import load, markdown, source


def audit() -> str:
    """Which faults the manifests of the examples and of public architectures catch."""
    table = load("accuracy/audit").get("audit")
    if table is None:
        return "Not measured yet."
    kinds: dict[str, list[int]] = {}
    lines, survivors = [], []
    for row in table["rows"]:
        lines.append(
            [
                row["name"],
                f"{row['tried']} of {row['sites']}",
                f"{row['caught']} of {row['of']}",
                *(str(row[key]) for key in ("refused", "without_effect", "duplicates")),
                f"{row['run_seconds']:.0f} s",
                f"{row['times']:.1f}",
            ]
        )
        survivors += [f"- {row['name']}: {each}" for each in row["survivors"]]
        for kind, (caught, of) in row["kinds"].items():
            total = kinds.setdefault(kind, [0, 0])
            kinds[kind] = [total[0] + caught, total[1] + of]
    head = "model|faults tried, of possible|caught|refused|without effect|duplicates|without audit"
    older = [row["name"] for row in table["rows"] if "revision" in row]
    note = f" Earlier revisions: {', '.join(older)}." if older else ""
    tables = [markdown(f"{head}|times as long with it", lines) + source(table) + note]
    tables.append(
        markdown("kind|caught", [[kind, f"{c} of {of}"] for kind, (c, of) in kinds.items()])
    )
    if survivors:
        tables.append(
            "What survived, and what catches it or why nothing does:\n\n" + "\n".join(survivors)
        )
    return "\n\n".join(tables)


def blunt() -> str:
    """What blunt manifests catch, and what they catch as an audit has changed them."""
    table = load("accuracy/blunt").get("blunt")
    if table is None:
        return "Not measured yet."
    names = {"resnet18": "ResNet-18", "upscaler": "resizing network"}
    lines = [
        [
            names.get(row["name"], row["name"]),
            *(f"{row[key][0]} of {row[key][1]}" for key in ("blunt", "proposed", "default")),
            "; ".join(f"`{change}`" for change in row["changes"]),
        ]
        for row in table["rows"]
    ]
    head = "|blunt|with what the audit proposes|with nothing but the inputs|what it proposes"
    return markdown(head, lines) + source(table)


def decisions() -> str:
    """What correct models decide, and what of it is shown, reached and compared."""
    table = load("accuracy/decisions").get("decisions")
    if table is None:
        return "Not measured yet."
    keys = ("decisions", "before", "after", "compared", "cases", "alarms")
    rows = table["rows"]
    lines = [
        [row["name"], *(str(row[k]) for k in keys), f"{row['times'] or 0:.2f}"] for row in rows
    ]
    times = [row["times"] for row in rows if row["times"]]
    middle = f"{median(times):.2f}, at most {max(times):.2f}" if times else ""
    lines.append(["all", *(str(sum(row[k] for row in rows)) for k in keys), middle])
    head = "model|decisions|seen both ways by the suites|and with what is reached"
    head += "|the others compared at their operators|cases reached|alarms|times as long"
    return markdown(head, lines) + source(table)
