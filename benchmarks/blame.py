"""How often the blame is right: ``python benchmarks/blame.py [GLOB]`` over the diverging cases."""

from __future__ import annotations

import fnmatch
import logging
import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.diagnose_cases import CASES, DivergingCase
from onnx_gate.diagnose.blame.blame import find_blame
from onnx_gate.diagnose.blame.result import BlameResult


def main(pattern: str = "*") -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    right = total = 0
    slowest = 0.0
    print(f"{'case':38} {'expected':16} {'found':16} seconds")
    for case in CASES:
        if not fnmatch.fnmatchcase(case.name, pattern):
            continue
        with tempfile.TemporaryDirectory() as folder:
            found, seconds = diagnose(case, Path(folder))
        total += 1
        right += found.blame == case.blame
        slowest = max(slowest, seconds)
        mark = "" if found.blame == case.blame else "  <-- wrong"
        print(f"{case.name:38} {case.blame:16} {found.blame:16} {seconds:5.1f}{mark}", flush=True)
        if mark:
            for evidence in found.evidence:
                print(f"    {evidence.agrees!s:5} {evidence.experiment}: {evidence.outcome}")
            print(f"    note: {found.note}")
    print(f"{right} of {total} right ({right / max(total, 1):.1%}), the slowest {slowest:.1f} s")


def diagnose(case: DivergingCase, folder: Path) -> tuple[BlameResult, float]:
    """The blame for one case, and the seconds that finding it took."""
    subject = case.make(folder)
    begin = time.perf_counter()
    return find_blame(subject), time.perf_counter() - begin


if __name__ == "__main__":
    main(*sys.argv[1:2])
