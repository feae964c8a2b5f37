"""The types of what an audit says: which faults the gate would have caught."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from onnx_gate.findings.finding import Frozen
from onnx_gate.report.model.number import Number

MAX_MUTANTS = 20_000

Fate = Literal["caught", "survived", "refused", "equivalent", "duplicate"]
Why = Literal[
    "rounding",
    "floor",
    "granted",
    "original",
    "margin",
    "waiver",
    "where",
    "open",
    "inputs",
    "operator",
    "time",
]


class Site(Frozen):
    """Where a fault was seeded: a node of the graph, or an input (``op_type`` is empty then).

    ``file`` and ``line`` are the user's line that the node comes from, null where nothing says so;
    ``file`` is relative to the manifest's folder.
    """

    name: str
    op_type: str = ""
    depth: Literal["first", "middle", "last"] = "first"
    file: str | None = None
    line: int | None = None
    code: str = ""


class ManifestChange(Frozen):
    """A change of a model's entry in the manifest that was tried, and caught what had survived.

    ``key`` is below the model's name (``tolerance``, ``outputs.logits``, ``runtimes.openvino``,
    ``suites``, ``dims.batch``, ``inputs.image.range``, ``waivers.0.ceiling``).
    ``value`` is what it is set to, or with ``add`` what it gets besides. ``catches`` is the number
    of survivors that it catches and those before it do not.
    """

    key: str
    value: Any
    add: bool = False
    catches: int = 0


class Unseen(Frozen):
    """Why no change of the manifest that was tried catches a survivor.

    - ``rounding``: it moves the outputs by less than PyTorch's own rounding does.
    - ``floor``: it is within the units in the last place that ``auto`` grants in any case.
    - ``granted``: even under ``tolerance`` it passes, as PyTorch's own answer moves as far when its
      rounding is moved at random, or is one of several.
    - ``original``: the unchanged graph uses as much of the tolerance, or more.
    - ``margin``: ``tolerance`` catches it, and is one that correct files may not pass; the unchanged
      graph itself does not where ``original`` is null.
    - ``waiver``: the waiver for ``subject`` forgives what it does.
    - ``where``: what it moves is outside the mask ``subject``.
    - ``open``: what it moves has several right answers, of which ``subject`` is the cause.
    - ``inputs``: no case of the manifest's shows it, and ``case``, which it does not have, does.
    - ``operator``: no input was found that shows it; its operator answers otherwise where none leads, of
      which a run warns.
    - ``time``: the time was over before everything was tried.

    ``case``, ``output`` and ``runtime`` are those of the check in which it is nearest to being caught.
    There it uses the share ``budget`` of the ``tolerance``, which is that of ``key`` as a change has it;
    ``original`` is the largest share that the unchanged graph uses in any case.
    """

    why: Why
    runtime: str = ""
    case: str = ""
    output: str = ""
    budget: Number | None = None
    original: Number | None = None
    key: str = ""
    tolerance: dict[str, Any] = {}
    subject: str = ""


class Mutant(Frozen):
    """A fault that was seeded, and what became of it.

    ``caught``: a check of ``case`` and ``output`` on ``runtime`` diverged, or without a case: what is
    stored is not the module's; ``refused``: the runtime would not load or run it, in its own words in
    ``reason``; ``equivalent``: it has no effect in float64 on any case, of the manifest or drawn
    besides, that PyTorch accepts (``by`` says how that was found out), and none at its operator;
    ``duplicate``: all answers are those of an earlier one. ``reached``: whether a case of the
    manifest's changes what its place makes, null where that cannot be told. ``moved`` is the largest
    difference from the original's answers, in units of PyTorch's own rounding. ``answers`` is a digest
    of what it answered.
    ``change`` is the position among the changes of the one that catches it, and ``unseen`` why none
    of those that were tried does; both are null where nobody asked.
    """

    id: str
    fault: str
    kind: str
    words: str
    source: str = ""
    site: Site
    fate: Fate
    runtime: str = ""
    case: str = ""
    output: str = ""
    reason: str = ""
    by: Literal["", "same", "float64", "runtime"] = ""
    moved: Number | None = None
    reached: bool | None = None
    answers: str = ""
    change: int | None = None
    unseen: Unseen | None = None


class Share(Frozen):
    """How many of the faults that count were caught, with the interval of 95 % (Wilson's)."""

    name: str
    caught: int
    of: int
    low: float = 0.0
    high: float = 1.0


class Audit(Frozen):
    """What the gate of one model would have caught.

    ``sites`` is the number of faults that the graph has room for, of which ``mutants`` were tried.
    ``score`` is over those that were caught or survived. ``left`` were not tried for want of time.
    ``changes`` catch what survived, each on top of those before it: of ``changes_tried`` in all, while
    ``changes_left`` were not for want of time. ``note`` says why there is no score where there is none.
    """

    seed: int = 0
    sites: int = 0
    score: Share | None = None
    kinds: tuple[Share, ...] = ()
    mutants: tuple[Mutant, ...] = Field(default=(), max_length=MAX_MUTANTS)
    changes: tuple[ManifestChange, ...] = ()
    changes_tried: int = 0
    changes_left: int = 0
    left: int = 0
    resumed: int = 0
    note: str = ""

    def fate(self, fate: Fate) -> tuple[Mutant, ...]:
        """Return the mutants that became this, in the order in which they were tried."""
        return tuple(mutant for mutant in self.mutants if mutant.fate == fate)
