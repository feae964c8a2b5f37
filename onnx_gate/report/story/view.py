"""Where a rendering is shown, and the links that it may therefore hold.

A report names no address: every link begins with one of the view's, and what a report adds to it
is a checked path, percent-encoded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup

from onnx_gate.report.model import Baseline
from onnx_gate.report.render.escape import code, inline
from onnx_gate.report.story.locations import Location

_ADDRESS = re.compile(r"https?://[A-Za-z0-9._~:/?#@!&*+,;=%\[\]-]{1,1000}")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_MAX_RUN = 2**63


@dataclass(frozen=True)
class View:
    """The repository, commit and run that a rendering links to; what is ``None`` is not linked.

    ``sha`` is the commit that the verdict is about, ``base`` what it is compared with as text
    (``main@4f1c2e9``), ``manifest_path`` the manifest's path inside the repository. ``level`` is
    the number of steps by which the rendering is shortened, 0 for everything. ``output`` is the
    folder that the report's paths of logs and reproductions start from, and ``options`` what a
    command that is shown has to repeat of the call, as a shell reads it (``None``: the manifest's
    path, where it is not the usual one). ``run_id`` is the workflow run that has the artifact
    ``onnx-gate-report``. ``times``: where the time went is shown.
    """

    repository_url: str | None = None
    sha: str | None = None
    base: str | None = None
    run_url: str | None = None
    run_label: str | None = None
    report_url: str | None = None
    manifest_path: str | None = None
    level: int = 0
    output: str = "onnx-gate-report"
    options: str | None = None
    run_id: int | None = None
    times: bool = True

    def commit(self) -> Markup | None:
        """Return the commit, linked, or ``None`` where there is none."""
        return self._commit(self.sha)

    def baseline(self, baseline: Baseline | None) -> Markup | None:
        """Return which commit and run the numbers of *vs base* are of, linked, or ``None``.

        Without a baseline it is the pull request's base, to which nothing is compared.
        """
        if baseline is None:
            return Markup("base {}").format(code(self.base, 80)) if self.base else None
        parts = [self._commit(baseline.sha), self._run(baseline.run)]
        verdict = Markup(f"({baseline.verdict})") if baseline.verdict else None
        named = Markup(" ").join(part for part in (*parts, verdict) if part)
        return Markup("vs base: {}").format(named) if named else None

    def _commit(self, sha: str | None) -> Markup | None:
        if not sha:
            return None
        label = code(sha[:7])
        repository = _address(self) if _COMMIT.fullmatch(sha) else None
        return label if repository is None else link(label, f"{repository}/commit/{sha}")

    def _run(self, number: int | None) -> Markup | None:
        if number is None or not 0 < number < _MAX_RUN:
            return None
        repository = _address(self)
        address = f"{repository}/actions/runs/{number}" if repository is not None else None
        return link(inline(f"run {number}"), address)

    def location(self, location: Location, short: bool = False) -> Markup:
        """Return ``file:line``, linked to the line at the commit where that is known."""
        repository = _repository(self)
        label = code(str(location).rpartition("/")[2] if short else location, 120)
        if repository is None:
            return label
        line = f"#L{location.line}" if location.line else ""
        return link(label, f"{repository}/blob/{self.sha}/{quote(location.file)}{line}")

    def run(self) -> Markup | None:
        """Return the run, linked, or ``None``."""
        if not self.run_url and not self.run_label:
            return None
        return link(inline(self.run_label or "run", 60), self.run_url)

    def report(self) -> Markup:
        """Return the words ``full report``, linked to it, or else to the run, where possible."""
        return link(Markup("full report"), self.report_url or self.run_url)


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
