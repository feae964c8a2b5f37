"""Small parts of syntax trees, of which the rewrites of source are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import libcst as cst
import libcst.matchers as m

Node = cst.CSTNode
Result = Node | cst.FlattenSentinel[cst.BaseStatement] | None
"""What is written in a node's place, ``None`` where it stays."""


def expression(template: str, **parts: cst.BaseExpression) -> cst.BaseExpression:
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


def atom(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return an expression that binds as a name does."""
    if isinstance(node, _ATOMS) or node.lpar:
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def called(node: Node, name: str, count: int = 1) -> Sequence[cst.BaseExpression] | None:
    """Return the arguments of a call of a bare name, ``None`` where it is another node."""
    if not m.matches(node, m.Call(func=m.Name(name), args=[m.Arg(keyword=None)] * count)):
        return None
    return [arg.value for arg in cst.ensure_type(node, cst.Call).args]


def method(node: Node, name: str) -> cst.BaseExpression | None:
    """Return what a method without arguments is called on."""
    if not m.matches(node, m.Call(func=m.Attribute(attr=m.Name(name)), args=[])):
        return None
    call = cst.ensure_type(node, cst.Call)
    return cst.ensure_type(call.func, cst.Attribute).value


def single(block: cst.BaseSuite | cst.BaseStatement) -> cst.BaseSmallStatement | None:
    """Return the one simple statement of a block, on lines of its own or behind the colon."""
    if isinstance(block, cst.IndentedBlock) and len(block.body) == 1:
        block = block.body[0]
    if (
        isinstance(block, cst.SimpleStatementLine | cst.SimpleStatementSuite)
        and len(block.body) == 1
    ):
        return block.body[0]
    return None


_Listed = TypeVar("_Listed", cst.Arg, cst.Param)


def separated(args: Sequence[_Listed]) -> list[_Listed]:
    """Return arguments, or parameters, with a comma behind the last."""
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    return [each.with_changes(comma=comma) if each is args[-1] else each for each in args]


SIGNS: dict[type[cst.BaseAugOp], str] = {
    cst.AddAssign: "+",
    cst.SubtractAssign: "-",
    cst.MultiplyAssign: "*",
    cst.DivideAssign: "/",
}
"""The operators of the assignments that are made with one."""
