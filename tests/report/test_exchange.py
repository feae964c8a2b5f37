"""What other programs read of a report: JUnit, SARIF and GitLab's JSON, held to their own schemas."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from lxml import etree

from onnx_gate.report.model import ManifestInfo, Report
from onnx_gate.report.render import gitlab, junit, sarif
from onnx_gate.report.story import sentence
from onnx_gate.report.story.story import tell
from tests.support.report.everything import all_replaced, everything
from tests.support.report.hostile import HOSTILE
from tests.support.report.reports import check, report
from tests.support.report.scenes import (
    compared,
    diverged,
    far,
    invalid,
    loosened,
    model,
    passing,
    sharded,
    timed,
    whole,
)

SCHEMAS = Path(__file__).parent / "schemas"
JUNIT = etree.XMLSchema(etree.parse(SCHEMAS / "junit-10.xsd"))
SARIF = json.loads((SCHEMAS / "sarif-schema-2.1.0.json").read_bytes())


def many() -> Report:
    failed = [
        model(f"m{i}", check("typical/0", "diverged", **far(0.1, None, 2.0)), verdict="diverged")
        for i in range(10)
    ]
    return whole(*failed)


def waived() -> Report:
    forgiven = check("edges/large", "waived", reason="error 1 where 0.1 is allowed; waived: known")
    return whole(model("bert", forgiven, line=3), verdict="pass")


def empty() -> Report:
    return whole(verdict="error")


def huge() -> Report:
    text = "x" * 10**5 + "\n" + "\ud800\x00\x0b\ufffe" * 10**4
    wild = everything().models[0].model_copy(update={"seconds": math.inf, "name": text})
    return whole(wild, verdict="diverged")


REPORTS: dict[str, Callable[[], Report]] = {
    each.__name__: each
    for each in (
        report,
        everything,
        passing,
        diverged,
        invalid,
        loosened,
        compared,
        timed,
        sharded,
        many,
        waived,
        empty,
        huge,
    )
} | {f"hostile {i}": lambda text=text: all_replaced(text) for i, text in enumerate(HOSTILE[::40])}


def _suites(shown: Report) -> Any:
    root = etree.fromstring(junit.render(shown).encode())
    JUNIT.assertValid(root)
    return root


def _run(shown: Report) -> dict[str, Any]:
    log = json.loads(sarif.render(shown))
    jsonschema.Draft4Validator(SARIF, format_checker=jsonschema.FormatChecker()).validate(log)
    (run,) = log["runs"]
    return run


@pytest.mark.parametrize("name", REPORTS)
def test_every_report_is_valid_and_none_that_fails_is_green(name: str) -> None:
    shown = REPORTS[name]()
    root, run, quality = _suites(shown), _run(shown), json.loads(gitlab.render(shown))
    bad = int(root.get("failures")) + int(root.get("errors"))
    failing = {r["level"] for r in run["results"] if not r.get("suppressions")} & {"error"}
    critical = [each for each in quality if each["severity"] == "critical"]
    assert bool(bad) == bool(failing) == bool(critical) == (shown.verdict != "pass")
    prints = [result["partialFingerprints"]["onnxGateIssue/v1"] for result in run["results"]]
    assert len(set(prints)) == len(prints)
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    for rule in run["tool"]["driver"]["rules"]:
        assert rule["helpUri"].startswith("https://")
    assert len(junit.render(shown)) < 10**6
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(set(names)) == len(names) or name.startswith("hostile")


def test_a_failure_says_what_is_wrong_where_and_how_to_see_it_again() -> None:
    shown = diverged().model_copy(
        update={"manifest": ManifestInfo(path="ml/gate/onnx-gate.yml", sha256="0" * 64)}
    )
    suite = _suites(shown.located("out")).find("testsuite[@name='gpt']")
    assert suite.get("file") == "ml/gate/models/gpt.py"
    failure = suite.find("testcase/failure")
    wanted = [
        "gpt: in typical/0 ONNX says 0.251 where PyTorch says 0.25 in logits[0, 3]",
        "The exporter: the graph computes something else",
        "ONNX Runtime without optimisations against PyTorch: differs by 1.0e-03",
        "first wrong at Gelu node_gelu in mlp.act",
        "ml/gate/models/gpt.py:7: x = gelu(self.fc(x))",
        "replay: onnx-gate replay out/repro/gpt/typical-0",
        "again: onnx-gate run --manifest ml/gate/onnx-gate.yml --model gpt --case typical/0",
    ]
    assert failure.get("message").startswith(wanted[0])
    about = [r for r in _run(shown.located("out"))["results"] if r["ruleId"] == "diverged"]
    result = next(r for r in about if r["message"]["text"].startswith("gpt: "))
    for text in (failure.text, result["message"]["text"]):
        for line in wanted:
            assert line in text
    (place,) = result["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "ml/gate/models/gpt.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 7},
    }
    (related,) = result["relatedLocations"]
    assert related["physicalLocation"]["artifactLocation"]["uri"] == "ml/gate/onnx-gate.yml"
    lost = _suites(shown).find("testsuite[@name='whisper']/testcase/error")
    assert lost.get("type") == "export"
    for line in ("OG201", "aten::foo has no translation", "ml/gate/onnx-gate.yml:31"):
        assert line in lost.text
    (quality,) = [e for e in json.loads(gitlab.render(shown)) if e["check_name"] == "OG201"]
    assert quality["location"] == {"path": "ml/gate/onnx-gate.yml", "lines": {"begin": 31}}


def test_a_thousand_failures_are_explained_a_hundred_times() -> None:
    apart = (
        check(f"x/{i}", "diverged", reason="apart", **far(1.0, None, 2.0)) for i in range(1000)
    )
    texts = [f.text for f in _suites(whole(model("m", *apart, verdict="diverged"))).iter("failure")]
    assert len(texts) == 1000
    assert sum("again: " in text for text in texts) == 100
    assert texts[-1] == "apart (200 % of the tolerance used)"


def test_times_add_up_to_what_the_models_took() -> None:
    root = _suites(timed())
    for suite, seconds in (("bert", 123.5), ("whisper", 600.0), ("gpt", 0.0)):
        cases = root.findall(f"testsuite[@name='{suite}']/testcase")
        assert sum(float(case.get("time")) for case in cases) == pytest.approx(seconds)
    slow, quick = (check(f"x/{n}", seconds=n / 4) for n in (2, 1))
    cases = _suites(whole(model("m", slow, quick, seconds=1.0))).findall(".//testcase")
    assert [float(case.get("time")) for case in cases] == pytest.approx([0.625, 0.375])


def test_what_is_waived_or_not_required_is_skipped_and_suppressed() -> None:
    assert _suites(waived()).find(".//skipped").get("message").endswith("waived: known")
    (result,) = _run(waived())["results"]
    assert result["suppressions"][0]["justification"].endswith("waived: known")
    assert json.loads(gitlab.render(waived())) == []
    detector = _suites(diverged()).find("testsuite[@name='detector']")
    assert (detector.get("skipped"), detector.get("failures")) == ("1", "0")


def test_a_fingerprint_does_not_follow_the_numbers() -> None:
    def prints(error: float) -> list[str]:
        bad = check("typical/0", "diverged", reason=f"error {error}", **far(error, None, 2.0))
        run = _run(whole(model("bert", bad, verdict="diverged"), verdict="diverged"))
        return [result["partialFingerprints"]["onnxGateIssue/v1"] for result in run["results"]]

    assert prints(0.1) == prints(0.7)


@pytest.mark.process
def test_sarif_tools_reads_it(tmp_path: Path) -> None:
    (tmp_path / "report.sarif").write_text(sarif.render(diverged()))
    for command in (["summary"], ["csv", "-o", "out.csv"]):
        ended = subprocess.run(
            [sys.executable, "-m", "sarif", *command, "report.sarif"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        if command == ["summary"]:
            assert "diverged" in ended.stdout
    rows = list(csv.DictReader((tmp_path / "out.csv").open(encoding="utf-8-sig")))
    assert ("models/gpt.py", "7", "diverged") in {
        (row["Location"], row["Line"], row["Code"]) for row in rows
    }


def test_no_model_can_name_a_file_outside_of_the_repository() -> None:
    shown = everything().model_copy(update={"manifest": ManifestInfo(path="../x.yml", sha256="")})
    uris = [
        place["physicalLocation"]["artifactLocation"]["uri"]
        for result in _run(shown)["results"]
        for place in (*result.get("locations", ()), *result.get("relatedLocations", ()))
    ]
    assert not [uri for uri in uris if ".." in uri]


def test_a_waived_divergence_is_not_called_the_same() -> None:
    said = "bert: ONNX computes what PyTorch computes, but for a check that diverges and is waived."
    assert str(sentence.of_report(waived())).startswith(said)
    both = whole(waived().models[0], model("gpt"), verdict="pass")
    assert "compute in PyTorch, but for a check that" in str(sentence.of_report(both))


@pytest.mark.parametrize("render", [sarif.render, junit.render, gitlab.render])
def test_a_known_fault_has_its_thread(render: Callable[[Report], str]) -> None:
    report = everything()
    (red, *_) = [story for story in tell(report).models if story.known and story.failing]
    assert red.known[0].address in render(report)
