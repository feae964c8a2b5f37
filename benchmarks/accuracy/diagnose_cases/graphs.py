"""Mistakes as exporters, converters and people make them, each seeded into a graph in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
Seed = Callable[[onnx.ModelProto], None]


def graphs(model: onnx.ModelProto) -> Iterator[Any]:
    """The graph, the graphs inside its nodes and the model's functions."""
    pending: list[Any] = [model.graph, *model.functions]
    while pending:
        graph = pending.pop(0)
        yield graph
        for node in graph.node:
            pending.extend(a.g for a in node.attribute if a.HasField("g"))


def find(model: onnx.ModelProto, op: str, place: int = 0) -> onnx.NodeProto:
    """The node of this type with this place among them, subgraphs last."""
    found = [n for graph in graphs(model) for n in graph.node if n.op_type == op]
    return found[place]


def attribute(op: str, place: int = 0, **values: Any) -> Seed:
    """Set attributes of a node; ``None`` removes one."""

    def seed(model: onnx.ModelProto) -> None:
        node = find(model, op, place)
        kept = [a for a in node.attribute if a.name not in values]
        new = [helper.make_attribute(k, v) for k, v in values.items() if v is not None]
        del node.attribute[:]
        node.attribute.extend([*kept, *new])

    return seed


def everywhere(op: str, **values: Any) -> Seed:
    """Set attributes of every node of a type."""

    def seed(model: onnx.ModelProto) -> None:
        count = sum(n.op_type == op for graph in graphs(model) for n in graph.node)
        for place in range(count):
            attribute(op, place, **values)(model)

    return seed


def value(model: onnx.ModelProto, name: str) -> Array:
    """A constant: an initializer, or the output of a Constant."""
    for tensor in model.graph.initializer:
        if tensor.name == name:
            return numpy_helper.to_array(tensor).copy()
    for graph in graphs(model):
        for node in graph.node:
            if node.op_type == "Constant" and node.output[0] == name:
                return numpy_helper.to_array(node.attribute[0].t).copy()
    raise KeyError(name)


def constant(op: str, place: int, which: int, change: Callable[[Array], Any]) -> Seed:
    """Give one node a changed copy of a constant that it reads."""

    def seed(model: onnx.ModelProto) -> None:
        node = find(model, op, place)
        before = value(model, node.input[which])
        name = f"{node.input[which]}_copy"
        array = np.ascontiguousarray(np.asarray(change(before)).astype(before.dtype))
        model.graph.initializer.append(numpy_helper.from_array(array, name))
        node.input[which] = name

    return seed


def weight(name: str, change: Callable[[Array], Any]) -> Seed:
    """Change an initializer in place, for all that read it."""

    def seed(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            if tensor.name == name:
                before = numpy_helper.to_array(tensor)
                array = np.ascontiguousarray(np.asarray(change(before)).astype(before.dtype))
                tensor.CopyFrom(numpy_helper.from_array(array, name))
                return
        raise KeyError(name)

    return seed


def replace(op: str, place: int, new: str, **values: Any) -> Seed:
    """Put another operator in a node's place; it keeps the first input only."""

    def seed(model: onnx.ModelProto) -> None:
        node = find(model, op, place)
        node.op_type = new
        node.domain = ""
        del node.input[1:]
        del node.attribute[:]
        node.attribute.extend(helper.make_attribute(k, v) for k, v in values.items())

    return seed


def turn(op: str, place: int, new: str) -> Seed:
    """Put another operator in a node's place with the same inputs and attributes."""

    def seed(model: onnx.ModelProto) -> None:
        find(model, op, place).op_type = new

    return seed


def swap_inputs(op: str, place: int = 0, first: int = 0, second: int = 1) -> Seed:
    """Exchange two inputs of a node."""

    def seed(model: onnx.ModelProto) -> None:
        node = find(model, op, place)
        node.input[first], node.input[second] = node.input[second], node.input[first]

    return seed


def insert_cast(op: str, place: int, which: int, to: int) -> Seed:
    """Round one input of a node to another type and back."""

    def seed(model: onnx.ModelProto) -> None:
        node = find(model, op, place)
        name = node.input[which]
        at = list(model.graph.node).index(node)
        back = onnx.TensorProto.FLOAT
        up = helper.make_node("Cast", [f"{name}_narrow"], [f"{name}_back"], "back", to=back)
        down = helper.make_node("Cast", [name], [f"{name}_narrow"], "narrow", to=to)
        node.input[which] = f"{name}_back"
        model.graph.node.insert(at, up)
        model.graph.node.insert(at, down)

    return seed


def into_function(names: Iterable[str], function: str) -> Seed:
    """Move the nodes that compute these values into a function of the model's own."""
    wanted = set(names)

    def seed(model: onnx.ModelProto) -> None:
        chosen = [n for n in model.graph.node if wanted & set(n.output)]
        made = {o for n in chosen for o in n.output}
        inputs = list(dict.fromkeys(i for n in chosen for i in n.input if i and i not in made))
        rest = [n for n in model.graph.node if not any(n is c for c in chosen)]
        later = {i for n in rest for i in n.input} | {v.name for v in model.graph.output}
        outputs = [o for n in chosen for o in n.output if o in later]
        at = list(model.graph.node).index(chosen[-1]) - len(chosen) + 1
        body = [onnx.NodeProto.FromString(n.SerializeToString()) for n in chosen]
        model.functions.append(
            helper.make_function("own", function, inputs, outputs, body, model.opset_import)
        )
        for node in chosen:
            model.graph.node.remove(node)
        call = helper.make_node(function, inputs, outputs, f"call_{function}", domain="own")
        model.graph.node.insert(at, call)
        model.opset_import.append(helper.make_opsetid("own", 1))

    return seed


def several(*seeds: Seed) -> Seed:
    """One after the other."""

    def seed(model: onnx.ModelProto) -> None:
        for each in seeds:
            each(model)

    return seed


def nothing(model: onnx.ModelProto) -> None:
    """Leave the graph alone: the export is wrong as it is."""


def strip(model: onnx.ModelProto) -> None:
    """Remove what an exporter says about where nodes come from."""
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    del model.graph.value_info[:]
    for graph in graphs(model):
        for node in graph.node:
            del node.metadata_props[:]
            node.doc_string = ""


def rename(model: onnx.ModelProto) -> None:
    """Call all values ``v0``, ``v1``, ... and all nodes ``n0``, ``n1``, ...; keep in- and outputs."""
    kept = {v.name for v in (*model.graph.input, *model.graph.output)}
    names: dict[str, str] = {"": ""}

    def new(name: str) -> str:
        if name in kept:
            return name
        return names.setdefault(name, f"v{len(names)}")

    count = 0
    for graph in graphs(model):
        if isinstance(graph, onnx.FunctionProto):
            continue
        for value_info in (*graph.input, *graph.output):
            value_info.name = new(value_info.name)
        for tensor in graph.initializer:
            tensor.name = new(tensor.name)
        for node in graph.node:
            node.name = f"n{count}"
            count += 1
            node.input[:] = [new(i) for i in node.input]
            node.output[:] = [new(o) for o in node.output]
