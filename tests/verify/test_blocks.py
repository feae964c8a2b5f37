"""Models verified block by block: the same verdict, faults in their blocks, and what cannot be done so."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import psutil
import pytest
import torch
from onnx.external_data_helper import ExternalDataInfo
from safetensors.torch import save, save_file

from onnx_gate.diagnose.blocks import locate
from onnx_gate.diagnose.repro.replay import Limits, replay
from onnx_gate.errors import GateError
from onnx_gate.manifest.load import load
from onnx_gate.manifest.spec import ModelSpec
from onnx_gate.manifest.values.coverage import CoverageSpec
from onnx_gate.manifest.values.weights import WeightsSpec
from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelResult
from onnx_gate.verify.blocks import partition
from onnx_gate.verify.blocks.divided import BlockCall, Divided
from onnx_gate.verify.blocks.partition import blocks_of, with_heads_apart
from onnx_gate.verify.blocks.pieces import Pieces
from onnx_gate.verify.blocks.skeleton import build_skeleton
from onnx_gate.verify.blocks.stored import Stored, find_stored
from onnx_gate.verify.blocks.together import TogetherReference
from onnx_gate.verify.blocks.verify import in_blocks
from onnx_gate.verify.build import build
from onnx_gate.verify.context import BLOCK, Context
from onnx_gate.verify.reference.oracle import CaseReference
from onnx_gate.verify.verify import verify
from tests.support.blocks_project import committed, project


def verified(folder: Path, spec: ModelSpec) -> ModelResult:
    return verify(spec, Context(folder, folder / "out"), lambda _: None, locate=locate)


def codes_of(result: ModelResult) -> set[str]:
    return {finding.code for finding in result.findings}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_every_block_is_compared_and_one_case_carried_through(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    result = verified(tmp_path, project(tmp_path, dtype=dtype))
    assert result.verdict == "pass", result.error
    assert "OG433" in codes_of(result)
    # The mask that the export alone has goes into each layer, and is not compared.
    inside = {check.output for check in result.checks if check.block}
    outs = {"embed", *(f"layers.{n}" for n in range(3))}
    ins = {"embed:in", *(f"layers.{n}:in[{place}]" for n in range(3) for place in (0, 1))}
    assert inside == outs | ins
    own = [check for check in result.checks if not check.block]
    carried = [check for check in own if check.case.endswith("/carried")]
    assert len(carried) == 1
    assert len(own) > 3
    assert all(check.compared for check in own)


@pytest.mark.slow
def test_decisions_in_blocks_are_those_of_the_whole_and_all_weights_are_known(
    tmp_path: Path,
) -> None:
    spec = project(tmp_path, words=60, experts="chosen")
    blocks, whole = (verified(tmp_path, replace(spec, verify=way)) for way in ("blocks", "whole"))
    assert blocks.decisions is not None
    assert whole.decisions is not None
    assert (blocks.decisions.of, blocks.decisions.seen) == (whole.decisions.of, 1)
    # Of the table of words every row is the checkpoint's; a branch cannot be compared at an operator.
    (never,) = blocks.decisions.never
    assert (never.module, never.operator, never.limit) == ("layers.1", "gt", 0.0)
    assert never.never == ("below",)
    assert never.source is not None
    assert "shares[:, n] > 0" in never.source.code
    assert blocks.weights is not None
    assert blocks.weights.all_known
    asked = replace(spec, coverage=CoverageSpec(decisions=0.9))
    assert verified(tmp_path, asked).verdict == "error"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "at", "block", "line", "told"),
    [
        (
            "eps",
            1,
            "layers.1",
            "eps)",
            ": LayerNormalization has epsilon=0.01, and with 1e-05 it agrees",
        ),
        ("weight", 2, "layers.2", "k = k + 0.1", "first at Add in layers.2"),
    ],
)
def test_a_fault_is_found_in_its_block_and_at_its_line(
    tmp_path: Path, fault: str, at: int, block: str, line: str, told: str
) -> None:
    spec = project(tmp_path, fault=fault, at=at)
    result = verified(tmp_path, spec)
    assert result.verdict == "diverged"
    assert {c.block for c in result.checks if c.verdict == "diverged" and c.block} == {block}
    # The fault reaches the end on the way that a runtime's own values go.
    (end,) = (check for check in result.checks if check.case.endswith("/carried"))
    assert end.verdict == "diverged"
    assert result.diagnosis is not None
    assert result.diagnosis.source is not None
    assert line in result.diagnosis.source.code
    assert told in result.diagnosis.cause
    assert result.diagnosis.blame == "graph", result.diagnosis.evidence
    assert result.diagnosis.repro is not None
    folder = tmp_path / "out" / result.diagnosis.repro
    (replayed,) = replay(folder, spec.runtimes[0], Limits())
    assert not replayed.agrees


@pytest.mark.slow
@pytest.mark.parametrize(
    ("room", "note"),
    [
        (True, "what looks for the cause gave none: killed by SIGKILL"),
        (False, "its parameters are too"),
    ],
)
def test_a_search_that_fails_or_has_no_room_is_said(tmp_path: Path, room: bool, note: str) -> None:
    def killed(*_: object) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    spec = project(tmp_path, fault="eps", at=1)
    if not room:
        # What is expected of the walk fits in it, and a fork of that does not.
        least = psutil.Process().memory_info().rss
        spec = replace(spec, memory=2 * least)
    context = Context(tmp_path, tmp_path / "out")
    result = verify(spec, context, lambda _: None, locate=killed)
    assert result.verdict == "diverged", result.error
    assert result.diagnosis is not None
    assert result.diagnosis.cause == "layers.1 computes something else on PyTorch's own values"
    assert note in result.diagnosis.note


@pytest.mark.slow
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_a_committed_file_is_cut_where_its_weights_say(tmp_path: Path, exporter: str) -> None:
    result = verified(tmp_path, committed(tmp_path, exporter))
    assert result.verdict == "pass", result.error
    alone = {c.block for c in result.checks if " + " not in c.block}
    assert alone == {"", "embed", *(f"layers.{n}" for n in range(3))}
    assert result.weights is not None
    assert result.weights.all_known
    # It was read where it lies.
    assert not [p for p in (tmp_path / "out").rglob("*") if p.stat().st_size > 100_000]


@pytest.mark.slow
def test_a_fault_of_a_committed_file_is_found_in_its_block(tmp_path: Path) -> None:
    result = verified(tmp_path, committed(tmp_path, "dynamo", fault="weight", at=1))
    assert {c.block for c in result.checks if c.verdict == "diverged" and c.block} == {"layers.1"}
    assert result.diagnosis is not None
    assert result.diagnosis.node is not None


@pytest.mark.slow
def test_a_wrong_row_that_no_input_reaches_is_named(tmp_path: Path) -> None:
    spec = committed(tmp_path, "dynamo")
    path = tmp_path / "onnx-gate.yml"
    path.write_text(path.read_text().replace("[0, 49]", "[0, 9]"))
    proto = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    (table,) = (t for t in proto.graph.initializer if t.name == "embed.weight")
    place = ExternalDataInfo(table)
    with (tmp_path / "w.bin").open("r+b") as file:
        file.seek(place.offset + 49 * 16 * 4)
        file.write(b"\0\0\x80\x3f" * 16)
    result = verified(tmp_path, load(path).models[0])
    assert spec.onnx is not None
    assert result.verdict == "diverged"
    (finding,) = (f for f in result.findings if f.code == "OG417")
    assert "embed.weight: row 49 of 50" in finding.message


@pytest.mark.slow
def test_what_lies_between_blocks_is_compared_too(tmp_path: Path) -> None:
    result = verified(tmp_path, project(tmp_path, fault="places"))
    wrong = {check.output for check in result.checks if check.verdict == "diverged" and check.block}
    assert wrong == {f"layers.{n}:in[1]" for n in range(3)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"state": True}, "takes or returns a value of class lock"),
        ({"fault": "skip"}, "forward calls the block layers.2, which it did not while"),
        ({"order": True}, "forward calls the block layers.2 where the export came to layers.0"),
    ],
)
def test_what_cannot_be_taken_apart_is_an_error(
    tmp_path: Path, kwargs: dict[str, Any], words: str
) -> None:
    result = verified(tmp_path, project(tmp_path, **kwargs))
    assert result.error is not None
    assert result.error.code == "OG434"
    assert words in result.error.message


@pytest.mark.slow
def test_what_does_not_fit_is_said_before_it_begins(tmp_path: Path) -> None:
    result = verified(tmp_path, project(tmp_path, more="memory: 100MiB"))
    assert result.error is not None
    assert result.error.code == "OG503"
    assert not result.checks


@pytest.mark.slow
def test_values_that_flow_are_in_what_is_expected_of_memory(tmp_path: Path) -> None:
    project(tmp_path)
    path = tmp_path / "onnx-gate.yml"
    path.write_text(
        path.read_text().replace("batch: [1, 2], seq: [2, 5]", "batch: [50000], seq: [2]")
    )
    words = [sys.executable, "-m", "onnx_gate", "run", "--no-cache", "--jobs", "1"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    (model,) = read_report(tmp_path / "onnx-gate-report" / "report.json").models
    assert model.verdict == "pass", done.stdout + done.stderr
    (said,) = (finding.data for finding in model.findings if finding.code == "OG433")
    # Of 20 MB of outputs there are sixteen runs alone.
    assert model.peak_memory is not None
    assert model.peak_memory < said["peak"] < 2 * model.peak_memory


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("weights: model.safetensors.index.json", "name the .safetensors file under weights"),
        ("dims:", "the exporter torchscript needs the weights"),
    ],
)
def test_an_entry_that_blocks_cannot_do_says_what_to_write(
    tmp_path: Path, change: str, words: str
) -> None:
    project(tmp_path)
    path = tmp_path / "onnx-gate.yml"
    more = {
        "dims:": "export: {exporter: torchscript}\n    dims:",
    }.get(change, "")
    path.write_text(path.read_text().replace(change, more))
    result = verified(tmp_path, load(path).models[0])
    assert result.error is not None
    assert result.error.code == "OG434"
    assert words in result.error.message


def test_a_factory_that_loads_weights_is_told_to_leave_them_out(tmp_path: Path) -> None:
    spec = project(tmp_path, model="loaded")
    with pytest.raises(GateError, match="past register_parameter") as caught:
        build_skeleton(spec, tmp_path)
    assert caught.value.code == "OG434"


def test_blocks_are_the_layers_and_parameters_are_the_checkpoints(tmp_path: Path) -> None:
    spec = project(tmp_path)
    skeleton = build_skeleton(spec, tmp_path)
    assert blocks_of(skeleton) == ("embed", "layers.0", "layers.1", "layers.2")
    whole = build(spec, tmp_path).module.state_dict()
    weight = skeleton.module.get_submodule("layers.1").get_submodule("qkv")._parameters["weight"]
    assert weight is not None
    assert weight.isnan().all()
    assert weight.untyped_storage().nbytes() == 4
    with skeleton.loaded(skeleton.named_below("layers.1")):
        for name, tensor in skeleton.module.get_submodule("layers.1").state_dict().items():
            assert torch.equal(tensor, whole[f"layers.1.{name}"])
    assert torch.equal(skeleton.module.get_buffer("places"), torch.linspace(-1, 1, 16))


def test_a_head_larger_than_the_layers_is_blocks_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = project(tmp_path, words=300)
    assert "head" in blocks_of(with_heads_apart(build_skeleton(spec, tmp_path)))
    monkeypatch.setattr(partition, "LEAST_ROWS", 0)
    skeleton = with_heads_apart(build_skeleton(spec, tmp_path))
    layer = skeleton.nbytes(skeleton.named_below("layers.0"))
    heads = [path for path in blocks_of(skeleton) if path.startswith("head.")]
    assert len(heads) > 3
    assert max(skeleton.nbytes(skeleton.named_below(path)) for path in heads) <= layer
    whole, x = build(spec, tmp_path).module.get_submodule("head"), torch.randn(3, 16)
    with skeleton.loaded(tuple(skeleton.parameters)):
        apart = skeleton.module.get_submodule("head")
        assert torch.equal(apart.weight, whole.weight)  # type: ignore[arg-type]
        assert torch.equal(apart.bias, whole.bias)  # type: ignore[arg-type]
        assert torch.allclose(apart(x), whole(x), rtol=1e-5)


@pytest.mark.slow
def test_a_head_in_rows_and_a_table_of_half_precision_are_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "LEAST_ROWS", 0)
    result = verified(tmp_path, project(tmp_path, words=300))
    assert result.verdict == "pass", result.error
    blocks = {check.block for check in result.checks}
    assert {"embed", "head.rows_0", "layers.2"} <= blocks
    assert len(blocks) > 8
    proto = onnx.load(tmp_path / "out" / "model.onnx", load_external_data=False)
    made = {name: node for node in proto.graph.node for name in node.output}
    (rows,) = (
        node for node in proto.graph.node if node.op_type == "Gather" and node.input[0] not in made
    )
    assert rows.input[0] == "embed.weight.stored"


@pytest.mark.slow
@pytest.mark.parametrize(("experts", "fault"), [("all", "expert"), ("chosen", "")])
def test_experts_are_blocks_and_a_fault_is_found_in_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, experts: str, fault: str
) -> None:
    monkeypatch.setattr(partition, "LEAST_ROWS", 0)
    spec = project(tmp_path, experts=experts, fault=fault, at=3)
    own = [f"layers.1.{part}" for part in ("norm", "gate", *(f"experts.{n}" for n in range(4)))]
    parts = blocks_of(with_heads_apart(build_skeleton(spec, tmp_path)))
    assert parts == ("embed", "layers.0", *own, "layers.2")
    result = verified(tmp_path, spec)
    assert result.verdict == ("diverged" if fault else "pass"), result.error
    bad = {c.block for c in result.checks if c.verdict == "diverged" and c.block}
    assert {block for block in bad if "+" not in str(block)} == (
        {"layers.1.experts.1"} if fault else set()
    )


@pytest.mark.slow
def test_experts_of_a_committed_file_are_blocks_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "LEAST_ROWS", 0)
    result = verified(tmp_path, committed(tmp_path, "dynamo", fault="expert", at=3, experts="all"))
    bad = {str(c.block) for c in result.checks if c.verdict == "diverged" and c.block}
    assert {block for block in bad if "+" not in block} == {"layers.1.experts.1"}


@pytest.mark.slow
@pytest.mark.parametrize("row", ["first", "border", "last"])
def test_a_wrong_weight_of_a_head_in_rows_is_found_in_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str
) -> None:
    monkeypatch.setattr(partition, "LEAST_ROWS", 0)
    spec = project(tmp_path, words=300)
    heads = [
        path
        for path in blocks_of(with_heads_apart(build_skeleton(spec, tmp_path)))
        if path.startswith("head.")
    ]
    wrong = {"first": heads[0], "border": heads[1], "last": heads[-1]}[row]
    external, rows = Stored.external, 0

    def damaged(self: Stored, name: str, folder: Path) -> ir.ExternalTensor:
        if not name.startswith(f"{wrong}.weight"):
            return external(self, name, folder)
        values = self.load(self.dtype).clone()
        nonlocal rows
        rows = len(values)
        values[-1 if row == "last" else 0, 3] += 1
        file = folder / "wrong.bin"
        file.write_bytes(values.view(torch.uint8).numpy().tobytes())
        return external(replace(self, file=file, offset=0), name, folder)

    monkeypatch.setattr(Stored, "external", damaged)
    result = verified(tmp_path, spec)
    assert (tmp_path / "wrong.bin").exists()
    assert result.verdict == "diverged", result.error
    bad = [c for c in result.checks if c.verdict == "diverged" and c.block]
    assert {c.block for c in bad} == {wrong}
    assert {c.worst.index[-1] for c in bad if c.worst is not None} == {
        rows - 1 if row == "last" else 0
    }


def test_it_goes_by_blocks_by_itself_where_memory_is_too_small(tmp_path: Path) -> None:
    spec = project(tmp_path)
    assert in_blocks(spec, tmp_path)
    for memory, expected in ((20 << 10, True), (64 << 30, False)):
        assert in_blocks(replace(spec, verify=None, memory=memory), tmp_path) is expected
    assert not in_blocks(replace(spec, verify="whole", memory=20 << 10), tmp_path)


def replaced(content: bytes, damage: str) -> bytes:
    """Return a file whose header has its last tensor at another place, or its place in another form."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    last = max((n for n in header if n != "__metadata__"), key=lambda n: header[n]["data_offsets"])
    by = {"overlap": -2, "gap": 2}.get(damage, 0)
    kind = {"text": str, "fraction": float}.get(damage, int)
    header[last]["data_offsets"] = [kind(each + by) for each in header[last]["data_offsets"]]
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[end:] + b"\0\0"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("short", r"ends at byte \d+, and the file at \d+: fetch or write the file again"),
        ("long header", "its header is too long: fetch"),
        ("empty", r"b.safetensors\) cannot be read: it is empty: fetch"),
        ("header only", "it ends before its header does: fetch"),
        ("header", "its header is damaged: it is no JSON object: fetch"),
        ("overlong tensor", "embed.weight does not have as many bytes as its shape takes: fetch"),
        ("overlap", r"begins at byte \d+, what is before it ends at \d+: fetch"),
        ("gap", r"begins at byte \d+, what is before it ends at \d+: fetch"),
        ("tail", r"its tensors end at byte \d+, and the file at \d+: fetch"),
        ("text", "the data_offsets of .* are not two whole numbers: fetch"),
        ("fraction", "the data_offsets of .* are not two whole numbers: fetch"),
    ],
)
def test_a_damaged_checkpoint_is_an_error(tmp_path: Path, damage: str, words: str) -> None:
    spec = project(tmp_path)
    assert spec.weights is not None
    path = tmp_path / "b.safetensors"
    content = path.read_bytes()
    if damage == "short":
        content = content[:-1]
    elif damage == "long header":
        content = (1 << 40).to_bytes(8, "little") + content[8:]
    elif damage == "empty":
        content = b""
    elif damage == "header only":
        content = content[:20]
    elif damage == "header":
        content = content[:8] + b"\xff" + content[9:]
    elif damage == "tail":
        content += b"\0"
    elif damage == "overlong tensor":
        content = content.replace(b'"shape":[50,16]', b'"shape":[50,17]')
    else:
        content = replaced(content, damage)
    path.write_bytes(content)
    with pytest.raises(GateError, match=words) as caught:
        find_stored(spec.weights, tmp_path)
    assert caught.value.code == "OG205"


