"""The tables of the documentation that come from benchmarks, written from their stored results.

A page holds them between two comments, ``<!-- results: NAME -->`` and ``<!-- end of results -->``;
what lies between is replaced. NAME is a function of ``TABLES``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

# The measures of a check that are errors on the output's scale.
ERRORS = ("error", "mean error")
ROOT = Path(__file__).resolve().parent.parent
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
    "benchmarks/README.md",
)
_BLOCK = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end of results -->)", re.S)

Table = dict[str, Any]


def pages() -> dict[Path, str]:
    """Return the text of every page that holds such tables."""
    return {ROOT / page: fill((ROOT / page).read_text(encoding="utf-8")) for page in PAGES}


def fill(text: str) -> str:
    """Return a page with its tables written anew."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{TABLES[block[2]]()}\n\n{block[3]}", text)


def overhead() -> str:
    """What one model costs beside scripts that do the same."""
    networks = {"resnet18": "ResNet-18 at 224 px", "bert": "BERT-base size"}
    suites = {
        "sizes": "one case for each of three sizes",
        "default": "the default suites, {cases:.0f} cases on all sides",
        "three": "the default suites, against one case for each of three sizes",
    }
    lines = []
    for name, table in _load("cost/overhead").items():
        network, _, suite = name.partition(", ")
        row = table["rows"][0]
        ratios = [row["gate / bare"], row["gate / naive"], row["cpu, gate / bare"]]
        lines.append(
            [
                f"{networks[network]}, {suites[suite].format(**row)}",
                *(f"{row[program]:.1f}" for program in ("bare", "naive", "gate")),
                *(f"{ratio:.2f}" for ratio in ratios),
                _made(table),
            ]
        )
    head = "|bare|naive|gate|gate / bare|gate / naive|processor time, gate / bare|measured"
    return _markdown(head, lines)


def self_test() -> str:
    """What the judges' self-test costs."""
    table = _load("cost/self_test").get("self-test")
    if table is None:
        return "Not measured yet."
    lines = [
        [
            row["model"],
            f"{row['checks']:.0f}",
            f"{row['self-test']:.3f}",
            f"{row['all']:.1f}",
            f"{row['share']:.1%}".replace("%", " %"),
        ]
        for row in table["rows"]
    ]
    return _markdown("|checks|self-test, s|all, s|share", lines) + _source(table)


def half() -> str:
    """What the candidate ``half`` costs, beside runs without it."""
    table = _load("cost/half").get("half")
    if table is None:
        return "Not measured yet."
    lines = [
        [
            row["model"],
            f"{row['wall']:.1f}",
            *(f"{row[f'{kind}, ratio']:.2f}" for kind in ("wall", "cpu", "mib")),
        ]
        for row in table["rows"]
    ]
    head = "|without, s|clock, with / without|processor time|largest process"
    return _markdown(head, lines) + _source(table)


def memory() -> str:
    """Peaks of a model of one gigabyte."""
    table = _load("cost/memory")["memory"]
    names = {
        "bare": "bare: export with external data, session, two passes",
        "gate": "the worker and its forks",
        "gate, with advice": "the same, default suites and advice",
        "gate, with audit": "`onnx-gate audit` of the same, 20 faults",
    }
    lines = [
        [
            names[row["what"]],
            f"{row['PSS']:.0f}",
            f"{row['PSS / bare']:.2f}",
            f"{row['VmHWM']:.0f}",
            f"{row['VmHWM / bare']:.2f}",
        ]
        for row in table["rows"]
    ]
    return _markdown("|PSS|/ bare|largest process (VmHWM)|/ bare", lines) + _source(table)


