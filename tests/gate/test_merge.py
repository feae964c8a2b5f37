"""The parts of a report make the whole again, and whatever is missing is an error."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_gate.findings.codes import OG506, OG602
from onnx_gate.gate.shards import partition, units
from onnx_gate.manifest import load
from onnx_gate.report.io import read_report, to_json, write_text
from onnx_gate.report.join.merge import merge, merge_files
from onnx_gate.report.join.report_files import find_reports
from onnx_gate.report.join.verdict import count, overall, worst_verdict
from onnx_gate.report.model import (
    Baseline,
    Change,
    ExportInfo,
    ManifestInfo,
    ModelError,
    ModelResult,
    Portion,
    Problem,
    Report,
    Run,
    Sandbox,
    Shard,
    Stage,
)
from tests.support.gate import gate
from tests.support.report.reports import check

VERSIONS = {"python": "3.11.4", "torch": "2.13.0", "onnx": "1.19", "onnxruntime": "1.31.1"}
MANIFEST = ManifestInfo(path="onnx-gate.yml", sha256="ab" * 32)
FILE: dict[str, Any] = {"exporter": "file", "opset": 20, "bytes": 1, "nodes": 1}


def report(models: list[ModelResult], **changes: Any) -> Report:
    values = {
        "verdict": overall(models),
        "counts": count(models),
        "environment": VERSIONS,
        "manifest": MANIFEST,
        "models": tuple(models),
        "notes": ("a note",),
        "sandbox": Sandbox(level="partial", uid=65534, landlock=4, missing=("seccomp",)),
        "changes": (Change(kind="tolerance", model="a", message="atol", line=3),),
        "baseline": Baseline(sha="4f1c2e9"),
        **changes,
    }
    return Report.model_validate(values)


def model(name: str, line: int | None, verdict: str = "pass", required: bool = True) -> ModelResult:
    return ModelResult.model_validate(
        {
            "name": name,
            "line": line,
            "verdict": verdict,
            "required": required,
            "stages": (Stage(name="verify", seconds=1.5),),
            "checks": (check("typical/0"),),
        }
    )


def parts(whole: Report, total: int) -> list[Report]:
    """Split a report as the jobs of a plan do."""
    split = partition(units([each.name for each in whole.models], total), total)
    return [
        report(
            [each for each in whole.models if each.name in {unit.name for unit in own}],
            shard=Shard(index=index, count=total),
        )
        for index, own in enumerate(split, 1)
    ]


@st.composite
def reports(draw: st.DrawFn) -> Report:
    names = draw(st.lists(st.text("abcxyz", min_size=1, max_size=3), min_size=1, unique=True))
    verdicts = st.sampled_from(["pass", "diverged", "error"])
    return report(
        [
            model(name, line, draw(verdicts), draw(st.booleans()))
            for line, name in enumerate(names, 3)
        ]
    )


@given(reports(), st.data())
def test_splitting_and_merging_gives_the_report_back(whole: Report, data: st.DataObject) -> None:
    total = data.draw(st.integers(1, len(whole.models)))
    split = data.draw(st.permutations(parts(whole, total)))
    assert merge(split) == whole
    names = [each.name for each in whole.models]
    assert merge(split, names, MANIFEST) == whole

    lost = split.pop(data.draw(st.integers(0, total - 1)))
    assert lost.shard is not None
    short = merge(split, names)
    assert short.verdict == "error"
    absent = {each.name for each in lost.models}
    assert [each.name for each in short.models] == names
    assert [each for each in whole.models if each.name not in absent] == [
        each for each in short.models if each.name not in absent
    ]
    assert {each.name for each in short.models if code_of_error(each) == OG506.code} == absent
    if split:
        messages = " ".join(problem.message for problem in short.problems)
        assert f"no report of shard {lost.shard.index}/{total};" in messages
    assert merge(split).verdict == "error"


def test_models_on_one_line_keep_the_order_of_their_names_in_the_manifest() -> None:
    whole = report([model("z", 3), model("a", 3), model("b", None)])
    assert [m.name for m in merge(parts(whole, 2), ["z", "a", "b"]).models] == ["z", "a", "b"]
    assert [m.name for m in merge(parts(whole, 2)).models] == ["a", "z", "b"]


def in_portions(result: ModelResult, ends: list[int]) -> list[ModelResult]:
    """Split a result as machines do that share a model's blocks, behind each of these checks."""
    borders = [0, *ends, len(result.checks)]
    return [
        result.model_copy(
            update={
                "checks": result.checks[first:last],
                "portion": Portion(index=index, count=len(borders) - 1, of="x"),
                "stages": (Stage(name="verify", seconds=1.5 / (len(borders) - 1)),),
                "verdict": worst_verdict(
                    "diverged" if each.verdict == "diverged" else "pass"
                    for each in result.checks[first:last]
                ),
            }
        )
        for index, (first, last) in enumerate(itertools.pairwise(borders), 1)
    ]


