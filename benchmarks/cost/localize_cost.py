"""What localising costs: time at BERT-base's size, memory at a gigabyte of weights.

    python benchmarks/cost/localize_cost.py time [--rounds 5] [--torch] [--polygraphy FOLDER]
    python benchmarks/cost/localize_cost.py memory [--gibibytes 1] [--limit-gibibytes 6] [--file]

``time``: *one verification* exports the module, opens a session in ONNX Runtime, runs both sides on
the case's inputs and compares every output; the gate's own does more (several cases, a float64
reference). Every row runs in a fork with the imports done, on one thread, once a round; the table
has medians and ratios to the verification of the same round, in seconds of the wall clock and of
processor time. torch's and Polygraphy's rows run in the first round only.
``--polygraphy`` is a folder for PYTHONPATH (``pip install --target FOLDER polygraphy``).

``memory``: the gate's verification of one diverging model, each in a process of its own, without
and with the diagnosis; the proportional set size of the process and its forks, sampled. A custom
exporter's GELU is wrong; with ``--file`` a weight of a committed file, all values renamed.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import torch
from torch.onnx import verification

from benchmarks.accuracy.diagnose_cases import graphs, large
from benchmarks.support import results
from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.diagnose import diagnose, explain
from onnx_gate.diagnose.localize.localize import localize
from onnx_gate.diagnose.trace.record_export import silence_exporters
from onnx_gate.manifest import ExportSpec, InputSpec, ModelSpec, RuntimeSpec, load
from onnx_gate.numerics.compare import compare
from onnx_gate.report.model import Check
from onnx_gate.report.model.diagnosis import GraphNode
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.open import open_session
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.context import Context
from onnx_gate.verify.export.export import export
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.inspect.inspect import join_inputs
from onnx_gate.verify.subject import Subject
from onnx_gate.verify.verify import verify
from onnx_gate.workers.forked import run_forked

HERE = Path(large.__file__).resolve().parent
ORT = RuntimeSpec("onnxruntime")
WORDS = 30522
Seconds = dict[str, tuple[float, float]]


class Watch:
    """Seconds of the wall clock and of the processor, the children's included, by name."""

    def __init__(self) -> None:
        self.rows: Seconds = {}

    def time(self, name: str, work: Callable[[], Any]) -> Any:
        wall, used = time.perf_counter(), _processor()
        found = work()
        self.rows[name] = (time.perf_counter() - wall, _processor() - used)
        return found


def _processor() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


# -- time


