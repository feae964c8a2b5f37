"""ONNX Runtime's error messages: what they say, without status, build paths and C++ names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import onnx.shape_inference
import onnxruntime as ort
from onnx.helper import (
    make_empty_tensor_value_info,
    make_graph,
    make_model,
    make_opsetid,
    make_tensor_value_info,
    tensor_dtype_to_np_dtype,
)

from onnx_gate.findings import codes
from onnx_gate.findings.codes import Code
from onnx_gate.runtimes.base import Refusal
from onnx_gate.text import shortened

_LIMIT = 400
_STATUS = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", re.S)
_RUNNING = re.compile(
    r"^Non-zero status code returned while running (\S+) node\. Name:'(.*?)' Status Message: (.*)$",
    re.S,
)
# Where in ONNX Runtime's source the check stands, its function, and the expression that was false.
_CHECK = re.compile(
    r"^\S*\.(?:cc|h|cu):\d+ (?:.*? was false\. |(?:\w+ )?onnxruntime::\S+\(.*?\) |\w+ )?", re.S
)
_LOADING = re.compile(r"^Load model from .*? failed:", re.S)
_DIMENSIONS = re.compile(r"invalid dimensions for input: (\S+)")
_DIMENSION = re.compile(r"index: (\d+) Got: (\d+) Expected: (\d+)")
_RANK = re.compile(r"Invalid rank for input: (\S+) Got: (\d+) Expected: (\d+)")
_TYPE = re.compile(
    r"Unexpected input data type\. Actual: \((\w+\(\w+\))\) , expected: \((\w+\(\w+\))\)"
)
_BOUNDS = re.compile(r"idx=(-?\d+) must be within the inclusive range \[(-?\d+),(-?\d+)\]")
_ABOUT_SIZES = re.compile(r"reshape|broadcast|dimension|shape|split size|rank", re.I)
_NO_KERNEL = re.compile(
    r"Could not find an implementation for (\w+)\((\d+)\) node with name '(.*?)'"
)
_NODE = re.compile(r"(?:node with name '|in node \()(.+?)['\)]")
# What a kernel says that is there for more dtypes than it computes in, when it is run.
_NO_DTYPE = re.compile(r"operator does not support (\w+) yet")
_DTYPES = {"double": "float64", "float": "float32"}
# What a build without kernels for the processor says.
_NO_PROVIDER = re.compile(r"Provider type for (\w+) node with name '(.*?)' is not set")
_NO_OPERATOR = re.compile(r"Fatal error: (\S+?):(\w+)\(-?\d+\) is not a registered function/op")
_NEWEST = re.compile(r"Current official support for domain ai\.onnx is till opset (\d+)")
_IR_VERSION = re.compile(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)")
_MIXED = re.compile(
    r"\(T\w*\) of Optype \((\w+)\) bound to different types \((.+?) and (.+?) in node"
)
_NOT_TAKEN = re.compile(
    r"Type Error: Type '(.+?)' of input parameter \((.*?)\) of operator \((\w+)\) in node \((.*?)\)"
)


def refusal(error: BaseException) -> Refusal:
    """Return why a run failed: the sizes that the graph insists on, or the node and its words."""
    message, data = _reason(error)
    return Refusal(message, data)


def _reason(error: BaseException) -> tuple[str, dict[str, Any]]:
    text = _bare(error)
    if found := _DIMENSIONS.search(text):
        sizes = _DIMENSION.findall(text)
        if sizes:
            words = [
                f"{got} on axis {axis}, where the graph is made for {expected} only"
                for axis, got, expected in sizes
            ]
            axis, _, expected = sizes[0]
            data = {"input": found[1], "axis": int(axis), "expected": int(expected)}
            return f"the size of {found[1]} is {'; '.join(words)}", data
    if found := _RANK.search(text):
        return f"{found[1]} has {found[2]} axes, where the graph takes {found[3]}", {}
    if found := _TYPE.search(text):
        return f"an input is a {found[1]}, where the graph takes a {found[2]}", {}
    if found := _RUNNING.match(text):
        words_of_node = _one_line(_CHECK.sub("", found[3]))
        if unable := _NO_DTYPE.search(words_of_node):
            lacking = _no_kernel(found[1], [_DTYPES.get(unable[1], unable[1])], found[2])
            return lacking.message, dict(lacking.data)
        message = shortened(f"running {found[1]} {found[2]!r}: {words_of_node}", _LIMIT)
        return message, _given_up(found[1], found[2], words_of_node)
    return shortened(_one_line(text), _LIMIT), {}


def _given_up(op_type: str, node: str, words: str) -> dict[str, Any]:
    """Return as values what a node says when it gives up."""
    data: dict[str, Any] = {"op_type": op_type, "node": node, "words": shortened(words, _LIMIT)}
    if bounds := _BOUNDS.search(words):
        data |= dict(zip(("index", "low", "high"), map(int, bounds.groups()), strict=True))
    return data | {"sizes": bool(_ABOUT_SIZES.search(words))}


@dataclass(frozen=True)
class LoadProblem:
    """Why a model does not load: OG202 or OG303, a sentence, and as values what it says.

    ``data`` has the ``node``, where its name is said, and of a kernel that is missing the ``operator``
    and the ``dtypes`` of its inputs.
    """

    code: Code
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)


def load_problem(error: BaseException, model: Path, version: str, provider: str) -> LoadProblem:
    """Return why a model does not load, of what the engine says."""
    text = _LOADING.sub("", _bare(error))
    found = _NODE.search(text)
    node = {} if found is None else {"node": found[1]}
    if found := _NO_KERNEL.search(text):
        dtypes = _dtypes(model, found[3], found[1])
        return _no_kernel(found[1], dtypes, found[3], f" on {provider}", f" (opset {found[2]})")
    if found := _NO_PROVIDER.search(text):
        dtypes = _dtypes(model, found[2], found[1])
        return _no_kernel(found[1], dtypes, found[2], f" on {provider}")
    if found := _NOT_TAKEN.search(text):
        return _not_taken(model, provider, *found.groups())
    return LoadProblem(*_refused_file(text, version), node)


def _refused_file(text: str, version: str) -> tuple[Code, str]:
    if found := _NO_OPERATOR.search(text):
        return codes.OG202, (
            f"it does not know {found[2]} of the domain {found[1]!r}: define it as a function of the "
            "model, or write it with ONNX's own operators"
        )
    if found := _NEWEST.search(text):
        return codes.OG303, (
            f"ONNX Runtime {version} reads opsets up to {found[1]}, and the file has a newer one: "
            f"ask for it, export: {{opset: {found[1]}}}, or install a newer ONNX Runtime"
        )
    if found := _IR_VERSION.search(text):
        return codes.OG303, (
            f"ONNX Runtime {version} reads IR versions up to {found[2]}, and the file has "
            f"{found[1]}: save it with model.ir_version = {found[2]}, or install a newer ONNX Runtime"
        )
    if found := _MIXED.search(text):
        return codes.OG303, (
            f"the model does not load: {found[1]} is given a {found[2]} and a {found[3]}; ONNX "
            "promotes no types, so convert one of them where the graph is made"
        )
    return (
        codes.OG303,
        f"the model does not load: {shortened(_one_line(_CHECK.sub('', text)), _LIMIT)}",
    )


def _no_kernel(
    operator: str, dtypes: Sequence[str], name: str, provider: str = "", opset: str = ""
) -> LoadProblem:
    kind = f" in {' and '.join(dtypes)}" if dtypes else ""
    node = f", node {name!r}" if name else ""
    return LoadProblem(
        codes.OG202,
        f"it has no kernel for {operator}{opset}{kind}{provider}{node}",
        {"operator": operator, "dtypes": list(dtypes), **({"node": name} if name else {})},
    )


def _bare(error: BaseException) -> str:
    return _STATUS.sub("", str(error).strip()) or type(error).__name__


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _not_taken(
    model: Path, provider: str, given: str, value: str, op_type: str, name: str
) -> LoadProblem:
    """Return what an operator is given that ONNX does not define it for, and what it may be given.

    Where a later opset does define it and the engine has no kernel for that, this is what it lacks.
    """
    kind = _bare_type(given)
    invalid, where = (
        f"the file is not valid ONNX: {op_type}",
        f"and node {name!r} is given {value!r}",
    )
    data = {"node": name}
    try:
        proto = onnx.load(str(model), load_external_data=False)
        node = next(
            each
            for each in proto.graph.node
            if (each.op_type, each.name) == (op_type, name) and value in each.input
        )
        place = [*node.input].index(value)
        written = max(each.version for each in proto.opset_import if each.domain in ("", "ai.onnx"))
        opsets = range(written, onnx.defs.onnx_opset_version() + 1)
        every = [onnx.defs.get_schema(op_type, opset).inputs for opset in opsets]
    except Exception:  # only words of the message depend on it
        return LoadProblem(codes.OG303, f"{invalid} takes no {kind} there, {where}", data)
    formals = [inputs[min(place, len(inputs) - 1)] for inputs in every]
    later = next((n for n, each in zip(opsets, formals, strict=True) if given in each.types), None)
    if later is not None and _lacks_kernel(node, _kinds(proto), later, provider):
        dtypes = [_DTYPES.get(kind, kind)]
        return _no_kernel(op_type, dtypes, name, f" on {provider}", f" (opset {later})")
    kinds = " or ".join(sorted(map(_bare_type, formals[0].types)))
    more = (
        f"takes {kinds}"
        if later is None
        else f"does from opset {later} on: export: {{opset: {later}}}"
    )
    return LoadProblem(
        codes.OG303,
        f"{invalid} of opset {written} takes no {kind} as its {formals[0].name}, {where}; it {more}",
        data,
    )


def _lacks_kernel(
    node: onnx.NodeProto, kinds: Mapping[str, int], opset: int, provider: str
) -> bool:
    """Return whether the engine says so of a node alone, at another opset."""
    try:
        inputs = [make_tensor_value_info(n, kinds[n], None) for n in dict.fromkeys(node.input) if n]
        outputs = [make_empty_tensor_value_info(n) for n in node.output if n]
        graph = make_graph([node], "node", inputs, outputs)
        model = make_model(graph, opset_imports=[make_opsetid("", opset)], ir_version=10)
        ort.InferenceSession(model.SerializeToString(), providers=[provider])
    except Exception as error:
        return _NO_KERNEL.search(str(error)) is not None
    return False


def _bare_type(name: str) -> str:
    return name.removeprefix("tensor(").removesuffix(")")


def _dtypes(model: Path, name: str, op_type: str) -> list[str]:
    """Return the dtypes of a node's inputs, each once, as far as the file declares or implies them."""
    try:
        proto = onnx.load(str(model), load_external_data=False)
        kinds = _kinds(proto)
    except Exception:  # only a word of the message depends on it
        return []
    node = next((n for n in proto.graph.node if n.op_type == op_type and n.name == name), None)
    if node is None:
        return []
    found = [str(tensor_dtype_to_np_dtype(kinds[i])) for i in node.input if kinds.get(i)]
    return list(dict.fromkeys(found))


def _kinds(proto: onnx.ModelProto) -> dict[str, int]:
    graph = onnx.shape_inference.infer_shapes(proto).graph
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info)}
    return kinds | {tensor.name: tensor.data_type for tensor in graph.initializer}
