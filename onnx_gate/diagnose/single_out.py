"""What exactly is wrong with the faulty node: one thing is changed at a time, until it is right.

The node runs alone on PyTorch's own values. An attribute has another of the values that it may have,
two inputs change places, a constant or a weight is another of the model's. The change that makes the
node compute what PyTorch computes is the cause; where none does, nothing is said.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from torch import nn

from onnx_gate.deadline import Deadline, OutOfTime
from onnx_gate.diagnose.bench import RUN, Bench
from onnx_gate.diagnose.blame.weights import folded, ratio, told_of_weight, weights_of
from onnx_gate.diagnose.dequantised import told_of_constant, told_of_packed
from onnx_gate.diagnose.localize.localize import Located
from onnx_gate.diagnose.meant import levels_meant, numbers_meant, or_beyond
from onnx_gate.diagnose.values import agree, is_distinctive
from onnx_gate.diagnose.whole import Cause, is_near
from onnx_gate.graph.edit import with_attribute, with_input
from onnx_gate.graph.graph import Graph, read_graph
from onnx_gate.graph.run_node import Runner, model_of, run_until, type_of
from onnx_gate.graph.session import PlainSession, Value
from onnx_gate.graph.walk import attribute, attributes_of
from onnx_gate.report.story.precision import RIGHT
from onnx_gate.report.story.summary import distinct_digits
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.file_module import PLAIN
from onnx_gate.verify.subject import Subject

# The node is run this many times at most.
_MOST = 200
# An opset that every runtime has, and the newest that the older exporter is asked for.
_LATER = 18
# Larger constants are weights, of which the module has the right ones.
_SMALL = 8
_FLAGS = (
    *("fmod", "exclusive", "reverse", "ceil_mode", "count_include_pad", "select_last_index"),
    *("align_corners", "linear_before_reset", "largest", "transA", "transB", "antialias"),
    *("detect_positive", "detect_negative", "exclude_outside", "keepdims", "is_causal"),
    *("noop_with_empty_axes", "batch_dims"),
)
_CHOICES: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(_FLAGS, (0, 1)),
    "approximate": ("none", "tanh"),
    "mode": ("nearest", "linear", "cubic", "constant", "reflect", "edge", "wrap", "DCR", "CRD"),
    "coordinate_transformation_mode": (
        *("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"),
        "half_pixel_symmetric",
    ),
    "nearest_mode": ("floor", "round_prefer_floor", "round_prefer_ceil", "ceil"),
    "padding_mode": ("zeros", "border", "reflection"),
    "reduction": ("none", "add", "mul", "max", "min"),
    "direction": ("forward", "reverse", "LEFT", "RIGHT"),
    "epsilon": (1e-5, 1e-6, 1e-3, 1e-8, 1e-12, 1e-4, 1e-2),
    "alpha": (0.01, 0.1, 0.2, 0.3, 1.0, 0.5, 1 / 6),
    "cubic_coeff_a": (-0.75, -0.5),
}
# What stands in a text for what is said once the change has been made, and for the side that is right.
_AGREES, _AGAINST = "{agrees}", "{against}"
# What of the time goes into whether the output is right as well.
_SHARE = 0.4
_SYMMETRIC = frozenset(["Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "Mean"])


@dataclass(frozen=True)
class _Change:
    """A node that is different in one respect, what it reads, and what to say where it is right.

    ``opset`` is the one that it needs, 0 for the file's own. Of a weight what to say has to be found out:
    ``weight`` is the file's, the right one, its name.
    """

    node: onnx.NodeProto
    feeds: Mapping[str, Array]
    told: str = ""
    opset: int = 0
    weight: tuple[Array, Array, str] | None = None


def single_out(subject: Subject, located: Located, seconds: float) -> Cause:
    """Return the one thing that is wrong with the faulty node, empty where none was found to be."""
    if located.proto is None or located.beside is not None:
        return Cause("")
    if located.exchanged is not None:
        first, then = located.exchanged
        told = f"{first} stands before {then} in the file, and with {then} first"
        return Cause(f"{told} it agrees with {subject.spec.against}")
    cause, _ = Bench(subject, seconds).apart(lambda: _single_out(subject, located), RUN)
    return cause or Cause("")


def _single_out(subject: Subject, located: Located) -> Cause | None:
    node = located.proto
    assert node is not None
    graph = read_graph(subject.exported.proto, subject.exported.path)
    runner = Runner(graph, PLAIN, subject.folder)
    # What is computed of constants alone is one, too.
    fixed = {n: runner.value(n, {}) for n in node.input if n and graph.is_constant(n)}
    constants = {n: value for n, value in fixed.items() if isinstance(value, np.ndarray)}
    feeds = {**constants, **located.inputs}
    if located.constant is not None:
        module, against = subject.eager.module, subject.spec.against
        return Cause(told_of_constant(located.constant, node, feeds, module, against))
    within = located.node.module if located.node is not None else None
    told = told_of_packed(node, constants, subject.eager.module, within or "", subject.spec.against)
    if told:
        return Cause(told, RIGHT)
    wanted = [n for n in node.output if n in located.expected]
    if not wanted or any(n and n not in feeds for n in node.input):
        return None
    expected = located.expected[wanted[0]]
    runs = _Runs(graph, wanted[0], expected)
    made = runs.made(_Change(node, feeds))
    if agree(made, expected):
        return None  # nothing is wrong with it alone
    if made is not None and _unsorted(node, made, expected):
        return Cause(
            "topk(sorted=False) has the same elements in another order, which nobody promises",
            "write sorted=True there, which both sides keep",
        )
    changes = itertools.chain(
        _weights(node, feeds, constants, subject.eager.module),
        _attributes(node, feeds, graph),
        _exchanged(node, feeds),
        _constants(node, feeds, constants, expected, subject.check.sizes),
    )
    found = next((c for c in itertools.islice(changes, _MOST) if runs.right(c)), None)
    if found is None:
        return _scaled(node, made, expected, subject)
    if found.weight is not None:
        return Cause(told_of_weight(*found.weight, subject.eager.module))
    remedy = f"export at opset {found.opset} or later" if found.opset else ""
    whole = _is_mended(subject, runner, wanted[0], runs.made(found))
    it = "it" if whole else "that node"
    rest = f"; the output is not {subject.spec.against}'s even so" if whole is False else ""
    told = found.told.replace(_AGREES, f" {it} agrees with {_AGAINST}")
    return Cause(told.replace(_AGAINST, subject.spec.against) + rest, remedy)


def _is_mended(subject: Subject, runner: Runner, value: str, made: Array | None) -> bool | None:
    """Return whether the output agrees once a value is what the changed node makes.

    ``None`` where nothing is known: it is none of the graph's, or the nodes take too long.
    """
    graph, deadline = runner.graph, Deadline(_SHARE * RUN)
    output, index = graph.outputs[subject.output], subject.output
    if value not in graph.producer or made is None:
        return None

    def answer(overrides: Mapping[str, Array]) -> Value:
        def look(*_: object) -> None:
            deadline.check()

        return run_until(runner, subject.feeds(), [output], overrides, look)[output]

    try:
        was, now = answer({}), answer({value: made})
        expected = subject.eager.run(subject.arrays).arrays[index]
    except (OutOfTime, Refusal):
        return None
    if not (isinstance(was, np.ndarray) and isinstance(now, np.ndarray)):
        return None
    return is_near(now, expected, was)


def _scaled(
    node: onnx.NodeProto, made: Array | None, expected: Array, subject: Subject
) -> Cause | None:
    """Return by what a node is off that is right but for a factor, such as an average's divisor."""
    if made is None or made.shape != expected.shape or made.dtype.kind != "f":
        return None
    factor = ratio(made, expected)
    if factor is None or not is_distinctive(expected) or not agree(made / factor, expected):
        return None
    against = subject.spec.against
    return Cause(f"{node.op_type} makes {factor:.6g} times what {against} makes of the same values")


