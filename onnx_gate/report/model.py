"""The types of ``report.json``: the one source of every rendering.

Nothing here imports torch, onnx or onnxruntime.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, Field, PrivateAttr

from onnx_gate.findings.finding import FROZEN, ErrorKind, Finding
from onnx_gate.manifest.spec import Against
from onnx_gate.report.audit import Audit
from onnx_gate.report.diagnosis import Diagnosis, Precision
from onnx_gate.report.number import Number

SCHEMA_VERSION = 1

MAX_SHARDS = 256
"""GitHub runs no more jobs of one matrix."""

Verdict = Literal["pass", "diverged", "error"]
CheckVerdict = Literal["pass", "diverged", "waived", "refused"]
Side = Literal["pytorch", "runtime"]
# What PyTorch leaves open: why it has more than one answer on some inputs.
OpenCause = Literal[
    "rounding", "attention over nothing", "attention's fast path", "order of equals"
]
Form = Literal["shape", "dtype", "number"]


class _Frozen(BaseModel):
    model_config = FROZEN


class ModelError(_Frozen):
    """Why a model has no verdict of its own; ``log`` is the path of the worker's output."""

    kind: ErrorKind
    code: str = Field(pattern=r"^OG\d{3}$")
    message: str
    log: str | None = None
    tail: tuple[str, ...] = ()


class Stage(_Frozen):
    """Seconds spent in one station of the way from build to verdict, begun ``times`` times."""

    name: str
    seconds: float
    times: int = 1


class ExportInfo(_Frozen):
    """What was exported (or read): ``bytes`` includes external data."""

    exporter: str
    opset: int
    bytes: int
    nodes: int
    operators: dict[str, int] = {}


class Metrics(_Frozen):
    """How far the candidate is from PyTorch on one output.

    ``max_abs``, ``max_rel`` and ``rms`` are over the pairs in which both sides are finite;
    ``max_rel`` leaves out the elements where PyTorch's value is zero. ``scaled`` is E(candidate)
    and ``scaled_torch`` is E(PyTorch), the largest error relative to ``|r| + rms(r)`` against the
    float64 reference; both are null where the reference was not needed. ``criteria`` holds the
    value of each criterion that the tolerance names.
    """

    elements: int
    max_abs: Number
    max_rel: Number
    rms: Number
    cosine: Number | None = None
    snr_db: Number | None = None
    exceeding: int = 0
    nonfinite: int = 0
    scaled: Number | None = None
    scaled_torch: Number | None = None
    criteria: dict[str, Number] = {}


class Deviation(_Frozen):
    """The criterion that decided a check: what was measured, and the limit in the same unit.

    ``error`` is |ONNX - PyTorch| of the worst element over (|PyTorch| + the output's scale), be
    PyTorch's value float64's or its own; ``mean error`` is the root mean square of it.
    ``constant factor`` and ``constant shift`` are the part of ONNX - PyTorch that is proportional
    to the output, and the part that is the same everywhere, in units of the scale. ``unit`` says
    how ``value`` reads: the larger the worse (``error``), a share that is 1 where both sides are
    equal (``agreement``), or decibels of signal to noise (``dB``).
    """

    measure: str = "error"
    value: Number
    allowed: Number
    unit: Literal["error", "agreement", "dB"] = "error"

    @property
    def error(self) -> float:
        """The value as an error, which is zero where both sides are equal."""
        if self.unit == "agreement":
            return 1 - self.value
        return 10 ** (-self.value / 20) if self.unit == "dB" else self.value


class Worst(_Frozen):
    """The element that decides: its index and both values (and float64's, where it was run)."""

    index: tuple[int, ...]
    expected: Number
    actual: Number
    reference: Number | None = None


class CheckBase(_Frozen):
    """The same check (runtime, suite, case and output) in the baseline.

    ``error`` is that of the deviation. ``max_abs`` is the baseline's largest difference. Both
    are infinite where one side was not finite.
    """

    verdict: CheckVerdict
    error: Number | None = None
    max_abs: Number | None = None
    budget: Number | None = None


class Tokens(_Frozen):
    """The tokens chosen over the steps of a check: ``same`` of ``of`` are the same on both sides.

    ``differ_at`` is the first step, from 1, at which one is not.
    """

    same: int
    of: int
    differ_at: int | None = None