class Bench:
    """The model, the case's inputs and the faulty files."""

    def __init__(self, folder: Path, layers: int, length: int) -> None:
        self.folder, self.layers = folder, layers
        torch.manual_seed(0)
        self.eager = Eager(large.Bert(layers).eval(), ("tokens",))
        random = np.random.default_rng(0)
        self.arrays: dict[str, Array] = {"tokens": random.integers(0, WORDS, (1, length))}
        self.clean, self.custom, self.file, self.product = (
            folder / name / "model.onnx" for name in ("clean", "custom", "file", "product")
        )
        for path in (self.clean, self.custom, self.file, self.product):
            path.parent.mkdir()
        run_forked(self._write, 600)

    def _write(self) -> dict[str, Any]:
        example = {name: torch.from_numpy(array) for name, array in self.arrays.items()}
        with silence_exporters():
            large.one_gelu_tanh(self.eager.module, example, self.custom)
        clean = graphs.attribute("Gelu", self.layers // 2, approximate=None)
        save(onnx.load(str(self.custom)), self.clean, clean)
        renamed = graphs.several(graphs.strip, graphs.rename)
        save(onnx.load(str(self.custom)), self.file, renamed)
        wrong = graphs.constant("MatMul", 4 * self.layers, 1, lambda a: a * np.float32(1.001))
        save(onnx.load(str(self.clean)), self.product, graphs.several(wrong, renamed))
        return {"done": True}

    def subject(self, exported: Exported, exporter: str) -> Subject:
        """The diverged check of the first output."""
        spec = self.spec(exporter)
        scratch = Path(tempfile.mkdtemp(dir=self.folder))
        return Subject(
            spec=spec,
            eager=self.eager,
            exported=exported,
            graph_inputs=join_inputs(spec, exported),
            arrays=self.arrays,
            output=0,
            runtime=ORT,
            check=Check(
                runtime=ORT.label,
                suite="typical",
                case="typical/0",
                output="hidden",
                verdict="diverged",
            ),
            workspace=HERE,
            folder=scratch / "scratch",
            repro=scratch / "repro",
            memory=2**30,
        )

    def spec(self, exporter: str) -> ModelSpec:
        return ModelSpec(
            name="bert",
            model="large.py:Bert",
            inputs={"tokens": InputSpec("int64", self.arrays["tokens"].shape, (0, WORDS - 1))},
            outputs=dict.fromkeys(("hidden", "pooled")),
            export=ExportSpec(exporter, None),
        )

    def known(self, path: Path, exporter: str) -> Subject:
        """The check of a file that is there already."""
        proto = onnx.load(str(path), load_external_data=False)
        return self.subject(Exported(path, exporter, proto), exporter)

    # Each of these runs in a fork.

    def verification(self) -> Seconds:
        """Export, session, both forward passes, comparison; then localise a fault seeded into it."""
        watch = Watch()
        folder = Path(tempfile.mkdtemp(dir=self.folder))

        def whole() -> Exported:
            with silence_exporters():
                exported = watch.time(
                    "export",
                    lambda: export(self.spec("dynamo"), self.eager, self.arrays, HERE, folder),
                )
            session = open_session(exported.path, ORT, 1)
            joined = join_inputs(self.spec("dynamo"), exported)
            actual = session.run({joined[name]: array for name, array in self.arrays.items()})
            expected = self.eager.run(self.arrays).arrays
            for a, e in zip(actual, expected, strict=True):
                assert compare(a, e).max_abs < 1e-3
            return exported

        exported: Exported = watch.time("verification", whole)
        proto = onnx.load(str(exported.path), load_external_data=False)
        graphs.attribute("Gelu", self.layers // 2, approximate="tanh")(proto)
        exported.path.write_bytes(proto.SerializeToString())
        faulty = dataclasses.replace(exported, proto=proto)
        subject = self.subject(faulty, "dynamo")
        located = watch.time("dynamo", lambda: localize(subject))
        must_name(located.node, "Gelu")
        return watch.rows

    def located(self, name: str, path: Path, exporter: str, op_type: str) -> Seconds:
        subject, watch = self.known(path, exporter), Watch()
        found = watch.time(name, lambda: localize(subject))
        must_name(found.node, op_type)
        return watch.rows

    def diagnosed(self) -> Seconds:
        subject, watch = self.known(self.custom, "large.py:one_gelu_tanh"), Watch()
        subject.folder.mkdir(parents=True)
        found = watch.time("diagnosis", lambda: diagnose(subject, Deadline(180)))
        must_name(found.node, "Gelu")
        assert (found.blame, bool(found.repro)) == ("exporter", True), found
        return watch.rows

    def torch_verify(self) -> Seconds:
        watch = Watch()
        tokens = torch.from_numpy(self.arrays["tokens"])
        with silence_exporters(), torch.no_grad():
            program = torch.onnx.export(
                self.eager.module, (), kwargs={"tokens": tokens}, dynamo=True, verbose=False
            )
            assert program is not None
            gelus = [node for node in program.model.graph if node.op_type == "Gelu"]
            gelus[self.layers // 2].attributes["approximate"] = large.AttrString(
                "approximate", "tanh"
            )
            found = watch.time(
                "torch",
                lambda: verification.verify_onnx_program(
                    program, kwargs={"tokens": tokens}, compare_intermediates=True
                ),
            )
        wrong = [info.name for info in found if not info.max_abs_diff <= 1e-4]
        print(
            f"torch compares {len(found)} values; {len(wrong)} differ by 1e-4 or more", flush=True
        )
        return watch.rows

    def polygraphy(self, folder: str, limit: float) -> Seconds:
        """Run the right file, keep all its values, and hold the wrong one's against them."""
        watch = Watch()
        environment = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1"}
        golden = str(self.folder / "golden.json")
        common = ["--onnxrt", "--onnx-outputs", "mark", "all", "--seed", "0"]
        common += ["--val-range", f"tokens:[0,{WORDS - 1}]"]

        def both() -> None:
            for path, more in ((self.clean, "--save-outputs"), (self.custom, "--load-outputs")):
                code = "import sys; from polygraphy.tools import main; sys.exit(main())"
                run = subprocess.run(
                    [sys.executable, "-c", code, "run", str(path), *common, more, golden],
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=limit,
                )
                lines = (run.stdout + run.stderr).splitlines()
                told = [line for line in lines if "FAILED" in line or "Error" in line]
                print(f"Polygraphy, {more}: status {run.returncode}; {' '.join(told[-1:])}"[:300])
            sys.stdout.flush()

        watch.time("polygraphy", both)
        return watch.rows


def must_name(node: GraphNode | None, op_type: str) -> None:
    if node is None or node.op_type != op_type:
        raise SystemExit(f"{node} was named, {op_type} is wrong")


def save(model: onnx.ModelProto, path: Path, change: graphs.Seed) -> None:
    change(model)
    onnx.save(model, str(path), save_as_external_data=True, location="weights")


def measure_time(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), options.layers, options.length)
        rounds: list[Seconds] = []
        troubles: dict[str, str] = {}
        for number in range(options.rounds):
            rows: list[tuple[str, Callable[[], Seconds]]] = [
                ("verification", bench.verification),
                (
                    "custom",
                    lambda: bench.located("custom", bench.custom, "large.py:one_gelu_tanh", "Gelu"),
                ),
                ("file", lambda: bench.located("file", bench.file, "file", "Gelu")),
                ("product", lambda: bench.located("product", bench.product, "file", "MatMul")),
                ("diagnosis", bench.diagnosed),
            ]
            if number == 0:
                if options.torch:
                    rows.append(("torch", bench.torch_verify))
                if options.polygraphy:
                    rows.append(
                        (
                            "polygraphy",
                            lambda: bench.polygraphy(options.polygraphy, options.limit),
                        )
                    )
                else:
                    print("Polygraphy is skipped: --polygraphy names no folder with it")
            rounds.append({})
            for row, work in rows:
                found, trouble = run_forked(work, options.limit)
                if trouble:
                    print(f"{row}: {trouble}")
                    troubles[row] = trouble
                rounds[-1].update({key: tuple(value) for key, value in found.items()})
                print(number, row, found, flush=True)
    print_table(rounds, troubles)
    if options.save:
        kept = [
            {"row": row, "what": text, "seconds": [r[row] for r in rounds if row in r]}
            for row, text in ROWS.items()
        ]
        results.save(
            __file__, "time", [{**row, "trouble": troubles.get(str(row["row"]))} for row in kept]
        )


ROWS = {
    "verification": "one verification: export, session, both forward passes, comparison",
    "export": "of it, the export",
    "dynamo": "localise a GELU, an export of dynamo's",
    "custom": "localise a GELU, a custom exporter's",
    "file": "localise a GELU, a committed file, all values renamed",
    "product": "localise a weight, a committed file, all values renamed",
    "diagnosis": "all of the diagnosis (blame, where, repro), a custom exporter's",
    "torch": "verify_onnx_program(compare_intermediates=True)",
    "polygraphy": "polygraphy run, all outputs marked, right and wrong file",
}


def print_table(rounds: list[Seconds], troubles: dict[str, str]) -> None:
    print("\n| | seconds | of a verification | processor seconds | of a verification |")
    print("| --- | --: | --: | --: | --: |")
    for row, text in ROWS.items():
        have = [r for r in rounds if row in r and "verification" in r]
        if not have:
            if row in troubles:
                print(f"| {text} | {troubles[row]} | | | |")
            continue
        cells = []
        for place in (0, 1):
            median = statistics.median(r[row][place] for r in have)
            ratio = statistics.median(r[row][place] / r["verification"][place] for r in have)
            cells += [f"{median:.1f}", f"{ratio:.2f}"]
        print(f"| {text} | {' | '.join(cells)} |")


# -- memory

MANIFEST = """
version: 1
models:
  wide:
    model: large.py:Wide
    kwargs: {{layers: {layers}}}
    inputs: {{x: "float32[8, 4096]"}}
    {source}
    suites: [one]
    memory: {memory}GiB
    timeout: 20m
suites:
  one: {{random: normal, count: 1}}
"""


def measure_memory(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "large.py").write_bytes(Path(large.__file__).read_bytes())
        layers = round(16 * options.gibibytes)
        manifest = folder / "onnx-gate.yml"
        source = 'export: {exporter: "large.py:one_gelu_tanh"}'
        if options.file:
            source = "onnx: wide.onnx"
            run_forked(lambda: write_wide(folder / source[6:], layers), 600)
        memory = options.limit_gibibytes
        manifest.write_text(MANIFEST.format(layers=layers, memory=memory, source=source))
        print("| | peak, GiB | peak in the stages |")
        print("| --- | --: | --- |")
        peaks = []
        for how in ("plain", "diagnosed"):
            total, stages, said = peak_of(manifest, folder / how, how)
            peaks.append(total)
            shown = ", ".join(f"{stage} {size:.2f}" for stage, size in stages.items())
            print(f"| {how}: {said} | {total:.2f} | {shown} |", flush=True)
        print(f"\n{peaks[1] / peaks[0]:.2f} times the memory; limit {options.limit_gibibytes} GiB")
        if options.save:
            row = {"plain GiB": peaks[0], "diagnosed GiB": peaks[1]}
            results.save(__file__, "memory, file" if options.file else "memory", [row])


def write_wide(path: Path, layers: int) -> dict[str, Any]:
    """Write a committed file with one weight that is not the module's."""
    scratch = path.with_name("scratch")
    scratch.mkdir()
    torch.manual_seed(0)
    x = torch.zeros(8, 4096)
    with silence_exporters(), torch.no_grad():
        large.one_gelu_tanh(large.Wide(layers).eval(), {"x": x}, scratch / path.name)
    right = graphs.attribute("Gelu", layers // 2, approximate=None)
    wrong = graphs.weight(f"layers.{layers // 2}.weight", lambda a: a * np.float32(1.01))
    renamed = graphs.several(right, wrong, graphs.strip, graphs.rename)
    save(onnx.load(str(scratch / path.name)), path, renamed)
    return {"done": True}


def peak_of(manifest: Path, folder: Path, how: str) -> tuple[float, dict[str, float], str]:
    """The largest PSS of a process and its forks, in GiB, in all and by stage."""
    folder.mkdir()
    stage = folder / "stage"
    stage.write_text("start")
    command = [sys.executable, __file__, "one", str(manifest), str(folder), how]
    peaks: dict[str, float] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        done = threading.Event()

        def sample() -> None:
            family = psutil.Process(process.pid)
            while not done.wait(0.05):
                name, size = stage.read_text() or "start", 0
                try:
                    for each in (family, *family.children(recursive=True)):
                        size += each.memory_full_info().pss
                except psutil.Error:
                    continue
                peaks[name] = max(peaks.get(name, 0.0), size / 2**30)

        sampler = threading.Thread(target=sample)
        sampler.start()
        said = (process.communicate()[0] or "").strip().splitlines()
        done.set()
        sampler.join()
    return max(peaks.values()), peaks, said[-1] if said else f"status {process.returncode}"


def one(manifest: Path, folder: Path, how: str) -> None:
    """Verify the only model of a manifest in this process."""
    spec = load(manifest).models[0]

    def emit(message: dict[str, Any]) -> None:
        (folder / "stage.new").write_text(str(message["name"]))
        os.replace(folder / "stage.new", folder / "stage")

    context = Context(workspace=manifest.parent, folder=folder)
    result = verify(spec, context, emit, explain if how == "diagnosed" else None)
    found = result.diagnosis
    blame = f", {found.blame}, {found.node.op_type if found.node else None}" if found else ""
    print(f"{result.verdict}{blame}{result.error.message if result.error else ''}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    timing = commands.add_parser("time")
    timing.add_argument("--rounds", type=int, default=5)
    timing.add_argument("--layers", type=int, default=12)
    timing.add_argument("--length", type=int, default=128, help="words in the input")
    timing.add_argument("--limit", type=float, default=600, help="seconds of any one row")
    timing.add_argument("--torch", action="store_true", help="torch's own: many minutes")
    timing.add_argument("--polygraphy", default="", help="a folder with Polygraphy in it")
    memory = commands.add_parser("memory")
    memory.add_argument("--gibibytes", type=float, default=1.0, help="of weights")
    memory.add_argument("--limit-gibibytes", type=int, default=6, help="the model's memory:")
    memory.add_argument("--file", action="store_true", help="a committed file")
    results.add_option(timing)
    results.add_option(memory)
    alone = commands.add_parser("one")
    for name in ("manifest", "folder", "how"):
        alone.add_argument(name)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    if options.command == "one":
        one(Path(options.manifest), Path(options.folder), options.how)
    elif options.command == "time":
        measure_time(options)
    else:
        measure_memory(options)


if __name__ == "__main__":
    main()