def first_verdict() -> str:
    """What somebody waits for and reads on the way to the first red verdict and its line."""
    table = _load("cost/first_verdict").get("steps")
    if table is None:
        return "Not measured yet."
    rows = [*table["rows"], {"name": "all of it"}]
    for key in ("seconds", "processor", "lines"):
        rows[-1][key] = round(sum(row[key] for row in rows[:-1]), 1)
    lines = [
        [row["name"], f"{row['seconds']:.1f}", f"{row['processor']:.1f}", f"{row['lines']}"]
        for row in rows
    ]
    head = "step|seconds|seconds of a processor|printed lines"
    return _markdown(head, lines) + _source(table)


def cold_start() -> str:
    """What a container of the action takes from nothing to the comment."""
    table = _load("cost/cold_start")["cold start"]
    lines = [
        [f"`{row['image']}`", f"{row['publish']:.2f}", f"{row['nothing']:.2f}"]
        for row in table["rows"]
    ]
    head = "image|`mode: publish`, s|a container that does nothing, s"
    return _markdown(head, lines) + _source(table)


def many() -> str:
    """Twenty small models beside scripts."""
    table = _load("scale/many")["many"]
    names = {
        "gate": "gate",
        "naive": "naive, an interpreter per model",
        "verify=True": "`torch.onnx.export(..., verify=True)`, an interpreter per model",
        "Polygraphy": "Polygraphy, an interpreter per model",
        "one process": "naive, all models in one process",
    }
    lines = [
        [
            names[row["what"]],
            f"{row['seconds']:.1f}",
            "" if row["what"] == "gate" else f"{row['gate / this']:.2f}",
        ]
        for row in table["rows"]
    ]
    return _markdown("|seconds|gate / this", lines) + _source(table)


def page() -> str:
    """The page of very many models."""
    table = _load("cost/page")["200 models"]
    lines = [
        [
            f"{row['models']} models, {row['checks']:,} checks",
            f"{row['MB']:.2f} MB",
            f"{row['seconds to make']:.1f}",
            f"{row['seconds to open']:.1f}",
        ]
        for row in table["rows"]
    ]
    return _markdown("|size|seconds to make|seconds to open", lines) + _source(table)


def leftovers() -> str:
    """What runs with a browser leave behind."""
    table = _load("scale/leftovers")["leftovers"]
    lines = [[row["name"], str(row["count"])] for row in table["rows"]]
    return _markdown("what|count", lines) + _source(table)


def compare() -> str:
    """The speed and the memory of comparing."""
    table = _load("cost/compare")["compare"]
    lines = [
        [
            row["what"],
            f"{row['seconds']:.3f}",
            f"{row['of a read pass']:.3g}",
            f"{row['MiB']:.0f} MiB",
        ]
        for row in table["rows"]
    ]
    head = "10^8 float32 pairs|seconds|times a read pass|extra memory"
    return _markdown(head, lines) + _source(table)


def false_alarms() -> str:
    """What the corpus of correct models says."""
    table = _load("accuracy/false_alarms")["summary"]
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
    return _markdown("|", lines, align="--:") + _source(table)


def sharpness() -> str:
    """What is called wrong that is right, and right that is wrong, in a sentence."""
    right = _load("accuracy/false_alarms")["summary"]["rows"][0]
    wrong = [row["named"] for row in _load("accuracy/faults")["faults"]["rows"]]
    caught, seeded = (sum(each) for each in zip(*wrong, strict=True))
    return (
        f"With nothing but defaults it called {len(right['false alarms']) or 'none'} of "
        f"{right['models']} correct models wrong, and caught {caught} of {seeded} faults that were\n"
        "seeded into graphs "
        "([how it was measured](benchmarks/README.md), [and why it works](docs/evidence.md))."
    )


def families() -> str:
    """What share of the limit correct models use, by the operators that they have."""
    table = _load("accuracy/false_alarms")["families"]
    lines = [
        [row["family"], str(row["of"]), str(row["beyond the floor"]), _spread(row)]
        for row in table["rows"]
        if row["of"]
    ]
    head = "models with|models|beyond the floor|largest share of the limit: median / p90 / largest"
    return _markdown(head, lines, align="--:") + _source(table)


