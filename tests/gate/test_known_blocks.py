"""Blocks that are verified are not verified again: after a kill, and where one layer is another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelResult
from tests.support.blocks_project import committed, project
from tests.support.gate import environment_with, gate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BLOCKS = ("embed", "layers.0", "layers.1", "layers.2")


def verified(folder: Path, *arguments: str) -> ModelResult:
    done = gate("run", *arguments, cwd=folder)
    (model,) = read_report(folder / "onnx-gate-report" / "report.json").models
    assert model.verdict == "pass", done.stdout + done.stderr
    return model


def known(model: ModelResult) -> int:
    (said,) = (finding for finding in model.findings if finding.code == "OG433")
    return int(said.data["known"])


def written(journal: Path) -> list[str]:
    """The names of the blocks that a journal has."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    entries = [json.loads(line.partition(" ")[2]) for line in lines if line.endswith("}")]
    return [entry["value"]["checks"][0]["block"] for entry in entries if "value" in entry]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_killed_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    project(tmp_path, slow=0.05)
    process = subprocess.Popen(
        [sys.executable, "-m", "onnx_gate", "run"],
        cwd=tmp_path,
        env=environment_with(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    journal = tmp_path / "onnx-gate-report" / "interrupted" / "blocks" / "decoder.jsonl"
    until = time.monotonic() + 300
    while len(written(journal)) < 2:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.01)
    os.killpg(process.pid, number)
    said, _ = process.communicate(timeout=60)
    kept = "the blocks that were verified are kept, and the next run goes on from them"
    assert (kept in " ".join(said.split())) == (number == signal.SIGINT), said
    before = written(journal)
    assert before == list(BLOCKS[: len(before)])
    assert len(before) < len(BLOCKS)
    with journal.open("a") as file:
        file.write('{"key": 3, "value": [')  # a line that was cut off

    after = verified(tmp_path)
    assert known(after) == len(before)
    # It has come to its end, and the next begins anew.
    assert not journal.parent.parent.exists()
    anew = verified(tmp_path)
    assert known(anew) == 0
    assert after.checks == anew.checks


def other(folder: Path, shard: str, name: str) -> None:
    """Make one weight another one, in its place in the file."""
    tensors = load_file(folder / shard)
    tensors[name] = (tensors[name].float() * 1.25).to(tensors[name].dtype)
    save_file(tensors, folder / shard)


def another_layer(folder: Path) -> None:
    other(folder, "b.safetensors", "layers.2.out.weight")


def the_first_layer(folder: Path) -> None:
    other(folder, "b.safetensors", "layers.0.out.weight")


def swapped(folder: Path) -> None:
    tensors = load_file(folder / "b.safetensors")
    one, two = "layers.2.norm.weight", "layers.2.norm.bias"
    tensors[one], tensors[two] = tensors[two].clone(), tensors[one].clone()
    save_file(tensors, folder / "b.safetensors")


def further_on(folder: Path) -> None:
    """Have the same weights at other places in their file."""
    for shard in folder.glob("*.safetensors"):
        save_file(load_file(shard), shard, metadata={"written": "again, by another tool"})


def other_code(folder: Path) -> None:
    with (folder / "model.py").open("a") as file:
        file.write("# nothing else\n")


def other_rule(folder: Path) -> None:
    with (folder / "onnx-gate.yml").open("a") as file:
        file.write("    tolerance: {auto: 9}\n")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blocks")
    project(folder)
    assert known(verified(folder, "--cache", "cache")) == 0
    return folder


@pytest.mark.parametrize(
    ("change", "held"),
    [
        (another_layer, 3),
        (swapped, 3),
        (further_on, 4),
        # What is behind it is given other values.
        (the_first_layer, 1),
        (other_code, 0),
        (other_rule, 0),
    ],
)
def test_what_is_as_it_was_is_not_verified_again(
    original: Path, tmp_path: Path, change: Callable[[Path], None], held: int
) -> None:
    folder = tmp_path / "elsewhere"
    subprocess.run(["cp", "-r", str(original), str(folder)], check=True)
    change(folder)
    after = verified(folder, "--cache", "cache")
    assert not after.cached
    assert known(after) == held
    anew = verified(folder, "--no-cache")
    assert known(anew) == 0
    assert after.checks == anew.checks
    assert after.verdict == anew.verdict
    # Both halves of the keys hold now for all blocks, whatever became of the verdict itself.
    for entry in (folder / "cache" / "entries").rglob("*.entry"):
        entry.unlink()
    assert known(verified(folder, "--cache", "cache")) == len(BLOCKS)


def test_external_data_count_for_the_blocks_that_read_them(tmp_path: Path) -> None:
    committed(tmp_path, "dynamo")
    assert known(verified(tmp_path, "--cache", "cache")) == 0
    name = "layers.2.out.weight"
    before = load_file(tmp_path / "b.safetensors")[name].numpy().tobytes()
    other(tmp_path, "b.safetensors", name)
    after = load_file(tmp_path / "b.safetensors")[name].numpy().tobytes()
    weights = (tmp_path / "w.bin").read_bytes()
    one, two = (
        np.frombuffer(each, np.float32).reshape(16, 16).T.tobytes() for each in (before, after)
    )
    changed = weights.replace(before, after).replace(one, two)
    assert changed != weights
    (tmp_path / "w.bin").write_bytes(changed)
    assert known(verified(tmp_path, "--cache", "cache")) == len(BLOCKS) - 1
    # The file's are stale, of a layer whose own are what they were: what was known of it holds no more.
    (tmp_path / "w.bin").write_bytes(weights)
    gate("run", "--cache", "cache", cwd=tmp_path)
    (model,) = read_report(tmp_path / "onnx-gate-report" / "report.json").models
    assert {c.block for c in model.checks if c.verdict == "diverged" and c.block} == {"layers.2"}


def test_a_wrong_block_is_not_kept(tmp_path: Path) -> None:
    project(tmp_path, fault="weight", at=1)
    for _ in range(2):
        gate("run", "--cache", "cache", cwd=tmp_path)
        (model,) = read_report(tmp_path / "onnx-gate-report" / "report.json").models
        assert model.verdict == "diverged"
        blocks = {c.block for c in model.checks if c.verdict == "diverged" and c.block}
        assert blocks == {"layers.1"}
        assert "layers.1" not in written(tmp_path / "cache" / "blocks" / "decoder.jsonl")
        for entry in (tmp_path / "cache" / "entries").rglob("*.entry"):
            entry.unlink()
    assert known(model) == len(BLOCKS) - 1
