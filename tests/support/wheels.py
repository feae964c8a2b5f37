"""Wheels of one module, for an installer that asks no index."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path

# Writes by hand what the module says, as exporters do: which operator is what its releases differ in.
WRITER = """
import layers, onnx
from onnx import helper

def export(module, example, path):
    value = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 6])
    factor = helper.make_tensor("factor", onnx.TensorProto.FLOAT, [], [layers.FACTOR])
    nodes = [helper.make_node("Mul", ["x", "factor"], ["z"]), helper.make_node("{}", ["z"], ["y"])]
    graph = helper.make_graph(nodes, "net", [value("x")], [value("y")], [factor])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
"""


def wheel(
    folder: Path,
    name: str,
    version: str,
    source: str,
    needs: Iterable[str] = (),
    tag: str = "py3-none-any",
) -> Path:
    """Write ``NAME-VERSION-TAG.whl`` with the module ``NAME`` and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    required = "".join(f"Requires-Dist: {each}\n" for each in needs)
    files = {
        f"{name}.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    records = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for each, text in {**files, f"{info}/RECORD": records}.items():
            archive.writestr(each, text)
    return path


def layers_and_writers(folder: Path, needs: Iterable[str] = ()) -> None:
    """Write two releases of ``layers`` and of ``writer``: of each the second changes the answers.

    ``needs`` are the packages that ``writer`` requires.
    """
    for version, factor, operator in (("1.0", 1.0, "Sigmoid"), ("2.0", 1.5, "HardSigmoid")):
        wheel(folder, "layers", version, f"FACTOR = {factor}\n")
        wheel(folder, "writer", version, WRITER.format(operator), needs)
