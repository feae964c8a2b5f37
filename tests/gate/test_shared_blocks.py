"""Several machines that share a model's blocks come to what one comes to, and no part is the whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelResult
from tests.support.blocks_project import project
from tests.support.gate import gate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def result(folder: Path) -> ModelResult:
    (model,) = read_report(folder / "report.json").models
    return model


def shared(folder: Path, shards: int) -> list[ModelResult]:
    planned = gate("plan", "--shards", str(shards), cwd=folder)
    assert f"; {shards} share the blocks of decoder" in planned.stderr
    for place, shard in enumerate(json.loads(planned.stdout)["shard"]):
        gate("run", "--shard", shard, "--output", f"parts/{place}", cwd=folder)
    return [result(folder / f"parts/{place}") for place in range(shards)]


def merged(folder: Path) -> tuple[int, ModelResult]:
    done = gate("merge", "parts", "-m", "onnx-gate.yml", "-o", "merged", cwd=folder)
    return done.returncode, result(folder / "merged")


def test_parts_come_to_what_the_whole_comes_to(tmp_path: Path) -> None:
    waivers = 'waivers: [{check: "random/*", until: 2999-01-01, reason: why, ceiling: 1.0e-9}]'
    project(tmp_path, words=60, more=waivers)
    whole = gate("run", "--no-cache", cwd=tmp_path)
    alone = result(tmp_path / "onnx-gate-report")
    assert alone.verdict == "pass", whole.stdout
    parts = shared(tmp_path, 2)
    own = [{check.block for check in part.checks} for part in parts]
    # The end is one part's, and so are the runtime's own values, and the pair across the border.
    assert ["" in blocks for blocks in own] == [False, True]
    pairs = [[pair.split(" + ") for pair in blocks if " + " in pair] for blocks in own]
    assert all(first in own[0] and second in own[0] for first, second in pairs[0])
    assert [first for first, second in pairs[1] if first in own[0] and second in own[1]]

    status, one = merged(tmp_path)
    assert status == whole.returncode
    assert (one.verdict, one.portion, one.checks) == ("pass", None, alone.checks)
    assert one.decisions == alone.decisions is not None
    assert [part.decisions and part.decisions.of for part in parts] == [1, 0]
    told = {finding for finding in one.findings if finding.code != "OG433"}
    assert told == {finding for finding in alone.findings if finding.code != "OG433"}

    shutil.rmtree(tmp_path / "parts/1")
    status, short = merged(tmp_path)
    assert status == 1
    assert short.verdict == "error"
    assert short.error is not None
    assert "no report has part 2 of 2 of its blocks" in short.error.message


def test_the_part_that_has_a_wrong_block_finds_it(tmp_path: Path) -> None:
    project(tmp_path, words=60, experts="all", fault="weight", at=2)
    gate("run", "--shard", "2/2", "--no-cache", cwd=tmp_path)
    part = result(tmp_path / "onnx-gate-report")
    assert part.portion is not None
    assert part.verdict == "diverged"
    inside = {check.block for check in part.checks if check.block and check.verdict == "diverged"}
    assert inside == {"layers.2"}
    # What leads to the experts decides, and is called on each machine: it is counted on the first.
    assert part.decisions is None or not part.decisions.of
    assert part.diagnosis is not None
    assert "layers.2" in part.diagnosis.cause


def test_more_machines_than_blocks_are_too_many(tmp_path: Path) -> None:
    project(tmp_path)
    done = gate("run", "--shard", "9/9", "--no-cache", cwd=tmp_path)
    part = result(tmp_path / "onnx-gate-report")
    assert done.returncode == 1
    assert part.error is not None
    assert part.error.code == "OG434"
    assert "and 9 machines are to share them" in part.error.message
    assert part.portion is not None
