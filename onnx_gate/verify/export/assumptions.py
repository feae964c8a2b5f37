"""What torch.export took for granted about sizes: conditions that the ONNX graph does not check."""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.fx import GraphModule, Node
from torch.utils._sympy.printers import PythonPrinter

from onnx_gate.manifest.dimensions import is_computed
from onnx_gate.verify.export.specialising import Stacks
from onnx_gate.verify.inputs.sizes import Sizes
from onnx_gate.verify.source_lines import Line, frames_of, of_frames, of_stack

_FX, _TORCH = "torch/fx/", os.path.join(os.path.dirname(torch.__file__), "")
# Conditions are tried at the sizes from 1 to this, to say what they come down to.
UPTO = 48
# A large model repeats the same few conditions; more than this many different ones are not read.
_MOST = 64
_CONDITIONS = (
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
    *(torch.sym_not, operator.and_, operator.or_),
)


@dataclass(frozen=True)
class Assumption:
    """A condition on the sizes of dynamic dimensions, and the line of ``forward`` that makes it."""

    dims: tuple[str, ...]
    text: str
    source: Line | None
    _expression: sympy.Basic

    def holds(self, sizes: Sizes) -> bool:
        """Return whether the condition holds at these sizes; true where one of them is not given."""
        if any(name not in sizes for name in self.dims):
            return True
        given = {_symbol(name): sizes[name] for name in self.dims}
        value = self._expression.subs(given)
        return bool(value) if value in (sympy.true, sympy.false) else True

    def numbers(self) -> set[int]:
        """Return the whole numbers that stand in the condition."""
        return {abs(int(number)) for number in self._expression.atoms(sympy.Integer)}

    def sizes(self) -> list[int]:
        """Return the sizes up to 48 at which a condition on one dimension holds."""
        return [n for n in range(1, UPTO + 1) if self.holds({self.dims[0]: n})]


def assumptions(
    graph: GraphModule,
    shapes: Mapping[str, Sequence[int | str]],
    stacks: Stacks,
    root: Path | None,
) -> list[Assumption]:
    """Read the conditions from a traced graph.

    ``shapes`` has the declared shape of each placeholder by its name, ``stacks`` are of its trace.
    Conditions on other sizes than the declared dynamic ones are left out.
    """
    names = dict(_symbols(graph, shapes))
    known: dict[str, Assumption] = {}
    for node in itertools.islice(_conditions(graph, stacks), 16 * _MOST):
        expression = _expression(node)
        if expression is None or not expression.free_symbols <= names.keys():
            continue
        renamed = expression.subs({s: _symbol(names[s]) for s in names})
        dims = tuple(sorted({names[s] for s in expression.free_symbols}))
        renamed, dims = _reduced(renamed, dims)
        if not dims or renamed in (sympy.true, sympy.false):
            continue
        text = describe(renamed, dims)
        if text and text not in known:
            known[text] = Assumption(dims, text, _place(node, stacks, root), renamed)
            if len(known) == _MOST:
                break
    return list(known.values())


def from_some_size_on(sizes: Sequence[int]) -> bool:
    """Return whether these are all sizes that are tried, from some size on."""
    return bool(sizes) and list(sizes) == list(range(sizes[0], UPTO + 1))


