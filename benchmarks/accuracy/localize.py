"""How often the first-named node of a diverged export is the one that is wrong.

    python benchmarks/accuracy/localize.py [--only TEXT] [--verbose]
    python benchmarks/accuracy/localize.py --sweep 100 [--seed 0]

Every case of ``diagnose_cases`` is exported, gets its fault and is localised in this process. The
module is asked for where the case names one, the user's line where it names a piece of it.
``--sweep`` draws faults at random instead; right is the very node that was changed.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.accuracy.diagnose_cases import CASES, DivergingCase
from benchmarks.accuracy.diagnose_cases.sweep import Sweep
from benchmarks.support import results
from onnx_gate.diagnose.localize.localize import Located, localize
from onnx_gate.diagnose.trace.record_export import silence_exporters


@dataclass(frozen=True)
class Row:
    """A case and what was named."""

    case: DivergingCase
    located: Located
    seconds: float

    @property
    def operator(self) -> bool:
        node = self.located.node
        return node is not None and node.op_type in self.case.guilty_op

    @property
    def module(self) -> bool:
        node = self.located.node
        return self.case.module is None or (node is not None and node.module == self.case.module)

    @property
    def line(self) -> bool:
        source = self.located.source
        return not self.case.line or (source is not None and self.case.line in source.code)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--verbose", action="store_true", help="notes and errors along the graph")
    parser.add_argument("--sweep", type=int, default=0, help="this many faults drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the faults drawn at random")
    results.add_option(parser)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    if options.sweep:
        return sweep(options.sweep, options.seed, options.verbose)
    rows = []
    for case in CASES:
        if options.only in case.name:
            rows.append(run(case))
            print_row(rows[-1], options.verbose)
    for label, right in (
        ("operator", [r.operator for r in rows]),
        ("module", [r.module for r in rows if r.case.module is not None]),
        ("line", [r.line for r in rows if r.case.line]),
        ("all three", [r.operator and r.module and r.line for r in rows]),
    ):
        share = f"{sum(right) / len(right):.1%}" if right else "-"
        print(f"{label:10} {sum(right):3} of {len(right):3}  {share}")
    forms = Counter(r.case.form for r in rows)
    good = Counter(r.case.form for r in rows if r.operator)
    print("operator by form:", ", ".join(f"{f} {good[f]}/{n}" for f, n in forms.items()))
    print(f"lines known: {sum(r.located.source is not None for r in rows)} of {len(rows)}")
    print(f"seconds in localize: {sum(r.seconds for r in rows):.1f}")
    if options.save:
        results.save(
            __file__,
            "localize",
            [
                {
                    "case": r.case.name,
                    "operator": r.operator,
                    "module": r.module,
                    "line": r.line,
                    "has_module": r.case.module is not None,
                    "has_line": bool(r.case.line),
                    "seconds": round(r.seconds, 2),
                }
                for r in rows
            ],
        )
    return 0 if all(r.operator and r.module and r.line for r in rows) else 1


def sweep(count: int, seed: int, verbose: bool) -> int:
    """Localise faults drawn at random, print the misses and the share of hits."""
    totals: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        source = Sweep(Path(folder), seed)
        while totals["all"] < count:
            with silence_exporters():
                drawn = source.draw()
            if drawn is None:
                continue
            begin = time.perf_counter()
            try:
                located = localize(drawn.subject)
            except Exception:
                located = Located(note=traceback.format_exc())
            node = located.node
            right = node is not None and node.output in drawn.outputs
            form = drawn.name.split("/")[0]
            for key in ("all", form):
                totals[key] += 1
                hits[key] += right
            if verbose or not right:
                named = "nothing" if node is None else f"{node.op_type} {node.output}"
                print(
                    f"{'.' if right else 'X'} {totals['all']:3} {drawn.name:22} {drawn.what:34} "
                    f"{drawn.outputs[0]:24} -> {named:30} {time.perf_counter() - begin:.1f} s  "
                    f"{located.note[:200]}",
                    flush=True,
                )
    for key, total in totals.items():
        print(f"{key:12} {hits[key]:4} of {total:4}  {hits[key] / total:.1%}")
    return 0


def run(case: DivergingCase) -> Row:
    """Make a case and localise it."""
    with tempfile.TemporaryDirectory() as folder:
        with silence_exporters():
            subject = case.make(Path(folder))
        begin = time.perf_counter()
        try:
            located = localize(subject)
        except Exception:
            located = Located(note=traceback.format_exc())
        return Row(case, located, time.perf_counter() - begin)


def print_row(row: Row, verbose: bool) -> None:
    """One line, and with ``verbose`` what else is known."""
    case, node, source = row.case, row.located.node, row.located.source
    marks = "".join(
        "." if good else letter
        for good, letter in ((row.operator, "O"), (row.module, "M"), (row.line, "L"))
    )
    expected = (
        f"{'/'.join(sorted(case.guilty_op))} in {'?' if case.module is None else repr(case.module)}"
    )
    named = "nothing" if node is None else f"{node.op_type} in {node.module!r}"
    line = "-" if source is None else f"{source.file}:{source.line} {source.code}"
    print(f"{marks} {case.name:32} {expected:45} -> {named:40} {row.seconds:5.1f} s  {line[:60]}")
    if verbose or marks != "...":
        print(f"      {row.located.note}", file=sys.stderr)
    if verbose:
        for error in row.located.nodes:
            print(f"      {error.output:30} {error.op_type:20} {error.error:9.1e} {error.born}")


if __name__ == "__main__":
    sys.exit(main())