BLOCKS = model("llm", 7).model_copy(
    update={
        "checks": tuple(check(f"typical/{n}", "diverged" if n == 5 else "pass") for n in range(8))
    }
)
BLOCKS = BLOCKS.model_copy(update={"verdict": "diverged"})


@given(st.sets(st.integers(1, 7), min_size=1), st.data())
def test_parts_of_a_models_blocks_make_the_model_again(ends: set[int], data: st.DataObject) -> None:
    portions = in_portions(BLOCKS, sorted(ends))
    shards = [
        report([each], shard=Shard(index=index, count=len(portions)))
        for index, each in enumerate(portions, 1)
    ]
    whole = merge(data.draw(st.permutations(shards)), ["llm"], MANIFEST)
    stages = (Stage(name="verify", seconds=1.5, times=len(shards)),)
    assert whole.models == (BLOCKS.model_copy(update={"stages": stages}),)
    assert whole.verdict == "diverged"
    assert not whole.problems

    lost = data.draw(st.integers(0, len(shards) - 1))
    short = merge([*shards[:lost], *shards[lost + 1 :]], ["llm"], MANIFEST)
    assert short.verdict == "error"
    (one,) = short.models
    assert code_of_error(one) == OG506.code
    assert one.error is not None
    if len(shards) > 1:
        assert f"no report has part {lost + 1} of {len(shards)} of its blocks" in one.error.message


FIRST, SECOND = in_portions(BLOCKS.model_copy(update={"checks": BLOCKS.checks[:4]}), [2])


def _of(result: ModelResult, **changes: Any) -> ModelResult:
    assert result.portion is not None
    return result.model_copy(update={"portion": result.portion.model_copy(update=changes)})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([FIRST], "no report has part 2 of 2"),
        ([FIRST, FIRST], "no report has part 2 of 2"),
        ([FIRST, _of(SECOND, count=3)], "divided in 2, 3 parts"),
        ([FIRST, _of(SECOND, index=3)], "a part that is none of"),
        ([_of(FIRST, count=10**5000)], "a part that is none of"),
        ([FIRST, _of(SECOND, of="y")], "not of the same model, weights and file"),
        (
            [
                FIRST.model_copy(update={"export": ExportInfo(**FILE, files={"a.onnx": "1"})}),
                SECOND.model_copy(update={"export": ExportInfo(**FILE, files={"a.onnx": "2"})}),
            ],
            "not of the same model, weights and file",
        ),
    ],
)
def test_parts_that_are_not_the_whole_are_never_green(given: list[ModelResult], words: str) -> None:
    # Without shards, too, as of reports that somebody has put together.
    merged = merge([report([each]) for each in given])
    assert merged.verdict == "error"
    (one,) = merged.models
    assert one.verdict == "error"
    assert one.error is not None
    assert words in one.error.message


def test_what_ends_one_part_ends_the_model_and_says_which() -> None:
    failed = ModelError(kind="timeout", code="OG502", message="it took too long")
    second = SECOND.model_copy(update={"verdict": "error", "error": failed, "checks": ()})
    (one,) = merge([report([FIRST]), report([second])]).models
    assert one.verdict == "error"
    assert one.error is not None
    assert one.error.message == "part 2 of 2: it took too long"
    assert one.checks == FIRST.checks