def describe(expression: sympy.Basic, dims: tuple[str, ...]) -> str:
    """Return the condition in words where it is a simple one, else as Python writes it.

    An empty string where it holds at every size.
    """
    if len(dims) == 1:
        dim = dims[0]
        sizes = Assumption(dims, "", None, expression).sizes()
        everything = list(range(1, UPTO + 1))
        if sizes == everything:
            return ""
        if len(sizes) == 1:
            return f"{dim} is {sizes[0]}"
        for divisor in range(2, UPTO // 2 + 1):
            if sizes == [n for n in everything if n % divisor == 0]:
                return f"{dim} is a multiple of {divisor}"
            if sizes == [n for n in everything if n % divisor]:
                return f"{dim} is no multiple of {divisor}"
        if sizes and sizes == list(range(1, sizes[-1] + 1)):
            return f"{dim} is at most {sizes[-1]}"
        if from_some_size_on(sizes):
            return "" if sizes[0] <= 2 else f"{dim} is at least {sizes[0]}"
    try:
        return str(PythonPrinter().doprint(expression))
    except Exception:  # a printer that does not know one of its own functions
        return str(expression)


def specialised(
    graph: GraphModule, name: str, axis: int, stacks: Stacks, root: Path | None
) -> tuple[str, Line | None] | None:
    """Return what ties ``axis`` of the placeholder ``name`` to one size, and its line.

    The operator's name where a traced operator gives a fixed size for the dynamic one, an empty
    string where it is a condition. ``None`` where the graph does not say.
    """
    symbol = next((s for s, n, a in _placed(graph) if (n, a) == (name, axis)), None)
    if symbol is None:
        return None
    for node in _conditions(graph, stacks):
        expression = _expression(node)
        if isinstance(expression, sympy.Eq) and expression.free_symbols == {symbol}:
            alone = Assumption(("n",), "", None, expression.subs(symbol, _symbol("n")))
            if len(alone.sizes()) == 1:
                return "", _place(node, stacks, root)
    for node in graph.graph.nodes:
        if node.op != "call_function" or not _tensors(node.meta.get("val")):
            continue
        taken = {s for arg in node.all_input_nodes for s in _free(arg.meta.get("val"))}
        given = _free(node.meta.get("val"))
        if symbol in taken and symbol not in given and _keeps_rank(node):
            target = getattr(node.target, "name", None)
            text = target() if callable(target) else str(node.target)
            return text, of_stack(node.meta.get("stack_trace") or "", root)
    return None


def bounded_by(
    graph: GraphModule,
    shapes: Mapping[str, Sequence[int | str]],
    dim: str,
    upper: bool,
    root: Path | None,
) -> Line | None:
    """Return the line of ``forward`` that bounds a dynamic dimension from above or below."""
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        if node.op != "placeholder" or not isinstance(value, torch.Tensor):
            continue
        for size, declared in zip(_sizes(value), shapes.get(str(node.name), ()), strict=False):
            if declared == dim and isinstance(size, torch.SymInt):
                bounds = size.node.shape_env.var_to_range_sloc[size.node.expr]
                frame = (bounds.upper if upper else bounds.lower).framework_loc
                if hasattr(frame, "filename"):
                    return of_frames([(frame.filename, frame.lineno)], root)
    return None


def _conditions(graph: GraphModule, stacks: Stacks) -> Iterator[Node]:
    """Yield the nodes that compute a condition which only an assertion reads, or nobody.

    But for those that torch.fx has from no line of Python: it works out an operator's shapes by a
    computation of its own (an LSTM's, step by step at the example's length) which is not in the graph.
    What is asked before there is an operator has no line in the graph, and the model asks it itself.
    """
    for node in graph.graph.nodes:
        lines = frames_of(node.meta.get("stack_trace") or "")
        if not any(_FX not in file for file, _ in lines) and not _is_asked_by_model(node, stacks):
            continue
        if node.target is torch.ops.aten._assert_scalar.default:
            if node.args and isinstance(node.args[0], Node):
                yield node.args[0]
        elif node.op == "call_function" and node.target in _CONDITIONS and not node.users:
            yield node


def _is_asked_by_model(condition: Node, stacks: Stacks) -> bool:
    """Return whether what asked for a condition is no operator of torch's."""
    value = condition.meta.get("val")
    asked = stacks.of_condition(value.node.expr) if isinstance(value, torch.SymBool) else ()
    files = [file for file, _ in asked if _FX not in file and file != torch.__file__]
    return bool(files) and not files[-1].startswith(_TORCH)


def _place(condition: Node, stacks: Stacks, root: Path | None) -> Line | None:
    """Return the line that asked for a condition.

    The node itself has the line of the operator that was traced before it: all that there is where
    nobody listened to the trace.
    """
    asked = of_frames(stacks.of_condition(condition.meta["val"].node.expr), root)
    return asked or of_stack(condition.meta.get("stack_trace") or "", root)


def _symbol(name: str) -> sympy.Symbol:
    return sympy.Symbol(name, integer=True, positive=True)


def _expression(node: Node) -> sympy.Basic | None:
    """Return a condition that holds at the sizes of the example, which is what is relied on."""
    value = node.meta.get("val")
    if not isinstance(value, torch.SymBool):
        return None
    environment, expression = value.node.shape_env, value.node.expr
    # The name depends on the version of torch.
    example = getattr(environment, "backed_var_to_val", None) or environment.var_to_val
    return expression if expression.subs(example) == sympy.true else None


def _reduced(expression: sympy.Basic, dims: tuple[str, ...]) -> tuple[sympy.Basic, tuple[str, ...]]:
    """Drop the dimensions that do not matter: ``b * s == 8 * b * (s // 8)`` is about ``s`` alone."""
    for dim in dims if len(dims) > 1 else ():
        alone = [
            expression.subs({_symbol(other): size for other in dims if other != dim})
            for size in (1, 3, 7)
        ]
        sizes = [Assumption((dim,), "", None, part).sizes() for part in alone]
        if sizes[0] == sizes[1] == sizes[2] and 0 < len(sizes[0]) < UPTO:
            return alone[0], (dim,)
    return expression, dims


def _symbols(
    graph: GraphModule, shapes: Mapping[str, Sequence[int | str]]
) -> Iterator[tuple[sympy.Symbol, str]]:
    for symbol, name, axis in _placed(graph):
        declared = shapes.get(name, ())
        if axis < len(declared):
            dim = declared[axis]
            if isinstance(dim, str) and not is_computed(dim):
                yield symbol, dim


def _placed(graph: GraphModule) -> Iterator[tuple[sympy.Symbol, str, int]]:
    """Yield every symbol that is itself the size of an axis of a placeholder."""
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, torch.Tensor):
            for axis, size in enumerate(_sizes(value)):
                if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                    yield size.node.expr, str(node.name), axis


def _sizes(tensor: torch.Tensor) -> list[Any]:
    """Return the shape; torch's annotations know nothing of symbolic sizes."""
    return list(tensor.shape)


def _tensors(value: Any) -> list[torch.Tensor]:
    values = value if isinstance(value, (tuple, list)) else [value]
    return [v for v in values if isinstance(v, torch.Tensor)]


def _free(value: Any) -> set[sympy.Symbol]:
    return {
        symbol
        for tensor in _tensors(value)
        for size in _sizes(tensor)
        if isinstance(size, torch.SymInt)
        for symbol in size.node.expr.free_symbols
    }


def _keeps_rank(node: Node) -> bool:
    """Return whether a result has as many axes as an argument: a reduction loses sizes by rights."""
    ranks = {t.ndim for arg in node.all_input_nodes for t in _tensors(arg.meta.get("val"))}
    return any(t.ndim in ranks for t in _tensors(node.meta.get("val")))
