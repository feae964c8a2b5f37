"""Record every value of an ONNX file that stands for the module."""

from __future__ import annotations

from pathlib import Path

import onnx

from onnx_gate.diagnose.trace.record_export import add_graph, run_all
from onnx_gate.diagnose.trace.trace import INPUT, Trace
from onnx_gate.diagnose.values import ArrayStore
from onnx_gate.graph.graph import read_graph
from onnx_gate.graph.run_node import Runner
from onnx_gate.report.model.diagnosis import Source
from onnx_gate.runtimes.file_module import PLAIN, FileModule
from onnx_gate.verify.onnx_file import read_model
from onnx_gate.verify.source_lines import of_node, own_source
from onnx_gate.verify.subject import Subject


class _Lines:
    """The user's lines that the file itself tells of its nodes."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def of(self, node: onnx.NodeProto, name: str) -> tuple[str | None, Source | None]:
        return None, own_source(of_node(node, self._workspace))


def record_file(subject: Subject, module: FileModule, trace: Trace, store: ArrayStore) -> None:
    """Run the file node by node on the case's inputs and add every value to ``trace``."""
    graph = read_graph(read_model(module.path, module.path.name), module.path)
    runner = Runner(graph, PLAIN, subject.folder)
    feeds = module.feeds([subject.arrays[name] for name in module.inputs])
    sources = {
        name: trace.add(store.put(array), f"{INPUT}{name}", name=name).number
        for name, array in feeds.items()
    }
    values, made = run_all(runner, feeds, store)
    add_graph(graph, values, made, trace, _Lines(subject.workspace), sources)
