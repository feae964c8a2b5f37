"""Pairs of files for one model, a faulty and a correct one, and what the gate says of each.

    python benchmarks/accuracy/pairs.py --output DIR [--only CLASS ...] [--pair GLOB ...] [--quick]

Every class is a file of ``pairs/``. The faulty files are exported, and shown to differ, before the
gate sees them; one manifest then names every model twice, and the gate runs it with nothing but
what the entries say. Most correct files are its own exports; with ``--quick`` they are exported once and
kept, and the faults are not shown. ``--check`` stops before the gate, ``--report`` reads a report.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import inspect
import itertools
import json
import logging
import math
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import torch
import yaml

from benchmarks.support import results
from benchmarks.support.gate import read_report, run_gate

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "pairs"
# The classes are files of a workspace, and import one another as a model's files do.
sys.path.insert(0, str(FOLDER))

if TYPE_CHECKING:
    from pairs.pair import Pair

CLASSES = (
    "masks",
    "fast_path",
    "scale",
    "nothing_compared",
    "cannot_fail",
    "ill_conditioned",
    "no_float64",
    "sizes",
    "first_of_equals",
    "tails",
    "smaller",
    "open_order",
    "long_sums",
    "own_constants",
    "examples",
    "python_numbers",
)

# Classes in which it matters how the gate exports.
EXPORTED_BY_THE_GATE = ("sizes", "examples", "tails", "python_numbers")

Feed = dict[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """A pair and what became of it."""

    category: str
    name: str
    what: str
    expect: str
    caught: bool
    faulty: str
    green: bool
    twin: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="a folder for files and report")
    parser.add_argument("--only", action="append", default=[], choices=CLASSES, help="a class")
    parser.add_argument("--pair", action="append", default=[], help="pairs of these names (a glob)")
    parser.add_argument("--check", action="store_true", help="only show that the faults are faults")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="keep the correct files, too, and do not show the faults",
    )
    parser.add_argument("--report", type=Path, help="a report.json to read instead of running")
    parser.add_argument("--jobs", type=int, default=1, help="models side by side (1)")
    results.add_option(parser)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    output: Path = options.output.resolve()
    chosen = list(pairs(options.only or CLASSES, options.pair))
    if not chosen:
        parser.error("no pair has that name")
    if options.report:
        report = read_report(options.report)
    else:
        prepare(chosen, output, options)
        if options.check:
            return
        report = run_gate(
            output / "onnx-gate.yml", output / "report", "--no-cache", "--jobs", str(options.jobs)
        )
    models = {model["name"]: model for model in report["models"]}
    rows = [judge(category, pair, models) for category, pair in chosen]
    print_table(rows)
    results.write(output / "pairs.json", "pairs", [asdict(row) for row in rows])
    if options.save:
        results.save(__file__, "pairs", [asdict(row) for row in rows])


def pairs(categories: Sequence[str], names: Sequence[str]) -> Iterator[tuple[str, Pair]]:
    """The pairs of some classes; their names are unique."""
    seen: set[str] = set()
    for category in categories:
        if not (FOLDER / f"{category}.py").exists():
            continue
        for pair in importlib.import_module(category).PAIRS:
            assert pair.name not in seen, pair.name
            seen.add(pair.name)
            if not names or any(fnmatch.fnmatch(pair.name, glob) for glob in names):
                yield category, pair


def prepare(chosen: Sequence[tuple[str, Pair]], output: Path, options: argparse.Namespace) -> None:
    """The files of the pairs and a manifest that names them, in ``output``."""
    (output / "files").mkdir(parents=True, exist_ok=True)
    for source in FOLDER.glob("*.py"):
        shutil.copy(source, output / source.name)
    manifest: dict[str, Any] = {"version": 1, "suites": {}, "models": {}}
    broken = []
    for category, pair in chosen:
        manifest["suites"].update(pair.suites)
        for side, more in (("faulty", pair.faulty_entry), ("twin", pair.twin_entry)):
            entry: dict[str, Any] = {
                "model": f"{category}.py:{pair.model.__name__}",
                "inputs": dict(pair.inputs),
                **pair.entry,
                **more,
            }
            module = module_of(pair, side)
            if module is None and options.quick and category not in EXPORTED_BY_THE_GATE:
                module = pair.model
            if module is not None:
                path = output / "files" / f"{pair.name}-{side}.onnx"
                try:
                    export(module().eval(), pair, path)
                except Exception as error:
                    raise SystemExit(f"{pair.name}: {side} does not export: {error}") from error
                entry["onnx"] = f"files/{path.name}"
            manifest["models"][f"{pair.name}-{side}"] = entry
        if options.quick or pair.same_file:
            continue
        try:
            shown = show_fault(pair, output, options.check)
        except Exception as error:  # ONNX Runtime's own exceptions share no base of their own.
            broken.append(pair.name)
            shown = f"BROKEN {type(error).__name__}: {str(error)[:120]!r}"
        print(f"{category:18} {pair.name:32} {shown}", flush=True)
    if broken:
        raise SystemExit(f"{len(broken)} pairs are none: {', '.join(broken)}")
    # Through JSON: a value that two pairs share is written out, not as an anchor.
    text = yaml.safe_dump(json.loads(json.dumps(manifest)), sort_keys=False)
    (output / "onnx-gate.yml").write_text(text)


def module_of(pair: Pair, side: str) -> Callable[[], torch.nn.Module] | None:
    """What is exported as a side's file; nothing where the gate exports the model itself."""
    if side == "twin":
        return pair.twin
    return None if pair.gate_exports_fault or pair.same_file else pair.faulty_module


