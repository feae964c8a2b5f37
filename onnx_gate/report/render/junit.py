"""The report as JUnit XML: a suite for each model, a case for each check that counts.

It keeps to Jenkins' ``junit-10.xsd``, in which a case has neither a file nor properties: the file is
an attribute of the suite, and the line is in the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from xml.etree import ElementTree as ET

from onnx_gate.findings.finding import Finding
from onnx_gate.report.model import Check, ModelResult, Report
from onnx_gate.report.story import locations, sentence, summary, times
from onnx_gate.report.story.explained import explain
from onnx_gate.report.story.versus import change_cell, check_change, tally
from onnx_gate.text import plain

_MESSAGE = 500
_TAIL = 40
_EXPLAINED = 100
"""Cases of a model that have all that explains them: by then it is said, and who reads it has limits."""


def render(report: Report) -> str:
    """Return XML that CI systems read; models that are not required report skipped failures.

    The first hundred cases of a model that diverged have the whole explanation, the rest the numbers.
    """
    root = ET.Element("testsuites", name="onnx-gate")
    root.append(_run(report))
    for model in report.models:
        root.append(_suite(model, report))
    for total in ("tests", "failures", "errors"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    root.set("time", f"{sum(float(suite.get('time', '0')) for suite in root):.3f}")
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _run(report: Report) -> ET.Element:
    """The suite of what is about no model: a case for each problem, the rest as its output."""
    suite = ET.Element("testsuite", name="manifest")
    for problem in report.problems:
        text = plain(summary.problem_line(problem))
        case = ET.SubElement(suite, "testcase", classname="manifest", name=text[:_MESSAGE])
        tail = (plain(line) for line in problem.tail[-_TAIL:])
        _element(case, "error", "problem", [text, *tail])
    if not report.problems and not report.models:
        case = ET.SubElement(suite, "testcase", classname="manifest", name="manifest")
        _element(case, "error", "problem", [str(sentence.of_report(report))])
    lines = [
        *(f"the manifest asks less: {summary.change_line(each)}" for each in report.changes),
        *report.notes,
        summary.sandbox(report),
        tally(report),
        *times.lines(report),
    ]
    output = "\n".join(plain(line) for line in lines if line)
    if output:
        ET.SubElement(suite, "system-out").text = output
    return _counted(suite, report)


def _suite(model: ModelResult, report: Report) -> ET.Element:
    suite = ET.Element("testsuite", name=plain(model.name))
    where = locations.of_model(model, report.manifest.path)
    entry = locations.of_entry(model, report.manifest.path)
    if where is not None:
        suite.set("file", where.file)
    known = {
        "cached": "true" if model.cached else "",
        "vs base": change_cell(model, summary.worst(model)) if report.baseline is not None else "",
        "source": str(where or ""),
        "entry": str(entry or ""),
    }
    suite.append(_properties(known))
    cases = [*_cases(model, report)]
    # Nobody has timed a check alone: of the model's time each has its share, so that sums are right.
    share = 0.0 if model.cached or not cases else times.life(model) / len(cases)
    for case in cases:
        case.set("time", f"{share:.6f}")
    suite.extend(cases)
    suite.set("time", f"{0.0 if model.cached else times.life(model):.3f}")
    return _counted(suite, report)


def _cases(model: ModelResult, report: Report) -> Iterable[ET.Element]:
    if model.error is not None:
        case = _case(model, "verify")
        _failure(case, model, "error", model.error.kind, explain(model, report))
        yield case
    seen: Counter[str] = Counter()
    for finding in model.findings:
        if finding.severity == "error":
            seen[finding.code] += 1
            # A case is known by its name: of two that have the same, one would be lost.
            number = seen[finding.code]
            case = _case(model, finding.code if number == 1 else f"{finding.code} {number}")
            _failure(case, model, "failure", finding.code, _of_finding(finding, report))
            yield case
    explained = 0
    for check in model.checks:
        if not check.advice:
            explained += check.verdict == "diverged"
            yield _check(model, check, report, whole=explained <= _EXPLAINED)


def _check(model: ModelResult, check: Check, report: Report, whole: bool) -> ET.Element:
    case = _case(model, plain(f"{check.case} {check.output} [{check.runtime}]"))
    if check.verdict == "diverged":
        share = f"{check.reason} ({summary.percent(check.budget)} of the tolerance)"
        lines = [plain(share)]
        if whole:
            lines = [*explain(model, report, check), *lines]
        if report.baseline is not None:
            lines.append(f"against the baseline: {check_change(check)}")
        _failure(case, model, "failure", "diverged", lines)
    elif check.verdict in ("waived", "refused"):
        _element(case, "skipped", check.verdict, [plain(check.reason)])
    return case


def _of_finding(finding: Finding, report: Report) -> list[str]:
    location = locations.of_source(finding, report.manifest.path)
    where = [f"{location}: {finding.code}"] if location is not None else []
    return [*(plain(line) for line in finding.message.splitlines()[:_TAIL]), *where]


def _case(model: ModelResult, name: str) -> ET.Element:
    return ET.Element("testcase", classname=plain(model.name), name=name)


def _failure(case: ET.Element, model: ModelResult, tag: str, kind: str, lines: list[str]) -> None:
    if model.required:
        _element(case, tag, kind, lines)
    else:
        _element(case, "skipped", kind, [f"not required: {kind}: {lines[0]}", *lines[1:]])


def _element(case: ET.Element, tag: str, kind: str, lines: list[str]) -> None:
    element = ET.SubElement(case, tag, type=kind, message=lines[0][:_MESSAGE] if lines else "")
    element.text = "\n".join(lines)


def _properties(values: Mapping[str, str]) -> ET.Element:
    element = ET.Element("properties")
    for name, value in values.items():
        if value:
            ET.SubElement(element, "property", name=name, value=value)
    return element


def _counted(suite: ET.Element, report: Report) -> ET.Element:
    cases = suite.findall("testcase")
    for tag, total in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(total, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("tests", str(len(cases)))
    if report.created is not None:
        suite.set("timestamp", report.created.strftime("%Y-%m-%dT%H:%M:%S"))
    return suite
