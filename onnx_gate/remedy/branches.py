"""A branch on values, which an export decides once and for all, as an operator that chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libcst as cst
import libcst.matchers as m

from onnx_gate.remedy.syntax import SIGNS, Node, Result, atom, called, expression, method, single

# What asks about values, where an ``if`` on it is decided once and for all while it is exported.
_OF_VALUES = (
    *("any", "all", "sum", "mean", "max", "min", "amax", "amin", "item", "norm", "abs", "std"),
)
_METHOD = m.Call(func=m.Attribute(attr=m.OneOf(*map(m.Name, _OF_VALUES))))


def _condition(test: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return a condition on values as a tensor, ``None`` where it is one on anything else."""
    inner = called(test, "bool")
    test = inner[0] if inner is not None else test
    if m.matches(test, m.UnaryOperation(operator=m.Not())):
        own = _condition(cst.ensure_type(test, cst.UnaryOperation).expression)
        return None if own is None else expression("~X", X=atom(own))
    if not m.findall(test, _METHOD) or m.findall(test, m.BooleanOperation()):
        return None
    if isinstance(test, cst.Comparison):
        left = method(test.left, "item")
        return test if left is None else test.with_changes(left=left)
    return method(test, "item") or test


def _line(statement: cst.BaseSmallStatement, instead_of: cst.If) -> cst.SimpleStatementLine:
    """Return the line that a statement is, below the comments of what it is written instead of."""
    kept = instead_of.leading_lines
    before = {id(comment) for line in kept for comment in m.findall(line, m.Comment())}
    comments = [each for each in m.findall(instead_of, m.Comment()) if id(each) not in before]
    own = [cst.EmptyLine(comment=cst.ensure_type(each, cst.Comment)) for each in comments]
    return cst.SimpleStatementLine(body=[statement], leading_lines=[*kept, *own])


def _assigned(block: cst.BaseSuite) -> tuple[cst.Name, cst.BaseExpression] | None:
    """Return the name that a block of one statement sets, and to what."""
    only = single(block)
    if isinstance(only, cst.AugAssign) and isinstance(only.target, cst.Name):
        sign = SIGNS.get(type(only.operator))
        if sign is None:
            return None
        made = expression(f"X {sign} Y", X=only.target, Y=atom(only.value))
        return only.target, made
    if isinstance(only, cst.Assign) and len(only.targets) == 1:
        target = only.targets[0].target
        return (target, only.value) if isinstance(target, cst.Name) else None
    return None


def _returned(block: cst.BaseSuite | cst.BaseStatement) -> cst.BaseExpression | None:
    """Return what a block of one statement, or a statement, returns."""
    only = single(block)
    return only.value if isinstance(only, cst.Return) else None


def where(node: Node) -> Result:
    """A branch on values: both sides are computed, and one is taken of each."""
    return _chosen(node, _where)


def cond(node: Node) -> Result:
    """A branch on values of which one side alone is computed: the other may refuse them."""
    return _chosen(node, _cond)


_Choice = Callable[[cst.BaseExpression, cst.BaseExpression, cst.BaseExpression], cst.BaseExpression]


def _where(test: cst.BaseExpression, a: cst.BaseExpression, b: cst.BaseExpression) -> Any:
    return expression("torch.where(C, A, B)", C=test, A=a, B=b)


def _cond(test: cst.BaseExpression, a: cst.BaseExpression, b: cst.BaseExpression) -> Any:
    # What a side returns may be no tensor that went into it.
    a, b = (
        expression("X.clone()", X=each) if isinstance(each, cst.Name) else each for each in (a, b)
    )
    return expression("torch.cond(C, lambda: A, lambda: B)", C=test, A=atom(a), B=atom(b))


def _chosen(node: Node, choice: _Choice) -> Result:
    if isinstance(node, cst.IfExp):
        test = _condition(node.test)
        return None if test is None else choice(test, node.body, node.orelse)
    if isinstance(node, cst.IndentedBlock):
        return _chosen_return(node, choice)
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
    made = choice(test, value, other)
    return _line(cst.Assign(targets=[cst.AssignTarget(name)], value=made), node)


def _chosen_return(block: cst.IndentedBlock, choice: _Choice) -> Result:
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
        made = cst.Return(choice(test, then, other))
        return block.with_changes(body=[*body[:n], _line(made, each), *rest])
    return None
