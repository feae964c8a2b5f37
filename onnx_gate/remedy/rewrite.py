"""Rewrites of lines that exporters and runtimes are known to take wrongly: text in, text out; pure.

A rewrite is a guess at what the line means. Whether the model still answers as it did, and is green, is
tried afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import libcst as cst
import libcst.matchers as m
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

# A file that is longer holds more than models, and takes longer to read than they do to verify.
_MOST_CHARACTERS = 400_000
_MARK = "\ufeff"
# Candidates of one file, at most: each is a trial.
_MOST = 12

Node = cst.CSTNode
Result = Node | cst.FlattenSentinel[cst.BaseStatement] | None
Pattern = Callable[[Node], Result]
_Places = Mapping[cst.CSTNode, CodeRange]


@dataclass(frozen=True)
class Rewrite:
    """A new text of a file; ``lines`` are those of the old one that it rewrites."""

    name: str
    text: str
    lines: tuple[int, ...]


def rewrites(text: str, lines: Collection[int] = (), target: str = "") -> Iterator[Rewrite]:
    """Yield what can be written otherwise in a file: at the ``lines`` that are blamed, then elsewhere.

    ``target`` is the class or function that the model is made by: what it does not come to is left
    alone. Each changes one line; where a pattern fits several lines of a class or function, there is
    one for all of these as well. What cannot be parsed, or is too long, has none.
    """
    read = _read(text)
    if read is None:
        return
    tree, places, fitting = read
    used = _used(tree, target)
    scopes = [(places[each].start.line, places[each].end.line, each in used) for each in tree.body]
    found: list[tuple[bool, Rewrite]] = []
    for name, pattern in PATTERNS.items():
        for first, last, is_used in scopes:
            within = sorted(line for line in fitting[name] if first <= line <= last)
            sets = [*([line] for line in within), *([within] if len(within) > 1 else [])]
            for each in sets:
                elsewhere = set(lines).isdisjoint(each)
                if elsewhere and not is_used:
                    continue
                made = _applied(tree, places, name, pattern, each)
                if made is not None:
                    found.append((elsewhere, made))
    found.sort(key=lambda each: each[0])
    mark = _MARK if text.startswith(_MARK) else ""  # which the parser leaves out
    yield from [replace(made, text=mark + made.text) for _, made in found[:_MOST]]


@functools.lru_cache(maxsize=16)  # several models of a manifest are often in one file
def _read(text: str) -> tuple[cst.Module, _Places, Mapping[str, Collection[int]]] | None:
    """Return a file, where its nodes are, and the lines that each pattern fits."""
    if len(text) > _MOST_CHARACTERS:
        return None
    try:
        wrapper = MetadataWrapper(cst.parse_module(text))
    except (cst.ParserSyntaxError, RecursionError):
        return None
    tree, places = wrapper.module, wrapper.resolve(PositionProvider)
    fitting: dict[str, Collection[int]] = {}
    for name, pattern in PATTERNS.items():
        transformer = _Transformer(pattern, places, None)
        with suppress(Exception):  # what goes wrong in one place may be right in others
            tree.visit(transformer)
        fitting[name] = transformer.lines
    return tree, places, fitting


def _used(tree: cst.Module, target: str) -> Collection[cst.CSTNode]:
    """Return the classes and functions that one of them comes to by names: all where it is not there."""
    named = {
        each.name.value: each
        for each in tree.body
        if isinstance(each, cst.ClassDef | cst.FunctionDef)
    }
    if target not in named:
        return tree.body
    found, waiting = {target}, [target]
    while waiting:
        names = {
            cst.ensure_type(n, cst.Name).value for n in m.findall(named[waiting.pop()], m.Name())
        }
        waiting += sorted((names & named.keys()) - found)
        found |= names & named.keys()
    return [named[name] for name in found]


def _applied(
    tree: cst.Module, places: _Places, name: str, pattern: Pattern, lines: Sequence[int]
) -> Rewrite | None:
    transformer = _Transformer(pattern, places, lines)
    try:
        new = tree.visit(transformer)
        if new.code == tree.code:
            return None
        if transformer.torch and not _imports_torch(tree):
            new = _with_import(new)
        compile(new.code, "rewritten", "exec")
    except Exception:  # a pattern that fits where its result does not is no remedy
        return None
    return Rewrite(name, new.code, tuple(lines))


class _Transformer(cst.CSTTransformer):
    """Puts a pattern's result in the place of each node that it fits, or of those of some lines."""

    def __init__(self, pattern: Pattern, places: _Places, only: Collection[int] | None) -> None:
        super().__init__()
        self._pattern, self._places, self._only = pattern, places, only
        self.lines: set[int] = set()
        self.torch = False

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        result = self._pattern(updated_node)
        if result is None:
            return super().on_leave(original_node, updated_node)
        line = self._places[original_node].start.line
        if self._only is not None and line not in self._only:
            return updated_node
        self.lines.add(line)
        parts = result if isinstance(result, cst.FlattenSentinel) else [result]
        self.torch |= any(m.findall(part, m.Name("torch")) for part in parts)
        return result


