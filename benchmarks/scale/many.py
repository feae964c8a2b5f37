"""Twenty small models: the gate, beside scripts that do them one after the other.

    python benchmarks/scale/many.py                            # five rounds; takes long
    python benchmarks/scale/many.py --rounds 1 --models 8

In every round, one after the other:

- *gate*: ``onnx-gate run``, one manifest, the suites that it takes by default (some twelve cases a
  model and the advice), as many workers as there are cores;
- *naive*: an interpreter per model: import, build, export, onnx.checker, a session, one random
  input for each of three sizes, assert_allclose;
- *verify=True*: an interpreter per model: import, build, ``torch.onnx.export(..., verify=True)``,
  which compares the exported program with ONNX Runtime on the example alone;
- *Polygraphy*: an interpreter per model: import, build, export, then Polygraphy's ``OnnxrtRunner``
  against PyTorch's outputs with ``Comparator.compare_accuracy``;
- *one process*: naive for all models in one interpreter, which is what a careful script would do
  (a model that exits or crashes ends it, and an export may spoil a later one).

Polygraphy is installed from PyPI into a folder of its own; where that fails it is left out, with the
reason. Optimum validates what it exports itself, which is models of the transformers library: none
of the twenty is one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.support import results
from benchmarks.support.gate import NETWORKS_FILE, read_report

SIZES = (1, 2, 7)

# Class, features of the input; four widths of each.
KINDS = {"Mlp": 16, "SmallConv": 1024, "SmallEncoder": 96, "Gated": 120}
WIDTHS = {"Mlp": (32, 64, 96, 128, 160), "SmallConv": (8, 16, 24, 32, 40)}
WIDTHS |= {"SmallEncoder": (16, 32, 48, 64, 80), "Gated": (16, 32, 48, 64, 80)}
MODELS = [(kind, WIDTHS[kind][place]) for place in range(5) for kind in KINDS]

COMMON = """\
import sys
import numpy as np
import torch
import networks

def one(kind, width, features):
    torch.manual_seed(0)
    model = getattr(networks, kind)(width).eval()
    path = f"{kind}{width}-script.onnx"
    rng = np.random.default_rng(0)
    dynamic = ({0: "batch"},)
    example = (torch.randn(5, features),)
"""

NAIVE = """\
    import onnx
    import onnxruntime
    with torch.no_grad():
        torch.onnx.export(model, example, dynamo=True, verbose=False, dynamic_shapes=dynamic).save(path)
    onnx.checker.check_model(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for size in (1, 2, 7):
        x = rng.standard_normal((size, features), dtype=np.float32)
        with torch.no_grad():
            expected = model(torch.from_numpy(x)).numpy()
        actual = session.run(None, {"x": x})[0]
        np.testing.assert_allclose(expected, actual, rtol=1e-3, atol=1e-5)
"""

VERIFY = """\
    with torch.no_grad():
        torch.onnx.export(
            model, example, path, dynamo=True, verbose=False, dynamic_shapes=dynamic, verify=True
        )
"""

POLYGRAPHY = """\
    from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
    from polygraphy.comparator import Comparator, CompareFunc, RunResults
    with torch.no_grad():
        torch.onnx.export(model, example, dynamo=True, verbose=False, dynamic_shapes=dynamic).save(path)
    feeds = [{"x": rng.standard_normal((size, features), dtype=np.float32)} for size in (1, 2, 7)]
    runner = OnnxrtRunner(SessionFromOnnx(path))
    results = Comparator.run([runner], data_loader=feeds)
    name = next(iter(results[0][1][0]))
    with torch.no_grad():
        said = [{name: model(torch.from_numpy(f["x"])).numpy()} for f in feeds]
    theirs = RunResults()
    theirs.add(said, runner_name="torch")
    results.extend(theirs)
    assert bool(Comparator.compare_accuracy(results, compare_func=CompareFunc.simple()))
"""

END = """
for text in sys.argv[1:]:
    kind, width, features = text.split(",")
    one(kind, int(width), int(features))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", type=int, default=len(MODELS))
    results.add_option(parser)
    arguments = parser.parse_args()
    models = MODELS[: arguments.models]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "networks.py").write_text(NETWORKS_FILE.read_text())
        (folder / "onnx-gate.yml").write_text(manifest(models))
        scripts = {"naive": NAIVE, "verify=True": VERIFY}
        library = folder / "polygraphy"
        trouble = install("polygraphy", library)
        if trouble:
            print(f"Polygraphy is left out: {trouble}")
        else:
            scripts["Polygraphy"] = POLYGRAPHY
        for script, body in scripts.items():
            (folder / f"{script}.py").write_text(COMMON + body + END)
        took: dict[str, list[float]] = {n: [] for n in ("gate", *scripts, "one process")}
        words = [f"{kind},{width},{KINDS[kind]}" for kind, width in models]
        environment = {**os.environ, "PYTHONPATH": str(library)}
        for _ in range(arguments.rounds):
            took["gate"].append(seconds([gate(folder)], folder, environment))
            for script in scripts:
                commands = [[sys.executable, f"{script}.py", word] for word in words]
                took[script].append(seconds(commands, folder, environment))
            command = [sys.executable, "naive.py", *words]
            took["one process"].append(seconds([command], folder, environment))
        report = read_report(folder / "out" / "report.json")
    passed = report["counts"]["pass"]
    checks = sum(len(model["checks"]) for model in report["models"])
    print(
        f"{len(models)} models ({passed} pass, {checks} checks), medians of {arguments.rounds} "
        f"rounds, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    kept = []
    for row, times in took.items():
        ratio = statistics.median(g / t for g, t in zip(took["gate"], times, strict=True))
        print(f"  {row:12s} {statistics.median(times):7.1f} s   gate / this {ratio:5.2f}")
        kept.append({"what": row, "seconds": statistics.median(times), "gate / this": ratio})
    if arguments.save:
        results.save(__file__, "many", kept)
    print("target: gate / naive at most 0.35, and below 1 against the others")


def manifest(models: list[tuple[str, int]]) -> str:
    lines = ["version: 1", "models:"]
    for kind, width in models:
        lines += [
            f"  {kind}{width}:",
            f"    model: networks.py:{kind}",
            f"    args: [{width}]",
            f"    inputs: {{x: 'float32[batch, {KINDS[kind]}]'}}",
        ]
    return "\n".join(lines) + "\n"


def gate(folder: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "onnx_gate", "run"),
        *("--manifest", str(folder / "onnx-gate.yml"), "--output", str(folder / "out")),
    ]


def install(package: str, folder: Path) -> str:
    """Install ``package`` into ``folder``; return why not, or ''."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--target", str(folder), package]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def seconds(commands: list[list[str]], folder: Path, environment: dict[str, str]) -> float:
    begin = time.perf_counter()
    for command in commands:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            raise SystemExit(done.stdout.decode(errors="replace")[-3000:])
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
