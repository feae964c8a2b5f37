"""The patterns of lines that are known to be taken wrongly, and what may be written instead; pure."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst
import libcst.matchers as m

from onnx_gate.remedy.branches import cond, where
from onnx_gate.remedy.states import state
from onnx_gate.remedy.syntax import Node, Result, atom, called, expression, method, separated

Pattern = Callable[[Node], Result]

_SHAPE = m.Subscript(value=m.Attribute(attr=m.Name("shape"))) | m.Call(
    func=m.Attribute(attr=m.Name("size")), args=[m.Arg()]
)


def _size(node: Node) -> Result:
    """A size taken out of the graph: ``int(x.shape[0])``, ``x.shape[0].item()``."""
    inner = called(node, "int")
    if inner is not None and m.matches(inner[0], _SHAPE):
        return inner[0]
    given = method(node, "item")
    return given if given is not None and m.matches(given, _SHAPE) else None


def _length(node: Node) -> Result:
    """``len(x)`` of a tensor, which is a number of Python's."""
    inner = called(node, "len")
    if inner is not None and isinstance(inner[0], cst.Name):
        return expression("X.shape[0]", X=inner[0])
    return None


def _item(node: Node) -> Result:
    """A value taken out of the graph: ``x.max().item()``, ``max(x.max().item(), 1e-6)``."""
    for name, bound in (("max", "min"), ("min", "max")):
        pair = called(node, name, 2)
        if pair is None:
            continue
        for own, other in (pair, pair[::-1]):
            if method(own, "item") is not None:  # before its own turn, where it is a part
                own = method(own, "item") or own
            if m.matches(own, m.Call(func=m.Attribute())) and m.matches(
                other, m.Integer() | m.Float()
            ):
                return expression(f"X.clamp({bound}=Y)", X=atom(own), Y=other)
    given = method(node, "item")
    if given is not None and not m.matches(given, _SHAPE):
        return given
    inner = called(node, "float")
    if inner is not None and m.matches(inner[0], m.Call(func=m.Attribute())):
        return inner[0]
    return None


_WIDE = m.Attribute(value=m.Name("torch"), attr=m.Name("float64") | m.Name("double"))


def _double(node: Node) -> Result:
    """A step in float64, for which runtimes have few kernels."""
    given = method(node, "double")
    if given is not None:
        return expression("X.float()", X=atom(given))
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
        return expression('torch.div(X, Y, rounding_mode="floor")', X=node.left, Y=power)
    if isinstance(node.operator, cst.LeftShift):
        return atom(expression("X * Y", X=atom(node.left), Y=power))
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
    other = m.replace(call, of, expression("torch.finfo(X.dtype)", X=tensor))
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
    made = expression("torch.where(C, A, B)", C=mask, A=node.value, B=name)
    return cst.Assign(targets=[cst.AssignTarget(name)], value=made)


def _rows(node: Node) -> Result:
    """``x[torch.arange(n), i]``: one of each row, which is a gather."""
    arange = m.Call(func=m.Attribute(value=m.Name("torch"), attr=m.Name("arange")))
    pair = [m.SubscriptElement(m.Index(arange)), m.SubscriptElement(m.Index(m.Name()))]
    if not m.matches(node, m.Subscript(slice=pair)):
        return None
    subscript = cst.ensure_type(node, cst.Subscript)
    index = cst.ensure_type(subscript.slice[1].slice, cst.Index).value
    return expression(
        "torch.take_along_dim(X, I.reshape([-1] + [1] * (X.dim() - 1)), 1).squeeze(1)",
        X=atom(subscript.value),
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
    return call.with_changes(args=[*separated(call.args), off])


def _parametrized(node: Node) -> Result:
    """A weight that is computed at every call from others, in ``__init__``."""
    names = m.Name("orthogonal") | m.Name("spectral_norm") | m.Name("weight_norm")
    made = m.Call(func=names | m.Attribute(attr=names))
    if not m.matches(node, m.Assign(value=made)):
        return None
    assign = cst.ensure_type(node, cst.Assign)
    wrapped = expression(
        'torch.nn.utils.parametrize.remove_parametrizations(X, "weight")', X=assign.value
    )
    return assign.with_changes(value=wrapped)


def _softplus(node: Node) -> Result:
    """``F.logsigmoid(x)``, which the exporter writes as the logarithm of a sigmoid."""
    if not m.matches(node, m.Call(m.Attribute(attr=m.Name("logsigmoid")), [m.Arg(keyword=None)])):
        return None
    call = cst.ensure_type(node, cst.Call)
    functional = cst.ensure_type(call.func, cst.Attribute).value
    return expression("(-F.softplus(-X))", F=functional, X=atom(call.args[0].value))


STATE = "state"
PATTERNS: dict[str, Pattern] = {
    "size": _size,
    "where": where,
    "item": _item,
    "cond": cond,
    "length": _length,
    "double": _double,
    "shift": _shift,
    "masked": _masked,
    "rows": _rows,
    "finfo": _finfo,
    "validated": _validated,
    "parametrized": _parametrized,
    "softplus": _softplus,
    STATE: state,
}
"""The likely ones first. ``report/story/remedied.py`` says what each does."""