class Steps(_Frozen):
    """A check of several calls in a row, whose outputs come back as inputs.

    ``count`` calls were asked for. ``at`` is the one, from 1, that the check's numbers are of: the
    first that diverged, or else the one that used most of its tolerance. One number for each call
    that was compared: ``errors`` are the largest differences of the two sides on the scale of the
    output (``|t| + rms(t)``), ``rounding`` PyTorch's own from float64 by then, null where it was not
    needed. An output that has diverged is measured further, and judged no more. ``max_abs`` is the
    largest difference in any step, infinite where one side was not finite or had another form.
    """

    count: int
    at: int
    errors: tuple[Number, ...] = ()
    rounding: tuple[Number | None, ...] = ()
    max_abs: Number
    tokens: Tokens | None = None


class Check(_Frozen):
    """One runtime × suite × case × output. ``budget`` is the share of the tolerance used.

    ``deviation`` is what decided, null where nothing was measured: another shape, or a refusal.

    ``sizes`` are those of the dynamic dimensions. ``refused`` is who raised. ``compared`` is the
    number of elements that were finite on both sides and of which PyTorch has one answer; the
    ``open`` ones, of which it has several because of ``causes``, are not among them, and neither are
    those ``outside`` the mask that the manifest has the output judged by.
    ``resolution`` is the smallest relative error of the output that the check would have refused,
    null where it was not found out.
    ``refusal`` is what the runtime's refusal says as values: an input's size, or the node that gave
    up. ``edge`` is the kind of edge that the case is at, empty where it is at none. ``form`` is
    what of the output's form is not PyTorch's. ``steps`` is what the calls after the first came to.
    """

    runtime: str
    suite: str
    case: str
    output: str
    verdict: CheckVerdict
    advice: bool = False
    budget: Number | None = None
    tolerance: dict[str, Any] = {}
    deviation: Deviation | None = None
    metrics: Metrics | None = None
    worst: Worst | None = None
    reason: str = ""
    sizes: dict[str, int] = {}
    refused: tuple[Side, ...] = ()
    compared: int = 0
    open: int = 0
    causes: tuple[OpenCause, ...] = ()
    outside: int = 0
    resolution: Number | None = None
    refusal: dict[str, Any] = {}
    edge: str = ""
    form: Form | None = None
    steps: Steps | None = None
    base: CheckBase | None = None


class RuntimeResult(_Frozen):
    """What became of one runtime of a model.

    ``error`` says why it could not be judged, or not to the end; else its verdict is that of its
    checks. ``seconds`` is what loading the file and running it took.
    """

    runtime: str
    seconds: float
    error: ModelError | None = None


class ModelResult(_Frozen):
    """Everything known about one model.

    ``line`` is that of its entry in the manifest; ``base`` is its verdict in the baseline, null
    where there is no baseline or the model is new. ``reference`` is the ONNX file that it is held
    against, null where that is a PyTorch model. ``seconds`` is the life of its worker and
    ``peak_memory`` the most bytes that the worker and its descendants were seen to use together
    (each process's resident memory); of a cached result they are those of the run that made it.
    ``precision`` is null where the file computes in as many bits as the model. ``audit`` is what
    faults its gate would have caught, null where nobody asked.
    """

    name: str
    line: int | None = None
    verdict: Verdict
    required: bool = True
    reference: str | None = None
    cached: bool = False
    error: ModelError | None = None
    stages: tuple[Stage, ...] = ()
    seconds: float | None = None
    peak_memory: int | None = None
    export: ExportInfo | None = None
    findings: tuple[Finding, ...] = ()
    checks: tuple[Check, ...] = ()
    runtimes: tuple[RuntimeResult, ...] = ()
    base: Verdict | None = None
    diagnosis: Diagnosis | None = None
    precision: Precision | None = None
    audit: Audit | None = None

    @property
    def against(self) -> Against:
        """What the candidate is held against, as sentences call it."""
        return "PyTorch" if self.reference is None else "the reference"


class Counts(_Frozen):
    """Models by verdict."""

    passed: int = Field(default=0, alias="pass")
    diverged: int = 0
    error: int = 0


class ManifestInfo(_Frozen):
    """Which manifest was verified: its ``path`` from the root of its repository."""

    path: str
    sha256: str