def _unsorted(node: onnx.NodeProto, made: Array, expected: Array) -> bool:
    """Return whether a TopK that need not sort has chosen what PyTorch has, in another order."""
    if node.op_type != "TopK" or attribute(node, "sorted", 1) or made.shape != expected.shape:
        return False
    axis = attribute(node, "axis", -1)
    return agree(np.sort(made, axis), np.sort(expected, axis))


class _Runs:
    def __init__(self, graph: Graph, output: str, expected: Array) -> None:
        self._graph, self._output, self._expected = graph, output, expected

    def right(self, change: _Change) -> bool:
        """Return whether a changed node makes what PyTorch makes."""
        return agree(self.made(change), self._expected)

    def made(self, change: _Change) -> Array | None:
        """Return what a node makes, ``None`` where it cannot be run."""
        node, feeds = change.node, change.feeds
        small = {n: a for n, a in feeds.items() if n in self._graph.constants and a.nbytes < 4096}
        types = {n: type_of(a) for n, a in feeds.items() if n not in small}
        tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in small.items()]
        opsets = self._graph.opsets
        if change.opset:
            opsets = (onnx.OperatorSetIdProto(version=change.opset),)
        model = model_of(node, types, opsets, self._graph.ir_version, tensors)
        try:
            made = PlainSession(model).run(feeds)
        except Refusal:
            return None
        names = [n for n in node.output if n]
        return dict(zip(names, made, strict=False)).get(self._output)


