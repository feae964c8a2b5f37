"""What a manifest means: defaults merged, names looked up, shorthands expanded.

Everything here is plain data: frozen, picklable and compared by value.
Paths are text relative to the manifest's folder, as the user wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from onnx_gate.manifest.values.coverage import CoverageSpec
from onnx_gate.manifest.values.exports import EXPORTERS, ExportSpec
from onnx_gate.manifest.values.inputs import InputSpec
from onnx_gate.manifest.values.runtimes import RuntimeSpec
from onnx_gate.manifest.values.steps import StepsSpec
from onnx_gate.manifest.values.suites import EdgesSuite, RandomSuite, Suite
from onnx_gate.manifest.values.targets import Target
from onnx_gate.manifest.values.tolerances import Tolerance
from onnx_gate.manifest.values.waivers import Waiver
from onnx_gate.manifest.values.weights import WeightsSpec

DEFAULT_SIZES = (1, 2, 7)
DEFAULT_AUTO = 10.0
DEFAULT_TIMEOUT = 600.0

# As one piece, or block by block.
Way = Literal["whole", "blocks"]

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
    ``coverage`` is ``None`` where nothing is asked of what the cases show. ``targets`` have to load the
    file.
    ``verify`` is ``None`` where it depends on the size of the weights. ``portion`` is which of how many
    parts of its blocks is judged here, from 1, ``None`` where all of them are.
    ``timeout`` is in seconds, ``memory`` in bytes, ``line`` is the line of the model's name in the
    manifest, and ``lines`` has those of its inputs.
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
    export: ExportSpec = field(default_factory=ExportSpec)
    dims: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    named_dims: frozenset[str] = frozenset()
    runtimes: tuple[RuntimeSpec, ...] = (RuntimeSpec("onnxruntime"),)
    suites: Mapping[str, Suite] = field(default_factory=dict)
    given: Mapping[str, Suite] = field(default_factory=dict)
    steps: StepsSpec | None = None
    tolerance: Tolerance = field(default_factory=lambda: Tolerance(auto=DEFAULT_AUTO))
    coverage: CoverageSpec | None = None
    targets: tuple[Target, ...] = ()
    timeout: float = DEFAULT_TIMEOUT
    memory: int | None = None
    seed: int = 0
    required: bool = True
    waivers: tuple[Waiver, ...] = ()
    verify: Way | None = None
    portion: tuple[int, int] | None = None
    line: int = 0
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)

    @property
    def exported_here(self) -> bool:
        """Whether one of PyTorch's own exporters makes the file in the run, of the module itself."""
        made = self.onnx is None and self.reference is None
        return made and self.export.exporter in EXPORTERS

    @property
    def draws_all(self) -> bool:
        """Whether its suites draw all that they hold, row by row: other rows may need each other."""
        suites = (*self.suites.values(), *self.given.values())
        return all(isinstance(suite, RandomSuite | EdgesSuite) for suite in suites)

    @property
    def writer(self) -> str:
        """What wrote the file that is shipped, as sentences call it; empty where the run writes it.

        The script of ``export.command``, the function of ``export.exporter``, or the committed file.
        """
        if self.onnx is not None or self.exported_here:
            return self.onnx or ""
        return self.export.script if self.export.command is not None else self.export.exporter

    @property
    def against(self) -> Against:
        """What the candidate is held against, as sentences call it."""
        return "PyTorch" if self.reference is None else "the reference"

    @property
    def by_rounding(self) -> bool:
        """Whether each output may be apart by what rounding explains, whatever else is asked of it."""
        every = (self.tolerance, *filter(None, (self.outputs or {}).values()))
        return all(tolerance.auto is not None for tolerance in every)


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
