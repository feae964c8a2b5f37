"""Fifteen changes of several packages at once: is the one named that changed the answer?

Packages are small wheels, written here: two that the module is made of, two that its file is written
by, and four that do nothing. Three bumps are of ONNX Runtime itself, from the index. Each bump changes
three to five packages, one of which changes what the model answers.

    python benchmarks/compat/bumps.py [--only NUMBER ...] [--save]

Bumps are numbered from 1; ``--only`` leaves the stored rows of the others.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.support import results
from onnx_gate.report.io import read_report
from tests.support.gate import gate
from tests.support.wheels import wheel

MANIFEST = """
version: 1
suites: {{one: {{random: normal, count: 1}}}}
defaults: {{suites: [one]}}
models:
  net: {{model: "nets.py:Net", inputs: {{x: "float32[2, 6]"}}, export: {{exporter: "nets.py:export"}}}}
"""
NETS = """
import blocks, layers, torch

class Net(torch.nn.Module):
    def forward(self, x):
        x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + blocks.EPS)
        return torch.sigmoid(x * layers.SCALE)

def export(module, example, path):
    import passes, writer
    writer.save(passes.folded(writer.nodes()), layers.SCALE, blocks.EPS, path, opset={opset})
"""
BLOCKS = "EPS = {}\n"
LAYERS = "SCALE = {}\n"
WRITER = """
import onnx
from onnx import helper

def nodes():
    return [("Mul", "x x", "s", {{}}), ("ReduceMean", "s axes", "m", {{"keepdims": 1}}),
            ("Add", "m eps", "a", {{}}), ("Sqrt", "a", "r", {{}}), ("Div", "x r", "n", {{}}),
            ("Mul", "n scale", "p", {{}}), ("{last}", "p", "y", {{}})]

