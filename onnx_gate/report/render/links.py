"""The links of Markdown: a report names no address.

Every link begins with one of the view's, and what a report adds to it is a checked path,
percent-encoded; a public thread is linked where the book of known faults has it.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from markupsafe import Markup

from onnx_gate.report.model import Baseline
from onnx_gate.report.render.escape import code, inline
from onnx_gate.report.story.issues import rule_page
from onnx_gate.report.story.knowing import KnownFault
from onnx_gate.report.story.locations import Location, Place
from onnx_gate.report.story.view import View

_ADDRESS = re.compile(r"https?://[A-Za-z0-9._~:/?#@!&*+,;=%\[\]-]{1,1000}")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_MAX_RUN = 2**63


class Links:
    """What a view's repository, commit and run have an address for."""

    def __init__(self, view: View) -> None:
        self._view = view

    def thread(self, fault: KnownFault) -> Markup:
        """Return a public thread, linked where this program's own book has its address."""
        return link(code(fault.address, 200), fault.address if fault.trusted else None)

    def commit(self) -> Markup | None:
        """Return the commit, linked, or ``None`` where there is none."""
        return self._commit(self._view.sha)

    def baseline(self, baseline: Baseline | None) -> Markup | None:
        """Return which commit and run the numbers of *vs base* are of, linked, or ``None``.

        Without a baseline it is the pull request's base, to which nothing is compared.
        """
        if baseline is None:
            return Markup("base {}").format(code(self._view.base, 80)) if self._view.base else None
        parts = [self._commit(baseline.sha), self._run(baseline.run)]
        verdict = Markup(f"({baseline.verdict})") if baseline.verdict else None
        named = Markup(" ").join(part for part in (*parts, verdict) if part)
        return Markup("vs base: {}").format(named) if named else None

    def _commit(self, sha: str | None) -> Markup | None:
        if not sha:
            return None
        label = code(sha[:7])
        repository = _address(self._view) if _COMMIT.fullmatch(sha) else None
        return label if repository is None else link(label, f"{repository}/commit/{sha}")

    def _run(self, number: int | None) -> Markup | None:
        if number is None or not 0 < number < _MAX_RUN:
            return None
        repository = _address(self._view)
        address = f"{repository}/actions/runs/{number}" if repository is not None else None
        return link(inline(f"run {number}"), address)

    def location(self, location: Location, short: bool = False) -> Markup:
        """Return ``file:line``, linked to the line at the commit where that is known."""
        repository = _repository(self._view)
        label = code(str(location).rpartition("/")[2] if short else location, 120)
        if repository is None:
            return label
        line = f"#L{location.line}" if location.line else ""
        return link(label, f"{repository}/blob/{self._view.sha}/{quote(location.file)}{line}")

    def place(self, place: Place) -> Markup:
        """Return a place of the repository, linked, or the file that a report names."""
        if place.location is not None:
            return self.location(place.location)
        return code(place.file, 120) if place.file else Markup("")

    def run(self) -> Markup | None:
        """Return the run, linked, or ``None``."""
        if not self._view.run_url and not self._view.run_label:
            return None
        return link(inline(self._view.run_label or "run", 60), self._view.run_url)

    def report(self) -> Markup:
        """Return the words ``full report``, linked to it, or else to the run, where possible."""
        return link(Markup("full report"), self._view.report_url or self._view.run_url)


def finding_link(name: str, html: bool = False) -> Markup:
    """Return a finding's code, linked to the page about it; ``html`` as in a summary."""
    if html:
        return Markup('<a href="{}">{}</a>').format(rule_page(name), inline(name))
    return link(inline(name), rule_page(name))


def link(label: Markup, address: str | None) -> Markup:
    """Return a link, or the label alone where the address is not one."""
    if not address or not _ADDRESS.fullmatch(address):
        return label
    return Markup(f"[{label}]({address})")


def _repository(view: View) -> str | None:
    """Return the repository's address where the commit is one that can be linked into."""
    return _address(view) if view.sha and _COMMIT.fullmatch(view.sha) else None


def _address(view: View) -> str | None:
    if not view.repository_url:
        return None
    address = view.repository_url.rstrip("/")
    return address if _ADDRESS.fullmatch(address) else None
