"""What the gate costs for one model, beside the bare work and beside a script that compares.

    python benchmarks/cost/overhead.py                       # five rounds of everything
    python benchmarks/cost/overhead.py --rounds 1 --only resnet18
    python benchmarks/cost/overhead.py --overlap             # would it help to run both sides at once?

Three programs do the same model in turn, each in an interpreter of its own, in every round:

- *bare*: import, build, export, open a session, run both sides once per case; compare nothing;
- *naive*: the same with PyTorch's tutorial in it: the exported file is checked with onnx.checker
  and the outputs are compared with numpy.testing.assert_allclose (rtol 1e-3, atol 1e-5);
- *gate*: ``onnx-gate run``.

The gate runs three times: with one random case for each size (``sizes``), with the suites that it
takes by default (``default``), and again with these against scripts that run one case for each size
(``three``: the target is 1.25 times bare). In the first two the scripts run as many cases of the same
sizes as the gate. Below
the ratios stands what the gate does beyond that. Wall time is what a user waits for; processor time
(user and system, of all processes) says the same where other programs use the machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support import results
from benchmarks.support.gate import NETWORKS_FILE, read_report

SUITES = ("sizes", "default", "three")

NETWORKS = {
    "resnet18": {
        "target": "ResNet18",
        "input": "image",
        "entry": "float32[batch, 3, 224, 224]",
        "shape": "({0}, 3, 224, 224)",
        "dims": "batch: [1, 2, 8]",
        "sizes": "1 2 8",
        "dynamic": '{"image": {0: "batch"}}',
        "draw": "rng.standard_normal(shape, dtype=np.float32)",
    },
    "bert": {
        "target": "Bert",
        "input": "tokens",
        "entry": "{dtype: int64, shape: [1, seq], range: [0, 30521]}",
        "shape": "(1, {0})",
        "dims": "seq: [16, 64, 128]",
        "sizes": "16 64 128",
        "dynamic": '{"tokens": {1: "seq"}}',
        "draw": "rng.integers(0, 30522, shape)",
    },
    "wide": {
        "target": "Wide",
        "input": "x",
        "entry": "float32[batch, 4096]",
        "shape": "({0}, 4096)",
        "dims": "batch: [1, 2, 8]",
        "sizes": "1 2 8",
        "dynamic": '{"x": {0: "batch"}}',
        "draw": "rng.standard_normal(shape, dtype=np.float32)",
    },
}

MANIFEST = """\
version: 1
dims: {{{dims}}}
suites:
  sizes: {{random: normal, count: 1}}
models:
  {name}:
    model: networks.py:{target}
    inputs:
      {input}: {entry}
"""

SCRIPT = """\
import sys
import numpy as np
import torch
import onnxruntime
{imports}
from networks import {target}

path, example, sizes = sys.argv[1], int(sys.argv[2]), [int(a) for a in sys.argv[3:]]
rng = np.random.default_rng(0)

def draw(size):
    shape = {draw_shape}
    return {draw}

torch.manual_seed(0)
model = {target}().eval()
weights = sum(p.numel() * p.element_size() for p in model.parameters())
with torch.no_grad():
    program = torch.onnx.export(
        model, (), kwargs={{"{input}": torch.from_numpy(draw(example))}}, dynamo=True,
        verbose=False, dynamic_shapes={dynamic},
    )
    program.save(path, external_data=weights > 256 * 2**20)
{check}
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
for size in sizes:
    x = draw(size)
    with torch.no_grad():
        expected = model(torch.from_numpy(x))
    actual = session.run(None, {{"{input}": x}})
{compare}
"""

COMPARE = """\
    expected = expected if isinstance(expected, tuple) else (expected,)
    for e, a in zip(expected, actual):
        np.testing.assert_allclose(e.numpy(), a, rtol=1e-3, atol=1e-5)
