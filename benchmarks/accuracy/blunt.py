"""Make manifests blunt on purpose, let an audit fix them, and audit what it has made.

    python benchmarks/accuracy/blunt.py --output DIR [--sample N] [--save]

Each network of ``faults.py`` has two entries: one with nothing but its inputs, and one with a single suite
of zeros (of integers the lowest and the highest), one size and ``atol: 0.1``. ``onnx-gate audit --write``
changes the manifest, and another audit says what the changed entry catches.
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.accuracy.faults import HERE, SUBJECTS
from benchmarks.support import results
from benchmarks.support.gate import run_gate
from onnx_gate.report.model.audit import ManifestChange
from onnx_gate.report.story import audited


@dataclass(frozen=True)
class Row:
    """What the two entries of one network catch; each pair is (caught, of)."""

    name: str
    default: list[int]
    blunt: list[int]
    proposed: list[int]
    changes: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="a folder for the reports")
    parser.add_argument("--sample", type=int, default=40, help="faults a network (40)")
    results.add_option(parser)
    options = parser.parse_args()
    output: Path = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "subjects.py", output / "subjects.py")
    manifest = output / "onnx-gate.yml"
    manifest.write_text(json.dumps({"version": 1, "models": entries()}, indent=2))
    words = ("--sample", str(options.sample), "--jobs", "1")
    before = audits(manifest, output / "before", *words, "--write")
    after = audits(manifest, output / "after", *words, "--model", "*-blunt")
    rows = [row(name, before, after) for name in SUBJECTS]
    for each in rows:
        print(f"{each.name}: {each.default} by default, {each.blunt} blunt, {each.proposed} after")
        print("    " + "; ".join(each.changes))
    if options.save:
        results.save(__file__, "blunt", [asdict(each) for each in rows])


def entries() -> dict[str, Any]:
    """Return the models of the manifest."""
    models: dict[str, Any] = {}
    for name, inputs in SUBJECTS.items():
        sizes = {size for given in inputs.values() for size in given["shape"]}
        dims = {
            size: [4 if size == "seq" else 1] for size in sorted(map(str, sizes)) if size.isalpha()
        }
        models[name] = {"model": f"subjects.py:{name}", "inputs": inputs}
        whole = all("int" in given["dtype"] for given in inputs.values())
        suites = [{"edges": ["int_extremes" if whole else "zeros"]}]
        blunt = {"dims": dims, "suites": suites, "tolerance": {"atol": 0.1}}
        models[f"{name}-blunt"] = {**models[name], **blunt}
    return models


def audits(manifest: Path, output: Path, *words: str) -> dict[str, dict[str, Any]]:
    """Return the audit of each model."""
    report = run_gate(manifest, output, *words, command="audit")
    return {model["name"]: model["audit"] for model in report["models"]}


def row(name: str, before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> Row:
    """Return the row of one network."""
    blunt = f"{name}-blunt"
    changes = map(ManifestChange.model_validate, before[blunt]["changes"])
    return Row(
        name=name,
        default=share(before[name]),
        blunt=share(before[blunt]),
        proposed=share(after[blunt]),
        changes=[audited.change(each) for each in changes],
    )


def share(audit: dict[str, Any]) -> list[int]:
    """How many faults are caught, of how many that count."""
    return [audit["score"]["caught"], audit["score"]["of"]]


if __name__ == "__main__":
    main()
