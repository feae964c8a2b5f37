"""Whole runs of the gate on real models: right ones pass, wrong ones do not, each for its reason."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml

from onnx_gate.report.io import json_schema
from tests.support.gate import ROOT, Run

PROJECT = Path(__file__).parent / "project"
GOOD = yaml.safe_load((PROJECT / "good.yml").read_text())["models"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# model of bad.yml -> (verdict, kind of error, a code that must be said, words of the message)
BAD = {
    "counter": ("error", "unverified", "OG106", "called twice on equal inputs"),
    "late_counter": ("error", "unverified", "OG106", "called again"),
    "buffered": ("error", "unverified", "OG106", "its own state (mean)"),
    "noisy": ("error", "unverified", "OG106", "numpy.random"),
    "live_dropout": ("error", "unverified", "OG106", "random numbers from torch"),
    "guarded": ("diverged", None, "OG116", "sizes from 0 to 4"),
    "fixed": ("error", "unverified", "OG402", "refuses every size of 'batch'"),
    "branching": ("error", "export", "OG203", "takes a branch"),
    "traced_branch": ("diverged", None, None, "error "),
    "raising": ("error", "build", "OG105", "no luck today"),
    "unknown_output": ("error", "unverified", "OG107", "object"),
    "not_a_module": ("error", "build", "OG204", "a dict, not an nn.Module"),
    "exploding": ("error", "build", "OG204", "ValueError: missing config"),
    "no_attribute": ("error", "build", "OG204", "'Nowhere'"),
    "bad_weights": ("error", "build", "OG205", "body.0.weight is (8, 8), the model has (16, 8)"),
    "wrong_inputs": ("error", "build", "OG104", "'ids'"),
    "no_kernel": ("error", "runtime", "OG202", "Gemm"),
    "no_provider": ("error", "runtime", "OG301", "not in this build"),
    "silent_fallback": ("error", "runtime", "OG301", "fall back to the CPU"),
    "wrong_case": ("error", "unverified", "OG108", "lacks x"),
    "no_case": ("error", "unverified", "OG108", "data/nothing*.npz"),
    "broken_metric": ("error", "unverified", "OG405", "KeyError"),
    "named_outputs": ("error", "unverified", "OG115", "names 2 outputs"),
    "static_batch": ("diverged", None, "OG102", "fixed size 2"),
    "rounded": ("diverged", None, None, "error "),
    "wrong_epsilon": ("diverged", None, None, "error "),
    "swapped": ("diverged", None, None, "error "),
    "narrowed": ("diverged", None, None, "dtype float16 where PyTorch has float32"),
    "random_noise": ("diverged", None, "OG114", "RandomUniformLike"),
    "invalid": ("error", "inspect", "OG117", "nowhere"),
    "nothing_written": ("error", "export", "OG207", "without writing"),
    "garbage": ("error", "export", "OG208", "is a Git LFS pointer"),
    "expired_waiver": ("diverged", None, "OG601", "ended on 2020-01-01"),
    "low_ceiling": ("diverged", None, None, "error "),
    "low_opset": ("diverged", None, "OG118", "opset 9 was asked for"),
}


@pytest.fixture(scope="module")
def good(verify_manifest: Callable[..., Run]) -> Run:
    return verify_manifest("good.yml")


@pytest.fixture(scope="module")
def bad(verify_manifest: Callable[..., Run]) -> Run:
    return verify_manifest("bad.yml")


@pytest.mark.parametrize("name", GOOD)
def test_right_models_pass(good: Run, name: str) -> None:
    model = good.model(name)
    assert model.verdict == "pass", good.output
    counted = [check for check in model.checks if not check.advice]
    assert counted
    assert all(check.verdict in ("pass", "waived", "refused") for check in counted)


def test_a_run_of_right_models_exits_0(good: Run) -> None:
    assert good.status == 0
    assert good.report.counts.model_dump(by_alias=True) == {
        "pass": len(GOOD),
        "diverged": 0,
        "error": 0,
    }


def test_every_size_and_seed_of_the_default_suites_is_tried(good: Run) -> None:
    cases = {check.case for check in good.model("factory").checks if not check.advice}
    assert {f"typical/batch={size}/0" for size in (1, 2, 7)} < cases
    assert {f"typical/batch=7/{seed}" for seed in (0, 1)} < cases
    assert {case.split("/")[1] for case in cases if case.startswith("edges/")} == {
        *("zeros", "ones", "negative", "ties", "sweep")
    }


def test_onnx_runtime_is_run_with_optimisations_and_once_without(good: Run) -> None:
    runtimes = {check.runtime for check in good.model("factory").checks}
    assert len(runtimes) == 2
    assert any("off" in runtime for runtime in runtimes)


def test_every_metric_has_its_worst_element(good: Run) -> None:
    for check in good.model("factory").checks:
        if check.advice:
            continue
        assert check.metrics is not None
        assert check.worst is not None
        difference = abs(check.worst.actual - check.worst.expected)
        assert difference <= check.metrics.max_abs or math.isnan(difference)


def test_flattened_outputs_have_stable_names(good: Run) -> None:
    outputs = {check.output for check in good.model("structured").checks}
    assert outputs == {"logits", "hidden.0", "hidden.1"}


def test_tied_indices_are_judged_by_their_values(good: Run) -> None:
    excused = [check for check in good.model("indices").checks if "equal values" in check.reason]
    assert all(check.verdict == "pass" for check in excused)


def test_findings_that_do_not_fail(good: Run) -> None:
    assert "OG101" in {finding.code for finding in good.model("training").findings}
    assert "OG110" in {finding.code for finding in good.model("in_place").findings}
    assert "OG103" in {finding.code for finding in good.model("double").findings}


def test_rows_of_nothing_but_padding_are_open_and_counted(good: Run) -> None:
    model = good.model("attention")
    opened = [check for check in model.checks if check.open and not check.advice]
    # A drawn mask over one position lets nothing through half of the time.
    assert {check.edge for check in opened if check.sizes["seq"] > 1} == {"masks"}
    assert all(check.causes == ("attention over nothing",) for check in opened)
    assert {check.compared for check in opened if "all_false" in check.case} == {0}
    assert "OG404" in {finding.code for finding in model.findings}


def test_stored_outputs_are_compared(good: Run) -> None:
    assert "stored" in {check.runtime for check in good.model("checkpoint").checks}


def test_waived_checks_say_so(good: Run) -> None:
    checks = [check for check in good.model("waived").checks if check.verdict == "waived"]
    assert checks
    assert "weights ship as bfloat16" in checks[0].reason


def test_the_environment_is_named(good: Run) -> None:
    assert {"python", "torch", "onnx", "onnxruntime", "cpu_capability", "providers"} <= set(
        good.report.environment
    )


def test_exported_files_are_removed(good: Run) -> None:
    assert not (good.folder / "models").exists()


def test_every_bad_model_is_in_the_table(bad: Run) -> None:
    assert {model.name for model in bad.report.models} == set(BAD)


@pytest.mark.parametrize("name", BAD)
def test_wrong_models_do_not_pass(bad: Run, name: str) -> None:
    verdict, kind, code, words = BAD[name]
    model = bad.model(name)
    assert model.verdict == verdict, bad.output
    assert (model.error.kind if model.error else None) == kind
    said = [
        *([model.error.message] if model.error else []),
        *(finding.message for finding in model.findings),
        *(check.reason for check in model.checks if not check.advice),
    ]
    assert any(words in text for text in said), said
    codes = {finding.code for finding in model.findings}
    codes |= {model.error.code} if model.error else set()
    assert code is None or code in codes


def test_a_run_of_wrong_models_exits_1_without_a_traceback(bad: Run) -> None:
    assert bad.status == 1
    assert bad.report.verdict == "error"
    assert "Traceback" not in bad.output


def test_reports_fit_their_schema(good: Run, bad: Run) -> None:
    for run in (good, bad):
        jsonschema.validate(json.loads((run.folder / "report.json").read_text()), json_schema())


def test_one_case_can_be_run_again(verify_manifest: Callable[..., Run]) -> None:
    run = verify_manifest("bad.yml", "--model", "rounded", "--case", "typical/batch=2/0")
    assert {check.case for check in run.report.models[0].checks} == {"typical/batch=2/0"}
    assert run.status == 1


def test_selecting_no_case_is_an_error(verify_manifest: Callable[..., Run]) -> None:
    run = verify_manifest("good.yml", "--model", "factory", "--case", "typical/nothing*")
    assert run.status == 1
    assert run.report.models[0].error is not None
    assert run.report.models[0].error.code == "OG402"


def test_examples_pass_and_broken_ones_do_not(
    tmp_path: Path, verify_manifest: Callable[..., Run]
) -> None:
    examples = verify_manifest(str(ROOT / "examples" / "onnx-gate.yml"))
    assert examples.status == 0, examples.output
    broken = verify_manifest(str(ROOT / "examples" / "broken" / "onnx-gate.yml"))
    assert broken.status == 1
    assert [model.name for model in broken.report.models if model.verdict == "pass"] == []
    assert len(broken.report.models) >= 8