def _imports_torch(tree: cst.Module) -> bool:
    plain = m.ImportAlias(name=m.Name("torch"), asname=None)
    return bool(m.findall(tree, m.Import(names=[m.ZeroOrMore(), plain, m.ZeroOrMore()])))


def _with_import(tree: cst.Module) -> cst.Module:
    """Return a file that imports torch, before the first import but that of what is to come."""
    line = cst.parse_statement("import torch\n")
    future = m.SimpleStatementLine([m.ImportFrom(module=m.Name("__future__"))])
    some = m.SimpleStatementLine([m.Import() | m.ImportFrom()])
    body = list(tree.body)
    place = next(
        (n for n, each in enumerate(body) if m.matches(each, some) and not m.matches(each, future)),
        len(body),
    )
    if place < len(body) and isinstance(first := body[place], cst.SimpleStatementLine):
        line = line.with_changes(leading_lines=first.leading_lines)
        body[place] = first.with_changes(leading_lines=())
    return tree.with_changes(body=[*body[:place], line, *body[place:]])


def _expression(template: str, **parts: cst.BaseExpression) -> cst.BaseExpression:
    """Return an expression with others in the places of names."""
    made = cst.parse_expression(template).visit(_Put(parts))
    assert isinstance(made, cst.BaseExpression)
    return made


class _Put(cst.CSTTransformer):
    def __init__(self, parts: Mapping[str, cst.BaseExpression]) -> None:
        super().__init__()
        self._parts = parts

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self._parts.get(updated_node.value, updated_node)


_ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.Integer, cst.Float)


