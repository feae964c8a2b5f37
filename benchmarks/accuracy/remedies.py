"""Red models of many kinds: how many get a remedy that was tried and holds, and at what cost.

    python benchmarks/accuracy/remedies.py --output DIR [--times 4] [--model NAME] [--save]

``examples/broken`` and ``remedy_cases``; of the latter, those below the line of its manifest must
have none, as what would make them green changes PyTorch's answer. The patches are kept with the result.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.support import results
from benchmarks.support.gate import run_gate
from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelResult

HERE = Path(__file__).resolve().parent
MANIFESTS = (
    HERE.parents[1] / "examples" / "broken" / "onnx-gate.yml",
    HERE / "remedy_cases" / "onnx-gate.yml",
)


@dataclass(frozen=True)
class Row:
    """A model: ``seconds`` of its verdict, and of what was tried; ``kinds`` and patches of what held."""

    name: str
    verdict: str
    why: str
    seconds: float
    trying: float
    tried: int
    left: int
    kinds: tuple[str, ...]
    compared: int | None
    patches: tuple[str, ...]


def main() -> None:
    """Run both manifests and print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--model", help="of remedy_cases: measure this one, keep the other rows")
    parser.add_argument("--times", type=float, default=4.0, help="of the run's own time")
    results.add_option(parser)
    options = parser.parse_args()
    rows: list[Row] = []
    chosen = ("--model", options.model) if options.model else ()
    for manifest in MANIFESTS[1:] if options.model else MANIFESTS:
        output = options.output / manifest.parent.name
        run_gate(manifest, output, "--remedies", str(options.times), *chosen)
        rows += _rows(read_report(output / "report.json").models)
    for row in rows:
        held = ", ".join(row.kinds) or f"none of {row.tried}"
        print(f"{row.name:18} {row.why:16} {row.seconds:6.1f} s, then {row.trying:6.1f} s  {held}")
    red = [row for row in rows if row.verdict != "pass"]
    print(
        f"{sum(bool(row.kinds) for row in red)} of {len(red)} red models have a remedy that holds"
    )
    if options.save:
        made = [asdict(row) for row in rows]
        if options.model:
            made = [dict(row) for row in results.merged(__file__, "remedies", made)]
        results.save(__file__, "remedies", made)


def _rows(models: tuple[ModelResult, ...]) -> Iterator[Row]:
    for model in models:
        remedies = model.remedies
        held = remedies.held if remedies is not None else ()
        why = model.error.code if model.error is not None else ""
        compared = [each.compared for each in held if each.compared is not None]
        yield Row(
            name=model.name,
            verdict=model.verdict,
            why=model.diagnosis.blame if model.diagnosis is not None else why,
            seconds=round(model.seconds or 0.0, 1),
            trying=round(remedies.seconds, 1) if remedies is not None else 0.0,
            tried=remedies.tried if remedies is not None else 0,
            left=remedies.left if remedies is not None else 0,
            kinds=tuple(each.rewrite or each.kind for each in held),
            compared=compared[0] if compared else None,
            patches=tuple(each.patch for each in held),
        )


if __name__ == "__main__":
    main()
