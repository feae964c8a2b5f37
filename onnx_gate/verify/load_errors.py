"""What is to be said of engines that do not load a file: the line of a node, and what loads it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.graph.walk import all_nodes
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.manifest.values.runtimes import Optimization
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
class ExplainedLoads:
    """Says it of files that were made of code below ``root``."""

    root: Path

    def place(self, error: GateError, path: Path) -> None:
        """Give an error of a node the line that it was made of."""
        name = error.data.get("node")
        if not name:
            return
        nodes = all_nodes(onnx.load(str(path), load_external_data=False))
        lines = (of_node(node, self.root) for node in nodes if node.name == name)
        line = next((each for each in lines if each is not None and each.own), None)
        if line is not None:
            error.source = line.file, line.line
            if error.code == codes.OG303.code:
                error.remedy = error.remedy or _OTHERWISE

    def crashed(self, path: Path, spec: RuntimeSpec, label: str, ending: str) -> GateError:
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
