"""Packages from the index, bisected for real: how many releases, how many runs, which one is named.

    python benchmarks/compat/bisect.py [--only NAME ...] [--save]

Of an engine the file is held fast, and of who writes it the module. Environments are kept in a folder of
their own, which is gone afterwards.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support import results
from tests.support.gate import gate

MANIFEST = """
version: 1
suites: {{one: {{random: normal, count: 1}}}}
defaults: {{suites: [one]}}
models:
  net: {{model: "nets.py:build", inputs: {{x: "float32[3, 2, 6]"}}, export: {{opset: {opset}}}}}
"""
PLAIN = "import torch\n\ndef build():\n    return torch.nn.Linear(6, 3)\n"
GRU = """
import torch

class First(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = torch.nn.GRU(6, 4)

    def forward(self, x):
        return self.gru(x)[0]

def build():
    return First()
"""
_COUNT = re.compile(r"^\S+: (\d+) releases from", re.M)
_RUNS = re.compile(r"^(\d+) runs? beyond the two ends", re.M)
_FIRST = re.compile(r"^net: (.*)$", re.M)


@dataclass(frozen=True)
class Search:
    """A package's range of releases, and a model whose answer changes in it."""

    package: str
    releases: str
    nets: str
    opset: int


SEARCHES = (
    Search("onnxruntime", "1.20..1.32", PLAIN, 23),
    Search("onnxscript", "0.5..0.7", GRU, 20),
)


def measure(search: Search) -> dict[str, object]:
    """Bisect one package and return what was said."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "onnx-gate.yml").write_text(MANIFEST.format(opset=search.opset))
        (folder / "nets.py").write_text(search.nets)
        begin = time.monotonic()
        done = gate(
            *("bisect", "--package", search.package, search.releases),
            cwd=folder,
            variables={"XDG_CACHE_HOME": str(folder / "cache")},
        )
    said = done.stdout
    count, runs, first = (pattern.search(said) for pattern in (_COUNT, _RUNS, _FIRST))
    return {
        "name": search.package,
        "range": search.releases,
        "releases": int(count[1]) if count else None,
        "runs": int(runs[1]) if runs else None,
        "found": first[1] if first else (said + done.stderr)[-500:],
        "said": said.splitlines()[-2:],
        "seconds": round(time.monotonic() - begin, 1),
    }


def main() -> None:
    """Bisect each and print a line for it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    names = [search.package for search in SEARCHES]
    parser.add_argument("--only", nargs="*", default=names, choices=names)
    results.add_option(parser)
    options = parser.parse_args()
    rows = []
    for search in SEARCHES:
        if search.package in options.only:
            rows.append(measure(search))
            print(rows[-1], flush=True)
    if options.save:
        results.save(__file__, "bisect", results.merged(__file__, "bisect", rows, names))


if __name__ == "__main__":
    main()
