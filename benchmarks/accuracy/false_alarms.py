"""Run the gate on correct models and count what it calls wrong.

    python benchmarks/accuracy/false_alarms.py --output DIR [--model GLOB ...] [--report REPORT]

The models of ``benchmarks/accuracy/correct`` export and run; whatever diverges there is a false
alarm unless its cause says otherwise. ``--report`` reads a report that exists instead of running the gate.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support import results
from benchmarks.support.gate import number, read_report, run_gate
from benchmarks.support.torchvision import on_path

MANIFEST = Path(__file__).resolve().parent / "correct" / "onnx-gate.yml"

# Machine epsilon by the dtype of a model's inputs; one that takes integers computes in float32.
TINY = 1e-30
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}

# By operators of the exported graph: a model counts in each family of which it has one.
FAMILIES = {
    "convolutions": r"Conv(Transpose|Integer)?|DeformConv",
    "matrix products": r"MatMul|Gemm|Einsum",
    "attention": r"Softmax|LogSoftmax|Attention",
    "norms": r"(Layer|Instance|Group|Batch|RMS|Lp|MeanVariance)Normalization|LRN",
    "recurrent layers and loops": r"LSTM|GRU|RNN|Loop|Scan",
    "reductions and sums along an axis": r"Reduce.*|CumSum|CumProd|Sum|Mean",
    "pooling": r".*Pool.*",
    "resizing and sampling": r"Resize|Upsample|GridSample|AffineGrid|RoiAlign",
    "Fourier transforms": r"DFT|STFT",
    "exponentials, logarithms, tails": r"Exp|Log|Erf|Gelu|Sigmoid|Tanh|Softplus|Elu|Selu|Mish|HardS.*",
    "roots, powers, quotients": r"Sqrt|Pow|Div|Reciprocal|Mod",
    "trigonometry": r"A?(Sin|Cos|Tan)h?",
    "scattered sums": r"Scatter.*",
    "decisions": r"ArgMax|ArgMin|TopK|Where|Clip|Relu|Greater.*|Less.*|Equal|Round|Floor|Ceil|Sign",
}


@dataclass(frozen=True)
class Judged:
    """One check.

    ``basis`` is what its verdict rests on: the ``floor`` (PyTorch is that close), ``float64``,
    ``rounding`` (jittered runs were needed), ``testing`` (no float64) or nothing (no floats).
    ``quotient`` is E(c) / max(E(t), eps), where float64 was needed.
    """

    model: str
    dtype: str
    advice: bool
    verdict: str
    basis: str
    place: str
    reason: str
    budget: float | None
    quotient: float | None
    scaled: float | None
    rounding: float | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, help="a folder for the report")
    parser.add_argument("--report", type=Path, help="a report.json to read instead")
    parser.add_argument("--model", action="append", default=[], help="only these (a glob)")
    results.add_option(parser)
    options = parser.parse_args()
    if options.report:
        report = read_report(options.report)
    elif options.output:
        chosen = [word for name in options.model for word in ("--model", name)]
        os.environ.update(on_path(dict(os.environ)))
        report = run_gate(MANIFEST, options.output, *chosen)
    else:
        parser.error("--output or --report is needed")
    checks = list(judged(report["models"], dtypes(MANIFEST)))
    print_summary(report["models"], checks)
    if options.save:
        results.save(__file__, "summary", [summary(report["models"], checks)])
        results.save(__file__, "families", list(families(report["models"], checks)))


def dtypes(manifest: Path) -> dict[str, str]:
    """The floating-point dtype in which each model computes, by its inputs."""
    from onnx_gate.manifest import load

    found = {}
    for spec in load(manifest).models:
        names = [i.dtype for i in spec.inputs.values() if i.dtype in EPSILON]
        found[spec.name] = names[0] if names else "float32"
    return found


def judged(models: Iterable[dict[str, Any]], dtype: dict[str, str]) -> Iterable[Judged]:
    """Every check of a report."""
    for model in models:
        epsilon = EPSILON[dtype[model["name"]]]
        for check in model["checks"]:
            metrics = check["metrics"] or {}
            scaled, torch = number(metrics.get("scaled")), number(metrics.get("rounding"))
            # In the output's own unit, of the element that decided.
            if torch is not None and check["worst"] is not None:
                torch /= max(abs(number(check["worst"]["expected"]) or 0.0), TINY)
            quotient = None
            if scaled is not None and torch is not None:
                quotient = scaled / max(torch, epsilon)
            yield Judged(
                model["name"],
                dtype[model["name"]],
                check["advice"],
                check["verdict"],
                check["tolerance"].get("basis", ""),
                f"{check['runtime']} {check['case']} {check['output']}",
                check["reason"],
                number(check["budget"]),
                quotient,
                scaled,
                torch,
            )


def summary(models: Sequence[dict[str, Any]], checks: Sequence[Judged]) -> dict[str, object]:
    """The figures of a run that are worth keeping."""
    own = [check for check in checks if not check.advice]
    single = [check for check in own if check.dtype == "float32"]
    quotients = [c.quotient for c in single if c.quotient is not None]
    return {
        "models": len(models),
        "checks": len(own),
        "false alarms": sorted(m["name"] for m in models if m["verdict"] == "diverged"),
        "errors": {m["name"]: m["error"]["kind"] for m in models if m["verdict"] == "error"},
        "float32 checks": len(single),
        "by basis": {
            basis: spread([c.budget for c in single if c.basis == basis])
            for basis in sorted({c.basis for c in single})
        },
        "quotient": spread(quotients),
        "models with advice": len(
            {c.model for c in checks if c.advice and c.verdict == "diverged"}
        ),
    }


def families(
    models: Sequence[dict[str, Any]], checks: Sequence[Judged]
) -> Iterable[dict[str, object]]:
    """Yield the shares of the limit that the models of each family use, the largest of each model."""
    used: dict[str, float] = {}
    moved: dict[str, int] = Counter()
    for check in checks:
        if not check.advice:
            used[check.model] = max(used.get(check.model, 0.0), check.budget or 0.0)
            moved[check.model] += check.basis != "floor" and check.basis != ""
    for family, pattern in FAMILIES.items():
        having = [
            model["name"]
            for model in models
            if any(re.fullmatch(pattern, name) for name in (model["export"] or {})["operators"])
        ]
        yield {
            "family": family,
            "beyond the floor": sum(moved[name] > 0 for name in having),
            **spread([used.get(name) for name in having]),
        }


def spread(values: Iterable[float | None]) -> dict[str, float]:
    """How many, the median, the 90th percentile and the largest."""
    known = np.array([value for value in values if value is not None and np.isfinite(value)])
    if not known.size:
        return {"of": 0}
    median, high = np.percentile(known, [50, 90])
    return {"of": int(known.size), "median": median, "p90": high, "max": float(known.max())}


def print_summary(models: Sequence[dict[str, Any]], checks: Sequence[Judged]) -> None:
    """Counts, distributions, false alarms and close calls."""
    own = [check for check in checks if not check.advice]
    wrong = [model for model in models if model["verdict"] == "diverged"]
    failed = [model for model in models if model["verdict"] == "error"]
    alarms = [check for check in own if check.verdict == "diverged"]
    advice = [check for check in checks if check.advice and check.verdict == "diverged"]
    print(f"\nmodels        {len(models)}")
    print(f"checks        {len(own)}, and {len(checks) - len(own)} of advice")
    print(f"false alarms  {len(wrong)} models, {len(alarms)} checks")
    print(f"errors        {len(failed)} models")
    print(f"advice        {len(advice)} checks, {len({c.model for c in advice})} models")
    seconds = sorted(sum(stage["seconds"] for stage in model["stages"]) for model in models)
    if seconds:
        print(f"seconds       median {np.median(seconds):.1f}, most {seconds[-1]:.1f} a model")
    for dtype in EPSILON:
        group = [check for check in own if check.dtype == dtype]
        if group:
            print(f"\n{dtype}: {len({c.model for c in group})} models")
            for basis in ("floor", "float64", "rounding", "testing"):
                print_distribution(
                    f"budget by {basis}", [c.budget for c in group if c.basis == basis]
                )
            print_distribution("E(c)/max(E(t), eps)", [c.quotient for c in group])
    print_models(wrong, alarms)
    for model in failed:
        error = model["error"]
        print(f"\nERROR {model['name']}: {error['kind']} {error['code']} {error['message'][:400]}")
    # Below the floor a budget near 1 says nothing: past it the same check is judged by float64.
    calls = [c for c in own if c.verdict == "pass" and c.basis not in ("", "floor")]
    calls.sort(key=lambda c: -(c.budget or 0.0))
    print("\nclosest calls, the floor apart")
    for check in calls[:10]:
        print(f"  {describe(check)}")
    print("\nadvice, by model:", dict(Counter(check.model for check in advice)))
    codes = Counter(finding["code"] for model in models for finding in model["findings"])
    print("findings, by code:", dict(codes))


def print_distribution(label: str, values: Iterable[float | None]) -> None:
    known = np.array([value for value in values if value is not None and np.isfinite(value)])
    if known.size:
        median, high = np.percentile(known, [50, 90])
        print(
            f"  {label:20} of {known.size}: median {median:.3g}, p90 {high:.3g}, "
            f"max {known.max():.3g}"
        )


def print_models(wrong: Iterable[dict[str, Any]], alarms: Sequence[Judged]) -> None:
    for model in wrong:
        own = [check for check in alarms if check.model == model["name"]]
        print(f"\nFALSE ALARM {model['name']}: {len(own)} checks")
        for finding in model["findings"]:
            if finding["severity"] == "error":
                print(f"  {finding['code']} {finding['message'][:300]}")
        for check in sorted(own, key=lambda c: -(c.budget or 0.0))[:5]:
            print(f"  {describe(check)} {check.reason[:200]}")


def describe(check: Judged) -> str:
    parts = [f"{check.model}: {check.place}"]
    for label, value in (
        (f"budget by {check.basis}" if check.basis else "budget", check.budget),
        ("E(c)", check.scaled),
        ("E(t)", check.rounding),
        ("quotient", check.quotient),
    ):
        parts += [f"{label} {value:.3g}"] if value is not None else []
    return ", ".join(parts)


if __name__ == "__main__":
    main()
