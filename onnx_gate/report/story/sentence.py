"""What a report comes to in one sentence: what is wrong, where, why, and what to do.

Every rendering begins with it. It is made of the report's fields alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnx_gate.findings import CATALOGUE, codes
from onnx_gate.findings.finding import ErrorKind, Finding
from onnx_gate.manifest import EXPORTERS
from onnx_gate.report.model import Check, ModelResult, Report
from onnx_gate.report.model.diagnosis import Blame, Diagnosis
from onnx_gate.report.model.remedy import SettingChange
from onnx_gate.report.story import blames, headroom, locations, owned, precision, summary
from onnx_gate.report.story.extent import coverage, relative
from onnx_gate.report.story.locations import Location, Place
from onnx_gate.text import counted, format_int, listed, number, output_called, plain

_NAME = 60
_LINE = 120
_TEXT = 300
_SIZES = 4
# Codes of a condition on a size that the export has decided.
_DECIDED = (codes.OG102.code, codes.OG116.code)

# A line that asks for a size. What is baked in without one is so by an operator, or on the way there.
_SIZE = re.compile(r"\.shape\b|\.size\(|\blen\(|\brange\(")
_NO_SIZE = (
    "Make no size a number of Python's{before}, or write the one size in the manifest{tried}."
)
_TRIED = "another exporter was tried, and the model stays red"

_ENDS: Mapping[ErrorKind, str] = {
    "build": "the model could not be built",
    "export": "the model could not be exported",
    "inspect": "the exported file cannot be used",
    "runtime": "the runtime could not run the exported file",
    "unverified": "nothing that counts could be compared",
    "crashed": "the model's process ended before its result",
    "timeout": "the model ran out of time",
    "memory": "the model ran out of memory",
}
# Beyond it whole numbers have no double of their own, which is what a report has of them.
_DOUBLE = 2.0**53
# That another runtime could not be judged, or nothing elsewhere, is no reason why a check diverges.
_ELSEWHERE = frozenset((codes.OG307.code, codes.OG402.code))


@dataclass(frozen=True)
class Sentence:
    """The parts of a sentence; all but ``what`` and ``action`` may be a stranger's text as it came.

    ``subject`` is a model's name, null for the run as a whole. ``code`` is a line of the user's
    that begins the reason ``why``. ``file`` is what the report names where that is no path of the
    repository. What to do is a sentence of its own: ``action`` in Markdown of the gate's, or where
    this very failure has one, ``remedy``.
    """

    subject: str | None
    what: str
    code: str = ""
    why: str = ""
    where: Location | None = None
    file: str = ""
    action: str = ""
    remedy: str = ""

    @property
    def place(self) -> Place:
        """Where it is."""
        return Place(self.where, self.file)

    def __str__(self) -> str:
        reason = " ".join(
            [*([f"`{plain(self.code, _LINE)}`"] if self.code else []), self.why]
        ).strip()
        subject = plain(self.subject or "", _NAME)
        text = ": ".join(part for part in (subject, self.what, reason) if part)
        # What an exception says has its line already.
        said = f"({self.place})" in text or f" {self.place} " in text
        text += f", {self.place}" if self.place and not said else ""
        return f"{text.rstrip('.')}. {self.told or self.action}".rstrip()

    @property
    def told(self) -> str:
        """The remedy as a sentence, empty where there is none."""
        text = plain(self.remedy, _TEXT).rstrip(".")
        return f"{text[0].upper()}{text[1:]}." if text else ""


def of_report(report: Report, manifest: str | None = None) -> Sentence:
    """Return the sentence about a run: its worst model's, or what all of them have in common.

    ``manifest`` is the manifest's path in the repository where that is not the report's.
    """
    path = manifest or report.manifest.path
    if report.problems:
        return _problem(report, path)
    failing = [model for model in report.models if model.verdict != "pass"]
    return of_model(min(failing, key=summary.rank), path) if failing else _passing(report)


def of_model(model: ModelResult, manifest: str, check: Check | None = None) -> Sentence:
    """Return the sentence about one model, and about one ``check`` of it that diverged."""
    name = model.name
    where = locations.of_model(model, manifest)
    if model.error is not None:
        message = plain(summary.first_line(model.error.message), _TEXT)
        where = where or locations.of_entry(model, manifest)
        where = where if where is None or where.line else None
        ends = _ENDS[model.error.kind] + _but_nonfinite(model)
        if model.error.code == codes.OG506.code:
            # That nothing was verified is what it says itself.
            ends, message = message, ""
        file = _file(model) if where is None else ""
        action = _remedy(model.error.code)
        own = model.error.remedy
        if model.error.otherwise and model.error.changes in _failed(model):
            own = f"{model.error.otherwise}: {_TRIED}"
        return Sentence(name, ends, "", message, where, file, action, own)
    if model.verdict == "pass":
        by_blocks = ", block by block" if any(codes.OG433.among(model.findings)) else ""
        if model.portion is not None:
            by_blocks += f", in part {model.portion.index} of {model.portion.count}"
        what = f"ONNX computes what {model.against} computes{by_blocks}{_but_waived([model])}"
        what += _but_nonfinite(model)
        return Sentence(name, what, action=_sharpness([model]))
    check = check or next(iter(summary.failing(model)), None)
    what = _difference(check, model.against) if check is not None else "a finding fails it"
    # What fails by its weights alone, which no check has shown, is not off by its bits.
    weights = check is None and any(codes.OG417.among(model.findings))
    bits = _blames(model, "reduced precision") and not weights
    room = model.headroom
    if room is not None and room.first is not None and bits:
        why = headroom.beyond(room, line=where is None)
        # Block by block nothing is tried in float32.
        tried = not any(codes.OG433.among(model.findings))
        return Sentence(name, what, "", why, where, remedy=headroom.remedy(room) if tried else "")
    if model.precision is not None and bits:
        why, action = precision.reason_and_action(model.precision)
        if model.diagnosis is not None and model.diagnosis.cause:
            why = plain(model.diagnosis.cause, _TEXT)
        remedy = model.diagnosis.remedy if model.diagnosis is not None else ""
        return Sentence(name, what, "", why, where, "", action, remedy)
    finding = _cause(model, check)
    file = _file(model) if where is None else ""
    code, why, action = _reason(model, finding, placed=bool(file) or where is not None)
    return Sentence(name, what, code, why, where, file, action, _own_remedy(model, finding))


def _failed(model: ModelResult) -> tuple[tuple[SettingChange, ...], ...]:
    """Return the changes of the manifest that were tried and leave the model red."""
    return model.remedies.failed if model.remedies is not None else ()


def _own_remedy(model: ModelResult, finding: Finding | None) -> str:
    """Return what to do about this very divergence, as where a function of the user's wrote the file."""
    if finding is not None and owned.is_owned(finding):
        return owned.remedy(model, finding)
    if model.diagnosis is not None and model.diagnosis.remedy:
        return model.diagnosis.remedy
    writer = _writer(model)
    # Of a wrong weight it is known where it came from: from who wrote it.
    other = finding is not None and finding.code != codes.OG417.code
    if other or not writer or not _blames(model, "exporter"):
        return ""
    return f"put it right in {writer}, which writes the file"


