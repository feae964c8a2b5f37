"""Faults, each a function that changes an exported graph in place and says what it did.

Every fault leaves a valid graph that ONNX Runtime loads. One that finds nothing to change in a
graph raises ``DoesNotApply``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

from benchmarks.accuracy.fault_graph import DoesNotApply, Graph, attribute, middle, set_attribute


@dataclass(frozen=True)
class Fault:
    """``seed`` edits the graph; ``unfolded`` asks for the graph exported with ``optimize=False``,
    in which batch norms are still nodes."""

    name: str
    seed: Callable[[Graph], str]
    unfolded: bool = False


def epsilon(factor: float, only_first: bool = False) -> Callable[[Graph], str]:
    """Scale the epsilon of the norms."""

    def seed(graph: Graph) -> str:
        norms = graph.nodes("LayerNormalization", "BatchNormalization")
        for node in norms[: 1 if only_first else None]:
            set_attribute(node, "epsilon", attribute(node, "epsilon") * factor)
        return f"epsilon of {'one' if only_first else len(norms)} {norms[0].op_type} x{factor:g}"

    return seed


def transpose_square_weight(graph: Graph) -> str:
    for name in graph.weights():
        array = graph.array(name)
        if array.ndim == 2 and array.shape[0] == array.shape[1]:
            graph.store(name, np.ascontiguousarray(array.T))
            return f"{name} {list(array.shape)} transposed"
    raise DoesNotApply("no square matrix")


def transpose_kernel(graph: Graph) -> str:
    kernels = [n for n in graph.weights() if graph.array(n).ndim == 4]
    kernels = [n for n in kernels if graph.array(n).shape[-1] > 1]
    if not kernels:
        raise DoesNotApply("no kernel")
    name = middle(kernels)
    graph.store(name, np.ascontiguousarray(graph.array(name).swapaxes(2, 3)))
    return f"height and width of {name} exchanged"


def drop_bias(graph: Graph) -> str:
    name = middle(graph.biases())
    graph.store(name, np.zeros_like(graph.array(name)))
    return f"{name} set to zero"


def change_gelu(only_last: bool) -> Callable[[Graph], str]:
    def seed(graph: Graph) -> str:
        nodes = graph.nodes("Gelu")[-1:] if only_last else graph.nodes("Gelu")
        for node in nodes:
            other = "none" if attribute(node, "approximate") == b"tanh" else "tanh"
            set_attribute(node, "approximate", other)
        return f"{len(nodes)} Gelu to approximate={other}"

    return seed


def softmax_axis(graph: Graph) -> str:
    node = middle(graph.nodes("Softmax"))
    set_attribute(node, "axis", -2)
    return f"{node.name} over axis -2"


def drop_residual(graph: Graph) -> str:
    born = {o: i for i, n in enumerate(graph.model.graph.node) for o in n.output}
    adds = [n for n in graph.nodes("Add") if all(i in born for i in n.input)]
    if not adds:
        raise DoesNotApply("no residual")
    node = adds[-1]
    branch = max(node.input, key=lambda name: born[name])
    node.op_type = "Identity"
    node.input[:] = [branch]
    return f"{node.name} passes {branch} only"


def halve_largest(which: str) -> Callable[[Graph], str]:
    def seed(graph: Graph) -> str:
        names = graph.weights()
        name = names[-1] if which == "last" else names[0] if which == "first" else middle(names)
        array = graph.array(name)
        array.flat[int(np.abs(array).argmax())] *= 0.5
        graph.store(name, array)
        return f"largest of {array.size} elements of {name} halved"

    return seed


def round_weights(dtype: Any, label: str) -> Callable[[Graph], str]:
    def seed(graph: Graph) -> str:
        for name in graph.weights():
            graph.store(name, graph.array(name).astype(dtype).astype(np.float32))
        return f"all weights rounded to {label}"

    return seed


def round_to_int8(graph: Graph) -> str:
    for name in graph.weights():
        array = graph.array(name)
        step = np.float32(np.abs(array).max() / 127)
        graph.store(name, (array / step).round() * step)
    return "all weights rounded to 255 levels"


def resize(name: str, value: str) -> Callable[[Graph], str]:
    def seed(graph: Graph) -> str:
        for node in graph.nodes("Resize"):
            set_attribute(node, name, value)
        return f"Resize {name}={value}"

    return seed


def shift_pads(*types: str) -> Callable[[Graph], str]:
    def seed(graph: Graph) -> str:
        padded = [n for n in graph.nodes(*types) if attribute(n, "pads")[0] > 0]
        if not padded:
            raise DoesNotApply("no pads")
        node = middle(padded)
        pads = list(attribute(node, "pads"))
        half = len(pads) // 2
        pads[0], pads[half] = pads[0] - 1, pads[half] + 1
        set_attribute(node, "pads", pads)
        return f"{node.name} pads {pads}"

    return seed


def pad_mode(graph: Graph) -> str:
    node = graph.nodes("Pad")[0]
    set_attribute(node, "mode", "edge")
    return f"{node.name} reflect to edge"


def swap_input_channels(graph: Graph) -> str:
    name = graph.nodes("Conv")[0].input[1]
    array = graph.array(name)
    if array.shape[1] != 3:
        raise DoesNotApply("not an image")
    graph.store(name, np.ascontiguousarray(array[:, ::-1]))
    return f"channels of {name} reversed"


def third_digit(op_type: str) -> Callable[[Graph], str]:
    """One channel of the constant of the first ``Sub`` or ``Div`` off by 0.001."""

    def seed(graph: Graph) -> str:
        name = graph.nodes(op_type)[0].input[1]
        array = graph.array(name)
        if array.size != 3:
            raise DoesNotApply("no normalisation")
        array.flat[1] += np.float32(0.001)
        graph.store(name, array)
        return f"{name}[1] + 0.001"

    return seed


def insert_float16(graph: Graph) -> str:
    nodes = graph.model.graph.node
    node = middle(graph.nodes("Conv", "MatMul"))
    value = node.output[0]
    place = list(nodes).index(node) + 1
    graph.rename_input(value, f"{value}_wide", node)
    down = helper.make_node("Cast", [value], [f"{value}_half"], to=onnx.TensorProto.FLOAT16)
    up = helper.make_node("Cast", [f"{value}_half"], [f"{value}_wide"], to=onnx.TensorProto.FLOAT)
    nodes.insert(place, up)
    nodes.insert(place, down)
    return f"{value} through float16"


def gather_next(graph: Graph) -> str:
    for node in graph.nodes("Gather"):
        if node.input[1] in graph.tensors:
            graph.store(node.input[1], graph.array(node.input[1]) + 1)
            return f"{node.name} index + 1"
    raise DoesNotApply("no constant index")


def shift_positions(graph: Graph) -> str:
    node = graph.nodes("Slice")[0]
    last = node.output[0]
    array = graph.array(node.input[0])
    graph.store(node.input[0], np.roll(array, 1, axis=0))
    return f"rows behind {last} rolled by one"


def skip_transpose(graph: Graph) -> str:
    readers = {i: n.op_type for n in graph.model.graph.node for i in n.input}
    for node in graph.nodes("Transpose"):
        if readers.get(node.output[0]) == "Reshape":
            perm = attribute(node, "perm")
            set_attribute(node, "perm", sorted(perm))
            return f"{node.name} perm {list(perm)} to {sorted(perm)}"
    raise DoesNotApply("no Transpose before a Reshape")


def reduce_axes(graph: Graph) -> str:
    node = graph.nodes("ReduceMean")[0]
    axes = graph.array(node.input[1])
    graph.store(node.input[1], axes - 1)
    return f"{node.name} axes {axes.tolist()} to {(axes - 1).tolist()}"


def mean_to_max(graph: Graph) -> str:
    node = graph.nodes("ReduceMean")[0]
    node.op_type = "ReduceMax"
    return f"{node.name} to ReduceMax"


def leaky_slope(value: float) -> Callable[[Graph], str]:
    def seed(graph: Graph) -> str:
        for node in graph.nodes("LeakyRelu"):
            set_attribute(node, "alpha", value)
        return f"LeakyRelu alpha={value:g}"

    return seed


def clip_bound(place: int, shift: float) -> Callable[[Graph], str]:
    def seed(graph: Graph) -> str:
        name = graph.nodes("Clip")[0].input[place]
        graph.store(name, (graph.array(name) + shift).astype(np.float32))
        return f"Clip {'lower' if place == 1 else 'upper'} bound {shift:+g}"

    return seed


def attention_scale(graph: Graph) -> str:
    for node in graph.nodes("Div", "Mul"):
        if node.input[1] in graph.tensors and graph.array(node.input[1]).size == 1:
            value = graph.array(node.input[1])
            graph.store(node.input[1], (value * math.sqrt(2)).astype(np.float32))
            return f"{node.name} by {float(value) * math.sqrt(2):.4g}, not {float(value):.4g}"
    raise DoesNotApply("no scale")


def last_layer_noise(size: float) -> Callable[[Graph], str]:
    def seed(graph: Graph) -> str:
        name = graph.weights()[-1]
        array = graph.array(name)
        random = np.random.default_rng(0).standard_normal(array.shape)
        graph.store(name, (array * (1 + size * random)).astype(np.float32))
        return f"{name} x (1 + {size:g} normal)"

    return seed


def flip_count_include_pad(graph: Graph) -> str:
    node = graph.nodes("AveragePool")[0]
    set_attribute(node, "count_include_pad", 1 - attribute(node, "count_include_pad"))
    return f"{node.name} count_include_pad flipped"


def swap_statistics(graph: Graph) -> str:
    node = middle(graph.nodes("BatchNormalization"))
    node.input[3], node.input[4] = node.input[4], node.input[3]
    return f"{node.name}: mean and variance exchanged"


def unbiased_variance(graph: Graph) -> str:
    node = middle(graph.nodes("BatchNormalization"))
    name = node.input[4]
    graph.store(name, (graph.array(name) * np.float32(512 / 511)).astype(np.float32))
    return f"{name} x 512/511"


def swap_layers(graph: Graph) -> str:
    names = graph.weights()
    for first, second in pairwise(names):
        a, b = graph.array(first), graph.array(second)
        if a.shape == b.shape:
            graph.store(first, b)
            graph.store(second, a)
            return f"{first} and {second} exchanged"
    raise DoesNotApply("no two equal shapes")


def prune_channel(graph: Graph) -> str:
    name = middle(graph.weights())
    array = graph.array(name)
    if array.ndim == 4:
        array[-1] = 0
    else:
        array[:, -1] = 0
    graph.store(name, array)
    return f"last output channel of {name} set to zero"


def replace_activation(new: str) -> Callable[[Graph], str]:
    def seed(graph: Graph) -> str:
        node = middle(graph.nodes("Relu"))
        node.op_type = new
        if new == "LeakyRelu":
            set_attribute(node, "alpha", 0.01)
        return f"{node.name} to {new}"

    return seed


def pool_to_average(graph: Graph) -> str:
    node = graph.nodes("MaxPool")[0]
    kept = [a for a in node.attribute if a.name in ("kernel_shape", "pads", "strides")]
    node.op_type = "AveragePool"
    del node.attribute[:]
    node.attribute.extend(kept)
    return f"{node.name} to AveragePool"


def roll_classes(graph: Graph) -> str:
    name = graph.biases()[-1]
    graph.store(name, np.roll(graph.array(name), 1))
    return f"{name} rolled by one"


def change_element(seed_number: int, factor: float) -> Callable[[Graph], str]:
    """Scale one element: the tensor is drawn first, then its element."""

    def seed(graph: Graph) -> str:
        random = np.random.default_rng(seed_number)
        name = str(random.choice(sorted(graph.parameters())))
        array = graph.array(name)
        place = int(random.integers(array.size))
        array.flat[place] *= np.float32(factor)
        graph.store(name, array)
        return f"{name}[{place}] of {array.size} x{factor:g}"

    return seed


def all_faults() -> Iterator[Fault]:
    """Every fault but those of the sweep."""
    yield Fault("epsilon_x10", epsilon(10.0), unfolded=True)
    yield Fault("epsilon_x1.5", epsilon(1.5), unfolded=True)
    yield Fault("epsilon_x10_one_node", epsilon(10.0, only_first=True), unfolded=True)
    yield Fault("mean_variance_swapped", swap_statistics, unfolded=True)
    yield Fault("unbiased_variance", unbiased_variance, unfolded=True)
    yield Fault("square_weight_transposed", transpose_square_weight)
    yield Fault("kernel_transposed", transpose_kernel)
    yield Fault("bias_dropped", drop_bias)
    yield Fault("gelu_tanh", change_gelu(only_last=False))
    yield Fault("gelu_tanh_last_only", change_gelu(only_last=True))
    yield Fault("softmax_axis", softmax_axis)
    yield Fault("residual_dropped", drop_residual)
    yield Fault("largest_halved_first_layer", halve_largest("first"))
    yield Fault("largest_halved_middle_layer", halve_largest("middle"))
    yield Fault("largest_halved_last_layer", halve_largest("last"))
    yield Fault("weights_bfloat16", round_weights(ml_dtypes.bfloat16, "bfloat16"))
    yield Fault("weights_float16", round_weights(np.float16, "float16"))
    yield Fault("weights_int8", round_to_int8)
    yield Fault("resize_cubic", resize("mode", "cubic"))
    yield Fault("resize_nearest", resize("mode", "nearest"))
    yield Fault("resize_align_corners", resize("coordinate_transformation_mode", "align_corners"))
    yield Fault("resize_asymmetric", resize("coordinate_transformation_mode", "asymmetric"))
    yield Fault("conv_pads_shifted", shift_pads("Conv"))
    yield Fault("pool_pads_shifted", shift_pads("MaxPool", "AveragePool"))
    yield Fault("pad_mode", pad_mode)
    yield Fault("input_channels_swapped", swap_input_channels)
    yield Fault("mean_third_digit", third_digit("Sub"))
    yield Fault("std_third_digit", third_digit("Div"))
    yield Fault("cast_float16_inserted", insert_float16)
    yield Fault("gather_off_by_one", gather_next)
    yield Fault("positions_off_by_one", shift_positions)
    yield Fault("transpose_skipped", skip_transpose)
    yield Fault("reduce_axes", reduce_axes)
    yield Fault("mean_to_max", mean_to_max)
    yield Fault("leaky_slope_0.11", leaky_slope(0.11))
    yield Fault("leaky_slope_default", leaky_slope(0.01))
    yield Fault("clip_upper_6.1", clip_bound(2, 0.1))
    yield Fault("clip_lower_-0.01", clip_bound(1, -0.01))
    yield Fault("scale_sqrt2", attention_scale)
    yield Fault("last_layer_noise_1e-3", last_layer_noise(1e-3))
    yield Fault("last_layer_noise_1e-4", last_layer_noise(1e-4))
    yield Fault("last_layer_noise_1e-5", last_layer_noise(1e-5))
    yield Fault("count_include_pad", flip_count_include_pad)
    yield Fault("layers_exchanged", swap_layers)
    yield Fault("channel_pruned", prune_channel)
    yield Fault("relu_to_leaky", replace_activation("LeakyRelu"))
    yield Fault("relu_dropped", replace_activation("Identity"))
    yield Fault("max_pool_to_average", pool_to_average)
    yield Fault("last_bias_rolled", roll_classes)
