"""What each layer of a file costs that computes in fewer bits: its noise, on PyTorch's own inputs.

The untouched module is recorded, and the values of the graph are joined to its values: by what they
are, as names say little once a graph is quantised. Then the nodes run one by one; wherever a value
of PyTorch's is reached it takes the place of the graph's, so that the layer behind it starts
without the noise of those before it. Quantised values are compared as the numbers they stand for,
and what is rounded behind a layer for the next one to read is that layer's cost.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree
from onnx import TensorProto

from onnx_gate.deadline import Deadline, OutOfTime
from onnx_gate.diagnose.localize.faulty import WrongConstant
from onnx_gate.diagnose.localize.fixed import find_constant, maker
from onnx_gate.diagnose.localize.origins import Origins
from onnx_gate.diagnose.reduced.join import (
    CUT_OFF,
    join,
    likeness_of_direction,
    product_of,
    samples,
    snr,
)
from onnx_gate.diagnose.reduced.quantised import RESTORING, QuantisedGraph, is_restored
from onnx_gate.diagnose.trace.record_file import record_file
from onnx_gate.diagnose.trace.record_module import record_module
from onnx_gate.diagnose.trace.trace import Trace
from onnx_gate.diagnose.values import ArrayStore, kind_of
from onnx_gate.graph.graph import Node, read_graph
from onnx_gate.graph.run_node import Runner, run_until
from onnx_gate.graph.session import Value
from onnx_gate.report.model.diagnosis import LayerCost
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.file_module import PLAIN, FileModule
from onnx_gate.runtimes.tensors import to_array
from onnx_gate.verify.context import Reduced
from onnx_gate.verify.reference.operator_mode import OperatorMode
from onnx_gate.verify.subject import Subject

# Noise below this is the rounding of float32, and no cost of fewer bits: rounding to 24 bits leaves
# 144 dB (20 log10 of 2^24), and a sum of 2,500 products loses the root of that at most, 34 dB.
QUIET_DB = 110.0
# A layer is suspect that has a good deal less than its bits leave, and is much noisier than the layers
# of its kind. Rounding a normal distribution to b bits over four standard deviations a side leaves
# 6.02 b - 7.3 dB (10 log10 of 12 / 64), 41 in int8 and 17 in four bits; half precision, of 11 bits
# wherever the value is, 66. What a layer makes of it may be worse by 26 dB, twenty times, and with four
# bits by 8, before it is suspect.
_SUSPECT_DB: Mapping[str, float] = {"half": 40.0, "int8": 15.0}
_FEW_BITS_DB = 9.0
# Two bits fewer than the layers of its kind: four times their noise.
_OUTLIER_DB = 12.0
# A fifth of the noise's power goes with the layer (10^0.1 is 1.26); less may be chance.
_HEALED_DB = 1.0
# Noise is that of a wrong scale where half of it (in amplitude) goes at the right one, and it is off by
# a tenth, which no rounding of a whole layer is.
_GAIN_DB = 6.0
_GAIN = 0.1


_AROUND = (*RESTORING, "DynamicQuantizeLinear", "Cast", "Mul", "Constant")
_PRODUCTS = ("Conv", "MatMul", "Gemm", "LSTM", "GRU")
# Four times the noise: a file may round in other places than the module has, not in so many more.
_MORE_DB = 12.0


@dataclass(frozen=True)
class _Noise:
    """The noise of the value ``name``, and its ``gain`` where it is the noise of a wrong scale."""

    name: str
    snr_db: float
    gain: float | None


@dataclass(frozen=True)
class Weighed:
    """What the layers of a file cost, in the order of the graph.

    ``suspect`` is much noisier than the others and than its bits explain, and with PyTorch's value in
    its place the output is nearer to PyTorch's; or the output is too noisy, and it is the first that is.
    ``left_db`` is what its bits would leave of the output, where it has much less. ``made_by`` makes
    ``constant`` of what it ``reads``: a weight of that layer that is another one than PyTorch's. ``told``
    is the layer of which is known what became of its weight, and that.
    """

    layers: tuple[LayerCost, ...] = ()
    suspect: LayerCost | None = None
    left_db: float | None = None
    constant: WrongConstant | None = None
    made_by: Node | None = None
    reads: Mapping[str, Array] = field(default_factory=dict)
    told: tuple[LayerCost, str] | None = None


def weigh_layers(subject: Subject, reduced: Reduced, seconds: float) -> Weighed:
    """Return what the layers of a file cost on one case.

    Nothing where nothing could be joined within ``seconds``; raises ``Refusal`` where the module
    does not take the inputs.
    """
    store = ArrayStore(subject.folder / "layers", subject.memory)
    deadline = Deadline(seconds)
    trace = Trace()
    try:
        _record(subject, trace, store)
        graph = read_graph(subject.exported.proto, subject.exported.path)
        runner = Runner(graph, PLAIN, subject.folder)
        walk = QuantisedGraph(graph, runner, trace, subject.graph_inputs)
        feeds = subject.feeds()
        total = join(walk, feeds, deadline)
        origins = Origins(subject)
        layers = [
            _layer(walk, origins, subject, noise, total[noise.name])
            for noise in _local(walk, feeds, deadline)
            if noise.snr_db < QUIET_DB
        ]
        layers = _distinct(layers)
        suspects = _noisy(layers, reduced)
        left_db = unexplained(subject)
        # Behind the first that is wrong others may seem so, with a value taken for another. A fault of
        # several layers is not gone where one of them is right.
        healing = (each for each in suspects if _heals(walk, feeds, subject, each))
        suspect = next(healing, suspects[0] if suspects and left_db is not None else None)
        if suspect is None and not subject.half and _is_lost(walk, subject):
            left_db = _left_by(layers)
        constant = None if suspect is None else _wrong_weight(walk, subject, suspect, deadline)
        made_by = None if constant is None else maker(graph, constant)
        every = {} if made_by is None else {n: runner.value(n, {}) for n in made_by.inputs}
        reads = {n: v for n, v in every.items() if isinstance(v, np.ndarray)}
        return Weighed(tuple(layers), suspect, left_db, constant, made_by, reads)
    except OutOfTime:
        return Weighed()
    finally:
        store.clear()


def _record(subject: Subject, trace: Trace, store: ArrayStore) -> None:
    """Record what the module computes, or the file in its place."""
    module = subject.eager.module
    if isinstance(module, FileModule):
        record_file(subject, module, trace, store)
    else:
        record_module(subject.eager, subject.arrays, trace, store, subject.workspace)


def _distinct(layers: Sequence[LayerCost]) -> list[LayerCost]:
    """Return one cost of each layer, the worst."""
    worst: dict[tuple[str | None, str], LayerCost] = {}
    for layer in layers:
        other = worst.setdefault((layer.module, layer.name), layer)
        if layer.snr_db < other.snr_db:
            worst[layer.module, layer.name] = layer
    return list(worst.values())


def _is_lost(walk: QuantisedGraph, subject: Subject) -> bool:
    """Return whether an output of numbers is none of the module's values, nor near to one."""
    output = subject.exported.proto.graph.output[subject.output]
    floating = output.type.tensor_type.elem_type in (TensorProto.FLOAT, TensorProto.DOUBLE)
    return floating and output.name not in walk.traced