def _attributes(
    node: onnx.NodeProto, feeds: Mapping[str, Array], graph: Graph
) -> Iterator[_Change]:
    opset = next((each.version for each in graph.opsets if each.domain == node.domain), 1)
    rank = max((np.ndim(a) for a in feeds.values()), default=0)
    for name, value in attributes_of(node, opset).items():
        for other in _others(name, value, rank):
            if other == value or (isinstance(value, float) and np.isclose(other, value)):
                continue
            has, agrees = _apart(value, other)
            told = f"{node.op_type} has {name}={has}, and with {agrees}"
            yield _Change(with_attribute(node, name, other), feeds, told + _AGREES)
    yield from _later(node, feeds, opset)


def _later(node: onnx.NodeProto, feeds: Mapping[str, Array], opset: int) -> Iterator[_Change]:
    """Yield a node with what its operator can be told at a later opset, and not at the file's."""
    if node.domain or not opset < _LATER:
        return
    known = attributes_of(node, opset)
    for name, value in attributes_of(node, _LATER).items():
        for other in _CHOICES.get(name, ()) if name not in known else ():
            if isinstance(other, type(value)) and other != value:
                told = (
                    f"{node.op_type} has no {name} at opset {opset}, and with {name}={other}, of "
                    f"opset {_LATER},{_AGREES}"
                )
                yield _Change(with_attribute(node, name, other), feeds, told, _LATER)


def _others(name: str, value: Any, rank: int) -> Iterator[Any]:
    if name == "axis":
        yield from range(rank)
    elif name == "perm":
        yield from map(list, itertools.permutations(value)) if len(value) <= 4 else ()
    elif name in ("pads", "strides", "dilations") and isinstance(value, Sequence):
        yield from _windows(name, list(value))
    elif isinstance(value, float) and name in _CHOICES:
        yield from (float(x) for x in _CHOICES[name])
    else:
        yield from (x for x in _CHOICES.get(name, ()) if isinstance(x, type(value)))


def _windows(name: str, value: list[int]) -> Iterator[list[int]]:
    half = len(value) // 2
    if name == "pads":
        # As much in all, on the other side of each axis or on both.
        totals = [a + b for a, b in zip(value[:half], value[half:], strict=True)]
        for begins in itertools.product(*(range(t + 1) for t in totals)):
            yield [*begins, *(t - b for t, b in zip(totals, begins, strict=True))]
        return
    yield value[::-1]
    yield from ([n] * len(value) for n in (1, 2, 3, 4))