def test_a_checkpoint_without_tensors_is_one(tmp_path: Path) -> None:
    """What its model lacks is said where the two are held against each other."""
    (tmp_path / "none.safetensors").write_bytes(save({}))
    assert find_stored(WeightsSpec("none.safetensors"), tmp_path).tensors == {}


@pytest.mark.slow
def test_runs_with_moved_rounding_load_a_block_once_for_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = project(tmp_path)
    stored = find_stored(spec.weights, tmp_path).tensors["layers.1.qkv.weight"]  # type: ignore[arg-type]
    loads, load, rounding = [], Stored.load, TogetherReference.rounding
    made: list[Any] = []
    alone: list[Any] = []

    def counted(self: Stored, dtype: torch.dtype) -> torch.Tensor:
        loads.extend([self] if self == stored else ())
        return load(self, dtype)

    def noted(self: TogetherReference, count: int) -> list[Any]:
        before = len(loads)
        runs = rounding(self, count)
        times = len(loads) - before
        said = self.outputs.arrays[0]
        if not made:
            whole = [CaseReference._run_moved(self, seed) for seed in range(len(runs))]
            alone.extend(run[0] - said for run in whole if run is not None)
        made.append((times, len(runs), [run[0] - said for run in runs]))
        return runs

    monkeypatch.setattr(Stored, "load", counted)
    monkeypatch.setattr(TogetherReference, "rounding", noted)
    result = verified(tmp_path, spec)
    assert result.verdict == "pass", result.error
    times, runs, moves = made[0]
    assert (times, runs) == (1, 4)
    assert sum(each[0] for each in made) <= 3
    # They differ from each other, and by as much as runs of the whole module do.
    assert all((a != b).any() for a, b in itertools.combinations(moves, 2))
    sizes = [np.sqrt(np.mean(np.square(each))) for each in moves]
    whole = [np.sqrt(np.mean(np.square(each))) for each in alone]
    assert 0.5 < np.mean(sizes) / np.mean(whole) < 2


