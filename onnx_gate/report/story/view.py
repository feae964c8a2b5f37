"""Where a rendering is shown, and what it can therefore link to and repeat."""

from __future__ import annotations

from dataclasses import dataclass


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