def _left_by(layers: Sequence[LayerCost]) -> float | None:
    """Return the signal to noise that layers leave together, whose noises add up in power."""
    noise = sum(10 ** (-each.snr_db / 10) for each in layers)
    return -10 * math.log10(noise) if 0 < noise < math.inf else None


def _noisy(layers: Sequence[LayerCost], reduced: Reduced) -> list[LayerCost]:
    """Return the layers that are much noisier than most, and than their bits explain, in order."""
    limit = _SUSPECT_DB.get(reduced.how, _SUSPECT_DB.get(reduced.dtype, _FEW_BITS_DB))
    if len(layers) > 1:
        best = sorted(each.snr_db for each in layers)[1:]
        limit = min(limit, statistics.median(best) - _OUTLIER_DB)
    return [each for each in layers if each.snr_db < limit]


def _heals(
    walk: QuantisedGraph, feeds: Mapping[str, Value], subject: Subject, suspect: LayerCost
) -> bool:
    """Return whether the output is nearer to PyTorch's with its value in place of the layer's.

    It is not where the graph has moved factors from one layer to the next, and is right.
    """
    expected = subject.eager.run(subject.arrays).arrays[subject.output]
    output, name = walk.graph.outputs[subject.output], suspect.output
    if name == output:
        return True
    array = walk.traced[name].array
    scale = walk.scale(name)
    healed = {name: array if scale is None else scale.quantised(array)}
    before, after = (
        run_until(walk.runner, feeds, [output], overrides)[output] for overrides in ({}, healed)
    )
    return snr(after, expected) > snr(before, expected) + _HEALED_DB


