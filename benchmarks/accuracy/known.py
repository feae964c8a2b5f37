"""Which links the book of known faults gives on red and green models, each held against a judgement.

    python benchmarks/accuracy/known.py --output DIR [--save]

``examples`` and ``correct`` (green), ``examples/broken`` and ``remedy_cases``. ``RIGHT`` are the links
that were read and judged: the thread is about this very fault. A link that is not there counts as wrong.
Models that cannot be imported here (OG204: torchvision's) are left out. Reports that are in DIR already are
read and not made anew.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.support import results
from benchmarks.support.gate import run_gate
from onnx_gate.findings import codes
from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelResult
from onnx_gate.report.story.knowing import known_faults

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
MANIFESTS = (
    EXAMPLES / "onnx-gate.yml",
    HERE / "correct" / "onnx-gate.yml",
    EXAMPLES / "broken" / "onnx-gate.yml",
    HERE / "remedy_cases" / "onnx-gate.yml",
)
RIGHT = {
    "sharpened": "https://github.com/microsoft/onnxruntime/issues/7546",
    "spectrum": "https://github.com/pytorch/pytorch/issues/112382",
}


def main() -> None:
    """Run the manifests and print a line for each link."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    results.add_option(parser)
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    for manifest in MANIFESTS:
        output = options.output / manifest.parent.name
        if not (output / "report.json").is_file():
            run_gate(manifest, output, "--remedies", "0")
        models = read_report(output / "report.json").models
        here = [m for m in models if m.error is None or m.error.code != codes.OG204.code]
        rows += _rows(manifest.parent.name, here)
    linked = [row for row in rows if row["link"]]
    for row in linked:
        print(f"{row['model']:20} {row['verdict']:9} {row['link']}  {row['judged']}")
    right = sum(row["judged"] == "right" for row in linked)
    red = sum(row["verdict"] != "pass" for row in rows)
    print(f"{len(rows)} models, {red} red: {len(linked)} links, {right} right")
    if options.save:
        results.save(__file__, "links", rows)


def _rows(source: str, models: Iterable[ModelResult]) -> Iterator[dict[str, object]]:
    for model in models:
        links = [fault.address for fault in known_faults(model)]
        blame = model.diagnosis.blame if model.diagnosis is not None else ""
        why = model.error.code if model.error is not None else blame
        link = links[0] if links else ""
        judged = ("right" if RIGHT.get(model.name) == link else "wrong") if link else ""
        yield {
            "source": source,
            "model": model.name,
            "verdict": model.verdict,
            "why": why,
            "link": link,
            "judged": judged,
        }


if __name__ == "__main__":
    main()