def save(nodes, scale, eps, path, opset):
    {check}
    made = [helper.make_node(op, ins.split(), [out], **kw) for op, ins, out, kw in nodes]
    value = lambda name: helper.make_tensor_value_info(name, 1, [2, 6])
    number = lambda name, v: helper.make_tensor(name, 1, [], [v])
    axes = helper.make_tensor("axes", 7, [1], [-1])
    given = [number("scale", {scale}), number("eps", eps), axes]
    graph = helper.make_graph(made, "net", [value("x")], [value("y")], given)
    ir = 9 if opset < 21 else 10
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir), path)
"""
PASSES = "def folded(nodes):\n    return {}\n"
SWAPPED = "[('{1}' if op == '{0}' else op, *rest) for op, *rest in nodes]"
NOTHING = ("alpha", "kappa", "omega", "zeta")


def writer(last: str = "Sigmoid", scale: str = "scale", check: str = "pass") -> str:
    return WRITER.format(last=last, scale=scale, check=check)


# The releases of the packages that matter; every one has a 1.0 and a 1.1 that answer alike.
RELEASES = {
    "layers": {"1.0": LAYERS.format("1.0"), "1.1": "# tidied\n" + LAYERS.format("1.0"),
               "2.0": LAYERS.format("1.5"), "2.1": LAYERS.format("-1.0"), "2.2": LAYERS.format("1.001"),
               "2.3": "raise ImportError('needs another Python')\n"},
    "blocks": {"1.0": BLOCKS.format("1e-6"), "1.1": "# tidied\n" + BLOCKS.format("1e-6"),
               "2.0": BLOCKS.format("1e-2"), "2.1": BLOCKS.format("1e-4")},
    "writer": {"1.0": writer(), "1.1": "# tidied\n" + writer(), "2.0": writer("HardSigmoid"),
               "2.1": writer(scale="scale * 1.01"), "2.2": writer(check="raise ValueError('no')")},
    "passes": {"1.0": PASSES.format("nodes"), "1.1": PASSES.format("list(nodes)"),
               "2.0": PASSES.format(SWAPPED.format("ReduceMean", "ReduceMax")),
               "2.1": PASSES.format(SWAPPED.format("Sqrt", "Sin"))},
    **{name: {"1.0": "", "1.1": "VALUE = 1\n"} for name in NOTHING},
}  # fmt: skip


@dataclass(frozen=True)
class Bump:
    """``package`` goes from ``old`` to ``new``, and ``beside`` from 1.0 to 1.1; ``link`` changes."""

    package: str
    old: str
    new: str
    link: str
    beside: tuple[str, ...]
    opset: int = 18


BUMPS = (
    Bump("layers", "1.0", "2.0", "pytorch", ("alpha", "kappa", "writer")),
    Bump("layers", "1.0", "2.1", "pytorch", ("blocks", "omega")),
    Bump("layers", "1.0", "2.2", "pytorch", ("omega", "zeta", "passes")),
    Bump("layers", "1.0", "2.3", "pytorch", ("alpha", "zeta")),
    Bump("blocks", "1.0", "2.0", "pytorch", ("alpha", "layers", "writer", "zeta")),
    Bump("blocks", "1.0", "2.1", "pytorch", ("kappa", "passes")),
    Bump("writer", "1.0", "2.0", "export", ("alpha", "layers", "blocks")),
    Bump("writer", "1.0", "2.1", "export", ("zeta", "omega")),
    Bump("writer", "1.0", "2.2", "export", ("passes", "kappa", "alpha")),
    Bump("writer", "2.2", "1.0", "export", ("layers", "zeta")),
    Bump("passes", "1.0", "2.0", "export", ("writer", "zeta", "alpha", "kappa")),
    Bump("passes", "1.0", "2.1", "export", ("layers", "blocks")),
    Bump("onnxruntime", "1.23.0", "1.22.1", "engine", ("alpha", "writer", "zeta"), opset=23),
    Bump("onnxruntime", "1.22.1", "1.23.0", "engine", ("layers", "omega"), opset=23),
    Bump("onnxruntime", "1.21.1", "1.20.0", "engine", ("passes", "kappa"), opset=22),
)


def requirements(bump: Bump, *, head: bool) -> str:
    pins = {name: "1.0" for name in RELEASES if name not in NOTHING}
    pins |= dict.fromkeys(bump.beside, "1.1" if head else "1.0")
    pins[bump.package] = bump.new if head else bump.old
    return "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))


def measure(bump: Bump, folder: Path, wheels: Path) -> dict[str, object]:
    folder.mkdir()
    (folder / "onnx-gate.yml").write_text(MANIFEST.format())
    (folder / "nets.py").write_text(NETS.replace("{opset}", str(bump.opset)))
    (folder / "base.txt").write_text(requirements(bump, head=False))
    (folder / "head.txt").write_text(requirements(bump, head=True))
    begin = time.monotonic()
    done = gate(
        *("since", "--base", "base.txt", "--head", "head.txt", "--find-links", str(wheels)),
        cwd=folder,
        variables={"XDG_CACHE_HOME": str(folder.parent / "cache")},
    )
    path = folder / "onnx-gate-report" / "report.json"
    since = read_report(path).since if path.exists() else None
    changed = [each for each in since.answers if each.changed] if since is not None else []
    right = bool(changed) and all(each.packages == (bump.package,) for each in changed)
    return {
        "name": f"{bump.package} {bump.old} to {bump.new}",
        "beside": " ".join(bump.beside),
        "named": " ".join(sorted({name for each in changed for name in each.packages})),
        "links": " ".join(each.link for each in changed),
        "right": right and bump.link in [each.link for each in changed],
        "runs": since.runs if since is not None else None,
        "seconds": round(time.monotonic() - begin, 1),
        "said": done.stdout.splitlines()[-3] if since is not None else done.stderr[-500:],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", type=int, nargs="*", default=range(1, len(BUMPS) + 1))
    results.add_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for package, releases in RELEASES.items():
            for version, source in releases.items():
                wheel(root / "wheels", package, version, source)
        rows = []
        for number in options.only:
            rows.append(measure(BUMPS[number - 1], root / str(number), root / "wheels"))
            print(rows[-1], flush=True)
    print(f"{sum(bool(row['right']) for row in rows)} of {len(rows)}")
    if options.save:
        order = [f"{bump.package} {bump.old} to {bump.new}" for bump in BUMPS]
        results.save(__file__, "bumps", results.merged(__file__, "bumps", rows, order))


if __name__ == "__main__":
    main()
