"""Run the gate on models of other people's packages, each with the manifest that its owner writes first.

    python benchmarks/accuracy/foreign.py --install DIR
    python benchmarks/accuracy/foreign.py --packages DIR --output DIR [--model GLOB ...] [--save]
    python benchmarks/accuracy/foreign.py --report REPORT [--report REPORT ...] --save

``--install`` puts the packages into a folder of their own, without what they need: nearly all of it is
here, and torchvision must not bring another torch. Each model is expected to be green, or red for a
reason that is written down in ``RED``; anything else is wrong. ``--report`` reads reports that exist,
the later ones over the earlier; rows of models that were not run stay as they are stored.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.support import results
from benchmarks.support.gate import read_report, run_gate
from benchmarks.support.torchvision import SITE

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "foreign"
MANIFESTS = ("onnx-gate.yml", "older.yml")

# What is right to be red: the code that says so, and why.
RED: dict[str, tuple[str, str]] = {
    "torchvision-detection": (
        "OG203",
        "a branch on how many boxes there are: torch.export refuses, and tracing is proposed",
    ),
    "mixtral": (
        "OG209",
        "transformers' operator for experts has no translation; the other one is proposed",
    ),
    "pyg-gat": (
        "OG203",
        "which edges are loops decides about a size: torch.export refuses; tracing is proposed",
    ),
    "pytorch-tabnet": (
        "OG207",
        "onnxscript's optimiser fails on a split into as many as there are",
    ),
    "x-transformers-encoder": ("OG206", "einx makes a number of every size: the batch is fixed"),
    "quantised-untold": ("diverged", "int8 held to the tolerance of floats"),
}


@dataclass(frozen=True)
class Row:
    """A model, and what became of it.

    ``wrapper`` are the lines that somebody had to write between the package's model and the gate.
    ``right`` says whether it is green, or red as it should be.
    """

    name: str
    package: str
    verdict: str
    right: bool
    why: str
    comment: str
    seconds: float
    wrapper: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--install", type=Path, help="a folder to install the packages into")
    parser.add_argument("--packages", type=Path, help="the folder that has them")
    parser.add_argument("--output", type=Path, help="a folder for files and reports")
    parser.add_argument(
        "--report", type=Path, action="append", help="a report.json to read instead"
    )
    parser.add_argument("--model", action="append", default=[], help="only these (a glob)")
    parser.add_argument("--manifest", action="append", choices=MANIFESTS, help="only this one")
    parser.add_argument("--jobs", type=int, default=1, help="models side by side (1)")
    results.add_option(parser)
    options = parser.parse_args()
    if options.install:
        install(options.install.resolve())
        return
    if options.report:
        reports = [read_report(path) for path in options.report]
    elif options.packages and options.output:
        prepare(options.output.resolve())
        reports = [
            verified(
                name,
                options.packages.resolve(),
                options.output.resolve(),
                options.model,
                options.jobs,
            )
            for name in options.manifest or MANIFESTS
        ]
    else:
        parser.error("--packages and --output are needed, or --report")
    listed = entries()
    judged = {
        m["name"]: judge(m, listed[m["name"]])
        for r in reports
        for m in r["models"]
        if m["name"] in listed
    }
    print_table(list(judged.values()))
    if options.save:
        rows = [asdict(row) for row in judged.values()]
        results.save(__file__, "foreign", results.merged(__file__, "foreign", rows, listed))


def install(folder: Path) -> None:
    """Install what the lists of packages name, each list into a folder of its own below ``folder``."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    for listed in sorted(FOLDER.glob("packages-*.txt")):
        target = folder / listed.stem.removeprefix("packages-")
        subprocess.run([*pip, "--target", str(target), "--requirement", str(listed)], check=True)
        # Made for another build of torch: without it the package does with what is in Python.
        for library in target.glob("torchaudio/lib/*.so"):
            library.unlink()