def _writer(model: ModelResult) -> str:
    """Return the function of the user's that wrote the file, empty where none did."""
    exporter = model.export.exporter if model.export is not None else ""
    return exporter if ":" in exporter else ""


def _file(model: ModelResult) -> str:
    """Return the file that an error of the model names, else its diagnosis."""
    named = [f.file for f in model.findings if f.severity == "error" and f.file]
    if model.diagnosis is not None and model.diagnosis.source is not None:
        named.append(model.diagnosis.source.file)
    return next(iter(named), "")


def _problem(report: Report, path: str) -> Sentence:
    first = report.problems[0]
    more = len(report.problems) - 1
    what = "The run is not complete" if report.models else "Nothing was verified"
    why = ": ".join(plain(part, _TEXT) for part in (first.path, first.message) if part)
    action = f"{counted(more, 'more problem')} below." if more else ""
    where = locations.of_problem(first, path)
    file = (first.file or "") if where is None else ""
    return Sentence(None, what, "", why, where, file, action)


def _passing(report: Report) -> Sentence:
    models = report.models
    if not models:
        return Sentence(None, "No model was verified")
    if len(models) == 1:
        sentence = of_model(models[0], report.manifest.path)
    else:
        every = "Both models" if len(models) == 2 else f"All {len(models)} models"
        what = f"{every} compute in ONNX what they compute in PyTorch"
        if any(model.reference is not None for model in models):
            what = f"{every} compute what their references compute"
        parts = [m.name for m in models if m.portion is not None]
        if parts:
            what += f", of {listed([plain(name, _NAME) for name in parts], 2)} a part of the blocks"
        what += _but_waived(models)
        sentence = Sentence(None, what, action=_sharpness(models))
    if not report.changes:
        return sentence
    ways = counted(len(report.changes), "way")
    less = f"but the manifest asks less than its base does, in {ways}"
    return Sentence(sentence.subject, f"{sentence.what}, {less}", action=sentence.action)