def test_a_waiver_that_one_part_needs_is_needed() -> None:
    unneeded = OG602.finding("the waiver for a was not needed (why): remove it")
    other = OG602.finding("the waiver for b was not needed (why): remove it")
    first = FIRST.model_copy(update={"findings": (unneeded, other)})
    second = SECOND.model_copy(update={"findings": (other,)})
    (one,) = merge([report([first]), report([second])]).models
    assert one.findings == (other,)


WHOLE = report([model("a", 3), model("b", 4, "diverged"), model("c", 5)])
A, B, C = parts(WHOLE, 3)
RUN, OTHER = Run(id=17, attempt=1, sha="a" * 40), Run(id=18, attempt=1, sha="a" * 40)


def code_of_error(model: ModelResult) -> str | None:
    return model.error.code if model.error is not None else None


def changed(part: Report, **changes: Any) -> Report:
    return part.model_copy(update=changes)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "there is no report to merge"),
        ([A, B], "no report of shard 3/3;"),
        ([C], "no report of shard 1/3, 2/3;"),
        ([A, B, C, changed(C, models=())], "several reports of shard 3/3;"),
        ([A, B, changed(C, shard=Shard(index=3, count=4))], "plans of 3, 4 shards"),
        ([A, B, changed(C, shard=Shard(index=4, count=3))], "shard 4/3 is none of"),
        ([A, B, changed(C, shard=Shard(index=9, count=10**5000))], "very many is none of"),
        ([A, B, changed(C, shard=None)], "1 of 3 reports are of no shard"),
        (
            [A, B, changed(C, manifest=ManifestInfo(path="", sha256="x"))],
            "different manifests: 'ab",
        ),
        (
            [changed(WHOLE, manifest=ManifestInfo(path="", sha256="x"))],
            "another manifest than this",
        ),
        *(
            (
                [A, B, changed(C, environment={**VERSIONS, name: "0.1"})],
                f"{name} is not the same everywhere: '{VERSIONS[name]}' in shard 1/3, shard 2/3; "
                "'0.1' in shard 3/3",
            )
            for name in VERSIONS
        ),
        ([A, B, changed(C, models=(*C.models, *A.models))], "several results for 'a'"),
        ([A, B, changed(C, run=RUN), changed(C, run=OTHER)], "of different runs"),
        ([A, B, changed(C, problems=(Problem(message="out of disk"),))], "out of disk"),
    ],
)
def test_what_does_not_fit_is_an_error_and_every_model_has_one_row(
    given: list[Report], words: str
) -> None:
    merged = merge(given, ["a", "b", "c"], MANIFEST)
    assert merged.verdict == "error"
    assert words in " ".join(problem.message for problem in merged.problems)
    assert [m.name for m in merged.models] == ["a", "b", "c"]
    verified = {m.name for part in given for m in part.models}
    assert {m.name for m in merged.models if code_of_error(m) != OG506.code} == verified
    assert merged.counts == count(merged.models)
    assert Report.model_validate_json(to_json(merged)) == merged


def test_of_several_results_the_worst_counts_once() -> None:
    broken = changed(A, models=(A.models[0].model_copy(update={"verdict": "diverged"}),))
    for twice in ([A, broken, B, C], [broken, A, B, C]):
        merged = merge(twice, ["a", "b", "c"])
        assert merged.models[0].verdict == "diverged"
        assert (merged.counts.passed, merged.counts.diverged) == (1, 2)


def test_what_another_run_has_made_stands_in_for_nothing() -> None:
    ours = [changed(part, run=RUN) for part in (A, B)]
    for made in (OTHER, RUN.model_copy(update={"sha": "e" * 40}), None):
        merged = merge([*ours, changed(C, run=made)], ["a", "b", "c"], MANIFEST, RUN)
        assert merged.verdict == "error"
        assert [code_of_error(m) for m in merged.models] == [None, None, OG506.code]
        [foreign, absent] = [problem.message for problem in merged.problems]
        assert foreign.startswith("made by another run than this (run 17 at 'aaaaaaa')")
        assert "no report of shard 3/3" in absent
    assert merge([*ours, changed(C, run=RUN)], ["a", "b", "c"], MANIFEST, RUN).problems == ()