RESIDUAL = """
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(16) + 0.5)

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(16, 16), Norm(), nn.Linear(16, 16)

    def forward(self, x):
        return self.down(self.norm(x + self.up(x) * torch.sigmoid(x)))
"""


@pytest.mark.slow
def test_what_a_committed_file_computes_between_blocks_is_judged_apart(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(compile(RESIDUAL, "residual.py", "exec"), names)
    torch.manual_seed(0)
    module = names["Residual"]().eval()
    (tmp_path / "residual.py").write_text(RESIDUAL)
    save_file(module.state_dict(), tmp_path / "w.safetensors")
    dynamic = {"x": {0: "batch"}}
    torch.onnx.export(
        module, (torch.randn(2, 16),), tmp_path / "m.onnx", dynamic_shapes=dynamic, verbose=False
    )
    path = tmp_path / "onnx-gate.yml"
    path.write_text(
        "version: 1\nmodels:\n  m: {model: residual.py:Residual, weights: w.safetensors, onnx: m.onnx, "
        'verify: blocks, inputs: {x: "float32[batch, 16]"}}\n'
    )
    result = verified(tmp_path, load(path).models[0])
    assert result.verdict == "pass"
    judged = {check.output for check in result.checks if check.block}
    assert judged == {"up", "norm:in", "norm", "down"}


LIMITED = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, limit):
        super().__init__()
        self.proj, self.limit = nn.Linear(16, 16), limit

    def forward(self, x):
        return x + self.proj(x).clamp(-self.limit, self.limit) / 8


