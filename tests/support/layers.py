"""The layers of the tests: ``pytest --unit`` collects what can do without torch, and does without.

A test file belongs to the unit layer where nothing that it imports leads to torch; nobody has to
keep a list. That the layer is what it says is seen to by ``refuse_torch``: from then on an import
of torch fails, wherever it is; and so does a test that starts this Python without saying so by its mark.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import grimp

from tests.support.gate import ROOT

HEAVY = ("torch", "onnx", "onnxruntime", "onnxscript")


class _NoTorch:
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in HEAVY:
            raise ImportError(f"{name} is not for the unit layer: see tests/README.md")
        return None


def refuse_torch() -> None:
    """Let every import of torch fail in this process."""
    assert not set(HEAVY) & set(sys.modules)
    sys.meta_path.insert(0, _NoTorch())


def refuse_processes(marked: Callable[[], bool]) -> None:
    """Let the start of a Python like this one fail wherever ``marked`` does not say that a test may."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen" and not marked():
            words = [str(each) for each in (arguments[0], *arguments[1][:4])]
            if any(word.startswith(sys.prefix) for word in words):
                raise RuntimeError("starts another process: mark the test with pytest.mark.process")

    sys.addaudithook(hook)


def without_torch() -> frozenset[Path]:
    """Return the test files that import nothing which leads to torch."""
    graph = grimp.build_graph(
        "onnx_gate",
        "onnx_gate_engines",
        "tests",
        include_external_packages=True,
        exclude_type_checking_imports=True,
        cache_dir=None,
    )
    heavy = set(HEAVY).union(
        *(graph.find_downstream_modules(name) for name in HEAVY if name in graph.modules)
    )
    light = (name for name in graph.modules - heavy if name.startswith("tests."))
    files = {ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in light}
    # Those of the engines are in no package, so that they are in nobody's way.
    beside = ROOT.joinpath("engines", "tests").glob("test_*.py")
    return frozenset(files | {path for path in beside if heavy.isdisjoint(_imported(path))})


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, node.module.partition(".")[0])
            yield from (f"{node.module}.{each.name}" for each in node.names)