def test_a_job_that_was_run_again_takes_the_place_of_its_first_attempt() -> None:
    again = RUN.model_copy(update={"attempt": 2})
    failed = changed(C, run=RUN, models=(), problems=(Problem(message="out of disk"),))
    given = [changed(A, run=RUN), changed(B, run=RUN), failed, changed(C, run=again)]
    assert merge(given, ["a", "b", "c"], MANIFEST, again).problems == ()
    assert merge(given, ["a", "b", "c"], MANIFEST).run == again
    # An attempt that has not been made yet made nothing.
    assert merge(given, ["a", "b", "c"], MANIFEST, RUN).verdict == "error"


def test_what_a_later_version_adds_is_left_unread() -> None:
    text = to_json(WHOLE).replace('"name":"a",', '"name":"a","mood":"sunny",')
    assert "sunny" in text
    assert Report.model_validate_json(text) == WHOLE


def planned(whole: Report, *lists: str, index: int = 1) -> list[Report]:
    """The reports of shards that have these models of the manifest."""
    return [
        report(
            [each for each in whole.models if each.name in part],
            shard=Shard(index=place, count=len(lists), members=tuple(part)),
        )
        for place, part in enumerate(lists, index)
    ]


NINE = report([model(name, line) for line, name in enumerate("abcdefghi", 3)])


@given(st.permutations("abcdefghi"), st.integers(1, 4))
def test_shards_of_a_plan_by_durations_make_the_whole_again(order: list[str], total: int) -> None:
    split = planned(NINE, *("".join(order[place::total]) for place in range(total)))
    assert merge(split, "abcdefghi", MANIFEST) == NINE == merge(split)
    if total > 1:
        said = " ".join(problem.message for problem in merge(split[1:]).problems)
        assert f"no report of shard 1/{total};" in said


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (planned(NINE, "abcd", "efgh"), "'i' is in no shard"),
        (planned(NINE, "abcde", "efghi"), "'e' is in several shards"),
        (parts(NINE, 2)[:1] + planned(NINE, "a", "bcdefghi")[1:], "some without"),
        (planned(NINE, "abcd", "efghi")[:1] + planned(WHOLE, "a", "bc")[1:], "is in no shard"),
        (planned(WHOLE, "a", "bc"), "'d', 'e', 'f', 'g', 'h', 'i' is in no shard"),
        (planned(report([*NINE.models, model("j", 20)]), "abcde", "fghij"), "the plan has 'j'"),
        (
            [changed(planned(NINE, "abcdefghi")[0], models=NINE.models[:8])],
            "shard 1/1 has no result for 'i'",
        ),
    ],
)
def test_a_plan_that_does_not_cover_the_models_once_is_an_error(
    given: list[Report], words: str
) -> None:
    merged = merge(given, "abcdefghi")
    assert merged.verdict == "error"
    assert words in " ".join(problem.message for problem in merged.problems)
    assert Report.model_validate_json(to_json(merged)) == merged


def test_the_wall_time_is_that_of_the_longest_shard() -> None:
    taken = (2.0, None, 5.0)
    timed = [changed(each, seconds=s) for each, s in zip((A, B, C), taken, strict=True)]
    assert merge(timed).seconds == 5.0


def test_a_part_that_failed_is_never_covered_by_the_others() -> None:
    merged = merge([A, changed(B, verdict="error"), C])
    assert merged.verdict == "error"
    assert merge([A, B, C]).verdict == "diverged"
    # A part whose workers all died names no versions, and contradicts nobody.
    assert merge([A, B, changed(C, environment={})]).problems == ()


def test_the_rest_is_united() -> None:
    merged = merge(
        [
            changed(A, environment={**VERSIONS, "cpu_capability": "AVX2", "n": 1}, notes=("x",)),
            changed(B, environment={**VERSIONS, "cpu_capability": "AVX512", "n": 2}),
            changed(C, sandbox=None, baseline=None),
        ]
    )
    assert merged.environment == {**VERSIONS, "cpu_capability": "AVX2, AVX512", "n": 1}
    assert merged.notes == (
        "x",
        "a note",
        "the shards were compared with different baselines",
    )
    assert merged.sandbox == Sandbox(level="off", landlock=0, missing=("seccomp",))
    assert merged.baseline is None
    full = Sandbox(level="full", uid=1, landlock=6, seccomp=True)
    merged = merge([changed(A, sandbox=full), B, changed(C, sandbox=full)])
    assert merged.sandbox == Sandbox(level="partial", uid=65534, landlock=4, missing=("seccomp",))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    for index, part in enumerate((A, B, C), 1):
        write_text(tmp_path / f"parts/shard-{index}/report.json", to_json(part))
    return tmp_path