class Problem(_Frozen):
    """A mistake in the manifest, or a word on why nothing could be verified.

    ``path`` is the dotted key; ``line`` and ``column`` start at 1 and are null where the mistake
    has no place in a file. ``tail`` are the last lines that a program printed before it failed.
    """

    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    path: str = ""
    tail: tuple[str, ...] = ()


class Change(_Frozen):
    """One way in which a pull request asks less of a model than its base does.

    ``line`` is in the pull request's manifest, null where what it is about is gone.
    """

    kind: Literal["manifest", "model", "tolerance", "suites", "dims", "required", "waiver", "other"]
    model: str | None = None
    message: str
    line: int | None = None


class Baseline(_Frozen):
    """The run that the report is compared with: its commit, its workflow run's id, its verdict."""

    sha: str | None = None
    run: int | None = None
    verdict: Verdict | None = None


class Shard(_Frozen):
    """Which part of a manifest's models a report covers: ``index`` of ``count``, from 1.

    ``members`` are the names of the models of a part that was planned by durations, null where all
    parts are alike. ``plan`` tells the plan that it is a part of from others, null where nothing
    was verified.
    """

    index: int = Field(ge=1)
    count: int = Field(ge=1)
    members: tuple[str, ...] | None = Field(default=None, min_length=1)
    plan: str | None = None


class Run(_Frozen):
    """The workflow run that made a report, and the commit that its verdict is about."""

    id: int = Field(ge=0)
    attempt: int = Field(ge=0)
    sha: str = Field(pattern=r"^[0-9A-Za-z]{0,64}$")


class Commit(_Frozen):
    """The commit that was checked out, and when it was made."""

    sha: str = Field(pattern=r"^[0-9a-f]{7,64}$")
    time: AwareDatetime | None = None


class Sandbox(_Frozen):
    """What the models' code was kept from.

    ``level`` is ``full`` (own uid, Landlock and seccomp), ``partial`` (own uid, and not both of
    the others), ``none`` (nothing could be had) or ``off`` (nothing was asked for). ``landlock``
    is the kernel's ABI, 0 without it.
    """

    level: Literal["full", "partial", "none", "off"]
    uid: int | None = None
    landlock: int = 0
    seccomp: bool = False
    missing: tuple[str, ...] = ()


class Report(_Frozen):
    """The whole of ``report.json``.

    ``verdict`` is that of the required models: ``error`` where one could not be verified, else
    ``diverged`` where one diverged, else ``pass``. No model at all is an ``error``, and
    ``problems`` then says why: an invalid manifest, a missing shard. ``changes`` are what the pull
    request loosened in the manifest. ``notes`` are remarks on the run as a whole. ``seconds`` is
    what the run took on the wall's clock, of merged shards the longest one, and ``created`` when it
    began. ``commit`` is what was checked out, where the command line was called in a repository.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    verdict: Verdict
    counts: Counts
    environment: dict[str, Any] = {}
    manifest: ManifestInfo
    models: tuple[ModelResult, ...]
    problems: tuple[Problem, ...] = ()
    changes: tuple[Change, ...] = ()
    baseline: Baseline | None = None
    shard: Shard | None = None
    run: Run | None = None
    sandbox: Sandbox | None = None
    notes: tuple[str, ...] = ()
    seconds: float | None = None
    created: AwareDatetime | None = None
    commit: Commit | None = None

    @property
    def sha(self) -> str:
        """The commit that the verdict is about, empty where nobody knows."""
        if self.run is not None and self.run.sha:
            return self.run.sha
        return self.commit.sha if self.commit is not None else ""

    @property
    def folder(self) -> str:
        """The folder that its logs and reproductions are in."""
        return self._folder

    # Where its paths of logs and reproductions start: not a part of it, since it can be moved.
    _folder: str = PrivateAttr("onnx-gate-report")

    def located(self, folder: str) -> Report:
        """Return the same report, with the folder that its logs and reproductions are in."""
        report = self.model_copy()
        report._folder = folder
        return report

    def __str__(self) -> str:
        """Return what the command line prints of it."""
        from onnx_gate.report import terminal

        return terminal.render(self)

    def __repr__(self) -> str:
        """Return one line: the verdict and the count."""
        from onnx_gate.report import summary

        return f"<Report {self.verdict}: {summary.headline(self)}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows of it."""
        from onnx_gate.report import notebook

        return notebook.render(self, self._folder)
