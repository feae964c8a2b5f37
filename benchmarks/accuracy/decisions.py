"""Count what correct models decide, what their suites show of it, and what is reached beyond them.

    python benchmarks/accuracy/decisions.py --output DIR [--model GLOB ...] [--report REPORT] [--save]

The models are those of ``benchmarks/accuracy/correct``. ``before`` is what the default suites alone
show both ways, ``after`` what they show together with the cases that are made from it, ``compared``
what is compared at its operator; a case that is made so and diverges, or an operator that differs, is
a false alarm, as the models are right. ``times`` is the processor time of the whole command in units
of that of a run in which nothing is watched, reached or probed. ``--report`` reads reports that exist.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from benchmarks.support import results
from benchmarks.support.gate import ROOT, read_report, run_gate
from benchmarks.support.torchvision import SITE

MANIFEST = Path(__file__).resolve().parent / "correct" / "onnx-gate.yml"


def row(model: Mapping[str, Any], times: float | None = None) -> dict[str, Any]:
    """Return what a report says of one model."""
    decisions = model.get("decisions") or {"of": 0, "seen": 0, "before": 0, "compared": 0}
    reached = [check for check in model["checks"] if check["suite"] == "reached"]
    counting = [check for check in reached if not check.get("advice")]
    return {
        "name": model["name"],
        "verdict": model["verdict"],
        "decisions": decisions["of"],
        "before": decisions["before"],
        "after": decisions["seen"],
        "compared": decisions["compared"],
        "cases": len({check["case"] for check in reached}),
        "alarms": len({c["case"] for c in counting if c["verdict"] == "diverged"})
        + sum(finding["code"] == "OG419" for finding in model["findings"]),
        "open": len({c["case"] for c in counting if c.get("open")}),
        "seconds": model["seconds"],
        "times": times,
    }


def run(names: Sequence[str], output: Path) -> Iterator[dict[str, Any]]:
    """Run each model twice, first with a gate that watches nothing, and yield its row."""
    with TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "onnx_gate", Path(folder, "onnx_gate"))
        watch = Path(folder, "onnx_gate", "verify", "reach", "watch.py")
        # A watcher that is lost from the beginning: nothing is made from it, and nothing probed.
        watch.write_text(watch.read_text().replace("self.lost = False", "self.lost = True", 1))
        os.environ["PYTHONSAFEPATH"] = "1"
        paths = os.environ.get("PYTHONPATH", "")
        for name in names:
            spent = []
            for package in (folder, str(ROOT)):
                os.environ["PYTHONPATH"] = os.pathsep.join((package, str(SITE), paths))
                before = os.times()
                report = run_gate(MANIFEST, output / name, "--no-cache", "--model", name)
                after = os.times()
                spent.append(sum(after[2:4]) - sum(before[2:4]))
            yield row(report["models"][0], round(spent[1] / spent[0], 2))


def show(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a table with a line of sums."""
    head = ("decisions", "before", "after", "compared", "cases", "alarms", "open")
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
        made = (row(model) for path in options.report for model in read_report(path)["models"])
    elif options.output is not None:
        entries = yaml.safe_load(MANIFEST.read_text())["models"]
        chosen = options.model or ["*"]
        names = [n for n in entries if any(fnmatch.fnmatchcase(n, each) for each in chosen)]
        made = run(names, options.output)
    else:
        parser.error("--output or --report")
    rows = []
    for each in made:
        rows.append(each)
        if options.save:
            results.save(__file__, "decisions", rows)
    show(rows)


if __name__ == "__main__":
    main()
