"""What is right and what is wrong among its verdicts."""

from __future__ import annotations

from collections.abc import Iterable

from tools.tables.common import load, markdown, source


def false_alarms() -> str:
    """What the corpus of correct models says."""
    table = load("accuracy/false_alarms")["summary"]
    (row,) = table["rows"]
    basis, quotient = row["by basis"], row["quotient"]
    names = {
        "float64": "judged by float64",
        "rounding": "judged after moving PyTorch's rounding",
        "variants": "judged with variants",
        "testing": "judged without float64",
    }
    lines = [
        ["models, checks that count", f"{row['models']}, {row['checks']}"],
        ["false alarms", ", ".join(row["false alarms"]) or "none"],
        ["errors", ", ".join(f"{k} ({v})" for k, v in row["errors"].items()) or "none"],
    ]
    floor = basis.get("floor", {"of": 0})
    lines.append(
        [
            "float32: within the floor, float64 not needed",
            f"{floor['of']} of {row['float32 checks']} checks",
        ]
    )
    lines += [
        [
            f"{names.get(key, key)}: share of the tolerance used, median / p90 / largest, "
            f"of {spread['of']} checks",
            _spread(spread),
        ]
        for key, spread in basis.items()
        if key not in ("", "floor") and spread.get("of") and "median" in spread
    ]
    if quotient.get("of"):
        lines.append(
            [
                "error / PyTorch's own (at least eps) where float64 was run, "
                "median / p90 / largest",
                _spread(quotient),
            ]
        )
    lines.append(["models with a warning from an advisory case", str(row["models with advice"])])
    return markdown("|", lines, align="--:") + source(table)


def sharpness() -> str:
    """What is called wrong that is right, and right that is wrong, in a sentence."""
    right = load("accuracy/false_alarms")["summary"]["rows"][0]
    wrong = [row["named"] for row in load("accuracy/faults")["faults"]["rows"]]
    caught, seeded = (sum(each) for each in zip(*wrong, strict=True))
    return (
        f"With nothing but defaults it called {len(right['false alarms']) or 'none'} of "
        f"{right['models']} correct models wrong, and caught {caught} of {seeded} faults that were\n"
        "seeded into graphs "
        "([how it was measured](benchmarks/README.md), [and why it works](docs/evidence.md))."
    )


def families() -> str:
    """What share of the limit correct models use, by the operators that they have."""
    table = load("accuracy/false_alarms")["families"]
    lines = [
        [row["family"], str(row["of"]), str(row["beyond the floor"]), _spread(row)]
        for row in table["rows"]
        if row["of"]
    ]
    head = "models with|models|beyond the floor|largest share of the limit: median / p90 / largest"
    return markdown(head, lines, align="--:") + source(table)


def limits() -> str:
    """What other K and F would alarm at, and what they would miss."""
    table = load("accuracy/limits")["limits"]
    rows = {(row["K"], row["F"]): row for row in table["rows"]}
    factors, floors = (sorted({row[key] for row in table["rows"]}) for key in ("K", "F"))
    lines = [
        [
            str(factor),
            *(
                f"{row['alarms']}, {row['faults'] - row['caught']}"
                for row in (rows[factor, floor] for floor in floors)
            ),
        ]
        for factor in factors
    ]
    head = "|".join(["K", *(f"F = {floor}" for floor in floors)])
    one = table["rows"][0]
    of = f"Of {one['models']} correct models, and of {one['faults']} faults"
    return f"{of}:\n\n{markdown(head, lines, align='--:')}{source(table)}"


def faults() -> str:
    """How many faults seeded into three networks are caught."""
    table = load("accuracy/faults")["faults"]
    names = {"resnet18": "ResNet-18", "upscaler": "resizing network"}

    def shown(subject: str) -> str:
        name, mark, rest = subject.partition(",")
        return f"{names.get(name, name)}{mark}{rest}"

    lines = [
        [
            shown(row["subject"]),
            *(f"{row[k][0]} of {row[k][1]}" for k in ("named", "quarter", "doubled")),
            {"pass": "passes"}.get(row["unchanged"], row["unchanged"]),
        ]
        for row in table["rows"]
    ]
    head = "|faults caught|one random element a quarter larger|one doubled|unchanged graph"
    missed = [
        f"- {shown(row['subject'])}: {each}" for row in table["rows"] for each in row["missed"]
    ]
    note = "\n\nMissed:\n\n" + "\n".join(missed) if missed else ""
    return f"{markdown(head, lines)}{source(table)}{note}"


def diagnosis() -> str:
    """How often the guilty operator, its module and line, and the blame are right."""
    located = load("accuracy/localize").get("localize")
    blamed = load("accuracy/blame").get("blame")
    if located is None or blamed is None:
        return "Not measured yet."
    rows = located["rows"]
    lines = [
        ["faulty operator named first", _share(row["operator"] for row in rows)],
        [
            "module path, where the exporter keeps it",
            _share(row["module"] for row in rows if row["has_module"]),
        ],
        [
            "line of source, where there is one",
            _share(row["line"] for row in rows if row["has_line"]),
        ],
        ["blame", _share(row["right"] for row in blamed["rows"])],
    ]
    return markdown("|right", lines) + source(located) + source(blamed)


def _share(right: Iterable[bool]) -> str:
    each = list(right)
    return f"{sum(each)} of {len(each)}"


def decoders() -> str:
    """What the gate says of decoders."""
    table = load("accuracy/decoders").get("decoders")
    if table is None:
        return "Not measured yet."
    lines = [
        [
            row["name"],
            row["verdict"].partition(":")[0],
            "yes" if row["right"] else "**no**",
            f"{row['compared']:,}",
            f"{row['open']:,}",
        ]
        for row in table["rows"]
    ]
    return markdown("model|verdict|right|compared|open", lines) + source(table)


def foreign() -> str:
    """What the gate says of other people's models."""
    table = load("accuracy/foreign").get("foreign")
    if table is None:
        return "Not measured yet."
    rows = table["rows"]
    lines = [
        [
            row["name"],
            row["package"],
            row["verdict"] if row["right"] else f"**{row['verdict']}**",
            f"{row['seconds']:.0f}",
            f"{row['wrapper']}",
            row["comment"] if row["right"] else row["why"],
        ]
        for row in rows
    ]
    right = sum(row["right"] for row in rows)
    packages = len({row["package"] for row in rows})
    counted = (
        f"{right} of {len(rows)} models of {packages} packages are green, or red for the reason that "
        f"is given; {sum(row['wrapper'] for row in rows)} lines of wrapper.\n\n"
    )
    head = "model|package|verdict|seconds|lines of wrapper|why"
    return counted + markdown(head, lines) + source(table)


def _spread(spread: dict[str, float]) -> str:
    return " / ".join(f"{spread[key]:.2g}" for key in ("median", "p90", "max"))
