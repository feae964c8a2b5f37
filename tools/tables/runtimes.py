"""Runtimes, their releases and devices."""

from __future__ import annotations

import re

from tools.tables.common import Table, load, markdown, source

ERRORS = ("error", "mean error")


def versions() -> str:
    """What old and new versions of what the gate needs make of examples and tests."""
    table = load("compat/versions").get("versions")
    if table is None:
        return "Not measured yet."
    lines = [
        [
            row["name"],
            ", ".join(f"{name} {version}" for name, version in row["versions"].items()),
            *(f"{row[k]['good']} of {row[k]['all']}" for k in ("examples", "broken", "unit")),
            "; ".join(f for k in ("examples", "broken") for f in row[k]["known"]) or "none",
        ]
        for row in table["rows"]
    ]
    head = "environment|versions|examples pass|broken ones caught|unit tests|faults that the gate names"
    return markdown(head, lines) + source(table)


def runtimes() -> str:
    """How near each runtime comes, one row a model and one column a runtime."""
    table = load("accuracy/runtimes").get("runtimes")
    if table is None:
        return "Not measured yet."
    rows = table["rows"]
    columns = list(dict.fromkeys(row["runtime"].partition("[")[0] for row in rows))
    cells = {(row["model"], row["runtime"].partition("[")[0]): _cell(row) for row in rows}
    models = {row["model"]: row["stands for"] for row in rows}
    lines = [
        [
            name + (f" ({kind})" if kind not in ("", name) else ""),
            *(cells.get((name, each), "") for each in columns),
        ]
        for name, kind in models.items()
    ]
    return markdown("|".join(["model", *columns]), lines) + source(table) + _earlier(table)


def _earlier(table: Table) -> str:
    """Which runtimes were measured at another revision than the table's own."""
    own, runtimes_of = table["environment"]["revision"], dict[str, dict[str, None]]()
    for row in table["rows"]:
        if row.get("revision", own) != own:
            runtime = row["runtime"].partition("[")[0]
            runtimes_of.setdefault(row["revision"], {})[runtime] = None
    return "".join(
        f" At revision {revision}: {', '.join(names)}." for revision, names in runtimes_of.items()
    )


def _cell(row: Table) -> str:
    """An error in units of float32's rounding and seconds, or what became of the model."""
    seconds = f"{row['seconds']:.1f} s"
    if row["verdict"] == "error" or row["measure"] is None:
        return f"**{'error' if row['verdict'] == 'error' else 'refuses'}**"
    measure, value = row["measure"]["measure"], row["measure"]["value"]
    if measure not in ERRORS:
        shown = f"{measure} {value:.3g}"
    else:
        own = f" ({row['units']:.3g})" if row["units"] is not None else ""
        shown = f"{value / row['rounding']:.3g}{own}"
    return f"{shown if row['verdict'] == 'pass' else f'**{shown}**'}, {seconds}"


def devices() -> str:
    """What a device without PyTorch comes to: a row a model, a column a precision."""
    table = load("accuracy/devices").get("cuda")
    if table is None:
        return "Not measured yet."
    cells = {(row["model"], row["precision"]): row for row in table["rows"]}
    columns = ("float32", "TF32", "float16")
    lines = []
    for model in dict.fromkeys(row["model"] for row in table["rows"]):
        own = [_used(cells.get((model, each))) for each in columns]
        first = cells.get((model, "float32")) or cells[model, "float16"]
        placed = sum(first["elsewhere"].values())
        lines.append([model, *own, f"{placed} of {first['nodes']}"])
    passed = {
        each: (
            sum(row["verdict"] == "pass" for row in table["rows"] if row["precision"] == each),
            sum(row["precision"] == each for row in table["rows"]),
        )
        for each in columns
    }
    counted = ", ".join(f"{each} {good} of {of}" for each, (good, of) in passed.items())
    head = "|".join(["model", *columns, "nodes on the CPU"])
    device = table["environment"]["device"]
    return f"{device}: green in {counted}.\n\n" + markdown(head, lines) + source(table)


def _used(row: Table | None) -> str:
    """The largest share of the tolerance that a check has used, in bold where it is too much."""
    if row is None:
        return ""
    share = "integers differ"
    if row["share"] is not None:
        share = f"{row['share']:.0%}" if row["share"] < 10 else f"{row['share']:.0f} times"
    return share if row["verdict"] == "pass" else f"**{share}**"


def runtimes_red() -> str:
    """What a runtime does not take, or computes otherwise, and why."""
    rows = load("accuracy/runtimes").get("runtimes", {"rows": []})["rows"]
    lines = [
        [row["model"], row["runtime"].partition("[")[0], row["verdict"], _plain(row["why"])]
        for row in rows
        if row["verdict"] != "pass"
    ]
    return markdown("model|runtime|verdict|in its own words", lines) if lines else "None."


def _plain(text: str) -> str:
    """A text of an engine's as a cell: one line, and no markup."""
    return re.sub(r"[<>*`\[\]]", "", " ".join(text.split()))[:200]


def bumps() -> str:
    """How often the package is named that changed an answer."""
    table = load("compat/bumps").get("bumps")
    if table is None:
        return "Not measured yet."
    rows = table["rows"]
    right = sum(row["right"] for row in rows)
    runs = [row["runs"] for row in rows if row["runs"]]
    lines = [
        [row["name"], row["links"], row["named"], f"{row['runs']}", f"{row['seconds']:.0f}"]
        for row in rows
    ]
    return (
        f"The package that did it is named {right} times of {len(rows)}, with {min(runs)} to {max(runs)} "
        "runs of the gate each, the head's verdict among them.\n\n"
        + markdown("package that did it|link that changed|named|runs|seconds", lines)
        + source(table)
    )


def bisected() -> str:
    """Releases of packages from the index, and how many runs it took to name one."""
    table = load("compat/bisect").get("bisect")
    if table is None:
        return "Not measured yet."
    lines = [
        [row["name"], row["range"], f"{row['releases']}", f"{row['runs']}", _plain(row["found"])]
        for row in table["rows"]
    ]
    head = "package|range|releases|runs beyond the ends|found"
    return markdown(head, lines) + source(table)
