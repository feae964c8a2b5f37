"""Audit the examples and public architectures: which faults do their manifests catch, at what cost?

    python benchmarks/accuracy/audit.py --packages DIR --output DIR [--model GLOB ...] [--save]
    python benchmarks/accuracy/audit.py --report REPORT [--report REPORT ...] [--save]

The architectures are models of ``foreign.py``, with the packages that it installs, and the manifest that
an owner writes first. ``times`` is how many times as long the model takes with its audit as without: the
stages of the same process, so that both are of the same machine under the same load.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from benchmarks.accuracy.foreign import FOLDER, prepare
from benchmarks.support import results
from benchmarks.support.gate import ROOT, read_report, run_gate
from benchmarks.support.torchvision import SITE
from onnx_gate.report.model.audit import Audit, Mutant
from onnx_gate.report.story import audited

ARCHITECTURES = (
    "timm-resnet",
    "timm-vit",
    "torchvision-resnet",
    "smp-unet",
    "bert",
    "gpt2",
    "llama",
    "segformer",
)


@dataclass(frozen=True)
class Row:
    """What an audit of one model came to; ``kinds`` maps a kind to (caught, of)."""

    name: str
    tried: int
    sites: int
    caught: int
    of: int
    low: float
    refused: int
    without_effect: int
    duplicates: int
    kinds: dict[str, list[int]]
    run_seconds: float
    times: float
    survivors: list[str]
    why: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--packages", type=Path, help="the folder that foreign.py has installed")
    parser.add_argument("--output", type=Path, help="a folder for manifests and reports")
    parser.add_argument(
        "--report", type=Path, action="append", help="a report.json to read instead"
    )
    parser.add_argument("--model", action="append", default=[], help="only these (a glob)")
    parser.add_argument("--jobs", type=int, default=1, help="models side by side (1)")
    results.add_option(parser)
    options = parser.parse_args()
    if options.report:
        reports = [read_report(path) for path in options.report]
    elif options.packages and options.output:
        reports = audits(options.packages.resolve(), options.output.resolve(), options)
    else:
        parser.error("--packages and --output are needed, or --report")
    rows = [row(model) for report in reports for model in report["models"] if model.get("audit")]
    print_table(rows)
    if options.save:
        made = [asdict(each) for each in rows]
        results.save(__file__, "audit", results.merged(__file__, "audit", made))


def audits(packages: Path, output: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the reports on the examples and on the architectures."""
    prepare(output)
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, [SITE, packages / "newest"]))
    jobs = ("--jobs", str(options.jobs))
    examples = ROOT / "examples" / "onnx-gate.yml"
    calls = (
        (examples, output / "examples", names_in(examples)),
        (output / "onnx-gate.yml", output / FOLDER.name, ARCHITECTURES),
    )
    reports = []
    for manifest, to, names in calls:
        chosen = [n for n in names if any(fnmatchcase(n, each) for each in options.model or ["*"])]
        words = [word for name in chosen for word in ("--model", name)]
        if chosen:
            reports.append(run_gate(manifest, to, *jobs, *words, command="audit"))
    return reports


def names_in(manifest: Path) -> list[str]:
    """Return the names of a manifest's models."""
    return list(yaml.safe_load(manifest.read_text(encoding="utf-8"))["models"])


def row(model: dict[str, Any]) -> Row:
    """Return the row of one model of a report."""
    audit = model["audit"]
    score = audit["score"] or {"caught": 0, "of": 0, "low": 0.0}
    fates = [mutant["fate"] for mutant in audit["mutants"]]
    stages = {stage["name"]: stage["seconds"] for stage in model["stages"]}
    run = sum(seconds for name, seconds in stages.items() if name != "audit")
    return Row(
        name=model["name"],
        tried=len(fates) - sum(m["by"] == "same" for m in audit["mutants"]),
        sites=audit["sites"],
        caught=score["caught"],
        of=score["of"],
        low=round(score["low"], 3),
        refused=fates.count("refused"),
        without_effect=fates.count("equivalent"),
        duplicates=fates.count("duplicate"),
        kinds={each["name"]: [each["caught"], each["of"]] for each in audit["kinds"]},
        run_seconds=round(run, 1),
        times=round((run + stages.get("audit", 0.0)) / run, 2) if run else 0.0,
        survivors=[survivor(m, audit) for m in audit["mutants"] if m["fate"] == "survived"],
        why=audit["note"],
    )


def survivor(mutant: dict[str, Any], audit: dict[str, Any]) -> str:
    """Return what survived, by how much it moves the output, and what catches it or why nothing does."""
    site = mutant["site"]
    why = audited.remedy(Audit.model_validate(audit), Mutant.model_validate(mutant), "PyTorch")
    where = f"{site['op_type']} {site['name']}".strip()
    moved = float(mutant["moved"] or 0)
    return f"{mutant['fault']} at {where}: {mutant['words']}; moves {moved:.2g}. {why}"


def print_table(rows: Sequence[Row]) -> None:
    """Every model, its score and its survivors, then the kinds over all models."""
    kinds: dict[str, list[int]] = {}
    for each in rows:
        print(
            f"{each.name:22} {each.tried:3} of {each.sites:5} tried, caught {each.caught} of "
            f"{each.of}, {each.refused} refused, {each.without_effect} without effect, "
            f"{each.duplicates} duplicates; run {each.run_seconds} s, x{each.times} {each.why}"
        )
        for line in each.survivors:
            print(f"    {line}")
        for kind, (caught, of) in each.kinds.items():
            total = kinds.setdefault(kind, [0, 0])
            kinds[kind] = [total[0] + caught, total[1] + of]
    for kind, (caught, of) in kinds.items():
        print(f"{kind}: {caught} of {of}")


if __name__ == "__main__":
    main()
