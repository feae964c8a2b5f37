"""Decoders of transformers with natural manifests: right exports must be green, wrong ones not.

    python benchmarks/accuracy/decoders.py --output DIR [--family NAME ...]

Every family is verified without a cache, with arbitrary masks (the default suites), left and right
padding, and for one step behind a cache. Some have a file beside them that is really wrong.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks.support import results
from benchmarks.support.gate import run_gate

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "decoder_models"
sys.path.insert(0, str(FOLDER))

from families import FAMILIES, HEADS, VOCABULARY, Decoder, Step  # noqa: E402

INPUTS = {
    "input_ids": {"dtype": "int64", "shape": ["batch", "seq"], "range": [0, VOCABULARY - 1]},
    "attention_mask": {"dtype": "int64", "shape": ["batch", "seq"], "range": [0, 1]},
}
FAULTS = (
    ("llama", "mask ignored"),
    ("llama", "causal off by one"),
    ("llama", "weights"),
    ("gpt2", "mask ignored"),
    ("qwen2", "causal off by one"),
    ("opt", "weights"),
)


@dataclass(frozen=True)
class Row:
    """A model and what the gate said of it."""

    name: str
    fault: str
    verdict: str
    right: bool
    compared: int
    open: int
    findings: str
    checks: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="a folder for files and report")
    parser.add_argument("--family", action="append", default=[], choices=list(FAMILIES))
    parser.add_argument("--jobs", type=int, default=1, help="models side by side (1)")
    results.add_option(parser)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    output: Path = options.output.resolve()
    (output / "files").mkdir(parents=True, exist_ok=True)
    shutil.copy(FOLDER / "families.py", output / "families.py")
    models = dict(entries(options.family or list(FAMILIES), output))
    suites = {side: {"generator": f"families.py:{side}"} for side in ("left", "right")}
    manifest = {"version": 1, "suites": suites, "models": models}
    dumper = yaml.SafeDumper
    dumper.ignore_aliases = lambda self, data: True  # type: ignore[method-assign]
    (output / "onnx-gate.yml").write_text(yaml.dump(manifest, Dumper=dumper, sort_keys=False))
    report = run_gate(
        output / "onnx-gate.yml", output / "report", "--no-cache", "--jobs", str(options.jobs)
    )
    rows = [judge(model, models[model["name"]]) for model in report["models"]]
    print_table(rows)
    results.write(output / "decoders.json", "decoders", [asdict(row) for row in rows])
    if options.save:
        results.save(__file__, "decoders", [asdict(row) for row in rows])


def entries(families: Sequence[str], output: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The manifest's entries; wrong files are written to ``output``."""
    for family in families:
        yield (
            family,
            {
                "model": "families.py:Decoder",
                "args": [family],
                "inputs": INPUTS,
                "suites": ["typical", "edges", "left", "right"],
            },
        )
        kv = key_value_shape(family)
        yield (
            f"{family}-step",
            {
                "model": "families.py:Step",
                "args": [family],
                "inputs": {
                    "input_ids": {
                        "dtype": "int64",
                        "shape": ["batch", 1],
                        "range": [0, VOCABULARY - 1],
                    },
                    "past_mask": {"dtype": "int64", "shape": ["batch", "past"], "range": [0, 1]},
                    "past_k": {"dtype": "float32", "shape": kv},
                    "past_v": {"dtype": "float32", "shape": kv},
                },
            },
        )
    for family, fault in FAULTS:
        if family in families:
            path = output / "files" / f"{family}-{fault.replace(' ', '-')}.onnx"
            export(Decoder(family, fault).eval(), path)
            yield (
                f"{family}, {fault}",
                {
                    "model": "families.py:Decoder",
                    "args": [family],
                    "onnx": f"files/{path.name}",
                    "inputs": INPUTS,
                },
            )


def key_value_shape(family: str) -> list[int | str]:
    """The shape of all keys of a family's cache: layers, batch, heads, positions, width."""
    config = Step(family).model.config
    heads = getattr(config, "num_key_value_heads", None) or HEADS
    return [2, "batch", int(heads), "past", config.hidden_size // config.num_attention_heads]


def export(module: torch.nn.Module, path: Path) -> None:
    example = {"input_ids": torch.ones(3, 5, dtype=torch.int64)}
    example["attention_mask"] = torch.ones(3, 5, dtype=torch.int64)
    dynamic = {name: dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC) for name in example}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (),
            str(path),
            kwargs=example,
            dynamic_shapes=dynamic,
            input_names=list(example),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def judge(model: dict[str, Any], entry: dict[str, Any]) -> Row:
    """What became of a model, and whether it is right."""
    own = [check for check in model["checks"] if not check.get("advice")]
    diverged = sorted({check["case"] for check in own if check["verdict"] == "diverged"})
    fault = "" if "onnx" not in entry else model["name"].partition(", ")[2]
    verdict = model["verdict"]
    if model["error"]:
        verdict = f"error {model['error']['kind']}: {model['error']['message'][:200]}"
    return Row(
        name=model["name"],
        fault=fault,
        verdict=verdict,
        right=(model["verdict"] == "pass") is (not fault)
        and not (model["error"] and model["error"]["kind"] in ("build", "export")),
        compared=sum(check.get("compared") or 0 for check in own),
        open=sum(check.get("open") or 0 for check in own),
        findings=" ".join(sorted({finding["code"] for finding in model["findings"]})),
        checks=f"{len(diverged)} of {len({c['case'] for c in own})} cases diverged"
        + (f": {', '.join(diverged[:3])}" if diverged else ""),
    )


def print_table(rows: Sequence[Row]) -> None:
    print(f"\n{'':4}{'model':28} {'compared':>10} {'open':>8}  verdict; findings; cases")
    for row in rows:
        mark = "" if row.right else "!!"
        print(
            f"{mark:4}{row.name:28} {row.compared:>10} {row.open:>8}  "
            f"{row.verdict}; {row.findings}; {row.checks}"
        )
    honest = [row for row in rows if not row.fault]
    wrong = [row for row in rows if row.fault]
    print(
        f"\n{sum(r.right for r in honest)} of {len(honest)} right exports are green, "
        f"{sum(r.right for r in wrong)} of {len(wrong)} wrong files are not"
    )


if __name__ == "__main__":
    main()
