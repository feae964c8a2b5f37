"""Seed the audit's faults into three networks and see which of them the default gate catches.

    python benchmarks/accuracy/faults.py --output DIR [--sample N] [--save]

Each network of ``subjects.py`` has a manifest of its inputs alone, so that the default suites, sizes and
tolerance are what is measured; those with batch norms are audited a second time, exported without
folding them into convolutions.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.accuracy.audit import survivor
from benchmarks.support import results
from benchmarks.support.gate import run_gate

HERE = Path(__file__).resolve().parent
PIXELS = {"image": {"dtype": "float32", "shape": ["batch", 3, 64, 64], "range": [0, 1]}}
TOKENS = {"tokens": {"dtype": "int64", "shape": ["batch", "seq"], "range": [0, 99]}}
FEATURES = {"image": {"dtype": "float32", "shape": ["batch", 3, 16, 16]}}
SUBJECTS = {"resnet18": PIXELS, "encoder": TOKENS, "upscaler": FEATURES}
UNFOLDED = ("resnet18", "upscaler")
ELEMENT = "element-off"


@dataclass(frozen=True)
class Rate:
    """What became of one network's faults; each pair is (caught, of)."""

    subject: str
    named: list[int]
    quarter: list[int]
    doubled: list[int]
    without_effect: int
    refused: int
    unchanged: str
    missed: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="a folder for the report")
    parser.add_argument("--sample", type=int, default=0, help="faults a network (0: all of them)")
    parser.add_argument("--model", action="append", default=[], help="only these networks (a glob)")
    results.add_option(parser)
    options = parser.parse_args()
    output: Path = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "subjects.py", output / "subjects.py")
    manifest = output / "onnx-gate.yml"
    manifest.write_text(yaml.safe_dump({"version": 1, "models": entries()}, sort_keys=False))
    chosen = [word for name in options.model for word in ("--model", name)]
    arguments = ("--sample", str(options.sample), "--jobs", "1", *chosen)
    report = run_gate(manifest, output / "report", *arguments, command="audit")
    rates = [rate(model) for model in report["models"]]
    for each in rates:
        print(
            f"{each.subject}: {each.named[0]} of {each.named[1]} faults caught, one element off by a "
            f"quarter {each.quarter[0]} of {each.quarter[1]}, doubled {each.doubled[0]} of "
            f"{each.doubled[1]}; {each.without_effect} without effect, {each.refused} refused by the "
            f"runtime; unchanged graph: {each.unchanged}"
        )
        for line in each.missed:
            print(f"    {line}")
    if options.save:
        results.save(__file__, "faults", [asdict(each) for each in rates])


def entries() -> dict[str, Any]:
    """Return the models of the manifest: everything but the inputs is the default."""
    plain = {
        name: {"model": f"subjects.py:{name}", "inputs": inputs}
        for name, inputs in SUBJECTS.items()
    }
    unfolded = {
        f"{name}, norms not folded": {**plain[name], "export": {"optimize": False}}
        for name in UNFOLDED
    }
    return {**plain, **unfolded}


def rate(model: dict[str, Any]) -> Rate:
    """Return what became of the faults of one network."""
    audit = model["audit"]
    mutants = audit["mutants"]
    elements = [m for m in mutants if m["fault"] == ELEMENT]
    fates = [m["fate"] for m in mutants]
    return Rate(
        subject=model["name"],
        named=share([m for m in mutants if m["fault"] != ELEMENT]),
        quarter=share([m for m in elements if m["id"].endswith("x0.25")]),
        doubled=share([m for m in elements if m["id"].endswith("x1")]),
        without_effect=fates.count("equivalent"),
        refused=fates.count("refused"),
        unchanged=model["verdict"],
        missed=[survivor(m, audit) for m in mutants if m["fate"] == "survived"],
    )


def share(mutants: list[dict[str, Any]]) -> list[int]:
    """How many are caught, of how many that count."""
    caught = sum(m["fate"] == "caught" for m in mutants)
    return [caught, caught + sum(m["fate"] == "survived" for m in mutants)]


if __name__ == "__main__":
    main()
