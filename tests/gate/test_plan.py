"""Shards: every model in one of them, the same in every job, and the command that plans them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_gate.errors import UserError
from onnx_gate.gate.outcome import result_of
from onnx_gate.gate.shards import (
    BALANCE,
    Unit,
    balance,
    matrix,
    parse_shard,
    part,
    partition,
    shard_of,
    shard_text,
    units,
)
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.io import read_report, to_json, to_message
from onnx_gate.report.join.amiss import plan_of
from onnx_gate.report.model import ModelResult, Report, Shard
from onnx_gate.workers.pool import Outcome
from tests.support.gate import gate

NAMES = st.lists(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=12, unique=True)
WEIGHTS = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.sampled_from([0.0, 0.5, 3.0, 40.0, -1.0, math.nan, math.inf]),
)
MANIFEST = """version: 1
models:
  one: {model: "torch.nn:Identity", inputs: {input: "float32[2]"}}
  two: {model: "torch.nn:ReLU", inputs: {input: "float32[2]"}}
  three: {model: "torch.nn:Tanh", inputs: {input: "float32[2]"}}
"""


def names_of(parts: Sequence[Sequence[Unit]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(unit.name for unit in part) for part in parts)


def in_parts(
    names: Sequence[str], count: int, weights: Mapping[str, float] | None = None
) -> tuple[tuple[str, ...], ...]:
    return names_of(partition(units(names, count), count, weights))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "onnx-gate.yml").write_text(MANIFEST)
    return tmp_path


@given(NAMES, st.integers(1, 15), WEIGHTS)
def test_every_name_is_in_one_part(names: list[str], count: int, weights: dict[str, float]) -> None:
    parts = in_parts(names, count, weights)
    assert len(parts) == count
    assert sorted(name for each in parts for name in each) == sorted(names)
    assert all(list(each) == sorted(each, key=names.index) for each in parts)
    assert sum(not each for each in parts) == max(0, count - len(names))
    assert in_parts(names, count, dict(reversed(weights.items()))) == parts


@given(NAMES, st.integers(1, 5), st.data())
def test_parts_differ_by_no_more_than_one_model(
    names: list[str], count: int, data: st.DataObject
) -> None:
    weights = {name: data.draw(st.floats(0, 100)) for name in names}
    loads = [sum(weights[name] for name in each) for each in in_parts(names, count, weights)]
    assert max(loads) - min(loads) <= max(weights.values()) + 1e-6


def test_the_longest_go_first_and_what_is_unknown_is_usual() -> None:
    weights = {"a": 1.0, "b": 9.0, "c": 5.0, "d": 4.0}
    assert in_parts("abcd", 2, weights) == (("a", "b"), ("c", "d"))
    # x weighs 4.5, the median: after b and c, and before d.
    assert in_parts("xabcd", 3, weights) == (("b",), ("a", "c"), ("x", "d"))
    assert in_parts("abcd", 2) == (("a", "c"), ("b", "d"))


@pytest.mark.parametrize(
    ("models", "shards", "count"),
    [(3, 2, 2), (3, 9, 3), (3, "auto", 1), (9, "auto", 3), (500, "auto", 20), (500, 400, 256)],
)
def test_there_are_never_more_shards_than_models(models: int, shards: object, count: int) -> None:
    found = matrix([str(each) for each in range(models)], shards)["shard"]  # type: ignore[arg-type]
    assert found == [f"{index}/{count}" for index in range(1, count + 1)]
    assert [parse_shard(text) for text in found][-1] == Shard(index=count, count=count)


@given(NAMES, st.integers(1, 15), st.dictionaries(st.text("abcdef"), st.floats(0, 1e5)))
def test_a_shard_of_a_plan_by_durations_says_which_models_it_has(
    names: list[str], count: int, seconds: dict[str, float]
) -> None:
    shards = [parse_shard(text) for text in matrix(names, count, seconds)["shard"]]
    assert all((each.members is not None) == bool(set(names) & set(seconds)) for each in shards)
    # Each job knows its own string and the manifest, and nothing else.
    parts = names_of([part(names, shard) for shard in shards])
    assert sorted(name for each in parts for name in each) == sorted(names)
    assert all(list(each) == sorted(each, key=names.index) for each in parts)


@given(st.lists(st.floats(0.1, 2000), min_size=1, max_size=40), st.integers(0, 3))
def test_auto_never_has_one_shard_wait_for_another(times: list[float], new: int) -> None:
    seconds = {str(place): taken for place, taken in enumerate(times)}
    names = [*seconds, *(f"new{place}" for place in range(new))]
    parts = [part(names, parse_shard(text)) for text in matrix(names, "auto", seconds)["shard"]]
    assert balance(parts, seconds) <= BALANCE
    total = sum(times) + new * sorted(times)[len(times) // 2]
    assert len(parts) <= max(1, math.ceil(total / 300))


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=40), st.integers(2, 8))
def test_no_shard_is_longer_than_the_mean_by_more_than_its_last_model(
    times: list[float], count: int
) -> None:
    seconds = {str(place): taken for place, taken in enumerate(times)}
    names = list(seconds)
    parts = [part(names, parse_shard(text)) for text in matrix(names, count, seconds)["shard"]]
    mean = sum(times) / len(parts)
    for each in parts:
        load = [seconds[unit.name] for unit in each]
        assert len(load) == 1 or sum(load) - min(load) <= mean + 1e-6


def test_a_shard_of_other_models_is_refused() -> None:
    with pytest.raises(
        UserError, match="another manifest or other --model, as 'x' is none of the 5"
    ):
        part("abcde", parse_shard("1/2/a/x"))


def test_a_shard_has_its_models_in_the_manifests_order() -> None:
    assert names_of([part("abcde", parse_shard("2/2/e/a/c"))]) == (("a", "c", "e"),)


@given(
    st.lists(st.text(st.characters(exclude_characters="/"), min_size=1), min_size=1, unique=True),
    st.data(),
)
def test_a_shard_is_read_as_it_is_written(names: list[str], data: st.DataObject) -> None:
    for members in (tuple(names), None):
        shard = Shard(index=2, count=3, members=members)
        assert parse_shard(shard_text(shard)) == shard
    whole = data.draw(st.integers(0, len(names)))
    divided = [Unit(name, 2, data.draw(st.integers(2, 256))) for name in names[whole:]]
    shard = shard_of(2, 3, [*map(Unit, names[:whole]), *divided])
    assert parse_shard(shard_text(shard)) == shard


@given(NAMES, st.integers(1, 9), st.data())
def test_every_part_of_a_divided_model_is_in_a_shard_of_its_own(
    names: list[str], count: int, data: st.DataObject
) -> None:
    may = data.draw(st.sets(st.sampled_from(names)))
    known = data.draw(st.booleans())
    weights = {name: data.draw(st.floats(0.1, 100)) for name in names} if known else {}
    shards = [parse_shard(text) for text in matrix(names, count, weights, may)["shard"]]
    if not may:
        count = min(count, len(names))
    assert len(shards) == count
    # Each job knows its own string and the manifest, and nothing else.
    parts = [part(names, shard, may) for shard in shards]
    assert all(parts)
    assert all(len({unit.name for unit in each}) == len(each) for each in parts)
    every = [unit for each in parts for unit in each]
    for name in names:
        own = sorted((unit for unit in every if unit.name == name), key=lambda unit: unit.index)
        assert [unit.index for unit in own] == list(range(1, own[0].count + 1))
        assert {unit.count for unit in own} == {len(own)}
        assert len(own) == 1 or name in may
    # None is so heavy that a further machine would help: what can be divided is.
    load = {name: weights.get(name, 1.0) for name in names}
    mean = sum(load.values()) / count
    assert all(load[u.name] / u.count <= mean * (1 + 1e-9) for u in every if u.name in may)


def test_a_large_model_takes_the_shards_that_are_left() -> None:
    def text(shards: int, **seconds: float) -> list[str]:
        return matrix(["bert", "llama"], shards, seconds, {"llama"})["shard"]

    assert text(2) == ["1/2", "2/2"]
    assert part(["bert", "llama"], parse_shard("2/4"), {"llama"}) == (Unit("llama", 1, 3),)
    assert part(["bert", "llama"], parse_shard("4/4"), {"llama"}) == (Unit("llama", 3, 3),)
    assert text(2, bert=1.0, llama=9.0) == ["1/2/bert//llama/1/2", "2/2//llama/2/2"]
    with pytest.raises(UserError, match="'bert' has no verify: blocks, and cannot be divided"):
        part(["bert", "llama"], parse_shard("1/2//bert/1/2"), {"llama"})


def test_names_that_are_too_long_for_a_job_are_left_out() -> None:
    names = [f"model{number:0>90}" for number in range(2000)]
    assert matrix(names, 3, dict.fromkeys(names, 1.0)) == {"shard": ["1/3", "2/3", "3/3"]}
    longest = max(matrix(names[:1000], 1, dict.fromkeys(names, 1.0))["shard"], key=len)
    assert len(longest.encode()) < 128 * 1024


@pytest.mark.parametrize(
    "text",
    ["", "1", "0/3", "1/3.", "1/3/", "1/3//a", "1/3/a/", "/1/3", ".1",
     "4/3", "-1/3", "1/0", "a/b", "4/3/3", "1/257", "01/3", " 1/3", "1/3\n", "1 /3",
     "1.0/3", "١/3", "+1/3", "1/99999999999999999999", "1/3//a/1", "1/3//a/3/2", "1/3//a/1/1",
     "1/3/b//a/1/2/c", "1/3///1/2", "1/3//a/1/257"],
)  # fmt: skip
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="such as 2/3"):
        parse_shard(text)


def test_more_shards_than_models_are_refused() -> None:
    with pytest.raises(UserError, match="only 3 models; take the shards from `onnx-gate plan`"):
        part("abc", Shard(index=1, count=4))
    parts = [part("abcde", Shard(index=i, count=2)) for i in (1, 2)]
    assert names_of(parts) == (tuple("ace"), tuple("bd"))


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "shards"),
    [
        ([], ["1/1"]),
        (["--shards", "2"], ["1/2", "2/2"]),
        (["--shards", "999"], ["1/3", "2/3", "3/3"]),
        (["--shards", "9", "--model", "t*"], ["1/2", "2/2"]),
    ],
)
def test_plan_prints_a_matrix_on_one_line(
    folder: Path, arguments: list[str], shards: list[str]
) -> None:
    finished = gate("plan", *arguments, cwd=folder)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == json.dumps({"shard": shards}) + "\n"


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "--shards", "0"], "number from 1 on, or auto"),
        (["plan", "--shards", "many"], "number from 1 on, or auto"),
        (["plan", "--model", "ones"], "did you mean 'one'?"),
        (["plan", "--durations", "nowhere"], "nowhere: No such file"),
        (["plan", "--durations", "onnx-gate.yml"], "not a report"),
        (["run", "--shard", "1/2/one/four"], "'four' is none of the 3"),
        (["run", "--shard", "3/2"], "such as 2/3"),
        (["run", "--shard", "2/4"], "only 3 models"),
        (["run", "--shard", "2/2", "--model", "one"], "only 1 model;"),
        (["run", "--baseline", "nowhere.json"], "nowhere.json: No such file"),
        (["run", "--baseline", "onnx-gate.yml"], "not a report"),
    ],
)
def test_a_wrong_call_is_a_sentence_before_anything_is_verified(
    folder: Path, arguments: list[str], words: str
) -> None:
    finished = gate(*arguments, cwd=folder)
    assert finished.returncode == 2
    assert words in finished.stderr
    assert "Traceback" not in finished.stderr
    assert finished.stdout == ""
    assert not (folder / "onnx-gate-report").exists()


@pytest.mark.slow
def test_shards_verify_their_parts_and_merge_into_the_whole(folder: Path) -> None:
    first = gate("run", "--shard", "1/2", "--output", "parts/1", cwd=folder)
    assert first.returncode == 0, first.stdout + first.stderr
    report = read_report(folder / "parts/1/report.json")
    assert [(model.name, model.line) for model in report.models] == [("one", 3), ("three", 5)]
    plan = plan_of(["one", "two", "three"], 2)
    assert report.shard == Shard(index=1, count=2, plan=plan)

    missing = gate("merge", "parts", "--output", "merged", cwd=folder)
    assert missing.returncode == 1
    assert read_report(folder / "merged/report.json").verdict == "error"

    # The baseline is the very file that is written in the end.
    (folder / "parts/2").mkdir()
    report = report.model_copy(
        update={"models": (report.models[0].model_copy(update={"name": "two"}),)}
    )
    (folder / "parts/2/report.json").write_text(report.model_dump_json(by_alias=True))
    second = gate(
        *("run", "--shard", "2/2", "--output", "parts/2", "--baseline", "parts/2/report.json"),
        cwd=folder,
    )
    assert second.returncode == 0, second.stdout + second.stderr
    compared = read_report(folder / "parts/2/report.json")
    assert compared.baseline is not None
    assert [model.base for model in compared.models] == ["pass"]
    assert {check.base.verdict for check in compared.models[0].checks if check.base} == {"pass"}

    whole = gate("merge", "parts", "-m", "onnx-gate.yml", "-o", "merged", cwd=folder)
    assert whole.returncode == 0, whole.stdout + whole.stderr
    merged = read_report(folder / "merged/report.json")
    assert [model.name for model in merged.models] == ["one", "two", "three"]
    assert merged.verdict == "pass"


@pytest.mark.slow
def test_jobs_share_a_plan_by_durations_and_nothing_else(folder: Path) -> None:
    past = {"one": 5.0, "two": 3.0, "three": 4.0}
    models = [ModelResult(name=name, verdict="pass", seconds=past[name]) for name in past]
    values = {"verdict": "pass", "counts": {"pass": 3}, "manifest": {"path": "", "sha256": ""}}
    for place, each in enumerate(models):
        (folder / f"earlier/{place}").mkdir(parents=True)
        report = Report.model_validate({**values, "models": [each]})
        (folder / f"earlier/{place}/report.json").write_text(to_json(report))
    planned = gate("plan", "--shards", "2", "--durations", "earlier", cwd=folder)
    assert planned.returncode == 0, planned.stderr
    shards = json.loads(planned.stdout)["shard"]
    assert shards == ["1/2/one", "2/2/two/three"]
    said = "3 models in 2 shards; the longest takes 1.17 times the mean\n"
    assert planned.stderr == said
    for shard, output in zip(shards, "12", strict=True):
        done = gate("run", "--shard", shard, "--output", f"parts/{output}", cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
    merged = gate("merge", "parts", "-m", "onnx-gate.yml", "-o", "merged", cwd=folder)
    assert merged.returncode == 0, merged.stdout
    names = [model.name for model in read_report(folder / "merged/report.json").models]
    assert names == ["one", "two", "three"]
    # The other shard of a plan without durations has some of the same models.
    other = gate("run", "--shard", "2/2", "--output", "parts/2", cwd=folder)
    assert other.returncode == 0, other.stdout
    mixed = gate("merge", "parts", "-o", "mixed", cwd=folder)
    assert mixed.returncode == 1
    assert "some shards were planned with durations and some without" in mixed.stdout


@pytest.mark.parametrize("end", ["done", "signal"])
def test_the_line_of_a_model_is_the_manifests_whatever_its_worker_says(end: str) -> None:
    spec = ModelSpec(name="net", model="a:b", inputs={}, line=7)
    said = ModelResult(name="net", verdict="pass", line=99)
    outcome = Outcome(({"model": to_message(said)},), end, "", (), 0.0, 0)  # type: ignore[arg-type]
    assert result_of(spec, outcome, "net.log").line == 7


@pytest.mark.process
def test_planning_merging_and_guarding_load_nothing_heavy() -> None:
    code = (
        "import sys, onnx_gate.guard, onnx_gate.report.join.baseline, onnx_gate.gate.shards, "
        "onnx_gate.report.join.merge, onnx_gate.gate.deliver\n"
        "print(*{'torch', 'onnx', 'onnxruntime', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == []
