"""A machine without PyTorch on examples and small architectures, held against PyTorch's answers.

    python benchmarks/accuracy/devices.py --write DIR                # where PyTorch is
    python benchmarks/accuracy/devices.py --against DIR --device cuda [--output DIR] [--save]

The first call writes every model's file with PyTorch's answers; the second one needs neither torch
nor what the models import. Each model runs in float32, in TF32 (CUDA alone has that) and, as another
file, in float16. A row has the verdict, the largest share of the tolerance that was used, and the nodes
that ran elsewhere. The rows are printed as one JSON table.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.support import results  # noqa: E402
from benchmarks.support.gate import number, read_report  # noqa: E402

EXAMPLES = ROOT / "examples"
HALF = "-float16"
# Of the corpus of correct models: one for each kind of network that people put on a device.
CHOSEN = (
    "conv2d_groups",
    "conv3d",
    "conv_transpose2d",
    "gru",
    "lstm",
    "transformer_encoder",
    "unet",
    "squeeze_excite",
    "temporal_conv",
    "mixture_of_experts",
    "state_space",
    "generator",
    "hf_bert",
    "hf_roberta",
    "hf_distilbert",
    "hf_electra",
    "hf_deberta",
    "hf_t5",
    "hf_gpt2",
    "hf_llama",
    "hf_qwen3",
    "hf_gemma",
    "hf_phi",
    "hf_vit",
    "hf_deit",
    "hf_dinov2",
    "hf_convnext",
    "hf_segformer",
)
# Large enough for products to be made by the units that shorten them.
_WIDE = {"hidden_size": 128, "intermediate_size": 512}
_WIDER = {
    "hf_bert": _WIDE,
    "hf_roberta": _WIDE,
    "hf_distilbert": {"dim": 128, "hidden_dim": 512},
    "hf_electra": _WIDE,
    "hf_deberta": _WIDE,
    "hf_t5": {"d_model": 128, "d_kv": 32, "d_ff": 512},
    "hf_gpt2": {"n_embd": 128},
    "hf_llama": _WIDE,
    "hf_qwen3": {**_WIDE, "head_dim": 32},
    "hf_gemma": {**_WIDE, "head_dim": 32},
    "hf_phi": _WIDE,
    "hf_vit": _WIDE,
    "hf_deit": _WIDE,
    "hf_dinov2": _WIDE,
}
_SIZES = {"batch": [1, 3], "seq": [16, 61], "target": [9]}
_HALF_SOURCE = '''"""A module of another file in half precision."""

import importlib


def build(module, attribute, *args, **kwargs):
    return getattr(importlib.import_module(module), attribute)(*args, **kwargs).half()
'''


def manifest() -> dict[str, Any]:
    """Return the manifest of all models, each in float32 and in float16."""
    whole = yaml.safe_load((HERE / "correct" / "onnx-gate.yml").read_text())["models"]
    models: dict[str, Any] = {}
    for name in CHOSEN:
        entry = dict(whole[name])
        if name in _WIDER:
            entry["kwargs"] = {**entry.get("kwargs", {}), **_WIDER[name]}
        used = str(entry["inputs"])
        entry["dims"] = {dim: sizes for dim, sizes in _SIZES.items() if dim in used}
        models[name] = entry
        module, _, attribute = entry["model"].partition(".py:")
        models[name + HALF] = {
            **entry,
            "model": "half.py:build",
            "args": [module, attribute, *entry.get("args", [])],
            "inputs": {n: _half(each) for n, each in entry["inputs"].items()},
        }
    suites = {"drawn": {"random": "normal", "count": 2}}
    return {"version": 1, "suites": suites, "defaults": {"suites": ["drawn"]}, "models": models}


def _half(entry: Any) -> Any:
    if isinstance(entry, str):
        return entry.replace("float32", "float16")
    return {**entry, "dtype": str(entry["dtype"]).replace("float32", "float16")}


def write(folder: Path) -> None:
    """Write the answers of the examples and of the chosen models."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = folder / "sources"
    shutil.copytree(HERE / "correct", sources, dirs_exist_ok=True)
    (sources / "half.py").write_text(_HALF_SOURCE)
    yaml.SafeDumper.ignore_aliases = lambda self, data: True  # type: ignore[method-assign]
    path = sources / "onnx-gate.yml"
    path.write_text(yaml.dump(manifest(), Dumper=yaml.SafeDumper, sort_keys=False))
    for name, source in (("models", path), ("examples", EXAMPLES / "onnx-gate.yml")):
        _gate(
            *("--manifest", source, "--answers", folder / name, "--no-cache"),
            *("--output", folder / f"{name}-report"),
        )


def against(folder: Path, device: str, output: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each model, in each precision that the device has."""
    ways = {"float32": f"onnxruntime:{device}[strict=0]"}
    if device == "cuda":
        ways["TF32"] = "onnxruntime:cuda[strict=0,use_tf32=1]"
    if device == "cpu":
        ways["float32"] = "onnxruntime"
    for name in ("examples", "models"):
        for precision, runtime in ways.items() if (folder / name / "report.json").exists() else ():
            to = output / f"{name}-{precision}"
            _gate("--against", folder / name, "--runtime", runtime, "--output", to)
            report = read_report(to / "report.json")
            for model in report["models"]:
                half = model["name"].endswith((HALF, "-half"))
                if not half:
                    yield _row(model, precision)
                elif precision == "float32":
                    yield _row(model, "float16")


def _row(model: dict[str, Any], precision: str) -> dict[str, Any]:
    checks = [c for c in model["checks"] if not c["advice"]]
    shares = [s for c in checks if (s := number(c["budget"])) is not None]
    diverged = [c["reason"] for c in checks if c["verdict"] == "diverged"]
    placed = [f["data"] for f in model["findings"] if f["code"] == "OG309"]
    error = model["error"]
    name = model["name"].removesuffix(HALF)
    return {
        "name": f"{name} in {precision}",
        "model": name,
        "precision": precision,
        "verdict": model["verdict"],
        "checks": len(checks),
        # None where whole numbers differ, of which there is no share.
        "share": max(shares, default=None) if all(map(math.isfinite, shares)) else None,
        "elsewhere": {k: v for each in placed for k, v in each.get("elsewhere", {}).items()},
        "nodes": (model["export"] or {}).get("nodes"),
        "why": (error["message"] if error else diverged[0] if diverged else "")[:300],
    }


def _gate(*arguments: object) -> None:
    command = [sys.executable, "-m", "onnx_gate", "run", *map(str, arguments), "--format", "json"]
    status = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    if status not in (0, 1):
        raise SystemExit(f"onnx-gate ended with status {status}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", type=Path, help="a folder for the answers")
    parser.add_argument("--against", type=Path, help="the folder, elsewhere")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, tensorrt, ...")
    parser.add_argument("--output", type=Path, default=Path("devices-report"))
    results.add_option(parser)
    options = parser.parse_args()
    if options.write:
        write(options.write.resolve())
        return
    rows = list(against(options.against.resolve(), options.device, options.output.resolve()))
    reports = sorted(options.output.resolve().glob("*/report.json"))
    environment = read_report(reports[0])["environment"] if reports else {}
    print(
        json.dumps({"device": options.device, "environment": environment, "rows": rows}, indent=1)
    )
    if options.save:
        answered = read_report(options.against / "models" / "report.json")["environment"]
        here = {name: environment[name] for name in ("onnxruntime", "onnx", "numpy")}
        results.save(
            __file__,
            options.device,
            rows,
            device=environment["gpu"] or environment["machine"],
            versions={"torch": answered["torch"], **here},
        )


if __name__ == "__main__":
    main()
