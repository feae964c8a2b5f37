"""What an audit says, in words: the score, the survivors, and what would catch them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from onnx_gate.manifest.spec import Against
from onnx_gate.report.model.audit import Audit, ManifestChange, Mutant, Share, Unseen
from onnx_gate.text import format_int, number, plain

_NAME = 80
_WORDS = 300
SHOWN_SURVIVORS = 20


def headline(audit: Audit) -> str:
    """Return ``the gate catches 36 of 40 (90%; ...)``, or why there is no score."""
    if audit.score is None or not audit.score.of:
        return plain(audit.note, _WORDS) or "no fault of the catalogue fits this graph"
    drawn = len(audit.mutants) < audit.sites
    return f"the gate catches {share(audit.score, drawn=drawn)} of the faults that were seeded"


def share(of: Share, *, drawn: bool) -> str:
    """Return ``36 of 40 (90%; with 95% confidence 77% to 96%)``, without it where all were tried."""
    interval = f"; with 95% confidence {of.low:.0%} to {of.high:.0%}" if drawn else ""
    return f"{format_int(of.caught)} of {format_int(of.of)} ({percent(of)}%{interval})"


def percent(of: Share) -> str:
    """Return the share as a whole number; a report may hold numbers that no float does."""
    return format_int(of.caught * 100 // of.of) if of.of else "0"


def tally(audit: Audit) -> str:
    """Return what became of the faults that do not count, and of those that were not tried."""
    parts = []
    for fate, words in (
        ("refused", "refused by the runtime, which needs no gate"),
        ("equivalent", "without effect"),
        ("duplicate", "with the answers of another one"),
    ):
        count = len(audit.fate(fate))  # type: ignore[arg-type]
        parts += [f"{format_int(count)} {words}"] if count else []
    parts += [f"{format_int(audit.left)} not tried for want of time"] if audit.left else []
    parts += [f"{format_int(audit.resumed)} known from an earlier call"] if audit.resumed else []
    if audit.changes_tried or audit.changes_left:
        left = f", {format_int(audit.changes_left)} more not for want of time"
        many = "change" if audit.changes_tried == 1 else "changes"
        words = f"{format_int(audit.changes_tried)} {many} of the manifest tried for the survivors"
        parts += [words + (left if audit.changes_left else "")]
    tried = f"{format_int(len(audit.mutants))} of {format_int(audit.sites)} possible faults tried"
    return "; ".join([tried, *parts])


def survivors(audit: Audit) -> list[Mutant]:
    """Return the survivors, first what a change catches, then by how much they move the outputs."""
    return sorted(audit.fate("survived"), key=lambda m: (m.change is None, -(m.moved or 0.0)))


def kinds(audit: Audit) -> str:
    """Return ``weights 5 of 5, precision 4 of 6``, the least caught first."""
    ordered = sorted(audit.kinds, key=lambda each: each.caught * 1000 // (each.of or 1))
    return ", ".join(
        f"{plain(each.name, 40)} {format_int(each.caught)} of {format_int(each.of)}"
        for each in ordered
    )


def survivor(mutant: Mutant, against: Against) -> str:
    """Return what is wrong, where, and by how much that moves the outputs."""
    moved = ""
    if mutant.moved is not None:
        moved = f"; the outputs move by {number(mutant.moved)} × {against}'s own rounding"
    if mutant.reached is False:
        moved += "; no case of the manifest's reaches it"
    return f"{place(mutant)}: {plain(mutant.words, _WORDS)}{moved}"


def place(mutant: Mutant) -> str:
    """Return the node and the user's line, or the input."""
    site = mutant.site
    if not site.op_type:
        return f"the input {plain(site.name, _NAME)}"
    line = ""
    if site.file is not None and site.line is not None:
        line = f" ({plain(site.file, _NAME)}:{format_int(site.line)})"
    return f"{plain(site.op_type, 40)} {plain(site.name, _NAME)}{line}"


def remedy(audit: Audit, mutant: Mutant, against: Against) -> str:
    """Return the change that catches a survivor, or why none of those tried does."""
    if mutant.change is not None and 0 <= mutant.change < len(audit.changes):
        return f"Caught with {change(audit.changes[mutant.change])}"
    if mutant.unseen is None:
        return "Nothing that was tried catches it"
    return reason(mutant.unseen, against)


