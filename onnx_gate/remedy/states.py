"""A state that ``forward`` writes as an input and an output of it: graphs keep none between calls."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst
import libcst.matchers as m

from onnx_gate.remedy.syntax import SIGNS, Node, Result, atom, expression, separated

_OWN = m.Attribute(value=m.Name("self"), attr=m.Name())


def state(node: Node) -> Result:
    """``self.past = ...`` in ``forward``: the last arguments, and the last results, by their names."""
    if not isinstance(node, cst.FunctionDef) or node.name.value != "forward":
        return None
    written = sorted(set(_written(node.body)))
    params = node.params
    inner = m.findall(node.body, m.FunctionDef() | m.Lambda() | m.Yield())
    optional = isinstance(params.star_arg, cst.Param) or any(p.default for p in params.params)
    own = {id(cst.ensure_type(each, cst.Attribute).attr) for each in m.findall(node, _OWN)}
    local = (each for each in m.findall(node, m.Name()) if id(each) not in own)
    taken = {cst.ensure_type(each, cst.Name).value for each in local} & set(written)
    if not written or inner or optional or taken or not params.params:
        return None
    kind = params.params[-1].annotation
    kind = kind if kind is not None and _is_tensor(kind.annotation) else None
    more = [cst.Param(name=cst.Name(name), annotation=kind) for name in written]
    returns = node.returns
    if returns is not None:
        returns = _tuple_of(returns.annotation, 1 + len(written))
    body = node.body.visit(_Argument(written))
    return node.with_changes(
        params=params.with_changes(params=[*separated(params.params), *more]),
        body=body,
        returns=returns,
    )


def _written(body: Node) -> Iterator[str]:
    """Yield the attributes of ``self`` that are set, or changed in place, by a statement."""
    found = m.Assign() | m.AugAssign() | m.Expr()
    for each in m.findall(body, found):
        if isinstance(each, cst.Assign) and len(each.targets) == 1:
            target: Node | None = each.targets[0].target
        elif isinstance(each, cst.AugAssign):
            target = each.target if type(each.operator) in SIGNS else None
        else:
            target = _changed_in_place(cst.ensure_type(each, cst.Expr).value)
        if target is not None and m.matches(target, _OWN):
            yield cst.ensure_type(target, cst.Attribute).attr.value


def _changed_in_place(value: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return what a chain of methods is called on that end in ``_``, as ``mul_`` does."""
    call = m.Call(func=m.Attribute())
    if not m.matches(value, call):
        return None
    while m.matches(value, call):
        func = cst.ensure_type(cst.ensure_type(value, cst.Call).func, cst.Attribute)
        if not func.attr.value.endswith("_"):
            return None
        value = func.value
    return value


def _out_of_place(value: cst.BaseExpression) -> cst.BaseExpression:
    """Return the same chain of methods that leave what they are called on as it is."""
    if not isinstance(value, cst.Call):
        return value
    func = cst.ensure_type(value.func, cst.Attribute)
    if func.attr.value == "copy_" and value.args:
        return value.args[0].value
    name = cst.Name(func.attr.value.removesuffix("_"))
    return value.with_changes(func=func.with_changes(value=_out_of_place(func.value), attr=name))


class _Argument(cst.CSTTransformer):
    """Makes local variables of attributes, and returns them behind all else."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        self._names = names

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        own = m.matches(original_node, _OWN) and updated_node.attr.value in self._names
        return updated_node.attr if own else updated_node

    def leave_AugAssign(
        self, original_node: cst.AugAssign, updated_node: cst.AugAssign
    ) -> cst.BaseSmallStatement:
        target = updated_node.target
        if not isinstance(target, cst.Name) or target.value not in self._names:
            return updated_node
        sign = SIGNS[type(updated_node.operator)]
        return _set(target, expression(f"X {sign} Y", X=target, Y=atom(updated_node.value)))

    def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> cst.BaseSmallStatement:
        target = _changed_in_place(updated_node.value)
        if not isinstance(target, cst.Name) or target.value not in self._names:
            return updated_node
        return _set(target, _out_of_place(updated_node.value))

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.Return:
        value = updated_node.value
        if value is None:
            return updated_node
        first = value.elements if isinstance(value, cst.Tuple) else [cst.Element(value)]
        more = [cst.Element(cst.Name(name)) for name in self._names]
        comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        every = [each.with_changes(comma=comma) for each in [*first, *more]]
        every[-1] = every[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(value=cst.Tuple(every, lpar=[], rpar=[]))


def _set(target: cst.Name, value: cst.BaseExpression) -> cst.Assign:
    return cst.Assign(targets=[cst.AssignTarget(target)], value=value)


def _is_tensor(annotation: cst.BaseExpression) -> bool:
    return m.matches(annotation, m.Name("Tensor") | m.Attribute(attr=m.Name("Tensor")))


def _tuple_of(annotation: cst.BaseExpression, count: int) -> cst.Annotation | None:
    """Return what is written for so many tensors in place of one, ``None`` where it was another."""
    if not _is_tensor(annotation):
        return None
    parts = {f"T{n}": annotation for n in range(count)}
    return cst.Annotation(expression(f"tuple[{', '.join(parts)}]", **parts))
