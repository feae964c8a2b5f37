"""From checks to a verdict: waivers, sizes that were never tried, sizes that are baked in."""

from __future__ import annotations

import datetime
import math
from dataclasses import replace

import pytest
import torch

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import InputSpec, ModelSpec, RandomSuite, Waiver
from onnx_gate.report.model import Check, Metrics
from onnx_gate.runtimes import state
from onnx_gate.text import number
from onnx_gate.verify.baked import suspected
from onnx_gate.verify.conclude import conclude, unverified
from onnx_gate.verify.experience import Experience
from onnx_gate.verify.remarks import Tried

TODAY = datetime.date(2026, 6, 1)
SPEC = ModelSpec(
    name="m",
    model="m.py:m",
    inputs={"x": InputSpec("float32", ("batch", 3))},
    dims={"batch": (1, 2)},
)
TRIED = Tried({})


REAL = replace(SPEC, suites={"real": RandomSuite("normal")})


def check(
    case: str,
    verdict: str = "pass",
    *,
    advice: bool = False,
    error: float = 0.5,
    compared: int = 1,
    opened: int = 0,
    output: str = "y",
    measure: str = "error",
    unit: str = "error",
) -> Check:
    sizes = [part.split("=") for part in case.split("/") if part.startswith("batch=")]
    metrics = Metrics(elements=1, max_abs=1e3 * error, max_rel=0.0, rms=0.0)
    return Check.model_validate(
        {
            "runtime": "onnxruntime",
            "suite": case.split("/")[0],
            "case": case,
            "output": output,
            "sizes": {name: int(size) for name, size in sizes},
            "compared": compared,
            "open": opened,
            "causes": ["rounding"] if opened else [],
            "verdict": verdict,
            "advice": advice,
            "metrics": metrics,
            "deviation": {"measure": measure, "value": error, "allowed": 1e-6, "unit": unit},
        }
    )


HERE = [check("typical/batch=5/0"), check("edges/zeros/batch=5")]
GOOD = [*HERE, check("typical/batch=1/0"), check("typical/batch=2/0")]


@pytest.mark.parametrize(
    ("checks", "verdict"),
    [
        (GOOD, "pass"),
        ([], "error"),
        ([check("a", "refused")], "error"),
        ([*GOOD, check("a", "refused")], "pass"),
        ([*GOOD, check("edges/x/batch=2", "diverged")], "diverged"),
        ([*GOOD, check("edges/x/batch=2", "diverged", advice=True)], "pass"),
        (
            [*HERE, check("typical/batch=1/0", "refused"), check("typical/batch=2/0", "refused")],
            "error",
        ),
        ([*HERE, check("typical/batch=1/0", "refused"), check("typical/batch=2/0")], "pass"),
        ([check("real/file")], "pass"),
    ],
)
def test_verdicts(checks: list[Check], verdict: str) -> None:
    assert conclude(SPEC, checks, [], TRIED, TODAY)[0] == verdict


@pytest.mark.parametrize(("severity", "verdict"), [("error", "diverged"), ("warning", "pass")])
def test_a_finding_of_severity_error_fails(severity: str, verdict: str) -> None:
    finding = Finding.model_validate({"code": "OG114", "severity": severity, "message": "random"})
    assert conclude(SPEC, GOOD, [finding, finding], TRIED, TODAY)[0] == verdict
    assert conclude(SPEC, GOOD, [finding, finding], TRIED, TODAY)[2] == (finding,)


@pytest.mark.parametrize(
    ("glob", "until", "ceiling", "verdict", "codes"),
    [
        ("edges/x/*", TODAY, None, "pass", set()),
        ("edges/x/*", TODAY, 0.5, "pass", set()),
        ("edges/x/*", TODAY, 0.4, "diverged", set()),
        ("edges/y/*", TODAY, None, "diverged", {"OG602"}),
        ("edges/x/*", TODAY - datetime.timedelta(1), None, "diverged", {"OG601"}),
    ],
)
def test_waivers(
    glob: str, until: datetime.date, ceiling: float | None, verdict: str, codes: set[str]
) -> None:
    spec = replace(SPEC, waivers=(Waiver(glob, until, "known", ceiling),))
    checks = [*GOOD, check("edges/x/batch=2", "diverged")]
    found, judged, findings = conclude(spec, checks, [], TRIED, TODAY)
    assert found == verdict
    assert (judged[-1].verdict == "waived") == (verdict == "pass")
    assert {finding.code for finding in findings} == codes


