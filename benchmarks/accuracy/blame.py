"""How often the blame is right: ``python benchmarks/accuracy/blame.py [GLOB]`` over the diverging cases."""

from __future__ import annotations

import argparse
import fnmatch
import logging
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks.accuracy.diagnose_cases import CASES, DivergingCase
from benchmarks.support import results
from onnx_gate.diagnose.blame.blame import find_blame
from onnx_gate.diagnose.blame.blame_result import BlameResult


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="*", help="cases of these names (a glob)")
    results.add_option(parser)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows: list[dict[str, Any]] = []
    print(f"{'case':38} {'expected':16} {'found':16} seconds")
    for case in CASES:
        if not fnmatch.fnmatchcase(case.name, options.pattern):
            continue
        with tempfile.TemporaryDirectory() as folder:
            found, seconds = diagnose(case, Path(folder))
        right = found.blame == case.blame
        rows.append({"case": case.name, "expected": case.blame, "blame": found.blame})
        rows[-1] |= {"right": right, "seconds": round(seconds, 2)}
        mark = "" if right else "  <-- wrong"
        print(f"{case.name:38} {case.blame:16} {found.blame:16} {seconds:5.1f}{mark}", flush=True)
        if mark:
            for evidence in found.evidence:
                print(f"    {evidence.agrees!s:5} {evidence.experiment}: {evidence.outcome}")
            print(f"    note: {found.note}")
    right, total = sum(row["right"] for row in rows), len(rows)
    slowest = max((row["seconds"] for row in rows), default=0.0)
    print(f"{right} of {total} right ({right / max(total, 1):.1%}), the slowest {slowest:.1f} s")
    if options.save:
        results.save(__file__, "blame", rows)


def diagnose(case: DivergingCase, folder: Path) -> tuple[BlameResult, float]:
    """The blame for one case, and the seconds that finding it took."""
    subject = case.make(folder)
    begin = time.perf_counter()
    return find_blame(subject), time.perf_counter() - begin


if __name__ == "__main__":
    main()
