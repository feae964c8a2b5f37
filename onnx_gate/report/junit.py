"""The report as JUnit XML: a suite for each model, a case for each check that counts."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from onnx_gate.report import summary
from onnx_gate.report.escape import plain
from onnx_gate.report.model import Check, ModelResult, Report


def render(report: Report) -> str:
    """Return XML that CI systems read; models that are not required report skipped failures."""
    root = ET.Element("testsuites", name="onnx-gate")
    for model in report.models:
        root.append(_suite(model))
    for total in ("tests", "failures", "errors", "skipped"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _suite(model: ModelResult) -> ET.Element:
    suite = ET.Element("testsuite", name=plain(model.name))
    suite.set("time", f"{sum(stage.seconds for stage in model.stages):.3f}")
    if model.error is not None:
        case = _case(suite, model, "verify")
        _problem(
            case, model, "error", model.error.kind, f"{model.error.code}: {model.error.message}"
        )
    for finding in model.findings:
        if finding.severity == "error":
            case = _case(suite, model, finding.code)
            _problem(case, model, "failure", finding.code, finding.message)
    for check in model.checks:
        if not check.advice:
            _check(suite, model, check)
    for tag, total in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(total, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite)))
    return suite


def _check(suite: ET.Element, model: ModelResult, check: Check) -> None:
    case = _case(suite, model, plain(f"{check.case} {check.output} [{check.runtime}]"))
    if check.verdict == "diverged":
        text = f"{check.reason} ({summary.percent(check.budget)} of the tolerance)"
        _problem(case, model, "failure", "diverged", text)
    elif check.verdict in ("waived", "refused"):
        ET.SubElement(case, "skipped", message=plain(check.reason))


def _case(suite: ET.Element, model: ModelResult, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=plain(model.name), name=name)


def _problem(case: ET.Element, model: ModelResult, tag: str, kind: str, text: str) -> None:
    if not model.required:
        ET.SubElement(case, "skipped", message=plain(f"not required: {kind}: {text}"))
        return
    element = ET.SubElement(case, tag, type=kind, message=plain(text)[:500])
    element.text = "\n".join(plain(line) for line in text.splitlines())
