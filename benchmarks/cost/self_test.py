"""What it costs that every judge is tried on wrong answers, on runs that pass.

    python benchmarks/cost/self_test.py [--only NAME ...] [--rounds 3]

Each model is verified in a process of its own with the default suites, as a worker does it; the time
inside the self-test (everything public in ``verify/judge/selftest``, and the call that keeps an
earlier answer for it) is taken by wrapping it, and compared with the whole verification. The target is
0.05. The parts are measured in one run, so that the load of the machine matters to both alike.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import logging
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.support import results
from benchmarks.support.gate import NETWORKS_FILE

TARGET = 0.05

# Of each model: the class, arguments, the input; the last one's output is large for its work.
MODELS: dict[str, tuple[str, list[int], str, str]] = {
    "mlp": ("Mlp", [64], "features", "float32[batch, 16]"),
    "encoder": ("SmallEncoder", [64], "features", "float32[batch, 96]"),
    "resnet18": ("ResNet18", [], "image", "float32[batch, 3, 224, 224]"),
    "wide-output": ("Pointwise", [], "image", "float32[batch, 3, 512, 512]"),
}
EXTRA = """

class Pointwise(nn.Module):
    \"\"\"A million outputs for next to no work.\"\"\"

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv2d(3, 4, 1)

    def forward(self, image):
        return torch.tanh(self.mix(image))
"""


class Stopwatch:
    """Seconds inside some functions, however they call each other."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0
        self._depth = 0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*arguments: Any, **more: Any) -> Any:
            self._depth += 1
            begin = time.perf_counter()
            try:
                return function(*arguments, **more)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.perf_counter() - begin
                    self.calls += 1

        return timed

    def watch(self) -> None:
        """Wrap the self-test wherever it has been imported."""
        importlib.import_module("onnx_gate.verify.verify")
        selftest = importlib.import_module("onnx_gate.verify.judge.selftest")
        own = {
            function: self.wrap(function)
            for name, function in inspect.getmembers(selftest, inspect.isfunction)
            if function.__module__ == selftest.__name__ and not name.startswith("_")
        }
        for module in [m for n, m in sys.modules.items() if n.startswith("onnx_gate.")]:
            for name, value in list(vars(module).items()):
                if inspect.isfunction(value) and value in own:
                    setattr(module, name, own[value])
                if inspect.isclass(value) and value.__module__ == module.__name__:
                    method = vars(value).get("try_judge")
                    if inspect.isfunction(method):
                        value.try_judge = self.wrap(method)  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], choices=list(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    results.add_option(parser)
    options = parser.parse_args()
    from onnx_gate.workers.forked import run_forked

    kept = []
    print(f"{'model':12} {'checks':>6} {'calls':>6} {'self-test':>10} {'all':>7} {'share':>7}")
    for name in options.only or MODELS:
        rounds = []
        for _ in range(options.rounds):
            found, trouble = run_forked(lambda name=name: measure(name), 600)
            if trouble:
                raise SystemExit(f"{name}: {trouble}")
            rounds.append(found)
        share = statistics.median(r["self-test"] / r["all"] for r in rounds)
        middle = {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
        kept.append({"model": name, **middle, "share": share, "rounds": len(rounds)})
        print(
            f"{name:12} {middle['checks']:6.0f} {middle['calls']:6.0f} "
            f"{middle['self-test']:10.3f} {middle['all']:7.2f} {share:7.3f}",
            flush=True,
        )
    print(f"target: a share of at most {TARGET}")
    if options.save:
        results.save(__file__, "self-test", kept)


def measure(name: str) -> dict[str, float]:
    """Verify a model in this process; seconds of the self-test and of everything."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    from onnx_gate.manifest import load
    from onnx_gate.verify.context import Context
    from onnx_gate.verify.verify import verify

    kind, arguments, tensor, shape = MODELS[name]
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top)
        (folder / "networks.py").write_text(NETWORKS_FILE.read_text() + EXTRA)
        (folder / "onnx-gate.yml").write_text(
            f"version: 1\nmodels:\n  {name}:\n    model: networks.py:{kind}\n"
            f'    args: {arguments}\n    inputs: {{{tensor}: "{shape}"}}\n'
        )
        spec = load(folder / "onnx-gate.yml").models[0]
        watch = Stopwatch()
        watch.watch()
        begin = time.perf_counter()
        result = verify(
            spec, Context(workspace=folder, folder=folder / "out"), lambda message: None
        )
        everything = time.perf_counter() - begin
    if result.verdict != "pass":
        raise SystemExit(f"{name}: {result.verdict} {result.error}")
    return {
        "checks": float(len(result.checks)),
        "calls": float(watch.calls),
        "self-test": watch.seconds,
        "all": everything,
    }


if __name__ == "__main__":
    main()