def faults() -> str:
    """How many faults seeded into three networks are caught."""
    table = _load("accuracy/faults")["faults"]
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
    return f"{_markdown(head, lines)}{_source(table)}{note}"


def audit() -> str:
    """Which faults the manifests of the examples and of public architectures catch."""
    table = _load("accuracy/audit").get("audit")
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
    tables = [_markdown(f"{head}|times as long with it", lines) + _source(table) + note]
    tables.append(
        _markdown("kind|caught", [[kind, f"{c} of {of}"] for kind, (c, of) in kinds.items()])
    )
    if survivors:
        tables.append(
            "What survived, and what catches it or why nothing does:\n\n" + "\n".join(survivors)
        )
    return "\n\n".join(tables)


def blunt() -> str:
    """What blunt manifests catch, and what they catch as an audit has changed them."""
    table = _load("accuracy/blunt").get("blunt")
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
    return _markdown(head, lines) + _source(table)


def decisions() -> str:
    """What correct models decide, and what of it is shown, reached and compared."""
    table = _load("accuracy/decisions").get("decisions")
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
    return _markdown(head, lines) + _source(table)


def diagnosis() -> str:
    """How often the guilty operator, its module and line, and the blame are right."""
    located = _load("accuracy/localize").get("localize")
    blamed = _load("accuracy/blame").get("blame")
    if located is None or blamed is None:
        return "Not measured yet."
    rows = located["rows"]
    lines = [
        ["guilty operator named first", _share(row["operator"] for row in rows)],
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
    return _markdown("|right", lines) + _source(located) + _source(blamed)


def _share(right: Iterable[bool]) -> str:
    each = list(right)
    return f"{sum(each)} of {len(each)}"


def localize_cost() -> str:
    """What localising costs, beside a verification."""
    table = _load("cost/localize_cost").get("time")
    if table is None:
        return "Not measured yet."
    lines = [
        [row["what"], *(f"{median(each):.1f}" for each in zip(*row["seconds"], strict=True))]
        for row in table["rows"]
        if row["seconds"]
    ]
    return _markdown("|seconds|processor seconds", lines) + _source(table)


def decoders() -> str:
    """What the gate says of decoders."""
    table = _load("accuracy/decoders").get("decoders")
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
    return _markdown("model|verdict|right|compared|open", lines) + _source(table)


def versions() -> str:
    """What old and new versions of what the gate needs make of examples and tests."""
    table = _load("compat/versions").get("versions")
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
    return _markdown(head, lines) + _source(table)


def foreign() -> str:
    """What the gate says of other people's models."""
    table = _load("accuracy/foreign").get("foreign")
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
    return counted + _markdown(head, lines) + _source(table)


def runtimes() -> str:
    """How near each runtime comes, one row a model and one column a runtime."""
    table = _load("accuracy/runtimes").get("runtimes")
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
    return _markdown("|".join(["model", *columns]), lines) + _source(table) + _earlier(table)


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
    table = _load("accuracy/devices").get("cuda")
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
    return f"{device}: green in {counted}.\n\n" + _markdown(head, lines) + _source(table)


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
    rows = _load("accuracy/runtimes").get("runtimes", {"rows": []})["rows"]
    lines = [
        [row["model"], row["runtime"].partition("[")[0], row["verdict"], _plain(row["why"])]
        for row in rows
        if row["verdict"] != "pass"
    ]
    return _markdown("model|runtime|verdict|in its own words", lines) if lines else "None."


def _plain(text: str) -> str:
    """A text of an engine's as a cell: one line, and no markup."""
    return re.sub(r"[<>*`\[\]]", "", " ".join(text.split()))[:200]


def _load(name: str) -> dict[str, Table]:
    path = ROOT / "benchmarks" / f"{name}.json"
    tables: dict[str, Table] = json.loads(path.read_text()) if path.exists() else {}
    return tables


def _markdown(head: str, lines: Iterable[Sequence[str]], align: str = "---") -> str:
    cells = head.split("|")
    rule = ["---", *[align] * (len(cells) - 1)]
    rows = [cells, rule, *lines]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows
    )