@pytest.mark.parametrize(
    ("measure", "unit", "value", "ceiling", "verdict"),
    [
        ("mean error", "error", 0.02, 0.03, "waived"),
        ("cosine", "agreement", 0.98, 0.03, "waived"),
        ("cosine", "agreement", 0.98, 0.01, "diverged"),
        ("top5", "agreement", 0.9, 0.09, "diverged"),
        ("snr_db", "dB", 40.0, 0.011, "waived"),
        ("snr_db", "dB", 20.0, 0.011, "diverged"),
        ("max_ulp", "error", 12.0, 16.0, "waived"),
        ("error", "error", math.nan, 16.0, "diverged"),
    ],
)
def test_a_ceiling_is_an_error_whatever_was_measured(
    measure: str, unit: str, value: float, ceiling: float, verdict: str
) -> None:
    spec = replace(SPEC, waivers=(Waiver("edges/*", TODAY, "known", ceiling),))
    apart = check("edges/x/batch=2", "diverged", measure=measure, unit=unit, error=value)
    judged = conclude(spec, [*GOOD, apart], [], TRIED, TODAY)[1][-1]
    assert judged.verdict == verdict
    assert f"an error of up to {number(ceiling)}" in judged.reason


def test_a_size_is_suspected_where_every_case_of_it_diverges_and_none_of_the_example() -> None:
    example = {"batch": 5}
    wrong = check("typical/batch=2/0", "diverged")
    assert suspected([*HERE, check("typical/batch=1/0"), wrong], example) == (HERE, [wrong])
    assert suspected([*HERE, wrong, check("edges/ones/batch=2")], example) == (HERE, [])
    assert suspected([*HERE, check("typical/batch=5/1", "diverged"), wrong], example) == ([], [])
    assert suspected([*HERE, wrong], example, alone=True) == (HERE, [wrong])
    other = check("typical/batch=1/0")
    assert suspected([*HERE, other, wrong], example, alone=True) == ([], [])


@pytest.mark.parametrize(
    ("checks", "tried", "spec", "word"),
    [
        ([check("typical/batch=2/0", compared=0)], TRIED, SPEC, "NaN or infinite"),
        ([check("typical/batch=2/0", compared=0, opened=4)], TRIED, SPEC, "make it mean"),
        (
            [check("typical/batch=2/0", compared=0, opened=4)],
            replace(TRIED, outputs={"y": Experience(low=-2e-7, high=-2e-7)}),
            SPEC,
            "It was -2e-07 in every case",
        ),
        (GOOD, replace(TRIED, empty=("real",)), REAL, "the suite real"),
        ([*GOOD, check("real/0", "refused")], TRIED, REAL, "the suite real"),
        (
            [check("typical/batch=1/0", "refused"), check("typical/batch=2/0")],
            TRIED,
            replace(SPEC, named_dims=frozenset({"batch"})),
            "declares batch=1",
        ),
        (GOOD, replace(TRIED, outputs={"y": Experience(accepted="a/1")}), SPEC, "can hardly fail"),
    ],
)
def test_what_was_not_compared_leaves_a_model_unverified(
    checks: list[Check], tried: Tried, spec: ModelSpec, word: str
) -> None:
    verdict, _, findings = conclude(spec, checks, [], tried, TODAY)
    assert verdict == "error"
    (why,) = (f.message for f in findings if f.code == "OG402")
    assert word in why
    # A divergence says more than that something else was not compared.
    wrong = [*checks, check("typical/batch=2/1", "diverged", output="z")]
    assert conclude(spec, wrong, [], tried, TODAY)[0] == "diverged"


def test_a_suite_in_which_nan_meets_nan_was_compared() -> None:
    assert conclude(REAL, [*GOOD, check("real/0", compared=0)], [], TRIED, TODAY)[0] == "pass"


def test_some_of_the_cases_may_be_asked_for() -> None:
    assert conclude(REAL, GOOD, [], replace(TRIED, selected=True), TODAY)[0] == "pass"