def _but_nonfinite(model: ModelResult) -> str:
    """Say that the module itself answers NaN or infinity on ordinary inputs, and where it begins to."""
    lost = next(codes.OG418.among(model.findings), None)
    if lost is None:
        return ""
    first = plain(str(lost.data.get("first", "")), _LINE)
    begins = f", first at {first}" if first else ""
    output = plain(str(lost.data.get("output", "")), _NAME)
    return f"; {model.against} itself answers NaN or infinity in {output}{begins}"


def _but_waived(models: Sequence[ModelResult]) -> str:
    count = sum(check.verdict == "waived" for model in models for check in model.checks)
    checks = (
        "a check that diverges and is" if count == 1 else f"{count} checks that diverge and are"
    )
    return f", but for {checks} waived" if count else ""


def _sharpness(models: tuple[ModelResult, ...] | list[ModelResult]) -> str:
    """Say how large an error had to be to be caught in every one of the models."""
    known = [coverage(model).resolution for model in models]
    worst = [each.worst for each in known if each is not None]
    if not worst or len(worst) < len(known) or math.inf in worst:
        return ""
    least = max(worst)
    if least >= 1:
        return (
            f"Of some element, row or channel an error of up to {number(least)} times its size may "
            "pass."
        )
    return f"An error of {relative(least)} of an element, row or channel would have been caught."


def _difference(check: Check, reference: str) -> str:
    sizes = [f"{plain(n, 30)}={format_int(size)}" for n, size in check.sizes.items()]
    at = f"at {', '.join(sizes[:_SIZES])}" if sizes else f"in {plain(check.case, _NAME)}"
    output = output_called(plain(check.output, _NAME))
    worst = check.worst
    if check.refused or worst is None:
        reason = plain(summary.first_line(check.reason), _TEXT) or "the outputs differ"
        return f"{at} {f'{output} has ' if check.form else ''}{reason}"
    expected, actual = summary.distinct_digits(worst.expected, worst.actual)
    side = "the stored output" if check.runtime == "stored" else "ONNX"
    element = f"{output}{summary.indices(worst.index)}" if worst.index else output
    text = f"{at} {side} says {actual} where {reference} says {expected} in {element}"
    if worst.expected == worst.actual and abs(worst.expected) >= _DOUBLE:
        text = f"{at} {element} is another whole number near {actual}"
    return text + (f" ({measured(check)})" if check.deviation is not None else "")


def measured(check: Check) -> str:
    """Return ``error 0.039, allowed 1.2e-06``: what was measured, and its limit."""
    if check.deviation is None:
        return ""
    value, allowed = summary.value_and_limit(check.deviation)
    limit = f"allowed {allowed}" if check.deviation.is_error else f"asked at least {allowed}"
    return f"{plain(check.deviation.measure, 40)} {value}, {limit}"


def _cause(model: ModelResult, check: Check | None) -> Finding | None:
    """Return the finding that explains the divergence best: an error, or one of the hints."""
    hints = model.diagnosis.hints if model.diagnosis is not None else ()
    errors = [f for f in summary.causes(model, check) if f.code not in _ELSEWHERE]
    hinted = [f for f in model.findings if f.code in hints and f.code in CATALOGUE]
    return next(iter(errors + hinted), None)