class Limited(nn.Module):
    def __init__(self, limits=(30.0, 30.0, 30.0)):
        super().__init__()
        self.layers = nn.ModuleList(map(Layer, limits))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
"""


@pytest.mark.slow
def test_what_no_input_reaches_in_a_block_is_compared_at_its_operator(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(compile(LIMITED, "limited.py", "exec"), names)
    torch.manual_seed(0)
    right, wrong = names["Limited"]().eval(), names["Limited"]((30.0, 20.0, 30.0)).eval()
    wrong.load_state_dict(right.state_dict())
    (tmp_path / "limited.py").write_text(LIMITED)
    save_file(right.state_dict(), tmp_path / "w.safetensors")
    entries = []
    for name, module in {"right": right, "wrong": wrong}.items():
        torch.onnx.export(
            module,
            (torch.randn(2, 16),),
            tmp_path / f"{name}.onnx",
            dynamic_shapes={"x": {0: "batch"}},
            verbose=False,
        )
        entries.append(
            f"  {name}: {{model: limited.py:Limited, weights: w.safetensors, onnx: {name}.onnx, "
            "verify: blocks, inputs: {x: {dtype: float32, shape: [batch, 16], range: [-3, 3]}}}"
        )
    path = tmp_path / "onnx-gate.yml"
    path.write_text("\n".join(["version: 1", "models:", *entries]))
    known: dict[str, dict[str, Any]] = {}
    context = Context(tmp_path, tmp_path / "out", blocks=known)

    def keep(event: dict[str, Any]) -> None:
        if event["kind"] == BLOCK:
            known[event["key"]] = event["value"]

    for spec, found in zip(load(path).models, (0, 2), strict=True):
        for _ in range(2):  # the second time blocks are as they were
            result = verify(spec, context, keep)
            assert result.verdict == "pass"
            told = [f.message for f in result.findings if f.code == "OG419"]
            assert len(told) == found  # below and above
            assert all(message.startswith("layers.1 (limited.py:12): clamp") for message in told)
            assert result.decisions is not None
            assert (result.decisions.compared, result.decisions.never) == (6, ())


def test_a_piece_is_fed_with_nothing_that_a_later_call_is_given(tmp_path: Path) -> None:
    """A table that all blocks read is found where the first that agrees begins, and made before it."""
    nodes = [("Cos", ["x"], "c"), ("Mul", ["x", "c"], "a"), ("Mul", ["a", "c"], "b")]
    shape = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(kind, given, [made]) for kind, given, made in nodes],
        "g",
        [shape],
        [onnx.helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [2])],
    )
    calls = (BlockCall("0", "0", {}, {0: "a"}), BlockCall("1", "1", {0: "a", 1: "c"}, {0: "b"}))
    exported: Any = SimpleNamespace(proto=onnx.helper.make_model(graph))
    divided = Divided(exported, calls, {}, frozenset(), tmp_path, None, frozenset())
    known = {"x"}
    for stage in Pieces(divided).stages:
        assert known.issuperset(stage.piece.needs)
        known.update(stage.piece.outputs)
