"""What a manifest means: defaults merged, names looked up, shorthands expanded.

Everything here is plain data: frozen, picklable, compared by value, and readable without pydantic.
Paths are text relative to the manifest's folder, as the user wrote them.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from onnx_gate.manifest.engines import Engine, engine

DTYPES = (
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
)
EDGE_KINDS = (
    "zeros",
    "ones",
    "negative",
    "large",
    "tiny",
    "subnormal",
    "ties",
    "sweep",
    "bounds",
    "masks",
    "empty",
    "nan",
    "inf",
    "int_extremes",
)
DEFAULT_SIZES = (1, 2, 7)
DEFAULT_AUTO = 10.0
DEFAULT_TIMEOUT = 600.0

Optimization = Literal["off", "basic", "extended", "all"]
OPTIMIZATIONS: tuple[Optimization, ...] = get_args(Optimization)
"""ONNX Runtime's levels, each with all that those before it do."""
Distribution = Literal["normal", "uniform", "lognormal"]


@dataclass(frozen=True)
class InputSpec:
    """One input of a model.

    ``dtype`` is one of ``DTYPES``. ``shape`` holds static sizes (at least 1) and the names of
    dynamic dimensions; ``()`` is a scalar. ``range`` is (low, high), both inclusive: Python
    integers for an integer dtype, floats for a floating one, ``None`` where nothing is declared.
    ``bounds`` is there in its place where an end of it is computed from dynamic dimensions, as
    ``nodes - 1`` is: what it comes to depends on the case.
    """

    dtype: str
    shape: tuple[int | str, ...]
    range: tuple[float, float] | None = None
    bounds: tuple[int | str, int | str] | None = None

    @property
    def has_range(self) -> bool:
        """Return whether the manifest says which values the input may take."""
        return self.range is not None or self.bounds is not None


@dataclass(frozen=True)
class TopK:
    """The share (0 to 1) of rows whose ``k`` largest entries must be the same set."""

    k: int
    agreement: float


@dataclass(frozen=True)
class Tolerance:
    """How far a candidate may be from PyTorch; every criterion that is not ``None`` must hold.

    ``auto`` is a factor on PyTorch's own error; ``atol`` and ``rtol`` (each 0 where only the other
    is named) bound every element but a share ``mismatch`` (0 to 1) of them; ``cosine``,
    ``snr_db`` (decibels) and ``top1`` are minima; ``max_ulp`` counts units in the last place;
    ``metric`` names a function of (expected, actual) whose value must not exceed ``max``.
    ``indices`` says whether integer outputs that are positions are judged by the values they
    point at or exactly.
    """

    auto: float | None = None
    atol: float | None = None
    rtol: float | None = None
    mismatch: float = 0.0
    cosine: float | None = None
    snr_db: float | None = None
    top1: float | None = None
    topk: TopK | None = None
    max_ulp: int | None = None
    metric: str | None = None
    max: float | None = None
    indices: Literal["values", "exact"] = "values"


@dataclass(frozen=True)
class RandomSuite:
    """``count`` cases drawn from a distribution, within each input's dtype and range."""

    random: Distribution
    count: int = 2
    seed: int = 0


@dataclass(frozen=True)
class EdgesSuite:
    """One case for each kind (of ``EDGE_KINDS``) that applies to the inputs' dtypes."""

    edges: tuple[str, ...]
    seed: int = 0


@dataclass(frozen=True)
class FilesSuite:
    """Cases read from the files and folders that the globs match."""

    files: tuple[str, ...]


@dataclass(frozen=True)
class GeneratorSuite:
    """Cases that a function ``(inputs, seed) -> iterable of dicts`` of the user's yields."""

    generator: str
    seed: int = 0


@dataclass(frozen=True)
class PluginSuite:
    """A suite of a kind that another package registered under ``onnx_gate.suites``.

    ``options`` is the whole mapping as written, the key that names the kind included.
    """

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)


Suite = RandomSuite | EdgesSuite | FilesSuite | GeneratorSuite | PluginSuite

BUILT_IN_SUITES: Mapping[str, Suite] = {
    "typical": RandomSuite("normal", count=3),
    "edges": EdgesSuite(
        ("zeros", "ones", "negative", "ties", "sweep", "bounds", "masks", "int_extremes")
    ),
    "advice": EdgesSuite(("large", "empty", "nan", "inf")),
}
# What a model gets that names no suites: what reveals faults, by measurement.
DEFAULT_SUITES: Mapping[str, Suite] = {n: BUILT_IN_SUITES[n] for n in ("typical", "edges")}
# Tried as well, and reported as warnings: what many correct models promise nothing about.
ADVICE_SUITES: Mapping[str, Suite] = {"advice": BUILT_IN_SUITES["advice"]}


