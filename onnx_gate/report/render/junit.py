"""The report as JUnit XML: a suite for each model, a case for each check that counts.

It keeps to Jenkins' ``junit-10.xsd``, in which a case has neither a file nor properties: the file is
an attribute of the suite, and the line is in the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from xml.etree import ElementTree as ET

from onnx_gate.report.model import Check, ModelResult, Report
from onnx_gate.report.story import times
from onnx_gate.report.story.explained import explain
from onnx_gate.report.story.story import Remark, RunStory, Story, row, tell
from onnx_gate.text import plain

_MESSAGE = 500
_TAIL = 40
_EXPLAINED = 100
"""Cases of a model that have all that explains them: by then it is said, and who reads it has limits."""


def render(report: Report) -> str:
    """Return XML that CI systems read; models that are not required report skipped failures.

    The first hundred cases of a model that diverged have the whole explanation, the rest the numbers.
    """
    run = tell(report)
    root = ET.Element("testsuites", name="onnx-gate")
    root.append(_run(run))
    root.extend(_suite(story, run) for story in run.models)
    for total in ("tests", "failures", "errors"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    root.set("time", f"{sum(float(suite.get('time', '0')) for suite in root):.3f}")
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _run(run: RunStory) -> ET.Element:
    """The suite of what is about no model: a case for each problem, the rest as its output."""
    suite = ET.Element("testsuite", name="manifest")
    for problem, line, _ in run.problems:
        text = plain(line)
        case = ET.SubElement(suite, "testcase", classname="manifest", name=text[:_MESSAGE])
        _element(case, "error", "problem", [text, *map(plain, problem.tail[-_TAIL:])])
    if not run.problems and not run.models:
        case = ET.SubElement(suite, "testcase", classname="manifest", name="manifest")
        _element(case, "error", "problem", [str(run.sentence)])
    lines = [
        *(f"the manifest asks less: {line}" for _, line, _ in run.changes),
        *run.report.notes,
        run.sandbox,
        run.against,
        *run.seconds,
    ]
    output = "\n".join(plain(line) for line in lines if line)
    if output:
        ET.SubElement(suite, "system-out").text = output
    return _counted(suite, run.report)


def _suite(story: Story, run: RunStory) -> ET.Element:
    suite = ET.Element("testsuite", name=plain(story.model.name))
    if story.source is not None:
        suite.set("file", story.source.file)
    known = {
        "cached": "true" if story.model.cached else "",
        "vs base": story.change if run.compared else "",
        "source": str(story.source or ""),
        "entry": str(story.entry or ""),
    }
    suite.append(_properties(known))
    cases = [*_cases(story, run)]
    life = 0.0 if story.model.cached else times.life(story.model)
    # What is nobody's own, building, exporting, explaining, is shared evenly, so that sums are right.
    own = [float(case.get("time", "0")) for case in cases]
    for case, seconds in zip(cases, own, strict=True):
        case.set("time", f"{seconds + (life - sum(own)) / len(cases):.6f}")
    suite.extend(cases)
    suite.set("time", f"{life:.3f}")
    return _counted(suite, run.report)


def _cases(story: Story, run: RunStory) -> Iterable[ET.Element]:
    model = story.model
    if model.error is not None:
        case = _case(model, "verify")
        _failure(case, model, "error", model.error.kind, explain(story, run))
        yield case
    seen: Counter[str] = Counter()
    for remark in story.remarks:
        finding = remark.finding
        if finding.severity == "error":
            seen[finding.code] += 1
            # A case is known by its name: of two that have the same, one would be lost.
            number = seen[finding.code]
            case = _case(model, finding.code if number == 1 else f"{finding.code} {number}")
            _failure(case, model, "failure", finding.code, _of_finding(remark))
            yield case
    explained = 0
    for check in model.checks:
        if not check.advice:
            explained += check.verdict == "diverged"
            yield _check(story, check, run, whole=explained <= _EXPLAINED)


def _check(story: Story, check: Check, run: RunStory, whole: bool) -> ET.Element:
    case = _case(story.model, plain(f"{check.case} {check.output} [{check.runtime}]"))
    if check.seconds is not None:
        case.set("time", f"{0.0 if story.model.cached else check.seconds:.6f}")
    if check.verdict == "diverged":
        lines = [plain(f"{check.reason} ({row(check).share})")]
        if whole:
            lines = [*explain(story, run, check), *lines]
        if run.compared:
            lines.append(f"against the baseline: {row(check).change}")
        _failure(case, story.model, "failure", "diverged", lines)
    elif check.verdict in ("waived", "refused"):
        _element(case, "skipped", check.verdict, [plain(check.reason)])
    return case


def _of_finding(remark: Remark) -> list[str]:
    lines = [plain(line) for line in remark.finding.message.splitlines()[:_TAIL]]
    location = remark.place.location
    return lines if location is None else [*lines, f"{location}: {remark.finding.code}"]


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
