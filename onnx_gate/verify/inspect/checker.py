"""``onnx.checker``'s complaints, with what each usually comes from."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

import onnx

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import EXPORTERS, ModelSpec, RuntimeSpec
from onnx_gate.runtimes.base import first_line
from onnx_gate.runtimes.open import open_session
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.inspect.opsets import first_opset

_UNSORTED = re.compile(r"topologically sorted, however input '([^']*)' of node")
_TWICE = re.compile(r"\(SSA\) form, however '([^']*)' has been used as (.+?) names? multiple times")
_UNKNOWN = re.compile(r"No Op registered for (\S+) with domain_version of (\d+)")
_DOMAIN = re.compile(r"No opset import for domain '([^']*)'")
_NO_OUTPUT = re.compile(r"Graph output '([^']*)' is not an output of any node")
_NODE = re.compile(r"[Nn]ame: ?(\S*) OpType: (\S+)")


def check_file(exported: Exported, spec: ModelSpec) -> Iterator[Finding]:
    """Yield what ``onnx.checker`` dislikes in a file that the model's first runtime loads.

    Raises ``GateError`` of kind ``inspect`` (OG117) where neither takes it.
    """
    try:
        onnx.checker.check_model(str(exported.path), full_check=False)
    except Exception as error:
        message = _explained(str(error) or first_line(error), spec.inputs, exported.exporter)
        if not _loads(exported.path, spec.runtimes[0]):
            raise codes.OG117.error(message, kind="inspect") from error
        yield codes.OG117.finding(
            f"{message}. {spec.runtimes[0].label} loads it all the same, and another runtime need not"
        )


def _loads(path: Path, runtime: RuntimeSpec) -> bool:
    try:
        open_session(path, runtime).close()
    except GateError:
        return False
    return True


def _explained(text: str, inputs: Collection[str], exporter: str) -> str:
    first_line = next((line.strip() for line in text.splitlines() if line.strip()), text)[:300]
    return f"onnx.checker rejects the file: {_cause(text, inputs, exporter) or first_line}"


def _cause(text: str, inputs: Collection[str], exporter: str) -> str:
    node = _NODE.search(text)
    where = f"the node {node[1]!r} ({node[2]})" if node is not None else "a node"
    if match := _UNSORTED.search(text):
        return f"{where} reads {match[1]!r}, which no node before it computes. " + _written(
            exporter, "removed, renamed or moved what makes that value"
        )
    if match := _TWICE.search(text):
        rename = "rename that input, in forward and in the manifest"
        remedy = rename if match[1] in inputs else "rename one of them where the graph is made"
        return f"two values are called {match[1]!r} ({match[2]}): {remedy}"
    if match := _UNKNOWN.search(text):
        first = first_opset(match[1])
        if first is not None and first > int(match[2]):
            return (
                f"{where}: {match[1]} exists from opset {first} on, and the file says opset "
                f"{match[2]}. Export with opset {first}, or with the operators that it is made of"
            )
        return (
            f"{where}: ONNX has no operator {match[1]} at opset {match[2]}. Give it a domain of its "
            "own and define it as a function of the model, or write it with other operators"
        )
    if match := _DOMAIN.search(text):
        return (
            f"{where} is of the domain {match[1]!r}, which the file does not import: add "
            f"onnx.helper.make_opsetid({match[1]!r}, 1) to its opset_import"
        )
    if match := _NO_OUTPUT.search(text):
        return f"no node computes the graph's output {match[1]!r}. " + _written(
            exporter, "removed or renamed what makes it"
        )
    if node is not None:
        return f"{where}: {text.strip().splitlines()[0].strip()}"
    return ""


def _written(exporter: str, edited: str) -> str:
    """Return who has written a graph with a hole in it."""
    if exporter not in EXPORTERS:
        return f"What edits the graph after the export has {edited}"
    other = EXPORTERS[1 - EXPORTERS.index(exporter)]
    return (
        f"torch's {exporter} exporter wrote it so: report it to PyTorch, and until then try "
        f"export: {{exporter: {other}}}"
    )
