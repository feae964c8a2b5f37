"""Twenty models with a cache: nothing kept, one model changed, nothing changed.

Copies one network of ``networks.py`` into a file of its own for each model, so that each can be
changed by itself, and takes the wall time of ``onnx-gate run --cache``, a process each: cold (an empty
cache), with one file changed, and with none. One round after the other; the medians and their ratios
are printed. For each run it is seen whether any process of it imported torch.

    python benchmarks/scale/cached.py --rounds 5
    python benchmarks/scale/cached.py --rounds 5 --small     # networks of a few layers
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.support import results
from benchmarks.support.gate import NETWORKS_FILE, read_report

MANIFEST_ENTRY = """
  m{number}:
    model: models/m{number}.py:build
    inputs: {inputs}
    dims: {dims}
"""
SMALL = """
from torch import nn


def build():
    layers = (nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32))
    return nn.Sequential(*(layer for _ in range({depth}) for layer in layers))
"""
SMALL_INPUTS = ('{input: "float32[batch, 32]"}', "{batch: [1, 2, 8]}")
LARGE_INPUTS = ('{image: "float32[batch, 3, 224, 224]"}', "{batch: [1, 2]}")
WITNESS = """
import os, sys
class Witness:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            open(os.environ["ONNX_GATE_WITNESS"], "w").close()
        return None
sys.meta_path.insert(0, Witness())
"""


def write(folder: Path, count: int, *, small: bool) -> None:
    """Write a repository of ``count`` models."""
    (folder / "models").mkdir()
    inputs, dims = SMALL_INPUTS if small else LARGE_INPUTS
    networks = NETWORKS_FILE.read_text()
    entries = []
    for number in range(count):
        text = SMALL.replace("{depth}", str(2 + number % 4))
        if not small:
            text = networks + "\n\ndef build():\n    return ResNet18()\n"
        (folder / "models" / f"m{number}.py").write_text(text)
        entries.append(MANIFEST_ENTRY.format(number=number, inputs=inputs, dims=dims))
    manifest = "version: 1\nmodels:" + "".join(entries)
    (folder / "onnx-gate.yml").write_text(manifest)


def run(folder: Path, site: Path) -> tuple[float, int, bool]:
    """Return the wall time, the number of verdicts from the cache, and whether torch was imported."""
    witness = site / "witness"
    witness.unlink(missing_ok=True)
    environment = os.environ | {"PYTHONPATH": str(site), "ONNX_GATE_WITNESS": str(witness)}
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "onnx_gate", "run", "--cache", "cache"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    report = read_report(folder / "onnx-gate-report" / "report.json")
    return seconds, sum(model["cached"] for model in report["models"]), witness.exists()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="networks of a few layers")
    results.add_option(parser)
    arguments = parser.parse_args()
    taken: dict[str, list[float]] = {"cold": [], "one changed": [], "none changed": []}
    with tempfile.TemporaryDirectory() as top:
        site = Path(top, "site")
        site.mkdir()
        (site / "sitecustomize.py").write_text(WITNESS)
        for number in range(arguments.rounds):
            folder = Path(top, f"round{number}")
            folder.mkdir()
            write(folder, arguments.models, small=arguments.small)
            for name, expected in (("cold", 0), ("one changed", 1), ("none changed", 0)):
                if name == "one changed":
                    file = folder / "models" / f"m{number % arguments.models}.py"
                    file.write_text(file.read_text() + "\n# changed\n")
                seconds, cached, imported = run(folder, site)
                kept = arguments.models - expected if name != "cold" else 0
                if cached != kept:
                    raise SystemExit(f"{name}: {cached} verdicts from the cache, not {kept}")
                taken[name].append(seconds)
                print(
                    f"round {number + 1}: {name:12} {seconds:7.2f} s, {cached:2} from the cache, "
                    f"torch {'imported' if imported else 'not imported'}",
                    flush=True,
                )
    cold = median(taken["cold"])
    print(f"\nmedians of {arguments.rounds}, {arguments.models} models:")
    for name, values in taken.items():
        print(f"  {name:12} {median(values):7.2f} s  {median(values) / cold:.3f} of cold")
    if arguments.save:
        kept = [
            {"what": n, "seconds": median(v), "of cold": median(v) / cold} for n, v in taken.items()
        ]
        results.save(__file__, "small" if arguments.small else "cached", kept)


if __name__ == "__main__":
    main()
