"""What it costs: time and memory, beside scripts that do the same."""

from __future__ import annotations

from statistics import median

from tools.tables.common import load, markdown, measured_on, source


def overhead() -> str:
    """What one model costs beside scripts that do the same."""
    networks = {
        "resnet18": "ResNet-18 at 224 px",
        "bert": "BERT-base size",
        "wide": "an MLP of 1 GiB",
    }
    suites = {
        "sizes": "one case for each of three sizes",
        "default": "the default suites, {cases:.0f} cases on all sides",
        "three": "the default suites, against one case for each of three sizes",
    }
    lines = []
    for name, table in load("cost/overhead").items():
        network, _, suite = name.partition(", ")
        row = table["rows"][0]
        ratios = [row["gate / bare"], row["gate / naive"], row["cpu, gate / bare"]]
        lines.append(
            [
                f"{networks[network]}, {suites[suite].format(**row)}",
                *(f"{row[program]:.1f}" for program in ("bare", "naive", "gate")),
                *(f"{ratio:.2f}" for ratio in ratios),
                measured_on(table),
            ]
        )
    head = "|bare|naive|gate|gate / bare|gate / naive|processor time, gate / bare|measured"
    return markdown(head, lines)


def self_test() -> str:
    """What the judges' self-test costs."""
    table = load("cost/self_test").get("self-test")
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
    return markdown("|checks|self-test, s|all, s|share", lines) + source(table)


def half() -> str:
    """What the candidate ``half`` costs, beside runs without it."""
    table = load("cost/half").get("half")
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
    return markdown(head, lines) + source(table)


def memory() -> str:
    """Peaks of a model of one gigabyte."""
    table = load("cost/memory")["memory"]
    names = {
        "bare, of a few weights": "bare, of a model of 4 kB",
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
    beside = max(row["beside"] for row in table["rows"])
    peak = {row["what"]: row["PSS"] for row in table["rows"]}
    twice, few = 2 * table["rows"][0]["weights"], peak["bare, of a few weights"]
    why = (
        f"\n\nThe module has the weights once and the session has them once more, {twice:.0f} MiB: an "
        "export writes them from the module's own, cases share both, and what runs apart is a fork that "
        f"shares their pages. The {peak['bare'] - twice:.0f} MiB above that are torch, onnxscript, ONNX "
        f"Runtime and what an export leaves, {few:.0f} MiB in a script without weights; a worker shares "
        "part of them with the fork server."
    )
    told = (
        f"\n\nThe command line and the fork server hold {beside:.0f} MiB beside the worker, once for "
        "all models."
    )
    return (
        markdown("|PSS|/ bare|largest process (VmHWM)|/ bare", lines) + source(table) + why + told
    )


def shards() -> str:
    """Many models verified in parts, beside the same models at once."""
    table = load("scale/shards")["shards"]
    names = ("models", "shards", "checks", "differences")
    evenness = ("longest / mean, planned", "longest / mean, measured", "longest / mean, CPU")
    lines = [
        [*(str(row[name]) for name in names), *(f"{row[name]:.2f}" for name in evenness)]
        for row in table["rows"]
    ]
    head = (
        "models|parts|checks|other than at once|longest part / mean: planned|on the clock|"
        "in processor time"
    )
    return markdown(head, lines) + source(table)


def first_verdict() -> str:
    """What somebody waits for and reads on the way to the first red verdict and its line."""
    table = load("cost/first_verdict").get("steps")
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
    return markdown(head, lines) + source(table)


def cold_start() -> str:
    """What a container of the action takes from nothing to the comment."""
    table = load("cost/cold_start")["cold start"]
    lines = [
        [f"`{row['image']}`", f"{row['publish']:.2f}", f"{row['nothing']:.2f}"]
        for row in table["rows"]
    ]
    head = "image|`mode: publish`, s|a container that does nothing, s"
    return markdown(head, lines) + source(table)


def many() -> str:
    """Twenty small models beside scripts."""
    table = load("scale/many")["many"]
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
    return markdown("|seconds|gate / this", lines) + source(table)


def page() -> str:
    """The page of very many models."""
    table = load("cost/page")["200 models"]
    lines = [
        [
            f"{row['models']} models, {row['checks']:,} checks",
            f"{row['MB']:.2f} MB",
            f"{row['seconds to make']:.1f}",
            f"{row['seconds to open']:.1f}",
        ]
        for row in table["rows"]
    ]
    return markdown("|size|seconds to make|seconds to open", lines) + source(table)


def leftovers() -> str:
    """What runs with a browser leave behind."""
    table = load("scale/leftovers")["leftovers"]
    lines = [[row["name"], str(row["count"])] for row in table["rows"]]
    return markdown("what|count", lines) + source(table)


def compare() -> str:
    """The speed and the memory of comparing."""
    table = load("cost/compare")["compare"]
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
    return markdown(head, lines) + source(table)


def localize_cost() -> str:
    """What localising costs, beside a verification."""
    table = load("cost/localize_cost").get("time")
    if table is None:
        return "Not measured yet."
    lines = [
        [row["what"], *(f"{median(each):.1f}" for each in zip(*row["seconds"], strict=True))]
        for row in table["rows"]
        if row["seconds"]
    ]
    return markdown("|seconds|processor seconds", lines) + source(table)