def _local(
    walk: QuantisedGraph, feeds: Mapping[str, Value], deadline: Deadline
) -> Iterator[_Noise]:
    """Yield the noise of each value that PyTorch has too, made of PyTorch's own values."""
    values: dict[str, Value] = dict(feeds)
    for node in walk.graph.ancestors(walk.graph.outputs):
        if all(map(walk.graph.is_constant, node.outputs)):
            continue
        deadline.check()
        for name, value in walk.runner.run(node, values).items():
            values[name] = value
            traced = walk.traced.get(name)
            numbers = walk.number(name, value)
            if traced is None or numbers is None or walk.is_read_quantised(name):
                continue
            quantised = kind_of(value) != "f"
            if quantised and node.op_type == "QuantizeLinear" and is_restored(walk.graph, name):
                continue
            yield _noise(name, numbers, traced.array)
            scale = walk.scale(name) if quantised else None
            with np.errstate(all="ignore"):
                values[name] = (
                    traced.array.astype(value.dtype)
                    if scale is None
                    else scale.quantised(traced.array)
                )


def _wrong_weight(
    walk: QuantisedGraph, subject: Subject, suspect: LayerCost, deadline: Deadline
) -> WrongConstant | None:
    """Return the weight of a layer with PyTorch's in the place of which most of its noise goes."""
    name, region = suspect.output, _region(walk, suspect.output)
    expected = walk.traced[name].array
    own = {output for node in region for output in node.outputs}
    read = {n for node in region for n in node.inputs if n not in own}
    values = {n: a for n in read if (a := walk.reference(n)) is not None}

    def is_right(made: Mapping[str, Value]) -> bool:
        numbers = walk.number(name, made.get(name))
        return numbers is not None and snr(numbers, expected) > suspect.snr_db + _GAIN_DB

    module = subject.eager.module
    try:
        found = find_constant(walk.runner, region, values, walk.trace, module, is_right, deadline)
    except OutOfTime:  # what the layers cost is known all the same
        return None
    return None if found is None else found[0]


def _layer(
    walk: QuantisedGraph, origins: Origins, subject: Subject, noise: _Noise, total: float
) -> LayerCost:
    name = noise.name
    region = _region(walk, name)
    node = _chief(region)
    traced = walk.traced[name]
    if _is_product(node):
        # What is cut off at zero is the ReLU's; its noise is the product's.
        traced = product_of(walk.trace, traced, CUT_OFF) or traced
    # A folded normalisation's value is made with the weights of the product before it.
    owner = _owner(node, region, subject) if _is_product(node) else None
    fields = origins.fields(node, name, traced)
    return LayerCost(
        **{**fields, "module": owner or fields["module"] or None},
        snr_db=noise.snr_db,
        total_db=total,
        gain=noise.gain,
        source=origins.source(node, name, traced),
    )