@pytest.mark.parametrize("content", ["", "{}", "[1", to_json(A)[:-9], None])
def test_a_file_that_is_no_report_is_a_problem(saved: Path, content: str | None) -> None:
    path = saved / "parts/shard-2/report.json"
    path.unlink() if content is None else path.write_text(content)
    merged = merge_files([saved / f"parts/shard-{index}/report.json" for index in (1, 2, 3)])
    assert merged.verdict == "error"
    assert [each.name for each in merged.models] == ["a", "c"]
    assert str(path) in merged.problems[0].message
    assert "no report of shard 2/3" in merged.problems[1].message


def test_a_folder_stands_for_the_reports_below_it_but_not_for_what_was_merged(saved: Path) -> None:
    parts = saved / "parts"
    write_text(parts / "all/report.json", to_json(WHOLE))
    files = [parts / f"shard-{index}/report.json" for index in (1, 2, 3)]
    assert find_reports([parts], parts / "all") == files
    assert find_reports([files[2], parts, parts / "shard-1/../shard-2"], parts / "all") == [
        files[2],
        *files[:2],
    ]
    # What a model has written lies further down, and is no part, least of all of a lost one.
    forged = parts / "shard-1/repro/a/case"
    write_text(forged / "report.json", to_json(B))
    assert find_reports([parts], parts / "all") == files
    files[1].unlink()
    assert find_reports([parts], parts / "all") == [files[0], files[2]]
    # Nothing else was there: that is no pass either.
    assert find_reports([parts / "all"], parts / "all") == [parts / "all"]
    assert (
        merge_files([parts / "all"])
        .problems[0]
        .message.startswith(f"{parts / 'all'}: no report.json in this folder")
    )


YAML = """version: 1
models:
  a: {model: "torch.nn:Identity", inputs: {input: "float32[2]"}}
  b: {model: "torch.nn:Identity", inputs: {input: "float32[2]"}}
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["parts"], 0, "all 2 models agree"),
        (["parts/shard-1", "parts/shard-2/report.json"], 0, "all 2 models agree"),
        (["parts/shard-1"], 1, "error"),
        (["parts", "nowhere"], 1, "error"),
        (["parts", "-m", "onnx-gate.yml"], 0, "all 2 models agree"),
        (["parts/shard-1", "-m", "onnx-gate.yml", "--model", "b"], 1, "error"),
        ([], 2, "REPORT"),
        (["parts", "--model", "a"], 2, "--manifest"),
        (["parts", "-m", "onnx-gate.yml", "--model", "x"], 2, "no model of the manifest"),
        (["parts", "-m", "nowhere.yml"], 2, "no such file"),
        (["parts", "-o", "onnx-gate.yml/x"], 2, "--output"),
    ],
)
def test_merge_writes_prints_and_ends_by_the_verdict(
    tmp_path: Path, arguments: list[str], status: int, words: str
) -> None:
    (tmp_path / "onnx-gate.yml").write_text(YAML)
    info = ManifestInfo(path="onnx-gate.yml", sha256=load(tmp_path / "onnx-gate.yml").sha256)
    whole = report([model("a", 3), model("b", 4)], manifest=info)
    for index, part in enumerate(parts(whole, 2), 1):
        write_text(
            tmp_path / f"parts/shard-{index}/report.json",
            to_json(part.model_copy(update={"manifest": info})),
        )
    # A second time, its own output lies in the folder that it searches.
    for _ in range(1 + (arguments == ["parts"])):
        finished = gate("merge", *arguments, *(["-o", "parts"] if status < 2 else []), cwd=tmp_path)
        assert finished.returncode == status, finished.stdout + finished.stderr
        assert words in finished.stdout + finished.stderr
        assert "Traceback" not in finished.stderr
    if status < 2:
        merged = read_report(tmp_path / "parts/report.json")
        assert merged.verdict == ("error" if status else "pass")
        assert (tmp_path / "parts/report.md").exists()
        assert merged.counts == count(merged.models)
