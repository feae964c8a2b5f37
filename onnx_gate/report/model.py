"""The types of ``report.json``: the one source of every rendering.

Nothing here imports torch, onnx or onnxruntime. Floats that JSON cannot hold (infinities, NaN) are
written as the strings ``"Infinity"``, ``"-Infinity"`` and ``"NaN"``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PrivateAttr, WithJsonSchema

from onnx_gate.findings.finding import FROZEN
from onnx_gate.findings.finding import ErrorKind as ErrorKind
from onnx_gate.findings.finding import Finding as Finding
from onnx_gate.findings.finding import Severity as Severity

SCHEMA_VERSION = 1

MAX_SHARDS = 256
"""GitHub runs no more jobs of one matrix."""

Number = Annotated[
    float,
    WithJsonSchema(
        {"anyOf": [{"type": "number"}, {"enum": ["Infinity", "-Infinity", "NaN"]}]},
    ),
]

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
    """Seconds spent in one station of the way from build to verdict."""

    name: str
    seconds: float


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
    """

    measure: str = "error"
    value: Number
    allowed: Number


class Worst(_Frozen):
    """The element that decides: its index and both values (and float64's, where it was run)."""

    index: tuple[int, ...]
    expected: Number
    actual: Number
    reference: Number | None = None


Experiment = Literal[
    "repeated",
    "rebuilt",
    "runtime",
    "program",
    "captured again",
    "traced",
    "unoptimised",
    "export's example",
    "optimised",
    "without an optimiser",
    "other provider",
    "evaluator",
    "same error",
    "node",
    "all nodes",
    "fresh export",
    "file",
    "float64",
    "layers",
]


class Evidence(_Frozen):
    """One experiment of a diagnosis: what was compared, and how it came out.

    ``kind`` says which links were compared; ``decisive`` marks the experiment that settled the
    blame. ``error`` is the largest difference of the two sides relative to the scale of the output.
    """

    kind: Experiment | None = None
    decisive: bool = False
    experiment: str
    outcome: str
    agrees: bool | None = None
    error: Number | None = None


class GraphNode(_Frozen):
    """A node of the ONNX graph; ``output`` is the value that it is known by.

    ``module`` is the path of the module that it comes from (``blocks.3.attn``), null where
    nothing says so.
    """

    name: str
    op_type: str
    output: str = ""
    module: str | None = None


class NodeError(GraphNode):
    """The error of one node's output, relative to the output's scale.

    ``error`` is what has accumulated, ``born`` what the node adds when it is run alone on
    PyTorch's own values; null where PyTorch has no such value.
    """

    error: Number
    born: Number | None = None


class Source(_Frozen):
    """A line of the user's: ``file`` is relative to the manifest's folder."""

    file: str
    line: int
    code: str = ""


ReducedHow = Literal["static", "dynamic", "weights", "half"]


class LayerCost(GraphNode):
    """What one layer of a file costs that computes in fewer bits.

    ``snr_db`` is the signal to noise of its output where its inputs are PyTorch's own, ``total_db``
    with all that comes in from the layers before it; both infinite where nothing is lost. ``gain``
    is how many times PyTorch's output it is, null where the noise is none of a wrong scale.
    """

    snr_db: Number
    total_db: Number
    gain: Number | None = None
    source: Source | None = None


class Proposal(_Frozen):
    """A tolerance that one output meets, from what was measured of it.

    ``cosine`` and ``snr_db`` are the worst of ``checks``, of which ``case`` is the one; ``top1`` is
    null where the output is none of a classifier's. ``tolerance`` can be pasted into the manifest.
    It leaves ``margin_db`` to the worst: by as much as two draws of equal sizes were apart,
    ``draws`` such pairs in number.
    """

    output: str
    checks: int
    case: str
    cosine: Number
    snr_db: Number
    top1: Number | None = None
    margin_db: Number
    draws: int
    tolerance: dict[str, Number]


class Precision(_Frozen):
    """How a file computes in fewer bits than the model that it was made from.

    ``how``: in integers with fixed scales (``static``) or with those of the values (``dynamic``),
    with short ``weights`` alone, or in ``half`` precision. ``operators`` are those that say so.
    ``layers`` are the costliest first; ``suspect`` is the one that is worse than its bits explain,
    and without which the output is nearer to PyTorch's. Where there is one, nothing is proposed.
    """

    how: ReducedHow
    dtype: str
    operators: dict[str, int] = {}
    proposals: tuple[Proposal, ...] = ()
    layers: tuple[LayerCost, ...] = ()
    suspect: LayerCost | None = None


