"""Every runtime that is installed on the examples and on the architectures that they lack.

    python benchmarks/accuracy/runtimes.py --output DIR [--runtime NAME ...] [--model NAME ...] [--save]
    python benchmarks/accuracy/runtimes.py --report DIR/report/report.json --save

Every model is exported once, and run in all of them on drawn inputs at one size. For each model and
runtime: the largest error in units of PyTorch's own against float64, the seconds of loading and
running, and why it is not judged. A runtime that has models converted (``litert``) needs its
converter on the PATH. Rows that are not made anew stay in the stored table.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks.support import results
from benchmarks.support.gate import number, read_report, run_gate

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
# What an example stands for, where it is one of the architectures.
STANDS_FOR = {
    "resnet": "CNN",
    "unet": "U-Net",
    "encoder": "transformer encoder",
    "lstm": "LSTM",
    "detector": "detector head",
    "quantised": "int8",
    "keywords-half": "fp16",
}
# A unit of rounding of the dtype of the outputs, where it is not float32.
ROUNDING = {"keywords-half": 2**-10}
_CACHE = {"dtype": "float32", "shape": ["batch", 4, "past", 8]}
MORE = {
    "decoder step": (
        "DecoderStep",
        {
            "token": {"dtype": "int64", "shape": ["batch", 1], "range": [0, 49]},
            "keys": _CACHE,
            "values": _CACHE,
        },
    ),
    "GRU": ("Gru", {"signal": "float32[batch, seq, 8]"}),
    "speech front end": ("SpeechFrontEnd", {"wave": "float32[batch, 640]"}),
    "graph network": (
        "GraphNetwork",
        {
            "nodes": "float32[nodes, 16]",
            "edges": {"dtype": "int64", "shape": [2, "edges"], "range": [0, "nodes - 1"]},
        },
    ),
    "embedding bag": (
        "Bag",
        {"words": {"dtype": "int64", "shape": ["batch", 6], "range": [0, 99]}},
    ),
}
# One size each, so that a runtime that converts for fixed sizes does so once.
SIZES = {"batch": 2, "seq": 16, "past": 5, "nodes": 9, "edges": 20, "height": 24, "width": 32}
DEFAULT = ("onnxruntime", "reference", "openvino", "opencv", "mnn", "ncnn")


def manifest(names: list[str], runtimes: list[str]) -> dict[str, Any]:
    """Return the manifest of the chosen models, all names for none, on the chosen runtimes."""
    whole = yaml.safe_load((EXAMPLES / "onnx-gate.yml").read_text())
    models: dict[str, Any] = {}
    for name, entry in whole["models"].items():
        models[name] = {k: v for k, v in entry.items() if k not in ("runtimes", "suites", "dims")}
    for name, (build, inputs) in MORE.items():
        models[name] = {"model": "architectures.py:build", "args": [build], "inputs": inputs}
    chosen = {name: models[name] for name in names or models}
    for entry in chosen.values():
        used = str(entry["inputs"])
        entry["dims"] = {name: [size] for name, size in SIZES.items() if name in used}
    return {
        "version": 1,
        "tolerances": whole["tolerances"],
        "suites": {"drawn": {"random": "normal", "count": 2}},
        "defaults": {**whole["defaults"], "runtimes": runtimes, "suites": ["drawn"]}
        | {"timeout": "15m"},
        "models": chosen,
    }


def rows(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one row for each model and runtime."""
    for model in report["models"]:
        for runtime in model["runtimes"]:
            checks = [c for c in model["checks"] if c["runtime"] == runtime["runtime"]]
            error = runtime["error"]
            worst = max(checks, key=lambda check: number(check["budget"]) or 0.0, default=None)
            diverged = [c["reason"] for c in checks if c["verdict"] == "diverged"]
            yield {
                "name": f"{model['name']} on {runtime['runtime']}",
                "model": model["name"],
                "stands for": STANDS_FOR.get(
                    model["name"], model["name"] * (model["name"] in MORE)
                ),
                "runtime": runtime["runtime"],
                "verdict": "error" if error else "diverged" if diverged else "pass",
                "units": max((u for u in map(_units, checks) if u is not None), default=None),
                "measure": (worst or {}).get("deviation"),
                "rounding": ROUNDING.get(model["name"], 2**-23),
                "seconds": runtime["seconds"],
                "why": (error["message"] if error else diverged[0] if diverged else "")[:300],
            }


def _units(check: dict[str, Any]) -> float | None:
    """Return the error in units of PyTorch's own rounding; ``None`` where that was not asked."""
    torch = number((check["metrics"] or {}).get("rounding"))
    deviation = check["deviation"] or {}
    own = number(deviation.get("value")) if deviation.get("measure") == "error" else None
    return own / torch if own is not None and torch else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, help="a folder for models and report")
    parser.add_argument("--report", type=Path, help="a report once more, without a run")
    parser.add_argument("--runtime", action="append", default=[], help=f"default: {DEFAULT}")
    parser.add_argument("--model", action="append", default=[], help="default: all")
    results.add_option(parser)
    options = parser.parse_args()
    report = read_report(options.report) if options.report else run(options)
    made = list(rows(report))
    for row in made:
        print(row["name"], row["verdict"], row["units"], row["measure"], row["seconds"], row["why"])
    if options.save:
        path = Path(__file__).with_suffix(".json")
        stored = json.loads(path.read_text())["runtimes"]["rows"] if path.exists() else []
        order = dict.fromkeys(row["name"] for row in [*stored, *made])
        results.save(__file__, "runtimes", results.merged(__file__, "runtimes", made, order))


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report of the chosen models on the chosen runtimes."""
    if options.output is None:
        raise SystemExit("runtimes.py: --output or --report is needed")
    output: Path = options.output.resolve()
    shutil.copytree(EXAMPLES, output, dirs_exist_ok=True)
    shutil.copy(HERE / "runtime_models" / "architectures.py", output / "architectures.py")
    wanted = manifest(options.model, options.runtime or list(DEFAULT))
    yaml.SafeDumper.ignore_aliases = lambda self, data: True  # type: ignore[method-assign]
    path = output / "onnx-gate.yml"
    path.write_text(yaml.dump(wanted, Dumper=yaml.SafeDumper, sort_keys=False))
    return run_gate(path, output / "report", "--no-cache", "--jobs", "1")


if __name__ == "__main__":
    main()