def _atom(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return an expression that binds as a name does."""
    if isinstance(node, _ATOMS) or node.lpar:
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


_SHAPE = m.Subscript(value=m.Attribute(attr=m.Name("shape"))) | m.Call(
    func=m.Attribute(attr=m.Name("size")), args=[m.Arg()]
)


def _called(node: Node, name: str, count: int = 1) -> Sequence[cst.BaseExpression] | None:
    """Return the arguments of a call of a bare name, ``None`` where it is another node."""
    if not m.matches(node, m.Call(func=m.Name(name), args=[m.Arg(keyword=None)] * count)):
        return None
    return [arg.value for arg in cst.ensure_type(node, cst.Call).args]


def _method(node: Node, name: str) -> cst.BaseExpression | None:
    """Return what a method without arguments is called on."""
    if not m.matches(node, m.Call(func=m.Attribute(attr=m.Name(name)), args=[])):
        return None
    call = cst.ensure_type(node, cst.Call)
    return cst.ensure_type(call.func, cst.Attribute).value


def _size(node: Node) -> Result:
    """A size taken out of the graph: ``int(x.shape[0])``, ``x.shape[0].item()``."""
    inner = _called(node, "int")
    if inner is not None and m.matches(inner[0], _SHAPE):
        return inner[0]
    given = _method(node, "item")
    return given if given is not None and m.matches(given, _SHAPE) else None


def _length(node: Node) -> Result:
    """``len(x)`` of a tensor, which is a number of Python's."""
    inner = _called(node, "len")
    if inner is not None and isinstance(inner[0], cst.Name):
        return _expression("X.shape[0]", X=inner[0])
    return None


def _item(node: Node) -> Result:
    """A value taken out of the graph: ``x.max().item()``, ``max(x.max().item(), 1e-6)``."""
    for name, bound in (("max", "min"), ("min", "max")):
        pair = _called(node, name, 2)
        if pair is None:
            continue
        for own, other in (pair, pair[::-1]):
            if _method(own, "item") is not None:  # before its own turn, where it is a part
                own = _method(own, "item") or own
            if m.matches(own, m.Call(func=m.Attribute())) and m.matches(
                other, m.Integer() | m.Float()
            ):
                return _expression(f"X.clamp({bound}=Y)", X=_atom(own), Y=other)
    given = _method(node, "item")
    if given is not None and not m.matches(given, _SHAPE):
        return given
    inner = _called(node, "float")
    if inner is not None and m.matches(inner[0], m.Call(func=m.Attribute())):
        return inner[0]
    return None


# What asks about values, where an ``if`` on it is decided once and for all while it is exported.
_OF_VALUES = (
    "any",
    "all",
    "sum",
    "mean",
    "max",
    "min",
    "amax",
    "amin",
    "item",
    "norm",
    "abs",
    "std",
)
_METHOD = m.Call(func=m.Attribute(attr=m.OneOf(*map(m.Name, _OF_VALUES))))


def _condition(test: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return a condition on values as a tensor, ``None`` where it is one on anything else."""
    inner = _called(test, "bool")
    test = inner[0] if inner is not None else test
    if m.matches(test, m.UnaryOperation(operator=m.Not())):
        own = _condition(cst.ensure_type(test, cst.UnaryOperation).expression)
        return None if own is None else _expression("~X", X=_atom(own))
    if not m.findall(test, _METHOD) or m.findall(test, m.BooleanOperation()):
        return None
    if isinstance(test, cst.Comparison):
        left = _method(test.left, "item")
        return test if left is None else test.with_changes(left=left)
    return _method(test, "item") or test


def _only(block: cst.BaseSuite | cst.BaseStatement) -> cst.BaseSmallStatement | None:
    """Return the one simple statement of a block, on lines of its own or behind the colon."""
    if isinstance(block, cst.IndentedBlock) and len(block.body) == 1:
        block = block.body[0]
    if (
        isinstance(block, cst.SimpleStatementLine | cst.SimpleStatementSuite)
        and len(block.body) == 1
    ):
        return block.body[0]
    return None


def _line(statement: cst.BaseSmallStatement, instead_of: cst.If) -> cst.SimpleStatementLine:
    """Return the line that a statement is, below the comments of what it is written instead of."""
    kept = instead_of.leading_lines
    before = {id(comment) for line in kept for comment in m.findall(line, m.Comment())}
    comments = [each for each in m.findall(instead_of, m.Comment()) if id(each) not in before]
    own = [cst.EmptyLine(comment=cst.ensure_type(each, cst.Comment)) for each in comments]
    return cst.SimpleStatementLine(body=[statement], leading_lines=[*kept, *own])


def _assigned(block: cst.BaseSuite) -> tuple[cst.Name, cst.BaseExpression] | None:
    """Return the name that a block of one statement sets, and to what."""
    only = _only(block)
    if isinstance(only, cst.AugAssign) and isinstance(only.target, cst.Name):
        sign = _OPERATORS.get(type(only.operator))
        if sign is None:
            return None
        made = _expression(f"X {sign} Y", X=only.target, Y=_atom(only.value))
        return only.target, made
    if isinstance(only, cst.Assign) and len(only.targets) == 1:
        target = only.targets[0].target
        return (target, only.value) if isinstance(target, cst.Name) else None
    return None


_OPERATORS: dict[type[cst.BaseAugOp], str] = {
    cst.AddAssign: "+",
    cst.SubtractAssign: "-",
    cst.MultiplyAssign: "*",
    cst.DivideAssign: "/",
}


def _returned(block: cst.BaseSuite | cst.BaseStatement) -> cst.BaseExpression | None:
    """Return what a block of one statement, or a statement, returns."""
    only = _only(block)
    return only.value if isinstance(only, cst.Return) else None


def _where(node: Node) -> Result:
    """A branch on values: both sides are computed, and one is taken of each."""
    if isinstance(node, cst.IfExp):
        test = _condition(node.test)
        if test is None:
            return None
        return _expression("torch.where(C, A, B)", C=test, A=node.body, B=node.orelse)
    if isinstance(node, cst.IndentedBlock):
        return _where_returned(node)
    if not isinstance(node, cst.If):
        return None
    test, then = _condition(node.test), _assigned(node.body)
    if test is None or then is None:
        return None
    name, value = then
    other: cst.BaseExpression = name
    if isinstance(node.orelse, cst.Else):
        otherwise = _assigned(node.orelse.body)
        if otherwise is None or otherwise[0].value != name.value:
            return None
        other = otherwise[1]
    elif node.orelse is not None:
        return None
    made = _expression("torch.where(C, A, B)", C=test, A=value, B=other)
    return _line(cst.Assign(targets=[cst.AssignTarget(name)], value=made), node)


def _where_returned(block: cst.IndentedBlock) -> Result:
    """``if c: return a`` before ``return b``, or with it in its ``else``."""
    body = list(block.body)
    for n, each in enumerate(body):
        if not isinstance(each, cst.If):
            continue
        test, then = _condition(each.test), _returned(each.body)
        after = each.orelse.body if isinstance(each.orelse, cst.Else) else None
        if after is None and each.orelse is None and n + 1 < len(body):
            other, rest = _returned(body[n + 1]), body[n + 2 :]
        else:
            other, rest = (_returned(after) if after is not None else None), body[n + 1 :]
        if test is None or then is None or other is None:
            continue
        made = _expression("torch.where(C, A, B)", C=test, A=then, B=other)
        return block.with_changes(body=[*body[:n], _line(cst.Return(made), each), *rest])
    return None


_WIDE = m.Attribute(value=m.Name("torch"), attr=m.Name("float64") | m.Name("double"))


def _double(node: Node) -> Result:
    """A step in float64, for which runtimes have few kernels."""
    given = _method(node, "double")
    if given is not None:
        return _expression("X.float()", X=_atom(given))
    if m.matches(node, m.Arg(value=_WIDE)):
        arg = cst.ensure_type(node, cst.Arg)
        return arg.with_changes(value=cst.parse_expression("torch.float32"))
    return None


def _shift(node: Node) -> Result:
    """A shift of bits, which ONNX has of unsigned integers only."""
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.right, cst.Integer):
        return None
    bits = node.right.evaluated_value
    if bits > 62:
        return None
    power = cst.Integer(str(1 << bits))
    if isinstance(node.operator, cst.RightShift):
        return _expression('torch.div(X, Y, rounding_mode="floor")', X=node.left, Y=power)
    if isinstance(node.operator, cst.LeftShift):
        return _atom(_expression("X * Y", X=_atom(node.left), Y=power))
    return None


def _finfo(node: Node) -> Result:
    """The limit of another dtype than the tensor's that is filled with it."""
    fills = m.Call(func=m.Attribute(attr=m.Name("masked_fill") | m.Name("masked_fill_")))
    if not m.matches(node, fills):
        return None
    call = cst.ensure_type(node, cst.Call)
    tensor = cst.ensure_type(call.func, cst.Attribute).value
    of = m.Call(
        func=m.Attribute(attr=m.Name("finfo")), args=[m.Arg(m.Attribute(value=m.Name("torch")))]
    )
    if not isinstance(tensor, cst.Name) or not m.findall(call, of):
        return None
    other = m.replace(call, of, _expression("torch.finfo(X.dtype)", X=tensor))
    return other if isinstance(other, cst.Call) else None


def _masked(node: Node) -> Result:
    """``x[mask] = value``: what is set by a mask is chosen by it."""
    if not isinstance(node, cst.Assign) or len(node.targets) != 1:
        return None
    target = node.targets[0].target
    by = m.Subscript(
        value=m.Name(),
        slice=[m.SubscriptElement(m.Index(m.Comparison() | m.Name() | m.UnaryOperation()))],
    )
    if not m.matches(target, by):
        return None
    subscript = cst.ensure_type(target, cst.Subscript)
    mask = cst.ensure_type(subscript.slice[0].slice, cst.Index).value
    name = cst.ensure_type(subscript.value, cst.Name)
    made = _expression("torch.where(C, A, B)", C=mask, A=node.value, B=name)
    return cst.Assign(targets=[cst.AssignTarget(name)], value=made)


def _rows(node: Node) -> Result:
    """``x[torch.arange(n), i]``: one of each row, which is a gather."""
    arange = m.Call(func=m.Attribute(value=m.Name("torch"), attr=m.Name("arange")))
    pair = [m.SubscriptElement(m.Index(arange)), m.SubscriptElement(m.Index(m.Name()))]
    if not m.matches(node, m.Subscript(slice=pair)):
        return None
    subscript = cst.ensure_type(node, cst.Subscript)
    index = cst.ensure_type(subscript.slice[1].slice, cst.Index).value
    return _expression(
        "torch.take_along_dim(X, I.reshape([-1] + [1] * (X.dim() - 1)), 1).squeeze(1)",
        X=_atom(subscript.value),
        I=index,
    )


_DISTRIBUTIONS = (
    *("Normal", "Categorical", "Bernoulli", "Beta", "Gamma", "Laplace", "Exponential", "Uniform"),
    *("MultivariateNormal", "Independent", "LogNormal", "Dirichlet", "Poisson", "Cauchy", "Gumbel"),
)


def _validated(node: Node) -> Result:
    """A distribution that looks at its parameters' values before it takes them."""
    names = m.OneOf(*map(m.Name, _DISTRIBUTIONS))
    if not m.matches(node, m.Call(func=names | m.Attribute(attr=names))):
        return None
    call = cst.ensure_type(node, cst.Call)
    if any(arg.keyword is not None and arg.keyword.value == "validate_args" for arg in call.args):
        return None
    off = cst.Arg(
        keyword=cst.Name("validate_args"),
        value=cst.Name("False"),
        equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
    )
    return call.with_changes(args=[*_separated(call.args), off])


def _separated(args: Sequence[cst.Arg]) -> list[cst.Arg]:
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    return [*args[:-1], args[-1].with_changes(comma=comma)] if args else []


def _parametrized(node: Node) -> Result:
    """A weight that is computed at every call from others, in ``__init__``."""
    names = m.Name("orthogonal") | m.Name("spectral_norm") | m.Name("weight_norm")
    made = m.Call(func=names | m.Attribute(attr=names))
    if not m.matches(node, m.Assign(value=made)):
        return None
    assign = cst.ensure_type(node, cst.Assign)
    wrapped = _expression(
        'torch.nn.utils.parametrize.remove_parametrizations(X, "weight")', X=assign.value
    )
    return assign.with_changes(value=wrapped)


PATTERNS: dict[str, Pattern] = {
    "size": _size,
    "where": _where,
    "item": _item,
    "length": _length,
    "double": _double,
    "shift": _shift,
    "masked": _masked,
    "rows": _rows,
    "finfo": _finfo,
    "validated": _validated,
    "parametrized": _parametrized,
}
"""The likely ones first. ``report/story/remedied.py`` says what each does."""