Blame = Literal[
    "model",
    "capture",
    "exporter",
    "optimiser",
    "kernel",
    "stale artifact",
    "conversion",
    "reduced precision",
    "ill-conditioned",
    "undecided",
]


MAX_PAIRS = 400
MAP_SIZE = 32
"""Rows and columns of a map, at most."""


class Pictures(_Frozen):
    """What is drawn of a diverged output, bounded whatever its size.

    ``allowed`` is the error that is allowed, on ``scale``: a value v may be off by
    ``allowed * (|v| + scale)``. ``histogram`` counts elements by their error in units of that, up
    to 1e-3, 1e-2, 0.1, 1, 10, 100, 1e3, 1e4, above, and those of which one side is not finite.
    ``pairs`` are (PyTorch, ONNX) of some elements, the worst among them. ``map`` has the largest
    error, in the same units, in tiles of the last two axes around the worst element, ``map_of``
    the size of these axes.
    """

    scale: Number
    allowed: Number
    histogram: tuple[int, ...] = Field(default=(), max_length=10)
    pairs: tuple[tuple[Number, Number], ...] = Field(default=(), max_length=MAX_PAIRS)
    map: tuple[Annotated[tuple[Number, ...], Field(max_length=MAP_SIZE)], ...] = Field(
        default=(), max_length=MAP_SIZE
    )
    map_of: tuple[int, ...] = Field(default=(), max_length=2)


class Diagnosis(_Frozen):
    """Why and where a model diverges, in the check that is named.

    ``node`` is the first one, in topological order, at which the error is born; ``nodes`` are the
    errors along the graph, in topological order, and ``guilty`` is the node's place among them.
    ``beside`` is the node next to which the graph lacks ``node``. ``repro`` is a folder relative to
    the report's. ``against`` says what the reference is. ``hints`` are codes of findings that
    explain it. ``note`` says what could not be found out.
    """

    runtime: str
    case: str
    output: str
    blame: Blame
    against: Literal["pytorch", "file"] = "pytorch"
    evidence: tuple[Evidence, ...] = ()
    node: GraphNode | None = None
    beside: GraphNode | None = None
    fused_by: str | None = None
    source: Source | None = None
    nodes: tuple[NodeError, ...] = ()
    guilty: int | None = None
    repro: str | None = None
    hints: tuple[str, ...] = ()
    note: str = ""
    pictures: Pictures | None = None


class CheckBase(_Frozen):
    """The same check (runtime, suite, case and output) in the baseline.

    ``error`` is the value of the deviation. ``max_abs`` is the baseline's largest difference. Both
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


class ModelResult(_Frozen):
    """Everything known about one model.

    ``line`` is that of its entry in the manifest; ``base`` is its verdict in the baseline, null
    where there is no baseline or the model is new. ``reference`` is the ONNX file that it is held
    against, null where that is a PyTorch model. ``seconds`` is the life of its worker and
    ``peak_memory`` the most bytes that the worker and its descendants were seen to use together
    (each process's resident memory); of a cached result they are those of the run that made it.
    ``precision`` is null where the file computes in as many bits as the model.
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
    base: Verdict | None = None
    diagnosis: Diagnosis | None = None
    precision: Precision | None = None


class Counts(_Frozen):
    """Models by verdict."""

    passed: int = Field(default=0, alias="pass")
    diverged: int = 0
    error: int = 0


class ManifestInfo(_Frozen):
    """Which manifest was verified."""

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
    parts are alike.
    """

    index: int = Field(ge=1)
    count: int = Field(ge=1)
    members: tuple[str, ...] | None = Field(default=None, min_length=1)


class Run(_Frozen):
    """The workflow run that made a report, and the commit that its verdict is about."""

    id: int = Field(ge=0)
    attempt: int = Field(ge=0)
    sha: str = Field(pattern=r"^[0-9A-Za-z]{0,64}$")


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
    what the run took on the wall's clock, of merged shards the longest one.
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
        from onnx_gate.report.view import View

        return terminal.render(self, View(output=self._folder))

    def __repr__(self) -> str:
        """Return one line: the verdict and the count."""
        from onnx_gate.report import summary

        return f"<Report {self.verdict}: {summary.headline(self)}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows of it."""
        from onnx_gate.report import notebook

        return notebook.render(self, self._folder)