@dataclass(frozen=True)
class RuntimeSpec:
    """An engine to run the ONNX model with.

    ``provider_options`` and ``session_options`` are passed to ONNX Runtime as text; ``options``
    is for other engines. ``device`` is what an engine calls a device. ``strict``: a node that the
    provider leaves to another one is an error, and not a note; ``None`` is the engine's default.
    ``tolerance`` stands for the model's on this runtime, and ``None`` for the model's own.
    """

    name: str
    provider: str | None = None
    optimization: Optimization | None = None
    provider_options: Mapping[str, str] = field(default_factory=dict)
    session_options: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    strict: bool | None = None
    tolerance: Tolerance | None = None

    @property
    def engine(self) -> Engine:
        """What its engine can do."""
        return engine(self.name)

    @property
    def processor(self) -> str:
        """The provider that runs it, as the manifest spells it, nothing where engines have none."""
        given = self.provider or self.engine.provider
        return given.removesuffix("ExecutionProvider").lower()

    def plain(self) -> RuntimeSpec | None:
        """Return it running the file as it is written; ``None`` where that cannot be told apart."""
        return replace(self, optimization="off") if self.engine.plain else None

    @property
    def label(self) -> str:
        """The runtime's name in reports: ``onnxruntime:cpu:off``, ``openvino:GPU``.

        Options follow in brackets, so that two entries that differ have different labels.
        """
        label = self.name
        if self.provider or self.optimization:
            label += f":{self.provider or 'cpu'}"
        if self.device:
            label += f":{self.device}"
        if self.optimization:
            label += f":{self.optimization}"
        given = {**self.provider_options, **self.session_options, **self.options}
        if given:
            label += "[" + ",".join(f"{key}={given[key]}" for key in sorted(given)) + "]"
        return label


@dataclass(frozen=True)
class WeightsSpec:
    """A checkpoint: a file, or a folder that ``save_pretrained`` wrote.

    ``key`` is the dotted path to the state dict within what the file holds, ``strip`` what its
    keys begin with that the model's do not.
    """

    file: str
    key: str | None = None
    strip: str | None = None


COMMAND = "command"
"""What stands for the exporter where the owner's own script makes the file."""


@dataclass(frozen=True)
class ExportSpec:
    """How the ONNX file is made.

    ``exporter`` is ``dynamo``, ``torchscript``, ``package.module:function`` or ``COMMAND``, which
    is the shell's ``command``: it writes to the path that stands for ``{output}`` in it, or to
    ``file``. ``example`` has the sizes of dynamic dimensions that the export's example must have,
    ``optimize`` and ``options`` are handed to ``torch.onnx.export``.
    """

    exporter: str = "dynamo"
    opset: int | None = None
    example: Mapping[str, int] = field(default_factory=dict)
    optimize: bool | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    command: str | None = None
    file: str | None = None


@dataclass(frozen=True)
class Feed:
    """What an input is given from the second step on.

    ``argmax``: the index of the largest entry of the output ``source``; ``add``: the input's own
    value of the step before, and so much more (``source`` is the input); else the output itself.
    """

    source: str
    argmax: bool = False
    add: int = 0


@dataclass(frozen=True)
class StepsSpec:
    """How often the model is called in a row, and which outputs come back as inputs.

    ``carry`` maps an input, or all inputs below a name, to an output, or to all below one.
    """

    count: int
    carry: Mapping[str, str] = field(default_factory=dict)
    feed: Mapping[str, Feed] = field(default_factory=dict)


@dataclass(frozen=True)
class Waiver:
    """A known divergence: cases whose id matches the glob ``check`` do not fail through ``until``.

    ``ceiling`` is the largest error it forgives, in the unit in which the report shows the error, and
    of a cosine or an agreement what is lacking to 1; ``None`` forgives any.
    """

    check: str
    until: datetime.date
    reason: str
    ceiling: float | None = None


# What sentences call the side that a candidate is held against.
Against = Literal["PyTorch", "the reference"]


@dataclass(frozen=True)
class ModelSpec:
    """One model to verify.

    ``model`` is ``None`` where the ONNX file ``onnx`` is held against another one, ``reference``,
    which is then asked what its inputs are if the manifest names none.
    ``inputs`` are tensors; dotted names (``past.0.key``) say where below a parameter of ``forward``
    they are. ``caches`` has the kind of those parameters that the manifest calls a cache. ``call``
    holds arguments of ``forward`` that are no tensors. ``outputs`` maps each named output to its
    own tolerance (``None``: the model's), and is itself ``None`` where the manifest names none;
    ``where`` maps outputs to the input that says which of their positions mean something.
    ``dims`` has the tested sizes of every dynamic dimension of the inputs, ``named_dims``
    those whose sizes the manifest gives. ``suites`` is empty where the model names none; ``given``
    is tried beside the default ones then, and comes from a caller that has tensors in its hands.
    ``steps`` is ``None`` where every case is one call.
    ``timeout`` is in seconds, ``memory`` in bytes, ``line`` is the line of the model's name in the
    manifest.
    """

    name: str
    model: str | None
    inputs: Mapping[str, InputSpec]
    reference: str | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)
    caches: Mapping[str, str] = field(default_factory=dict)
    weights: WeightsSpec | None = None
    onnx: str | None = None
    outputs: Mapping[str, Tolerance | None] | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    export: ExportSpec = ExportSpec()
    dims: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    named_dims: frozenset[str] = frozenset()
    runtimes: tuple[RuntimeSpec, ...] = (RuntimeSpec("onnxruntime"),)
    suites: Mapping[str, Suite] = field(default_factory=dict)
    given: Mapping[str, Suite] = field(default_factory=dict)
    steps: StepsSpec | None = None
    tolerance: Tolerance = Tolerance(auto=DEFAULT_AUTO)
    timeout: float = DEFAULT_TIMEOUT
    memory: int | None = None
    seed: int = 0
    required: bool = True
    waivers: tuple[Waiver, ...] = ()
    line: int = 0

    @property
    def against(self) -> Against:
        """What the candidate is held against, as sentences call it."""
        return "PyTorch" if self.reference is None else "the reference"


@dataclass(frozen=True)
class Manifest:
    """A whole manifest: ``sha256`` is that of the file's bytes, in hexadecimal."""

    path: Path
    sha256: str
    requirements: str | None
    models: tuple[ModelSpec, ...]

    @property
    def workspace(self) -> Path:
        """The folder that every path of the manifest is relative to."""
        return self.path.parent