def reason(unseen: Unseen, against: Against) -> str:
    """Return why nothing catches a survivor, as a sentence without its point."""
    subject = plain(unseen.subject, _NAME)
    output = f", output {plain(unseen.output, _NAME)}" if unseen.output != "output" else ""
    check = f"{plain(unseen.case, _NAME)}{output}, {plain(unseen.runtime, _NAME)}"
    tolerance = f"{plain(unseen.key, _NAME)}: {flow(unseen.tolerance)}"
    used, own = _percent(unseen.budget), _percent(unseen.original)
    not_proposed = f"Not proposed: {tolerance} would catch it ({check})"
    if unseen.why == "margin" and unseen.original is None:
        return f"{not_proposed}, and the unchanged graph does not pass with it"
    if unseen.why == "margin" and (unseen.original or 0.0) > 0.5:
        return f"{not_proposed}, and the unchanged graph uses {own} of that, on another machine maybe more"
    sentences = {
        "rounding": f"No tolerance catches it: {against}'s own rounding moves the outputs further",
        "floor": "No auto catches it: it is within the units in the last place that are always allowed "
        f"({check})",
        "granted": f"Even {tolerance} lets it pass ({check}): {against}'s own answer moves as far when "
        "its rounding is moved at random",
        "original": f"No tolerance catches it: it uses {used} of what {tolerance} allows ({check}), and "
        f"the unchanged graph up to {own}",
        "margin": f"{not_proposed}, and correct files of other models need up to auto: 3",
        "waiver": f"The waiver for {subject} forgives it ({check})",
        "where": f"It shows only where {subject} has the output not judged ({check})",
        "open": f"It changes only what {against} leaves open, by {subject} ({check})",
        "inputs": f"No case of the manifest's shows it, and another one does ({check})",
        "operator": "No input was found that shows it: a run warns of its operator",
        "time": "The time was over before everything was tried",
    }
    return sentences[unseen.why]


def _percent(share: float | None) -> str:
    return f"{number(100 * (share or 0.0))}%"


def proposed(audit: Audit) -> str:
    """Return the changes that ``--write`` makes, each with the number of survivors that it catches."""
    return "; ".join(
        f"{change(each)} (catches {format_int(each.catches)})" for each in audit.changes
    )


def change(each: ManifestChange) -> str:
    """Return a change as the manifest would have it: ``tolerance: {auto: 10}``."""
    verb = "another entry in " if each.add else ""
    return f"{verb}{plain(each.key, _NAME)}: {flow(each.value)}"


def flow(value: object, depth: int = 0) -> str:
    """Return data as YAML on one line."""
    if depth > 8:
        return "..."
    if isinstance(value, dict):
        pairs = (f"{plain(key, 60)}: {flow(each, depth + 1)}" for key, each in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(each, depth + 1) for each in value) + "]"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return format_int(value)
    if isinstance(value, str) and value.replace("_", "").replace("-", "").isalnum():
        return plain(value, 60)
    return plain(json.dumps(value), 60)


def lines(audit: Audit, against: Against) -> Iterator[str]:
    """Yield what there is to say of an audit, the survivors first."""
    yield headline(audit)
    if audit.score is None:
        return
    ordered = survivors(audit)
    for mutant in ordered[:SHOWN_SURVIVORS]:
        yield f"survived: {survivor(mutant, against)}. {remedy(audit, mutant, against)}"
    more = len(ordered) - SHOWN_SURVIVORS
    if more > 0:
        yield f"and {format_int(more)} more survivors"
    if audit.changes:
        yield f"--write puts in: {proposed(audit)}"
    if audit.kinds:
        yield f"caught by kind: {kinds(audit)}"
    yield tally(audit)


FILTERS = {
    "audit_headline": headline,
    "audit_place": place,
    "audit_proposed": proposed,
    "audit_remedy": remedy,
    "audit_survivors": survivors,
    "audit_tally": tally,
}
"""What templates call these."""
