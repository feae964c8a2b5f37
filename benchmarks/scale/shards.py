"""Many models in shards: is the merged report the unsharded one, and are the shards of a length?

Generates small networks of several kinds and depths (one of which cannot be exported, and one of
which is held to a tolerance that it cannot meet), verifies them all at once, plans shards by what
that took, verifies the shards one after another on this machine, merges their reports, and compares
the result with the first. Exits 1 where they differ in more than times.

    python benchmarks/scale/shards.py --models 200 --shards 8
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.support import results
from benchmarks.support.gate import ROOT, read_report, run_gate

SOURCE = """
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return x + self.out(torch.softmax(q @ k.transpose(-1, -2) / 4, dim=-1) @ v)


class NoExport(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


def linear(depth):
    return nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(16, 16), nn.GELU())))


def conv(depth):
    layers = (nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
    return nn.Sequential(*(layer for _ in range(depth) for layer in layers))


def attention(depth):
    return nn.Sequential(*(Attention(16) for _ in range(depth)))


def norm(depth):
    layers = (nn.LayerNorm(16), nn.Linear(16, 16), nn.Tanh())
    return nn.Sequential(*(layer for _ in range(depth) for layer in layers))
"""
INPUTS = {
    "linear": "float32[batch, 16]",
    "conv": "float32[batch, 4, 8, 8]",
    "attention": "float32[batch, 8, 16]",
    "norm": "float32[batch, 16]",
}
DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16)
TIMES = ("seconds", "peak_memory", "stages", "created")


def main() -> None:
    """Run the comparison and print its figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--output", type=Path, help="keep the reports in this folder")
    results.add_option(parser)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onnx-gate-shards-") as temporary:
        folder = given.output or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        sys.exit(0 if measure(write(folder, given.models), folder, given) else 1)


def write(folder: Path, count: int) -> Path:
    """Write ``count`` models and their manifest."""
    (folder / "nets.py").write_text(SOURCE)
    kinds = list(INPUTS)
    models: dict[str, Any] = {}
    for place in range(count - 2):
        kind, depth = kinds[place % len(kinds)], DEPTHS[place * 5 // len(kinds) % len(DEPTHS)]
        models[f"{kind}-{depth}-{place}"] = {
            "model": f"nets.py:{kind}",
            "args": [depth],
            "inputs": {"input": INPUTS[kind]},
            "seed": place,
        }
    exact = {"model": "nets.py:linear", "args": [4], "inputs": {"input": INPUTS["linear"]}}
    models["held-too-close"] = {**exact, "tolerance": {"atol": 1e-12, "rtol": 0}}
    models["not-exported"] = {"model": "nets.py:NoExport", "inputs": {"x": "float32[batch, 16]"}}
    manifest = folder / "onnx-gate.yml"
    manifest.write_text(json.dumps({"version": 1, "models": models}, indent=1))
    return manifest


def measure(manifest: Path, folder: Path, given: argparse.Namespace) -> bool:
    """Verify all at once and in shards, print what came out; say whether it is the same."""
    shards = given.shards
    whole = run_gate(manifest, folder / "whole")
    durations = ("--durations", str(folder / "whole/report.json"))
    planned = command("plan", "--manifest", str(manifest), "--shards", str(shards), *durations)
    parts, cpu = [], []
    for index, shard in enumerate(json.loads(planned)["shard"], 1):
        before = os.times()
        parts.append(run_gate(manifest, folder / f"parts/{index}", "--shard", shard))
        after = os.times()
        cpu.append(sum(after[2:4]) - sum(before[2:4]))
    merged_folder = folder / "merged"
    command(
        *("merge", str(folder / "parts"), "--manifest", str(manifest)),
        *("--output", str(merged_folder)),
    )
    merged = read_report(merged_folder / "report.json")

    expected = {model["name"]: model["seconds"] for model in whole["models"]}
    plan = [sum(expected[model["name"]] for model in part["models"]) for part in parts]
    work = [sum(model["seconds"] for model in part["models"]) for part in parts]
    clock = [part["seconds"] for part in parts]
    print(f"\n{len(expected)} models, {len(parts)} shards; {whole['counts']}")
    print(
        f"all at once: {whole['seconds']:.1f} s on the clock, {sum(expected.values()):.1f} s of work"
    )
    for name, values in (
        ("as planned", plan),
        ("work measured", work),
        ("CPU time", cpu),
        ("on the clock", clock),
    ):
        shown = " ".join(f"{value:.1f}" for value in values)
        print(f"{name:>14}: longest / mean {max(values) / mean(values):.3f}  ({shown})")
    automatic = json.loads(command("plan", "--manifest", str(manifest), *durations))["shard"]
    print(f"auto plans {len(automatic)} shards")

    differences = list(apart(bare(whole), bare(merged)))
    for line in differences[:20]:
        print(f"differs: {line}")
    checks = sum(len(model["checks"]) for model in merged["models"])
    print(f"merged against unsharded: {len(differences)} differences in {checks} checks")
    if given.save:
        row: dict[str, float] = {"models": len(expected), "shards": len(parts), "checks": checks}
        row |= {"seconds at once": whole["seconds"], "seconds of work": sum(expected.values())}
        row |= {"longest / mean, planned": max(plan) / mean(plan)}
        row |= {"longest / mean, measured": max(work) / mean(work)}
        row |= {"longest / mean, CPU": max(cpu) / mean(cpu), "differences": len(differences)}
        results.save(__file__, "shards", [row])
    return not differences


def command(*arguments: str) -> str:
    """What a command of the gate prints; its exit status is the verdict's, and not looked at."""
    line = [sys.executable, "-m", "onnx_gate", *arguments]
    return subprocess.run(line, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True).stdout


def bare(data: Any) -> Any:
    """A report without its times."""
    if isinstance(data, dict):
        return {key: bare(value) for key, value in data.items() if key not in TIMES}
    return [bare(each) for each in data] if isinstance(data, list) else data


def apart(one: Any, other: Any, path: str = "report") -> Any:
    """Every place at which two pieces of data differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from apart(one.get(key), other.get(key), f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (mine, its) in enumerate(zip(one, other, strict=True)):
            yield from apart(mine, its, f"{path}[{place}]")
    elif json.dumps(one) != json.dumps(other):  # in which a NaN is a NaN
        yield f"{path}: {str(one)[:100]} and {str(other)[:100]}"


if __name__ == "__main__":
    main()