def _spread(spread: dict[str, float]) -> str:
    return " / ".join(f"{spread[key]:.2g}" for key in ("median", "p90", "max"))


def _made(table: Table) -> str:
    made = table["environment"]
    load = made["load"]
    noise = f", load {load}" if isinstance(load, float) else f", {load}" if load else ""
    return f"{made['date']}{noise}"


def _source(table: Table) -> str:
    made = table["environment"]
    versions = made["versions"]
    packages = ", ".join(f"{k} {versions[k]}" for k in ("torch", "onnxruntime") if k in versions)
    return (
        f"\n\n(`{table['command']}`; {packages}, {made['cores']} cores, {_made(table)}, "
        f"revision {made['revision']}.)"
    )


def blocks() -> str:
    """What decoders take that are verified block by block, and what is seen of faults and architectures."""
    tables = _load("scale/blocks")
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
        parts.append(_markdown(head, lines) + _source(tables["sizes"]))
    if "faults" in tables:
        rows = tables["faults"]["rows"]
        found = sum(row["verdict"] == "diverged" for row in rows)
        right = sum(row["right"] for row in rows)
        kinds = ", ".join(dict.fromkeys(row["fault"] for row in rows))
        parts.append(
            f"Faults that the export of a small model alone has ({kinds}): {found} "
            f"of {len(rows)} found, {right} in the right block and in no other."
            + _source(tables["faults"])
        )
    if "agreement" in tables:
        lines = [
            [row["name"], str(row["of blocks"]), row["blocks"], row["whole"]]
            for row in tables["agreement"]["rows"]
        ]
        head = "small models with random weights|blocks|block by block|whole"
        parts.append(_markdown(head, lines) + _source(tables["agreement"]))
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
        parts.append(_markdown(head, lines) + _source(tables["again"]))
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
        parts.append(_markdown(head, lines) + _source(tables["committed"]))
    return "\n\n".join(parts) or "Not measured yet."


def remedies() -> str:
    """How many red models have a remedy that holds, of which kinds, and what it costs."""
    table = _load("accuracy/remedies").get("remedies")
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
        f"{trying:.0f} s." + _source(table)
    )


def known() -> str:
    """How often the book of known faults gives a link, and how often a wrong one."""
    table = _load("accuracy/known").get("links")
    if table is None:
        return "Not measured yet."
    rows = table["rows"]
    linked = [row for row in rows if row["link"]]
    right = sum(row["judged"] == "right" for row in linked)
    red = sum(row["verdict"] != "pass" for row in rows)
    return (
        f"On {len(rows)} models, {red} of them red, the book gives {len(linked)} links: {right} are about "
        f"that very fault, {len(linked) - right} are wrong." + _source(table)
    )


def bumps() -> str:
    """How often the package is named that changed an answer."""
    table = _load("compat/bumps").get("bumps")
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
        + _markdown("package that did it|link that changed|named|runs|seconds", lines)
        + _source(table)
    )


def bisected() -> str:
    """Releases of packages from the index, and how many runs it took to name one."""
    table = _load("compat/bisect").get("bisect")
    if table is None:
        return "Not measured yet."
    lines = [
        [row["name"], row["range"], f"{row['releases']}", f"{row['runs']}", _plain(row["found"])]
        for row in table["rows"]
    ]
    head = "package|range|releases|runs beyond the ends|found"
    return _markdown(head, lines) + _source(table)


def _counts(counted: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counted.most_common())


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
    "cold-start": cold_start,
    "many": many,
    "compare": compare,
    "page": page,
    "leftovers": leftovers,
    "false-alarms": false_alarms,
    "sharpness": sharpness,
    "first-verdict": first_verdict,
    "false-alarms-by-family": families,
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