def _blames(model: ModelResult, blame: Blame) -> bool:
    return model.diagnosis is not None and model.diagnosis.blame == blame


def _reason(model: ModelResult, finding: Finding | None, *, placed: bool) -> tuple[str, str, str]:
    """Return the line that a reason begins with, the reason, and what to do; ``placed``: where is told."""
    diagnosis = model.diagnosis
    # That a weight is wrong says less than which one it is.
    noted = finding is None or finding.severity == "note" or finding.code == codes.OG417.code
    known = (noted or diagnosis.remedy) if diagnosis is not None and diagnosis.cause else False
    if diagnosis is not None and known and not owned.is_owned(finding):
        remedy = _remedy(finding.code) if finding is not None else ""
        action = remedy or _action(model, diagnosis)
        return "", plain(diagnosis.cause, _TEXT), action
    if finding is not None:
        line = finding.data.get("code", "")
        blamed = diagnosis.source.code if diagnosis is not None and diagnosis.source else ""
        unseen = finding.code == codes.OG102.code and not _SIZE.search(f"{line} {blamed}")
        wrong_at = _first_wrong(diagnosis) if unseen and diagnosis is not None else ""
        tried = f": {_TRIED}" if _all_exporters_fail(model) else ""
        no_size = _NO_SIZE.format(before=" before it" if wrong_at or placed else "", tried=tried)
        remedy = no_size if unseen else _remedy(finding.code)
        if finding.code in _DECIDED and isinstance(line, str) and line:
            if finding.data.get("refused"):
                return line, "takes no such sizes", _sizes_that_fit(finding)
            return line, "was decided during the export", remedy
        entry = CATALOGUE.get(finding.code)
        title = entry.title if entry is not None else plain(finding.message, _TEXT)
        why = owned.reason(model, finding) or title
        return "", why + wrong_at, remedy
    if diagnosis is None:
        return "", "", ""
    writer = _writer(model)
    why = blames.cause(diagnosis, writer)
    if diagnosis.fused_by:
        why += f" ({plain(diagnosis.fused_by, _NAME)})"
    return "", why + _first_wrong(diagnosis), _action(model, diagnosis)


def _first_wrong(diagnosis: Diagnosis) -> str:
    """Return the node at which the error is born as a part of a sentence, empty where none is known."""
    node = diagnosis.node
    if node is None:
        return ""
    inside = f" in {plain(node.module, _NAME)}" if node.module else ""
    # What the graph lacks is at no place in it.
    at = "first wrong at" if diagnosis.beside is None else "without"
    return f", {at} {plain(node.operator or node.op_type, 40)}{inside}"


def _sizes_that_fit(finding: Finding) -> str:
    """Return what to declare where PyTorch itself refuses the sizes that were asked for."""
    sizes = ", ".join(str(size) for size in finding.data.get("sizes", ()))
    such = f", such as `dims: {{{finding.data['dimension']}: [{sizes}]}}`" if sizes else ""
    return f"Name sizes that the model is made for{such}."


def _action(model: ModelResult, diagnosis: Diagnosis) -> str:
    alone = diagnosis.blame == "exporter" and _all_exporters_fail(model)
    return blames.action(diagnosis, no_other=alone)


def _all_exporters_fail(model: ModelResult) -> bool:
    """Return whether another exporter was tried, as a remedy or by an experiment, and is no help."""
    evidence = model.diagnosis.evidence if model.diagnosis is not None else ()
    wrong = {each.exporter for each in evidence if each.agrees is False}
    tried = any(change.key == "export" for changes in _failed(model) for change in changes)
    return tried or wrong.issuperset(EXPORTERS)


def _remedy(code: str) -> str:
    """Return the first sentence of a code's remedy, or where to read it."""
    entry = CATALOGUE.get(code)
    if entry is None:
        return ""
    paragraph = " ".join(entry.remedy.partition("\n\n")[0].split())
    first = re.split(r"(?<=\.) (?=[A-Z`])", paragraph, maxsplit=1)[0]
    return first if first.endswith(".") else f"`onnx-gate explain {code}` says what to do."
