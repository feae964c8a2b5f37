"""The report as JUnit XML: a suite for each model, a case for each check that counts."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree as ET

from onnx_gate.report import summary, times
from onnx_gate.report.model import Check, ModelResult, Report
from onnx_gate.report.versus import change_cell, change_sentence, check_change, tally
from onnx_gate.text import plain


def render(report: Report) -> str:
    """Return XML that CI systems read; models that are not required report skipped failures."""
    root = ET.Element("testsuites", name="onnx-gate")
    about = (report.problems, report.changes, report.notes, report.sandbox, report.baseline)
    if any(about) or report.seconds is not None:
        root.append(_run(report))
    for model in report.models:
        root.append(_suite(model, compared=report.baseline is not None))
    for total in ("tests", "failures", "errors", "skipped"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _run(report: Report) -> ET.Element:
    """The suite of what is about no model: each problem an error, the rest as its output."""
    suite = ET.Element("testsuite", name="manifest")
    case = ET.SubElement(suite, "testcase", classname="manifest", name="manifest")
    for problem in report.problems:
        text = plain(summary.problem_line(problem))
        element = ET.SubElement(case, "error", type="problem", message=text[:500])
        element.text = "\n".join([text, *(plain(line) for line in problem.tail)])
    lines = [
        *(f"the manifest asks less: {summary.change_line(each)}" for each in report.changes),
        *report.notes,
        summary.sandbox(report),
        tally(report),
        *times.lines(report),
    ]
    output = "\n".join(plain(line) for line in lines if line)
    if output:
        ET.SubElement(case, "system-out").text = output
    return _counted(suite)


def _counted(suite: ET.Element) -> ET.Element:
    for tag, total in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(total, str(sum(case.find(tag) is not None for case in suite)))
    suite.set("tests", str(len(suite)))
    return suite


def _suite(model: ModelResult, compared: bool) -> ET.Element:
    suite = ET.Element("testsuite", name=plain(model.name))
    suite.set("time", f"{0.0 if model.cached else times.life(model):.3f}")
    if model.error is not None:
        case = _case(suite, model, "verify")
        text = f"{model.error.code}: {model.error.message}"
        if compared:
            text += f"\n{change_sentence(model)}"
        _problem(case, model, "error", model.error.kind, text)
    for finding in model.findings:
        if finding.severity == "error":
            case = _case(suite, model, finding.code)
            _problem(case, model, "failure", finding.code, finding.message)
    for check in model.checks:
        if not check.advice:
            _check(suite, model, check, compared)
    _counted(suite)
    named = {"cached": "true"} if model.cached else {}
    if compared:
        named["vs base"] = change_cell(model, summary.worst(model))
    if named:
        suite.insert(0, _properties(named))
    return suite


def _properties(values: Mapping[str, str]) -> ET.Element:
    element = ET.Element("properties")
    for name, value in values.items():
        ET.SubElement(element, "property", name=name, value=value)
    return element


def _check(suite: ET.Element, model: ModelResult, check: Check, compared: bool) -> None:
    case = _case(suite, model, plain(f"{check.case} {check.output} [{check.runtime}]"))
    if compared:
        case.append(_properties({"vs base": check_change(check)}))
    if check.verdict == "diverged":
        text = f"{check.reason} ({summary.percent(check.budget)} of the tolerance)"
        if compared:
            text += f"; against the baseline: {check_change(check)}"
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
