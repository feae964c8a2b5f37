"""Everything known about one model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from onnx_gate.findings.finding import ErrorKind, Finding, Frozen
from onnx_gate.known import Known
from onnx_gate.manifest.spec import Against
from onnx_gate.report.model.audit import Audit
from onnx_gate.report.model.check import Check
from onnx_gate.report.model.decisions import Decisions
from onnx_gate.report.model.diagnosis import Diagnosis, Precision, Source
from onnx_gate.report.model.headroom import Headroom
from onnx_gate.report.model.number import Number
from onnx_gate.report.model.remedy import Remedies, SettingChange

Verdict = Literal["pass", "diverged", "error"]


class ModelError(Frozen):
    """Why a model has no verdict of its own.

    ``log`` is the path of the worker's output, ``source`` the line of the user's that it comes
    from, null where none of theirs is known to be at fault. ``remedy`` is what to do about this
    very one, empty where the code's page says it. ``changes`` of the manifest were seen to get over
    it, are what the remedy asks for (``export``), or (``unverified``) say what the state that the
    model keeps is as its inputs. ``otherwise`` is what is left to do where they were tried, and
    do not help. ``line`` is that of the manifest which it is about, null where it
    is about all of the entry. ``known`` is the public fault that it is, as in a diagnosis.
    """

    kind: ErrorKind
    code: str = Field(pattern=r"^OG\d{3}$")
    message: str
    remedy: str = ""
    otherwise: str = ""
    changes: tuple[SettingChange, ...] = ()
    line: int | None = None
    source: Source | None = None
    log: str | None = None
    tail: tuple[str, ...] = ()
    known: Known | None = None


class Stage(Frozen):
    """Seconds spent in one station of the way from build to verdict, begun ``times`` times."""

    name: str
    seconds: float
    times: int = 1

    @property
    def station(self) -> str:
        """The station, where ``name`` is a part of one: ``verify`` of ``verify: inputs``."""
        return self.name.partition(":")[0]


class ExportInfo(Frozen):
    """What was exported (or read): ``bytes`` includes external data.

    ``files`` are the SHA-256 of the file, which is the first, and of its external data, by their
    paths from the file's folder.
    """

    exporter: str
    opset: int
    bytes: int
    nodes: int
    operators: dict[str, int] = {}
    files: dict[str, str] = {}


class Answers(Frozen):
    """What PyTorch said of a model, written down for machines that have none.

    ``folder`` is the model's, beside the report that was written with it, ``sha256`` that of its index,
    which has those of all other files. ``bytes`` is what they take together.
    """

    folder: str
    sha256: str
    bytes: int


class RuntimeResult(Frozen):
    """What became of one runtime of a model.

    ``error`` says why it could not be judged, or not to the end; else its verdict is that of its
    checks. ``seconds`` is what loading the file and running it took.
    """

    runtime: str
    seconds: float
    error: ModelError | None = None


class UnknownWeight(Frozen):
    """A weight of the file that is no known function of the module's.

    ``parameter`` is the one that it is called after, that the part has which reads it, or that it is
    nearest to by far, null where there is no such one, and ``difference`` is the largest between both.
    """

    name: str
    parameter: str | None = None
    difference: Number | None = None


class Weights(Frozen):
    """What the ``total`` weights of the file are.

    The ``same`` as a parameter or buffer of the module, bit for bit; ``rearranged`` of rows of some, or
    one in few bits; with a norm ``folded`` into them; ``made`` by ``forward`` of no input; or
    ``unknown``, as what an exporter makes for operators of its own.
    """

    total: int = 0
    same: int = 0
    rearranged: int = 0
    folded: int = 0
    made: int = 0
    unknown: tuple[UnknownWeight, ...] = ()

    @property
    def all_known(self) -> bool:
        """Whether there are some, and each is accounted for."""
        return self.total > 0 and not self.unknown


class Portion(Frozen):
    """Which part of a model's blocks a result is about: ``index`` of ``count``, from 1.

    ``of`` tells what was divided from other models and other weights; empty where that was not reached.
    """

    index: int = Field(ge=1)
    count: int = Field(ge=2)
    of: str = ""


class ModelResult(Frozen):
    """Everything known about one model.

    ``line`` is that of its entry in the manifest; ``base`` is its verdict in the baseline, null
    where there is no baseline or the model is new. ``reference`` is the ONNX file that it is held
    against, null where that is a PyTorch model. ``seconds`` is the life of its worker and
    ``peak_memory`` the most bytes that the worker and its descendants were seen to use together
    (each process's resident memory); of a cached result they are those of the run that made it.
    ``further`` are diagnoses of other runtimes, which diverge otherwise than ``diagnosis`` says.
    ``precision`` is null where the file computes in as many bits as the model, ``headroom`` where none
    of its results is of 16 bits. ``decisions`` is null
    where the model's operators were not watched. ``audit`` is what
    faults its gate would have caught, null where nobody asked. ``answers`` are what another machine
    can hold its runtimes against, null where they were not written down. ``environment`` is what its
    process says of its machine and packages: of an honest model what it rests on, of another nothing that
    anybody else's result should be told of. ``remedies`` are what was tried
    to make it green, null where nothing was. ``portion`` is which part of its blocks this is about, null
    where it is about the whole model.
    """

    name: str
    line: int | None = None
    verdict: Verdict
    portion: Portion | None = None
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
    further: tuple[Diagnosis, ...] = ()
    precision: Precision | None = None
    headroom: Headroom | None = None
    decisions: Decisions | None = None
    audit: Audit | None = None
    weights: Weights | None = None
    answers: Answers | None = None
    environment: dict[str, str | list[str]] = {}
    remedies: Remedies | None = None

    @property
    def taken(self) -> float:
        """Seconds: those of its stages where an older report says nothing of its worker."""
        return self.seconds if self.seconds is not None else sum(s.seconds for s in self.stages)

    @property
    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """All diagnoses, that of the model first."""
        return (*((self.diagnosis,) if self.diagnosis is not None else ()), *self.further)

    def with_repros(self, kept: Callable[[str], str | None]) -> ModelResult:
        """Return the same result whose reproductions are where ``kept`` says, if anywhere."""

        def moved(each: Diagnosis) -> Diagnosis:
            repro = None if each.repro is None else kept(each.repro)
            return each.model_copy(update={"repro": repro})

        update: dict[str, Any] = {"further": tuple(map(moved, self.further))}
        if self.diagnosis is not None:
            update["diagnosis"] = moved(self.diagnosis)
        return self.model_copy(update=update)

    @property
    def against(self) -> Against:
        """What the candidate is held against, as sentences call it."""
        return "PyTorch" if self.reference is None else "the reference"
