"""The smallest torch module of what an exporter wrote wrongly: the one call that its nodes were made from.

The call is text in the file, as torch.fx prints it, such as
``call_function[target=torch.ops.aten.relu.default](args = (%x,), kwargs = {})``. It is
data: read as a tree, written again, never run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping

from onnx_gate.runtimes.base import Array

_CALL = re.compile(
    r"call_function\[target=(torch\.ops\.aten\.\w+\.\w+)\]\(args = (\(.*\)), kwargs = (\{.*\})\)",
    re.DOTALL,
)
_VALUE = "value_of_"


class _Quoted(ast.NodeTransformer):
    """Makes strings of the words that torch.fx prints without quotes, and names of its values."""

    def __init__(self) -> None:
        self.values: list[str] = []

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if re.fullmatch(r"torch\.\w+", whole := ast.unparse(node)):
            return node
        return ast.Constant(whole)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not node.id.startswith(_VALUE):
            return ast.Constant(node.id)
        name = node.id.removeprefix(_VALUE)
        if name not in self.values:
            self.values.append(name)
        return ast.Name(name)


def torch_script(
    call: str, arrays: Mapping[str, Array], literal: Callable[[Array], str]
) -> str | None:
    """Return a script that exports the call alone and prints both answers; null where it has none.

    ``arrays`` are the values that the call may take, by their names, and ``literal`` writes one.
    """
    match = _CALL.fullmatch(call)
    if match is None:
        return None
    words = _Quoted()
    try:
        args, kwargs = (
            words.visit(ast.parse(re.sub(r"%(\w+)", rf"{_VALUE}\1", part), mode="eval").body)
            for part in match.groups()[1:]
        )
    except (SyntaxError, RecursionError):
        return None
    simple = (ast.Tuple, ast.List, ast.Dict, ast.Constant, ast.Name, ast.Attribute, ast.UnaryOp)
    inner = (ast.expr_context, ast.unaryop)
    if not all(isinstance(n, simple + inner) for part in (args, kwargs) for n in ast.walk(part)):
        return None
    if not words.values or not set(words.values) <= arrays.keys():
        return None
    given = ", ".join(f"torch.from_numpy({literal(arrays[name])})" for name in words.values)
    keywords = f", **{ast.unparse(kwargs)}" if kwargs.keys else ""
    return "\n".join(
        (
            "import numpy as np, torch",
            "from numpy import inf, nan",
            "class Net(torch.nn.Module):",
            f"    def forward(self, {', '.join(words.values)}):",
            f"        return {match[1]}(*{ast.unparse(args)}{keywords})",
            f"given = ({given},)",
            "print(Net()(*given))",
            "print(torch.onnx.export(Net(), given, dynamo=True)(*given))",
        )
    )