def _region(walk: QuantisedGraph, name: str) -> list[Node]:
    """Return the nodes that make a value of what PyTorch has before it, in order."""
    graph = walk.graph

    def is_pytorch_s(read: str) -> bool:
        if read not in walk.traced or walk.is_read_quantised(read):
            return False
        made = graph.producer.get(read)
        quantised = made is not None and made.op_type == "QuantizeLinear"
        return not (quantised and is_restored(graph, read))

    return graph.behind([name], lambda node: [r for r in node.inputs if not is_pytorch_s(r)])


def _chief(region: Sequence[Node]) -> Node:
    """Return the node that a layer is known by: its product, else the last that computes."""
    products = [node for node in region if _is_product(node)]
    others = [n for n in region if n.op_type not in _AROUND]
    return (products or others or list(region))[-1]


def _is_product(node: Node) -> bool:
    return any(product in node.op_type for product in _PRODUCTS)


def _owner(product: Node, region: Sequence[Node], subject: Subject) -> str | None:
    """Return the module whose weights a product reads, where the file has kept their names."""
    made = {name: node for node in region for name in node.outputs}
    reads = list(product.inputs)
    reads += [name for read in product.inputs if read in made for name in made[read].inputs]
    for weight, _ in state.tensors(subject.eager.module):
        if any(read == weight or read.startswith(f"{weight}_") for read in reads):
            return weight.rpartition(".")[0] or None
    return None


def _noise(name: str, actual: Array, expected: Array) -> _Noise:
    db = snr(actual, expected)
    a, e = samples(actual), samples(expected)
    power = float(e @ e)
    if db >= QUIET_DB or not math.isfinite(db) or not power:
        return _Noise(name, db, None)
    gain = float(a @ e) / power
    wrong = abs(gain - 1) > _GAIN and likeness_of_direction(a, e) > db + _GAIN_DB
    return _Noise(name, db, gain if wrong else None)


class RoundedMode(OperatorMode):
    """Run every operator on arguments that are rounded to ``dtype``, in the dtype that they have.

    Numbers beyond its largest become that one, as converters make them of the limits in masks. What
    an operator writes to, or returns a part of, is left alone: it is rounded where it is read.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype, self._most = dtype, torch.finfo(dtype).max

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Round what is only read."""
        arguments = func._schema.arguments
        aliased = {a.name for a in arguments if a.alias_info is not None}
        read = [
            value if argument.name in aliased else pytree.tree_map(self.rounded, value)
            for argument, value in zip(arguments, args, strict=False)
        ]
        named = {
            key: value if key in aliased else pytree.tree_map(self.rounded, value)
            for key, value in kwargs.items()
        }
        return func(*read, **named)

    def rounded(self, value: Any) -> Any:
        """Return a floating-point tensor rounded, and anything else as it is."""
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return value.clamp(-self._most, self._most).to(self._dtype).to(value.dtype)


def unexplained(subject: Subject) -> float | None:
    """Return the signal to noise that half precision leaves, in dB, where the file has much less.

    ``None`` where it has about as much, and where the module does not say.
    """
    metrics = subject.check.metrics
    own = None if metrics is None else metrics.snr_db
    if subject.half is None or own is None or isinstance(subject.eager.module, FileModule):
        return None
    dtype: torch.dtype = getattr(torch, subject.half)
    mode = RoundedMode(dtype)
    try:
        expected = subject.eager.run(subject.arrays).arrays[subject.output]
        _, tensors = subject.eager.run_tensors(subject.arrays, mode=mode)
    except Refusal:
        return None
    rounded = to_array(mode.rounded(tensors[subject.output]))
    left = snr(subject.judged(rounded, subject.arrays, expected), expected)
    # A result that happens to need no more bits does not mean that the next one does not, either.
    left = min(left, -20 * math.log10(torch.finfo(dtype).eps / 2))
    return left if own < left - _MORE_DB else None
