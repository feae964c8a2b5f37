"""Seed faults into exported graphs and see which of them the gate catches.

    python benchmarks/accuracy/faults.py --output DIR [--quick]

Every network of ``subjects.py`` is exported once; each fault of ``fault_kinds.py`` that fits is
seeded into a copy of its graph; one manifest names all of them with ``onnx:`` and nothing else but
the inputs, so that the default suites, sizes and tolerance are what is measured.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import shutil
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
import yaml

from benchmarks.accuracy.fault_graph import Array, DoesNotApply, Graph
from benchmarks.accuracy.fault_kinds import Fault, all_faults, change_element
from benchmarks.support import results
from benchmarks.support.gate import number, run_gate

HERE = Path(__file__).resolve().parent
CLEAN = "unchanged"

# For every probe the outputs of a graph.
Outputs = list[list[Array]]


@dataclass(frozen=True)
class Subject:
    """A factory of ``subjects.py``, its input as the manifest writes it, and an example."""

    name: str
    inputs: dict[str, Any]

    def example(self, seed: int) -> Array:
        """A random input; every dynamic dimension is 3, 5, ..."""
        ((_, spec),) = self.inputs.items()
        random = np.random.default_rng(seed)
        sizes = iter((3, 5, 7))
        shape = [next(sizes) if isinstance(size, str) else size for size in spec["shape"]]
        if spec["dtype"] == "int64":
            return random.integers(spec["range"][0], spec["range"][1] + 1, shape)
        values = random.random(shape) if "range" in spec else random.standard_normal(shape)
        return values.astype(np.float32)

    def dynamic(self) -> dict[int, Any]:
        """What torch.onnx.export calls the dynamic shape of the input."""
        ((_, spec),) = self.inputs.items()
        names = enumerate(spec["shape"])
        return {i: torch.export.Dim.DYNAMIC for i, size in names if isinstance(size, str)}


SUBJECTS = (
    Subject(
        "resnet18", {"image": {"dtype": "float32", "shape": ["batch", 3, 64, 64], "range": [0, 1]}}
    ),
    Subject("encoder", {"tokens": {"dtype": "int64", "shape": ["batch", "seq"], "range": [0, 99]}}),
    Subject("upscaler", {"image": {"dtype": "float32", "shape": ["batch", 3, 16, 16]}}),
)


@dataclass(frozen=True)
class Seeded:
    """One faulty file. ``size`` is max|faulty - clean| / rms(clean) over three random inputs;
    infinite where the faulty graph raises or gives another shape, NaN or an infinity."""

    model: str
    subject: str
    fault: str
    what: str
    size: float


@dataclass(frozen=True)
class Row:
    """A faulty file and what the gate made of it."""

    seeded: Seeded
    caught: bool
    verdict: str
    budget: float
    check: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="a folder for graphs and report")
    parser.add_argument("--quick", action="store_true", help="five elements of the sweep, not 30")
    results.add_option(parser)
    options = parser.parse_args()
    output: Path = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    sweep = 5 if options.quick else 30
    shutil.copy(HERE / "subjects.py", output / "subjects.py")
    seeded = [item for subject in SUBJECTS for item in seed_all(subject, output, sweep)]
    (output / "seeded.json").write_text(json.dumps([asdict(item) for item in seeded], indent=1))
    write_manifest(output / "onnx-gate.yml", seeded)
    report = run_gate(output / "onnx-gate.yml", output / "report")
    models = {model["name"]: model for model in report["models"]}
    rows = [judge(item, models[item.model]) for item in seeded]
    print_table(rows)
    if options.save:
        results.save(__file__, "quick" if options.quick else "faults", rates(rows))


def seed_all(subject: Subject, output: Path, sweep: int) -> Iterator[Seeded]:
    """Export a subject, folded and unfolded, and write one file for each fault that fits."""
    sys.path.insert(0, str(HERE))
    module = getattr(importlib.import_module("subjects"), subject.name)()
    probes = [{next(iter(subject.inputs)): subject.example(seed)} for seed in range(3)]
    graphs = {optimize: export(module, subject, optimize) for optimize in (True, False)}
    clean = {optimize: infer(graph, probes) for optimize, graph in graphs.items()}
    faults = [Fault(CLEAN, lambda graph: "as exported"), *all_faults()]
    faults += [Fault(f"one_percent_{i:02d}", change_element(i, 1.01)) for i in range(sweep)]
    faults += [Fault(f"doubled_{i:02d}", change_element(i, 2.0)) for i in range(sweep // 3)]
    for fault in faults:
        model = onnx.ModelProto()
        model.CopyFrom(graphs[not fault.unfolded])
        try:
            what = fault.seed(Graph(model))
        except DoesNotApply:
            continue
        name = f"{subject.name}.{fault.name}"
        path = output / "graphs" / f"{name}.onnx"
        path.parent.mkdir(exist_ok=True)
        onnx.save(model, path)
        size = size_of(model, probes, clean[not fault.unfolded])
        yield Seeded(name, subject.name, fault.name, what, size)


def export(module: torch.nn.Module, subject: Subject, optimize: bool) -> onnx.ModelProto:
    """The graph; without ``optimize`` its batch norms are not folded into convolutions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            (torch.from_numpy(subject.example(0)),),
            dynamic_shapes=(subject.dynamic(),),
            input_names=list(subject.inputs),
            dynamo=True,
            optimize=optimize,
            verbose=False,
        )
    assert program is not None
    return program.model_proto


