"""The types of ``report.json`` that say why and where a model diverges, and what fewer bits cost."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from onnx_gate.findings.finding import Frozen
from onnx_gate.known import Known
from onnx_gate.manifest.spec import Against
from onnx_gate.report.model.check import Check
from onnx_gate.report.model.number import Number

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
    "graph",
    "float64",
    "float32",
    "layers",
    "ranges",
]


class Evidence(Frozen):
    """One experiment of a diagnosis: what was compared, and how it came out.

    ``kind`` says which links were compared; ``decisive`` marks the experiment that settled the
    blame. ``error`` is the largest difference of the two sides relative to the scale of the output.
    ``exporter`` is the one that made a fresh export.
    """

    kind: Experiment | None = None
    decisive: bool = False
    experiment: str
    outcome: str
    agrees: bool | None = None
    error: Number | None = None
    exporter: str = ""


class GraphNode(Frozen):
    """A node of the ONNX graph; ``output`` is the value that it is known by.

    ``module`` is the path of the module that it comes from (``blocks.3.attn``), null where
    nothing says so; ``operator`` PyTorch's, where it is the last of several nodes that compute one
    and which of them is wrong is not shown.
    """

    name: str
    op_type: str
    output: str = ""
    module: str | None = None
    operator: str = ""

    @property
    def node(self) -> GraphNode:
        """The node itself, without what is known of it besides."""
        return GraphNode.model_validate(self.model_dump(include={*GraphNode.model_fields}))


class Nonfinite(GraphNode):
    """A node that makes NaN or an infinity (``made``), which PyTorch has not, of numbers.

    ``of`` are the numbers, where they can be told element by element, ``dtype`` is what it computes in.
    """

    dtype: str = ""
    made: Number
    of: tuple[Number, ...] = ()


class NodeError(GraphNode):
    """The error of one node's output, relative to the output's scale.

    ``error`` is what has accumulated, ``born`` what the node adds when it is run alone on
    PyTorch's own values; null where PyTorch has no such value.
    """

    error: Number
    born: Number | None = None


class Source(Frozen):
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


class Saturated(GraphNode):
    """A quantiser whose scale cuts off a ``share`` of its values in the ordinary case of the most.

    ``ends`` are those of what it keeps, infinite where nothing is cut off on that side; null where
    only its integers are known.
    """

    share: Number
    ends: tuple[Number, Number] | None = None
    source: Source | None = None


class Proposal(Frozen):
    """A tolerance that one output meets, from what was measured of it.

    ``cosine`` and ``snr_db`` are the worst of ``checks``, of which ``case`` is the one; ``top1`` is
    null where the output is none of a classifier's. ``tolerance`` can be pasted into the manifest,
    and is empty where the output has lost more than fewer bits explain.
    It leaves ``margin_db`` to the worst: by as much as two draws of equal sizes were apart,
    ``draws`` such pairs in number. The manifest ``had`` it already, where it is what was asked.
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
    had: bool = False


class Precision(Frozen):
    """How a file computes in fewer bits than the model that it was made from.

    ``how``: in integers with fixed scales (``static``) or with those of the values (``dynamic``),
    with short ``weights`` alone, or in ``half`` precision. ``operators`` are those that say so.
    ``layers`` are the costliest first; ``suspect`` is the one that is worse than its bits explain,
    and without which the output is nearer to PyTorch's. Where there is one, nothing is proposed.
    ``left_db`` is the signal to noise that half precision leaves of the output of the case that layers
    were weighed in, where the file has much less; in integers what ``layers`` leave, where the output
    is none of PyTorch's. Nothing is proposed then, either.
    ``saturated`` are the quantisers with fixed scales that cut values off, the worst first.
    """

    how: ReducedHow
    dtype: str
    operators: dict[str, int] = {}
    proposals: tuple[Proposal, ...] = ()
    names: dict[str, str] = {}
    layers: tuple[LayerCost, ...] = ()
    suspect: LayerCost | None = None
    left_db: Number | None = None
    saturated: tuple[Saturated, ...] = ()


Blame = Literal[
    "model",
    "capture",
    "exporter",
    "graph",
    "optimiser",
    "kernel",
    "stale artifact",
    "conversion",
    "reduced precision",
    "ill-conditioned",
    "undecided",
]


# Whoever is to blame so has not rounded.
_NO_ROUNDING = (
    *("model", "capture", "exporter", "graph", "optimiser", "stale artifact", "conversion"),
)
MAX_PAIRS = 400


MAP_SIZE = 32
"""Rows and columns of a map, at most."""


class Pictures(Frozen):
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


class Diagnosis(Frozen):
    """Why and where a model diverges, in the check that is named.

    ``node`` is the first one, in topological order, at which the error is born; ``nodes`` are the
    errors along the graph, in topological order, and ``guilty`` is the node's place among them.
    ``beside`` is the node next to which the graph lacks ``node``. ``repro`` is a folder relative to
    the report's, ``replay`` are the arguments that replay it in its runtime. ``refused``: the
    runtime would not run it, so that no number of its is wrong. ``against`` is what
    sentences call the side that is right. ``cause`` is what an experiment singled out, a sentence
    without its point, and ``remedy`` what to do about just that; ``hints`` are codes of findings that
    explain it. ``nonfinite`` is the node that makes the worst element's NaN or infinity of numbers.
    ``note`` says what could not be found out. ``known`` is the public fault that it is,
    null where the book of known faults has none that fits.
    """

    runtime: str
    case: str
    output: str
    blame: Blame
    against: Against = "PyTorch"
    evidence: tuple[Evidence, ...] = ()
    node: GraphNode | None = None
    beside: GraphNode | None = None
    fused_by: str | None = None
    cause: str = ""
    remedy: str = ""
    source: Source | None = None
    nonfinite: Nonfinite | None = None
    nodes: tuple[NodeError, ...] = ()
    guilty: int | None = None
    repro: str | None = None
    replay: tuple[str, ...] = ()
    refused: bool = False
    hints: tuple[str, ...] = ()
    note: str = ""
    known: Known | None = None
    pictures: Pictures | None = None

    @property
    def is_no_rounding(self) -> bool:
        """Whether the cause is known, and none that a tolerance is meant for."""
        if self.blame == "ill-conditioned":
            return False
        return self.blame in _NO_ROUNDING or bool(self.cause or self.hints or self.beside)

    @classmethod
    def undecided(cls, check: Check, note: str, cause: str = "") -> Diagnosis:
        """Return that of a check of which nobody is blamed."""
        return cls(
            runtime=check.runtime,
            case=check.case,
            output=check.output,
            blame="undecided",
            refused="runtime" in check.refused,
            cause=cause,
            note=note,
        )
