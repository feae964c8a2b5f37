"""Count what correct models decide, what their suites show of it, and what is reached beyond them.

    python benchmarks/accuracy/decisions.py --output DIR [--model GLOB ...] [--report REPORT] [--save]

The models are those of ``benchmarks/accuracy/correct``. ``before`` is what the default suites alone
show both ways, ``after`` what they show together with the cases that are made from it; a case that is
made so and diverges is a false alarm, as the models are right. ``--report`` reads reports that exist.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.support import results
from benchmarks.support.gate import read_report, run_gate

MANIFEST = Path(__file__).resolve().parent / "correct" / "onnx-gate.yml"


def row(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a report says of one model."""
    decisions = model.get("decisions") or {"of": 0, "seen": 0, "before": 0}
    reached = [check for check in model["checks"] if check["suite"] == "reached"]
    counting = [check for check in reached if not check.get("advice")]
    return {
        "name": model["name"],
        "verdict": model["verdict"],
        "decisions": decisions["of"],
        "before": decisions["before"],
        "after": decisions["seen"],
        "cases": len({check["case"] for check in reached}),
        "alarms": len({c["case"] for c in counting if c["verdict"] == "diverged"}),
        "open": len({c["case"] for c in counting if c.get("open")}),
        "seconds": model["seconds"],
    }


def show(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a table with a line of sums."""
    head = ("decisions", "before", "after", "cases", "alarms", "open")
    total = dict.fromkeys(head, 0)
    print(f"{'model':28}" + "".join(f"{each:>11}" for each in head) + f"{'verdict':>10}")
    for each in rows:
        print(
            f"{each['name']:28}"
            + "".join(f"{each[h]:>11}" for h in head)
            + f"{each['verdict']:>10}"
        )
        total = {h: total[h] + each[h] for h in head}
    print(f"{'all':28}" + "".join(f"{total[h]:>11}" for h in head))


def main() -> None:
    """Run the gate, or read what it has written."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--report", type=Path, action="append", default=[])
    results.add_option(parser)
    options = parser.parse_args()
    if options.report:
        reports = [read_report(path) for path in options.report]
    elif options.output is not None:
        chosen = [word for name in options.model for word in ("--model", name)]
        reports = [run_gate(MANIFEST, options.output, "--no-cache", *chosen)]
    else:
        parser.error("--output or --report")
    rows = [row(model) for report in reports for model in report["models"]]
    show(rows)
    if options.save:
        results.save(__file__, "decisions", rows)


if __name__ == "__main__":
    main()