def prepare(output: Path) -> None:
    """Make the repository of somebody who uses the packages."""
    output.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.iterdir():
        if path.suffix in (".py", ".yml"):
            shutil.copy(path, output / path.name)
    if not (output / "files" / "half.onnx").exists():
        script = str(FOLDER / "make_files.py")
        subprocess.run([sys.executable, script, str(output / "files")], check=True)


def entries() -> dict[str, dict[str, Any]]:
    """Return what the manifests say of each model."""
    texts = [(FOLDER / name).read_text(encoding="utf-8") for name in MANIFESTS]
    return {name: entry for text in texts for name, entry in yaml.safe_load(text)["models"].items()}


def verified(
    manifest: str, packages: Path, output: Path, chosen: Sequence[str], jobs: int
) -> dict[str, Any]:
    """Return the report on the models of one manifest."""
    folders = [packages / "older"] if manifest == "older.yml" else []
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, [SITE, *folders, packages / "newest"]))
    words = [word for name in chosen for word in ("--model", name)]
    try:
        return run_gate(
            output / manifest,
            output / Path(manifest).stem,
            "--no-cache",
            "--jobs",
            str(jobs),
            *words,
        )
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


def judge(model: Mapping[str, Any], entry: Mapping[str, Any]) -> Row:
    """Return the row of one model."""
    name, why = model["name"], reason(model)
    code, comment = RED.get(name, ("", ""))
    green = model["verdict"] == "pass"
    right = why.startswith(code) and not green if code else green
    return Row(
        name=name,
        package=package(entry["model"], name),
        verdict=model["verdict"],
        right=right,
        why=why,
        comment=comment,
        seconds=round(sum(stage["seconds"] for stage in model["stages"]), 1),
        wrapper=wrapper_lines(entry["model"].partition(":")[2]),
    )


def reason(model: Mapping[str, Any]) -> str:
    """Return why a model is not green, with the code that says so."""
    error = model["error"]
    if model["verdict"] == "pass":
        return ""
    if error:
        return f"{error['code']} {error['message'].splitlines()[0]}"
    finding = next((f for f in model["findings"] if f["severity"] == "error"), None)
    if finding:
        return f"{finding['code']} {finding['message'].splitlines()[0]}"
    bad = [c for c in model["checks"] if c["verdict"] != "pass" and not c.get("advice")]
    if not bad:
        return ""
    worst = max(bad, key=lambda check: float(check["budget"] or 0))
    return f"diverged in {len(bad)} checks: {worst['case']}, {worst['output']}, {worst['reason']}"


def package(reference: str, name: str) -> str:
    """Return which package a model is of: that of the reference, or what its factory imports."""
    module, _, attribute = reference.partition(":")
    if not module.endswith(".py"):
        return module.partition(".")[0]
    for node in ast.parse((FOLDER / module).read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == attribute:
            names = [n.module for n in ast.walk(node) if isinstance(n, ast.ImportFrom) and n.module]
            names += [a.name for n in ast.walk(node) if isinstance(n, ast.Import) for a in n.names]
            tops = [n.partition(".")[0] for n in names]
            return next((t for t in tops if t not in ("torch", "language")), "torch")
    return "torch"


def wrapper_lines(attribute: str) -> int:
    """Return the length of something in ``wrappers.py``, where modules around others would be."""
    path = FOLDER / "wrappers.py"
    nodes = ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else []
    named = [
        n for n in nodes if isinstance(n, (ast.ClassDef, ast.FunctionDef)) and n.name == attribute
    ]
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in named)


def print_table(rows: Sequence[Row]) -> None:
    for row in rows:
        mark = "" if row.right else "!!"
        print(
            f"{mark:3}{row.name:28}{row.verdict:10}{row.seconds:7.1f} {row.wrapper:3} {row.why[:300]}"
        )
    print(
        f"\n{sum(row.right for row in rows)} of {len(rows)} are right, of "
        f"{len({row.package for row in rows})} packages; {sum(row.wrapper for row in rows)} lines of "
        "wrapper"
    )


if __name__ == "__main__":
    main()
