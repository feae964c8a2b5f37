"""Run examples, broken examples and the unit layer with old and new versions of what the gate needs.

    python benchmarks/compat/versions.py [--only oldest ...] [--keep] [--save]

Each row gets an environment of its own below ``.compat/``, made by pip from ``pyproject.toml``: the
lower bound of every dependency, all of them at their newest, or one release of torch with everything
else at its newest. ``--keep`` uses environments that are there already. Exit status 1 where a model
of the examples does not pass, one of the broken examples does, or a test fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from benchmarks.support import results
from tools.install import cpu_index

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".compat"
SHOWN = ("torch", "onnx", "onnxscript", "onnxruntime", "numpy")
_VERSIONS = """
import importlib.metadata, json, platform, sys
versions = {name: importlib.metadata.version(name) for name in sys.argv[1:]}
print(json.dumps({"python": platform.python_version()} | versions))
"""


# What a version cannot do and the gate says so: the example, the code that says it, and the first
# torch that can.
KNOWN = {"lstm": ("OG206", (2, 13), "nn.LSTM is exported with a fixed length only")}


@dataclass(frozen=True)
class Layer:
    """One of the three things that are run: how many did what they should, and what did not.

    ``known`` are the faults of this version that the gate has named in its place.
    """

    name: str
    good: int
    all: int
    wrong: Sequence[str]
    known: Sequence[str] = ()


def lower_bounds(pyproject: str) -> dict[str, str]:
    """Return the oldest version of each dependency that ``pyproject.toml`` allows."""
    needs = map(Requirement, tomllib.loads(pyproject)["project"]["dependencies"])
    return {
        need.name: bound.version
        for need in needs
        for bound in need.specifier
        if bound.operator == ">="
    }


def profiles(bounds: dict[str, str]) -> dict[str, list[str]]:
    """Return the constraints of each environment, by its name."""
    return {
        "oldest": [f"{name}=={version}" for name, version in bounds.items()],
        "torch 2.9": ["torch==2.9.*"],
        "torch 2.11": ["torch==2.11.*"],
        "newest": [],
    }


def environment(folder: Path, constraints: Sequence[str], keep: bool) -> Path:
    """Make an environment; return its Python."""
    python = folder / "bin" / "python"
    if keep and (folder / ".installed").exists():
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    listed = folder / "constraints.txt"
    listed.write_text("\n".join(constraints) + "\n")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    own = ["--editable", f"{ROOT}[dev]", "--editable", str(ROOT / "engines")]
    subprocess.run([*pip, "--constraint", str(listed), *cpu_index(), *own], check=True)
    (folder / ".installed").touch()
    return python


def layers(python: Path, folder: Path, torch: str) -> Iterator[Layer]:
    """Run the three layers in an environment with this version of torch."""
    for name, manifest, green in (
        ("examples", "examples/onnx-gate.yml", True),
        ("broken", "examples/broken/onnx-gate.yml", False),
    ):
        models = verified(python, ROOT / manifest, folder / name)
        bad = [
            model
            for model in models
            if (model["verdict"] == "pass") != green
            # What is broken has to be found wrong, and not to be left without a verdict by versions.
            or (not green and (model["error"] or {}).get("kind") in ("export", "crashed"))
        ]
        known = [fault for model in bad if (fault := known_fault(model, torch))]
        wrong = [f"{m['name']}: {sentence(m)}" for m in bad if not known_fault(m, torch)]
        yield Layer(name, len(models) - len(bad), len(models), wrong, known)
    yield unit(python, folder / "unit.xml")


def verified(python: Path, manifest: Path, output: Path) -> list[dict[str, Any]]:
    """Return the models of a run's report."""
    command = [str(python), "-m", "onnx_gate", "run", "--no-cache", "--manifest", str(manifest)]
    report = output / "report.json"
    report.unlink(missing_ok=True)
    output.mkdir(parents=True, exist_ok=True)
    with (output / "run.log").open("w") as log:
        subprocess.run(
            [*command, "--output", str(output)], cwd=ROOT, stdout=log, stderr=log, check=False
        )
    if not report.exists():
        raise SystemExit(f"the gate wrote no report: see {output / 'run.log'}")
    models: list[dict[str, Any]] = json.loads(report.read_text())["models"]
    return models


def known_fault(model: dict[str, Any], torch: str) -> str:
    """Return what this version of torch cannot do, where that is what the gate says of a model."""
    code, since, fault = KNOWN.get(model["name"], ("", (0, 0), ""))
    release = tuple(int(part) for part in torch.split(".")[:2])
    said = (model["error"] or {}).get("code") == code
    return f"{model['name']}: {fault}" if said and release < since else ""


def sentence(model: dict[str, Any]) -> str:
    """Return why a model has its verdict, as far as one line says it."""
    error = model["error"]
    if error:
        return f"{error['kind']}, {error['message'].splitlines()[0][:200]}"
    finding = next((f for f in model["findings"] if f["severity"] == "error"), None)
    return f"{model['verdict']}{', ' + finding['code'] if finding else ''}"


def unit(python: Path, results_file: Path) -> Layer:
    """Run the tests that import no torch."""
    command = [str(python), "-m", "pytest", "--unit", "-q", "-n", "2", "-m"]
    marks = "not slow and not process and not container and not nightly"
    with results_file.with_suffix(".log").open("w") as log:
        subprocess.run(
            [*command, marks, f"--junitxml={results_file}"],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            check=False,
        )
    cases = list(ElementTree.parse(results_file).iter("testcase"))
    bad = [
        case for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    wrong = [f"{case.get('classname')}::{case.get('name')}" for case in bad]
    return Layer("unit", len(cases) - len(wrong), len(cases), wrong)


def measure(name: str, constraints: Sequence[str], keep: bool) -> dict[str, Any]:
    """Return the row of one environment."""
    folder = FOLDER / name.replace(" ", "-")
    start = time.monotonic()
    python = environment(folder, constraints, keep)
    ready = time.monotonic()
    listed = subprocess.run(
        [str(python), "-c", _VERSIONS, *SHOWN], check=True, capture_output=True, text=True
    )
    row: dict[str, Any] = {"name": name, "versions": json.loads(listed.stdout)}
    print(name, row["versions"], flush=True)
    for layer in layers(python, folder, row["versions"]["torch"]):
        row[layer.name] = asdict(layer)
        print(
            f"  {layer.name}: {layer.good} of {layer.all}",
            *layer.known,
            *layer.wrong,
            sep="\n    ",
            flush=True,
        )
    done = time.monotonic()
    return {**row, "install seconds": ready - start, "seconds": done - ready}


def main() -> None:
    known = profiles(lower_bounds((ROOT / "pyproject.toml").read_text(encoding="utf-8")))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--only", action="append", choices=known, help="one environment (repeatable)"
    )
    parser.add_argument("--keep", action="store_true", help="use environments that are there")
    results.add_option(parser)
    options = parser.parse_args()
    # A run is not to find the packages of whoever started this.
    os.environ.pop("PYTHONPATH", None)
    rows = [
        measure(name, constraints, options.keep)
        for name, constraints in known.items()
        if name in (options.only or known)
    ]
    if options.save:
        results.save(__file__, "versions", results.merged(__file__, "versions", rows, known))
    wrong = [row["name"] for row in rows for k in ("examples", "broken", "unit") if row[k]["wrong"]]
    if wrong:
        raise SystemExit(f"not as it should be: {', '.join(dict.fromkeys(wrong))}")


if __name__ == "__main__":
    main()