def test_sizes_come_from_no_name() -> None:
    """A file called seed=abc.npz, or run=1, is no size."""
    odd = [check("real/data.seed=abc"), check("real/run=1/batch=2")]
    assert conclude(SPEC, [*GOOD, *odd], [], TRIED, TODAY)[0] == "pass"


@pytest.mark.parametrize(
    ("named", "verdict_at_2", "severity", "verdict"),
    [
        (True, "diverged", "error", "diverged"),
        (True, "pass", "warning", "pass"),
        (True, "refused", "error", "diverged"),
        (False, "diverged", "warning", "diverged"),
        (False, "pass", "warning", "pass"),
        (False, "refused", "note", "pass"),
    ],
)
def test_what_an_export_took_for_granted_weighs_by_what_became_of_it(
    named: bool, verdict_at_2: str, severity: str, verdict: str
) -> None:
    data = {"broken": [{"batch": 2}], "named": [{"batch": 2}] if named else []}
    finding = codes.OG116.finding("batch is odd", data=data)
    checks = [*HERE, check("typical/batch=1/0"), check("typical/batch=2/0", verdict_at_2)]
    spec = replace(SPEC, dims={"batch": (1, 2)}, named_dims=frozenset(["batch"] if named else []))
    outcome, _, findings = conclude(spec, checks, [finding], TRIED, TODAY)
    (weighed,) = codes.OG116.among(findings)
    assert weighed.severity == severity
    assert weighed.data.get("refused", False) == (verdict_at_2 == "refused")
    assert outcome == verdict


def test_a_runtime_that_failed_leaves_no_verdict_beside_others_that_agree() -> None:
    failed = codes.OG307.finding("OG302: openvino is not installed", data={"runtime": "openvino"})
    checks = [check("typical/batch=1/0"), check("typical/batch=2/0")]
    assert conclude(SPEC, checks, [failed], TRIED, TODAY)[0] == "error"
    assert conclude(SPEC, checks, [], TRIED, TODAY)[0] == "pass"
    wrong = [*checks, check("typical/batch=2/1", "diverged")]
    assert conclude(SPEC, wrong, [failed], TRIED, TODAY)[0] == "diverged"


def test_weights_that_are_nan_are_named_where_an_output_is_nothing_else() -> None:
    checks = [check(f"real/batch={n}/0", compared=0) for n in (1, 2)]
    held = {
        "a": torch.ones(3),
        "b": torch.tensor([1.0, torch.nan]),
        "c": torch.ones(2, dtype=torch.int64),
    }
    tried = Tried({}, not_numbers=lambda: state.not_numbers(held.items()))
    _, _, findings = conclude(REAL, checks, [], tried, TODAY)
    (found,) = (each for each in findings if "NaN or infinite throughout" in each.message)
    assert "in the model's own weights: b. Fetch" in found.message
    assert found.data["parameters"] == ["b"]


def test_of_a_missing_kernel_it_is_said_who_ran_the_file() -> None:
    failed = {"runtime": "onnxruntime", "kind": "runtime", "code": "OG202", "message": "no kernel"}
    findings = (codes.OG307.finding("OG202: no kernel", data=failed),)
    other = check("typical/batch=2/0").model_copy(update={"runtime": "half"})
    assert "half ran the file and agrees" in unverified((other,), findings).remedy
    assert not unverified((), findings).remedy


@pytest.mark.parametrize(
    ("edge", "snr", "rms", "said"),
    [
        ("", 30.0, 0.02, True),
        ("", 136.0, 1e-8, False),
        ("ones", 0.0, 1e-9, False),
        ("ones", 0.0, 0.1, True),
    ],
)
def test_what_moves_by_next_to_nothing_of_the_output_is_not_ill_conditioned(
    edge: str, snr: float, rms: float, said: bool
) -> None:
    metrics = Metrics(elements=9, max_abs=rms, max_rel=1.0, rms=rms, snr_db=snr)
    tail = check("typical/batch=2/0", compared=1, opened=8).model_copy(
        update={"causes": ("rounding",), "edge": edge, "metrics": metrics}
    )
    tried = replace(TRIED, outputs={"y": Experience(low=0.0, high=0.5)})
    assert any(codes.OG401.among(conclude(SPEC, [*GOOD, tail], [], tried, TODAY)[2])) == said