def _exchanged(node: onnx.NodeProto, feeds: Mapping[str, Array]) -> Iterator[_Change]:
    names = [(i, n) for i, n in enumerate(node.input) if n]
    for (i, a), (j, b) in itertools.combinations(names, 2):
        told = f"the inputs {a} and {b} of {node.op_type} are exchanged"
        one, other = feeds[a], feeds[b]
        alike = one.dtype == other.dtype
        if node.op_type == "MatMul" and alike and min(one.ndim, other.ndim) > 1:
            turned = {a: np.swapaxes(other, -1, -2), b: np.swapaxes(one, -1, -2)}
            yield _Change(node, {**feeds, **turned}, told)
        if alike and a != b and node.op_type not in _SYMMETRIC:
            yield _Change(with_input(with_input(node, i, b), j, a), feeds, told)


def _constants(
    node: onnx.NodeProto,
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array],
    expected: Array,
    sizes: Mapping[str, int],
) -> Iterator[_Change]:
    for name, value in constants.items():
        if value.size > _SMALL:
            for level, right, other in levels_meant(node, name, value, feeds, expected):
                has, agrees = _apart(level, right)
                told = (
                    f"the constant {name} of {node.op_type} is {has} in places, and with {agrees}"
                )
                yield _Change(node, {**feeds, name: other}, f"{told} there{_AGREES}")
        if value.size == 0 or value.size > _SMALL:
            continue
        for other in numbers_meant(node, name, value, feeds, expected):
            has, agrees = _apart(value.tolist(), other.tolist())
            agrees += or_beyond(node, name, other, feeds)
            told = f"the constant {name} of {node.op_type} is {has}, and with {agrees}{_AGREES}"
            # It agrees here alone; of another size, with another number.
            size = next(
                (n for n, s in sizes.items() if other.size == 1 and other.item() == s > 1), ""
            )
            if size:
                told = (
                    f"the constant {name} of {node.op_type} is {has}, and {_AGAINST} has the size of "
                    f"{size} there, {agrees} in this case"
                )
            yield _Change(node, {**feeds, name: other}, told)


def _weights(
    node: onnx.NodeProto,
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array],
    module: nn.Module,
) -> Iterator[_Change]:
    state = weights_of(module)
    stored = {n: a for n, a in constants.items() if a.size >= _SMALL and a.dtype.kind == "f"}
    for name, value in stored.items():
        for key, own in state.items():
            for right in _turned(own):
                if right.shape == value.shape and not np.array_equal(right, value):
                    feed = {**feeds, name: right.astype(value.dtype)}
                    yield _Change(node, feed, weight=(value, right, key))
    if node.op_type == "Conv" and len(node.input) == 3 and node.input[1] in stored:
        weight, bias = node.input[1:]
        for key, right, beside in folded(module):
            if right.shape == stored[weight].shape:
                wrong = not np.allclose(right, stored[weight], rtol=1e-5, atol=1e-7)
                about = (weight, right, key) if wrong else (bias, beside, f"{key[:-6]}bias")
                told = (constants[about[0]], *about[1:])
                yield _Change(node, {**feeds, weight: right, bias: beside}, weight=told)
    # A layer's weight and bias, where both became something else; told of the first.
    fits = [
        [(n, r, k) for k, own in state.items() for r in _turned(own) if r.shape == value.shape]
        for n, value in stored.items()
    ]
    for together in itertools.product(*fits) if len(fits) > 1 else ():
        if len({key.rpartition(".")[0] for _, _, key in together}) == 1:
            feed = {**feeds, **{n: r.astype(stored[n].dtype) for n, r, _ in together}}
            name, right, key = together[0]
            yield _Change(node, feed, weight=(stored[name], right, key))


def _turned(own: Array) -> tuple[Array, ...]:
    return (own, own.T) if own.ndim == 2 else (own,)


def _apart(value: Any, other: Any) -> tuple[str, str]:
    """Return how two values of one kind are shown: floats with as many digits as tell them apart."""
    if isinstance(value, list) and len(value) == 1:
        return _apart(value[0], other[0])
    if isinstance(value, float):
        return distinct_digits(value, other, 6)
    return str(value), str(other)