def size_of(faulty: onnx.ModelProto, probes: list[dict[str, Array]], clean: Outputs) -> float:
    """How far the faulty graph is from the clean one's outputs, in units of their size."""
    try:
        outputs = infer(faulty, probes)
    except Exception:  # ONNX Runtime's own exceptions share no base of their own.
        return math.inf
    sizes = [0.0]
    for actual, expected in zip(outputs, clean, strict=True):
        for left, right in zip(actual, expected, strict=True):
            if left.shape != right.shape or not np.isfinite(left).all():
                return math.inf
            distance = np.abs(left.astype(np.float64) - right).max()
            sizes.append(float(distance / np.sqrt(np.square(right, dtype=np.float64).mean())))
    return max(sizes)


def infer(model: onnx.ModelProto, probes: list[dict[str, Array]]) -> Outputs:
    """The outputs for every probe in ONNX Runtime on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [[np.asarray(value) for value in session.run(None, feed)] for feed in probes]


def write_manifest(path: Path, seeded: list[Seeded]) -> None:
    """One model for each faulty file; everything else is the default."""
    inputs = {subject.name: subject.inputs for subject in SUBJECTS}
    models = {
        item.model: {
            "model": f"subjects.py:{item.subject}",
            "onnx": f"graphs/{item.model}.onnx",
            "inputs": inputs[item.subject],
        }
        for item in seeded
    }
    path.write_text(yaml.safe_dump({"version": 1, "models": models}, sort_keys=False))


def judge(item: Seeded, result: dict[str, Any]) -> Row:
    """What the gate said: the largest budget of a check that is not advice, and which it was."""
    checks = [c for c in result["checks"] if not c["advice"]]
    worst = max(checks, key=lambda c: number(c["budget"]) or 0.0, default=None)
    budget = number(worst["budget"]) if worst else None
    verdict = result["verdict"]
    if result["error"]:
        verdict = f"error ({result['error']['kind']})"
    place = f"{worst['runtime']} {worst['case']} {worst['output']}" if worst else ""
    caught = result["verdict"] != "pass"
    return Row(item, caught, verdict, math.nan if budget is None else budget, place)


def print_table(rows: list[Row]) -> None:
    """Every fault, then the rates."""
    print(f"\n{'model':46} {'size':>9} {'gate':18} {'budget':>9}  what; the check that says most")
    for row in rows:
        mark = "" if row.caught or row.seeded.fault == CLEAN else "  MISSED"
        print(
            f"{row.seeded.model:46} {row.seeded.size:9.2e} {row.verdict:18} {row.budget:9.3g}  "
            f"{row.seeded.what}; {row.check}{mark}"
        )
    print()
    for rate in rates(rows):
        named, percent, doubled = rate["named"], rate["one per cent"], rate["doubled"]
        print(
            f"{rate['subject']}: {named[0]} of {named[1]} named faults caught "
            f"({rate['without effect']} more without any effect on the probes), one element off by "
            f"1 % {percent[0]} of {percent[1]}, doubled {doubled[0]} of {doubled[1]}; "
            f"unchanged graph: {rate['unchanged']}"
        )


def rates(rows: list[Row]) -> list[dict[str, Any]]:
    """Of each subject how many faults of each kind are caught, and which named ones are not."""
    all_rates = []
    for subject in SUBJECTS:
        own = [row for row in rows if row.seeded.subject == subject.name]
        percent = [row for row in own if row.seeded.fault.startswith("one_percent_")]
        doubled = [row for row in own if row.seeded.fault.startswith("doubled_")]
        rest = [row for row in own if row not in percent and row not in doubled]
        named = [row for row in rest if row.seeded.fault != CLEAN]
        real = [row for row in named if row.seeded.size > 0]
        clean = next(row for row in rest if row.seeded.fault == CLEAN)
        all_rates.append(
            {
                "subject": subject.name,
                "named": share(real),
                "without effect": len(named) - len(real),
                "one per cent": share(percent),
                "doubled": share(doubled),
                "unchanged": clean.verdict,
                "missed": [
                    f"{row.seeded.fault}: {row.seeded.what}, {row.seeded.size:.1e}"
                    for row in [*real, *percent, *doubled]
                    if not row.caught
                ],
            }
        )
    return all_rates


def share(rows: list[Row]) -> list[int]:
    """How many are caught, of how many."""
    return [sum(row.caught for row in rows), len(rows)]


if __name__ == "__main__":
    main()
