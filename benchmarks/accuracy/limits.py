"""What other K and F would alarm at, and what they would catch.

    python benchmarks/accuracy/limits.py --output DIR [--every N] [--faults N] [--save]

The gate leaves what PyTorch said of each case, with all runs of moved rounding (``--answers``). So the
least K with which an output is within ``K m + F eps |t|`` follows for every F: of correct models, and of
the files of ``faults.py`` with one fault of the audit's catalogue in each. What differs in no bit is no
fault. Of the limit alone: what sums over all elements tell, other answers of PyTorch's and float64 are
left out.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime as ort
import yaml

from benchmarks.accuracy.false_alarms import MANIFEST
from benchmarks.accuracy.faults import HERE, entries
from benchmarks.support import results
from benchmarks.support.gate import run_gate
from benchmarks.support.torchvision import on_path
from onnx_gate.audit.catalogue import CATALOGUE
from onnx_gate.audit.edit import Feed
from onnx_gate.audit.files import ORIGINAL, share_weights, write_faulty
from onnx_gate.audit.graph import FlatGraph, GraphInput
from onnx_gate.audit.sample import candidates
from onnx_gate.manifest import load
from onnx_gate.report.layout import slug
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.carried import INDEX, CarriedAnswers, CarriedModel, unpacked
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.judge.noise import Noise, Terms

FACTORS = (1, 2, 3, 5, 10, 20, 50)
FLOORS = (1, 2, 5, 10, 20, 50)
# Outputs in fewer bits have an F of their own.
WIDE = (np.float32, np.float64)
# The least K of a model for each F.
Least = dict[int, float]


class Answered:
    """A model's file, and its cases with what PyTorch said of them."""

    def __init__(self, folder: Path) -> None:
        self.index = CarriedModel.model_validate_json((folder / INDEX).read_text())
        self.path = folder / self.index.file
        every = (unpacked(about, folder / about.file) for about in self.index.cases)
        self.cases: list[tuple[Case, CarriedAnswers]] = [
            (case, asked.reference)
            for case, asked in every
            if asked.reference is not None and not case.advice
        ]
        # What the file itself answers, by the numbers of cases.
        self.own: dict[int, Sequence[Array]] = {}

    def least(self, path: Path, feed: Feed | None = None) -> tuple[Least, bool]:
        """The least K with which a file is within its limits, and whether it answers as the own one."""
        options = ort.SessionOptions()
        options.log_severity_level = 4
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        least, same = dict.fromkeys(FLOORS, 0.0), True
        for number, (case, answers) in enumerate(self.cases):
            feeds = {own: case.arrays[name] for name, own in self.index.inputs.items()}
            try:
                made = session.run(self.index.outputs, feed(feeds) if feed is not None else feeds)
            except Exception:
                return dict.fromkeys(FLOORS, math.inf), False
            own = self.own.setdefault(number, made)
            for at, (one, other) in enumerate(zip(made, own, strict=True)):
                same &= one.shape == other.shape and np.array_equal(one, other, equal_nan=True)
                found = needed(one, answers, at)
                least = {floor: max(least[floor], found[floor]) for floor in FLOORS}
        return least, same


def needed(candidate: Array, answers: CarriedAnswers, index: int) -> Least:
    """The least K for each F with which an output is within its limits; 0 where none is asked."""
    expected, each = answers.outputs.arrays[index], answers.each[index]
    if expected.dtype not in WIDE or each.variants() or not expected.size:
        return dict.fromkeys(FLOORS, 0.0)
    if candidate.shape != expected.shape:
        return dict.fromkeys(FLOORS, math.inf)
    terms = replace(Terms.of(1.0, expected.dtype), factor=0.0)
    moves = Noise(expected, terms, each).all().moves(slice(None))
    c, t = (array.reshape(-1).astype(np.float64) for array in (candidate, expected))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        off = np.where((c == t) | (np.isnan(c) & np.isnan(t)), 0.0, np.abs(c - t))
        found = {}
        for floor in FLOORS:
            limit = Noise(expected, replace(terms, floor=float(floor)), each).limits(slice(None))
            beyond = off - limit
            share = np.where(beyond > 0, beyond / moves, 0.0)
            found[floor] = float(np.nan_to_num(share, nan=math.inf, posinf=math.inf).max())
    return found


def answered(manifest: Path, output: Path, *arguments: str) -> Iterator[tuple[str, Answered]]:
    """Run the gate on a manifest and read, one by one, what PyTorch said of the models that pass."""
    kept = output / "answers"
    kept.mkdir(parents=True, exist_ok=True)
    words = ("--answers", str(kept), "--no-cache", "--jobs", "1", *arguments)
    report = run_gate(manifest, output / "report", *words)
    for model in report["models"]:
        folder = kept / slug(model["name"])
        if model["verdict"] == "pass" and (folder / INDEX).exists():
            yield model["name"], Answered(folder)


def faulty(model: Answered, inputs: Sequence[GraphInput], sample: int) -> Iterator[Least]:
    """The least K of files with one fault each."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        original = share_weights(model.path, folder)
        sizes = dict(model.cases[0][0].sizes)
        graph = FlatGraph(original, folder, inputs, sizes)
        model.least(folder / ORIGINAL)
        for candidate in candidates(graph, CATALOGUE, 0)[:sample]:
            edit = candidate.fault.seed(graph, candidate.site, 0)
            if edit.same:
                continue
            path = write_faulty(graph.model, edit, folder) if edit.in_graph else folder / ORIGINAL
            try:
                least, same = model.least(path, edit.feed)
            except Exception:
                continue  # the runtime refuses it, without any comparison
            if not same:
                yield least


def table(right: Sequence[Least], wrong: Sequence[Least]) -> Iterator[Mapping[str, object]]:
    """For each K and F how many correct models it alarms at, and how many faults it catches."""
    for floor in FLOORS:
        for factor in FACTORS:
            yield {
                "K": factor,
                "F": floor,
                "alarms": sum(each[floor] > factor for each in right),
                "models": len(right),
                "caught": sum(each[floor] > factor for each in wrong),
                "faults": len(wrong),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="a folder for the answers")
    parser.add_argument("--every", type=int, default=1, help="of so many correct models the last")
    parser.add_argument("--faults", type=int, default=120, help="faults a network, at most")
    results.add_option(parser)
    options = parser.parse_args()
    output: Path = options.output.resolve()
    os.environ.update(on_path(dict(os.environ)))
    names = [spec.name for spec in load(MANIFEST).models][options.every - 1 :: options.every]
    chosen = [word for name in names for word in ("--model", name)]
    correct = answered(MANIFEST, output / "correct", *chosen)
    right = [each.least(each.path)[0] for _, each in correct]
    subjects = output / "subjects"
    subjects.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "subjects.py", subjects / "subjects.py")
    manifest = subjects / "onnx-gate.yml"
    manifest.write_text(yaml.safe_dump({"version": 1, "models": entries()}, sort_keys=False))
    specs = {spec.name: spec for spec in load(manifest).models}
    wrong: list[Least] = []
    for name, model in answered(manifest, subjects):
        given = [GraphInput(g, n, specs[name].inputs[n]) for n, g in model.index.inputs.items()]
        wrong += faulty(model, given, options.faults)
    rows = list(table(right, wrong))
    for row in rows:
        print(row)
    if options.save:
        results.save(__file__, "limits", rows)


if __name__ == "__main__":
    main()
