"""How a file is loaded into an engine: announced, so that it is known what takes the process down.

Of an engine that does not load it, what the line of a node is, and at which other level it would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.graph.walk import all_nodes
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.manifest.values.runtimes import Optimization
from onnx_gate.runtimes.base import Session
from onnx_gate.runtimes.open import open_session
from onnx_gate.verify.source_lines import of_node
from onnx_gate.workers.forked import run_forked

# Of optimisation, the most first.
_LEVELS: tuple[Optimization, ...] = ("all", "extended", "basic", "off")
# What loading at another level may take, in seconds.
_SECONDS = 60.0
_OTHERWISE = (
    "write what is computed at that line with other operators: what was exported is no valid ONNX"
)


@dataclass(frozen=True)
class Loading:
    """Loads files. ``announce`` is told which engine is at it, and that it no longer is.

    ``crashes`` has the engines whose load has taken an earlier process of the model down, each with how
    that ended: they are not asked again, and it is said what loads. ``root`` has the module's code.
    """

    announce: Callable[[str], None] = lambda _: None
    crashes: Mapping[str, str] = field(default_factory=dict)
    root: Path | None = None

    def open(self, path: Path, spec: RuntimeSpec, threads: int, label: str) -> Session:
        """Load a file into the engine that the manifest calls ``label``; raises ``GateError``."""
        if label in self.crashes:
            raise _crashed(path, spec, label, self.crashes[label])
        self.announce(label)
        try:
            return open_session(path, spec, threads)
        except GateError as error:
            if self.root is not None:
                _place(error, path, self.root)
            raise
        finally:
            self.announce("")


# With nobody to tell.
UNHEARD = Loading()


def _place(error: GateError, path: Path, root: Path) -> None:
    """Give an error of a node the line that it was made of."""
    name = error.data.get("node")
    if not name:
        return
    nodes = all_nodes(onnx.load(str(path), load_external_data=False))
    lines = (of_node(node, root) for node in nodes if node.name == name)
    line = next((each for each in lines if each is not None and each.own), None)
    if line is not None:
        error.source = line.file, line.line
        if error.code == codes.OG303.code:
            error.remedy = error.remedy or _OTHERWISE


def _crashed(path: Path, spec: RuntimeSpec, label: str, ending: str) -> GateError:
    """Return the error of an engine that takes its process down, with what it loads the file at."""
    told = f"{label}: its process ends while it loads the file, {ending}"
    if not spec.engine.takes("optimization"):
        return codes.OG303.error(told)
    own = _LEVELS.index(spec.optimization or _LEVELS[0])
    for level in _LEVELS[own + 1 :]:
        if _loads(path, replace(spec, optimization=level)):
            return codes.OG303.error(
                f"{told}, and at the level {level!r} of its optimisations it loads it",
                remedy=f"ask for less optimisation here and where it is deployed, {{name: {spec.name}, "
                f"optimization: {level}}} under runtimes, and report the crash with the file",
            )
    return codes.OG303.error(f"{told}, with and without its optimisations")


def _loads(path: Path, spec: RuntimeSpec) -> bool:
    def attempt() -> dict[str, Any]:
        with suppress(GateError):
            open_session(path, spec).close()
            return {"loads": True}
        return {}

    return run_forked(attempt, _SECONDS)[0] == {"loads": True}