"""

WORK = {
    "bare": "import torch, onnxruntime and the exporter; build; export and save; one session; one "
    "forward of each side per case",
    "naive": "bare, and: onnx.checker; assert_allclose per output",
    "gate": "bare, and: the command line, reading the manifest, a fork server, a worker; the model "
    "called three times on the export's example (does it agree with itself, did the export change "
    "it); onnx.checker, shape inference, the graph's findings; every output compared with PyTorch "
    "and, beyond a floor, with the model in float64 (a forward of its own); a second session "
    "without optimisations on the first case; the report in two formats",
    "default": "gate, and: advice (large, NaN, infinite inputs on both sides, in a fork)",
}


@dataclass(frozen=True)
class Took:
    """Seconds of one program: on the clock, and of the processors."""

    wall: float
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=NETWORKS)
    parser.add_argument("--suite", choices=SUITES)
    parser.add_argument("--overlap", action="store_true", help="only: both sides at once")
    parser.add_argument("--spin", action="store_true", help="with --overlap: threads wait in loops")
    results.add_option(parser)
    arguments = parser.parse_args()
    if not arguments.spin:  # as the gate's workers do; before anything loads OpenMP
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    if arguments.overlap:
        print_environment()
        overlap(arguments.rounds, spin=arguments.spin)
        return
    os.environ.pop("OMP_WAIT_POLICY", None)
    print_environment()
    for name in NETWORKS:
        if arguments.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                measure(name, Path(folder), arguments)
    print("\nwhat each does")
    for name, work in WORK.items():
        print(f"  {name:8s} {work}")


def measure(name: str, folder: Path, arguments: argparse.Namespace) -> None:
    rounds, only = arguments.rounds, arguments.suite
    network = NETWORKS[name]
    (folder / "networks.py").write_text(NETWORKS_FILE.read_text())
    plain = MANIFEST.format(name=name, **network)
    (folder / "default.yml").write_text(plain)
    (folder / "sizes.yml").write_text(plain + "    suites: [sizes]\n")
    for script, check, compare in (
        ("bare", "", ""),
        ("naive", "onnx.checker.check_model(path)", COMPARE),
    ):
        text = SCRIPT.format(
            imports="import onnx" if check else "",
            check=check,
            compare=compare,
            draw_shape=network["shape"].format("size"),
            **{key: network[key] for key in ("target", "input", "dynamic", "draw")},
        )
        (folder / f"{script}.py").write_text(text)
    for suite in (only,) if only else SUITES:
        took: dict[str, list[Took]] = {"bare": [], "naive": [], "gate": []}
        file = "sizes.yml" if suite == "sizes" else "default.yml"
        example, sizes, stages, spent = "5", [], {}, 0.0
        if suite == "three":
            sizes = network["sizes"].split()
        for turn in range(rounds + 1):
            gate = [sys.executable, "-m", "onnx_gate", "run", "--output", str(folder / "out")]
            took["gate"].append(run([*gate, "--manifest", file], folder))
            report = read_report(folder / "out" / "report.json")
            model = report["models"][0]
            assert model["verdict"] == "pass", model
            sizes = sizes or cases(model)
            for script in ("bare", "naive"):
                command = [sys.executable, f"{script}.py", "model.onnx", example, *sizes]
                took[script].append(run(command, folder))
            if turn == 0:  # the first round fills caches
                for each in took.values():
                    each.clear()
                continue
            for stage in model["stages"]:
                stages.setdefault(stage["name"], []).append(stage["seconds"])
            spent += took["gate"][-1].wall
        show(name, suite, sizes, took, stages)
        if arguments.save:
            results.save(__file__, f"{name}, {suite}", rows(took, sizes, stages))


def overlap(rounds: int, *, spin: bool) -> None:
    """Both sides of ten cases of ResNet-18 in turn, and PyTorch a case ahead in a thread of its own."""
    import numpy as np
    import onnxruntime
    import torch

    from benchmarks.support.networks import ResNet18

    module = ResNet18().eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = str(Path(folder) / "model.onnx")
        shapes = ({0: "batch"},)
        torch.onnx.export(
            module,
            (torch.randn(3, 3, 224, 224),),
            dynamo=True,
            verbose=False,
            dynamic_shapes=shapes,
        ).save(path)  # type: ignore[union-attr]
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spin)))
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    xs = [np.random.default_rng(n).random((4, 3, 224, 224), np.float32) for n in range(10)]

    def expected(x: np.ndarray) -> torch.Tensor:
        with torch.no_grad():
            return module(torch.from_numpy(x))

    def in_turn() -> None:
        for x in xs:
            expected(x)
            session.run(None, {"image": x})

    def ahead() -> None:
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(expected, xs[0])
            for place, x in enumerate(xs):
                coming.result()
                if place + 1 < len(xs):
                    coming = pool.submit(expected, xs[place + 1])
                session.run(None, {"image": x})

    took: dict[str, list[float]] = {"in turn": [], "ahead": []}
    for _ in range(rounds + 1):
        for name, way in (("in turn", in_turn), ("ahead", ahead)):
            begin = time.perf_counter()
            way()
            took[name].append(time.perf_counter() - begin)
    ratios = [a / b for a, b in zip(took["ahead"][1:], took["in turn"][1:], strict=True)]
    for name, seconds in took.items():
        print(f"  {name:8s} {median(seconds[1:]):.2f} s")
    print(f"  a case ahead takes {median(ratios):.2f} of the time in turn")


def cases(model: dict) -> list[str]:
    """The size of each case that the gate ran (and counts)."""
    sizes = {c["case"]: c["sizes"] for c in model["checks"] if not c["advice"]}
    return [str(size) for case in sorted(sizes) for size in sizes[case].values()]


def run(command: list[str], folder: Path) -> Took:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stdout.decode(errors="replace"))
    return Took(wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def rows(
    took: dict[str, list[Took]], sizes: list[str], stages: dict[str, list[float]]
) -> list[dict[str, object]]:
    """What to keep of a network and a suite: medians, and ratios of the same round."""
    gate, bare, naive = took["gate"], took["bare"], took["naive"]
    return [
        {
            "cases": len(sizes),
            **{name: median(t.wall for t in all_took) for name, all_took in took.items()},
            "gate / bare": median(g.wall / b.wall for g, b in zip(gate, bare, strict=True)),
            "gate / naive": median(g.wall / n.wall for g, n in zip(gate, naive, strict=True)),
            "cpu, gate / bare": median(g.cpu / b.cpu for g, b in zip(gate, bare, strict=True)),
            "rounds": len(gate),
            "stages": {stage: median(seconds) for stage, seconds in stages.items()},
        }
    ]


def show(
    name: str,
    suite: str,
    sizes: list[str],
    took: dict[str, list[Took]],
    stages: dict[str, list[float]],
) -> None:
    print(f"\n{name}, {suite}: {len(sizes)} cases of sizes {' '.join(sizes)}")
    print(f"  {'':6s} {'wall':>7s} {'/ bare':>7s} {'/ naive':>8s} {'cpu':>7s} {'/ bare':>7s}")
    for program, all_took in took.items():
        pairs = list(zip(all_took, took["bare"], took["naive"], strict=True))
        print(
            f"  {program:6s} {median(t.wall for t in all_took):7.2f}"
            f" {median(t.wall / b.wall for t, b, _ in pairs):7.2f}"
            f" {median(t.wall / n.wall for t, _, n in pairs):8.2f}"
            f" {median(t.cpu for t in all_took):7.2f}"
            f" {median(t.cpu / b.cpu for t, b, _ in pairs):7.2f}"
        )
    parts = ", ".join(f"{stage} {median(times):.2f}" for stage, times in stages.items())
    print(f"  the gate's stages: {parts}")


def median(values: object) -> float:
    return statistics.median(values)  # type: ignore[arg-type]


def print_environment() -> None:
    import onnxruntime
    import torch

    print(
        f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