def export(module: torch.nn.Module, pair: Pair, path: Path) -> None:
    """Write the file of a module, with the dynamic dimensions of the manifest's entry.

    A file that is younger than the pair's class is kept.
    """
    source = Path(inspect.getfile(pair.model))
    if path.exists() and path.stat().st_mtime > source.stat().st_mtime:
        return
    sizes = dict(zip(dimensions(pair), (3, 5, 11, 13, 17), strict=False)) | dict(pair.example)
    feed = draw(pair, np.random.default_rng(0), sizes)
    dynamic = {
        name: {
            axis: torch.export.Dim.AUTO
            for axis, size in enumerate(shape_of(spec)[1])
            if isinstance(size, str)
        }
        for name, spec in pair.inputs.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (),
            str(path),
            kwargs={name: torch.from_numpy(value) for name, value in feed.items()},
            dynamic_shapes=dynamic,
            input_names=list(pair.inputs),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def shape_of(spec: Any) -> tuple[str, list[int | str]]:
    """The dtype and the shape of an input, in either form of the manifest."""
    if isinstance(spec, dict):
        return spec["dtype"], list(spec["shape"])
    match = re.fullmatch(r"(\w+)\[(.*)\]", spec)
    assert match, spec
    sizes = [size.strip() for size in match[2].split(",") if size.strip()]
    return match[1], [int(size) if size.isdigit() else size for size in sizes]


def dimensions(pair: Pair) -> list[str]:
    """The dynamic dimensions of a pair's inputs."""
    named = (size for spec in pair.inputs.values() for size in shape_of(spec)[1])
    return list(dict.fromkeys(size for size in named if isinstance(size, str)))


def draw(pair: Pair, rng: np.random.Generator, sizes: dict[str, int]) -> Feed:
    """Arbitrary inputs of these sizes."""
    feed: Feed = {}
    for name, spec in pair.inputs.items():
        dtype, shape = shape_of(spec)
        size = [sizes[n] if isinstance(n, str) else n for n in shape]
        low, high = spec.get("range", (None, None)) if isinstance(spec, dict) else (None, None)
        if dtype == "bool":
            feed[name] = rng.random(size) < 0.6
        elif dtype.startswith(("int", "uint")):
            feed[name] = rng.integers(low, high + 1, size).astype(dtype)  # type: ignore[arg-type]
        elif low is not None:
            feed[name] = rng.uniform(low, high, size).astype(dtype)  # type: ignore[arg-type]
        else:
            feed[name] = rng.standard_normal(size).astype(dtype)
    return feed


def show_fault(pair: Pair, output: Path, check: bool) -> str:
    """How far the files are from the module; raises where the fault is none."""
    rng = np.random.default_rng(1)
    declared = pair.entry.get("dims", {})
    sizes = {
        name: (declared[name] if isinstance(declared.get(name), list) else [4])[-1]
        for name in dimensions(pair)
    }
    feeds = [pair.witness(rng) if pair.witness else draw(pair, rng, sizes) for _ in range(4)]
    module = pair.model().eval()
    distances = []
    session_options = onnxruntime.SessionOptions()
    session_options.log_severity_level = 4
    for side in ("faulty", "twin"):
        path = output / "files" / f"{pair.name}-{side}.onnx"
        if not path.exists() and check and not pair.same_file:
            owner = pair.gate_exports_fault if side == "faulty" else True
            try:
                export(pair.model().eval() if owner else pair.faulty_module(), pair, path)
            except Exception as error:  # whatever the exporter raises
                distances.append(f"{side} not exported: {str(error)[:80]!r}")
                continue
        if not path.exists():
            continue
        session = onnxruntime.InferenceSession(
            str(path), session_options, providers=["CPUExecutionProvider"]
        )
        distance = max(difference(module, session, feed) for feed in feeds)
        distances.append(f"{side} {distance:.2g}")
        if side == "faulty" and distance == 0:
            raise ValueError("the faulty file does not differ on its witness")
    return ", ".join(distances)


def difference(module: torch.nn.Module, session: onnxruntime.InferenceSession, feed: Feed) -> float:
    """The largest |c - t|; infinite where one side raises, or answers in another shape."""
    names = {value.name for value in session.get_inputs()}
    with torch.no_grad():
        answer = module(**{name: torch.from_numpy(value.copy()) for name, value in feed.items()})
    expected = [np.asarray(value) for value in torch.utils._pytree.tree_leaves(answer)]
    try:
        actual = session.run(None, {k: v for k, v in feed.items() if k in names})
    except Exception:  # ONNX Runtime's own exceptions share no base of their own.
        return math.inf
    if len(actual) != len(expected):
        return math.inf
    worst = 0.0
    for a, e in zip(actual, expected, strict=True):
        if a.dtype != e.dtype or a.shape != e.shape or (np.isnan(a) != np.isnan(e)).any():
            return math.inf
        with np.errstate(invalid="ignore"):
            gap = np.abs(a.astype(np.float64) - e.astype(np.float64))
        worst = max(worst, float(np.nan_to_num(gap, posinf=math.inf).max(initial=0.0)))
    return worst


def judge(category: str, pair: Pair, models: dict[str, Any]) -> Row:
    """Whether the faulty one was caught as it has to be, and its twin passes."""
    faulty, twin = models[f"{pair.name}-faulty"], models[f"{pair.name}-twin"]
    refused = faulty["verdict"] != "pass"
    if pair.expect == "unverified":
        caught = refused
    elif pair.expect == "remarked":
        caught = refused or bool(warnings_of(faulty) - warnings_of(twin))
    else:
        # A file that cannot be judged is not one that was found faulty.
        caught = faulty["verdict"] == "diverged" or (
            refused and faulty["error"]["kind"] not in ("build", "inspect")
        )
    return Row(
        category,
        pair.name,
        pair.what,
        pair.expect,
        caught,
        verdict(faulty),
        twin["verdict"] == "pass",
        verdict(twin),
    )


def warnings_of(model: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in model["findings"] if finding["severity"] != "info"}


def verdict(model: dict[str, Any]) -> str:
    """A verdict in a few words: the kind of an error, the worst check of a divergence."""
    if model["error"]:
        error = model["error"]
        return f"error {error['kind']} {error['code']}: {error['message'][:160]}"
    checks = [c for c in model["checks"] if c["verdict"] == "diverged" and not c.get("advice")]
    if model["verdict"] == "diverged" and checks:
        cases = sorted({f"{c['case']} {c['output']}" for c in checks})
        codes = " ".join(sorted(warnings_of(model)))
        return f"diverged {len(checks)} checks: {'; '.join(cases[:3])} {codes}".strip()
    return f"{model['verdict']} {' '.join(sorted(warnings_of(model)))}".strip()


def print_table(rows: Sequence[Row]) -> None:
    """Per class how many were caught and how many twins are green, then every miss."""
    print(f"\n{'class':20} {'faulty caught':>14} {'twins green':>12}")
    for category, group in itertools.groupby(rows, key=lambda row: row.category):
        own = list(group)
        caught, green = sum(r.caught for r in own), sum(r.green for r in own)
        print(f"{category:20} {caught:>7} of {len(own):>3} {green:>5} of {len(own):>3}")
    caught, green = sum(r.caught for r in rows), sum(r.green for r in rows)
    print(f"{'all':20} {caught:>7} of {len(rows):>3} {green:>5} of {len(rows):>3}\n")
    for row in rows:
        if not row.caught:
            print(f"MISSED  {row.name} ({row.what}; has to be {row.expect}): {row.faulty}")
    for row in rows:
        if not row.green:
            print(f"ALARM   {row.name}: {row.twin}")


if __name__ == "__main__":
    main()
