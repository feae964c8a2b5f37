"""A model whose reference is an ONNX file: what its inputs are, and what the file says of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx.helper import tensor_dtype_to_np_dtype

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.graph.constants import stored_bytes
from onnx_gate.manifest import DTYPES, FilesSuite, GeneratorSuite, InputSpec, ModelSpec
from onnx_gate.manifest.roles import default_sizes
from onnx_gate.manifest.values import shapes
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.file_module import FileModule
from onnx_gate.runtimes.torch_eager import to_tensor
from onnx_gate.verify.onnx_file import read_model
from onnx_gate.verify.reference.evaluate import Around, Evaluator
from onnx_gate.verify.reference.onnx_rounding import run_node_moved
from onnx_gate.verify.reference.perturb import MovedRounding

# The evaluator is not asked about files with more weights than this, and given up after a time.
EVALUATOR_BYTES = 512 * 2**20
EVALUATOR_SECONDS = 20.0


def with_file_inputs(spec: ModelSpec, workspace: Path) -> ModelSpec:
    """Return a model with the inputs of its reference file where the manifest names none.

    Raises ``GateError`` (OG130) where the file does not say enough of them.
    """
    if spec.reference is None or spec.inputs:
        return spec
    inputs = dict(_inputs_of(read_model(workspace / spec.reference, spec.reference), spec))
    used = {dim for each in inputs.values() for dim in each.shape if isinstance(dim, str)}
    usual = default_sizes(inputs)
    return replace(
        spec,
        inputs=inputs,
        dims={dim: spec.dims.get(dim, usual[dim]) for dim in sorted(used)},
        named_dims=frozenset(used & spec.dims.keys()),
    )


def _inputs_of(proto: onnx.ModelProto, spec: ModelSpec) -> Iterator[tuple[str, InputSpec]]:
    drawn = not spec.suites or any(
        not isinstance(suite, FilesSuite | GeneratorSuite) for suite in spec.suites.values()
    )
    lacking = []
    for value in _graph_inputs(proto):
        tensor = value.type.tensor_type
        where = f"the input {value.name!r} of {spec.reference}"
        if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
            raise codes.OG130.error(
                f"{where} has no shape in the file: name the inputs under 'inputs'"
            )
        dtype = np.dtype(tensor_dtype_to_np_dtype(tensor.elem_type)).name
        if dtype not in DTYPES:
            raise codes.OG130.error(f"{where} is of {dtype}, of which no values can be drawn")
        shape = tuple(
            size.dim_value if size.dim_value else _dimension(size.dim_param, value.name, axis)
            for axis, size in enumerate(tensor.shape.dim)
        )
        if dtype in shapes.INTEGER_BOUNDS and drawn:
            lacking.append((value.name, dtype, shape))
        yield value.name, InputSpec(dtype, shape)
    if lacking:
        lines = ", ".join(
            f"{name}: {shapes.suggestion(kind, shape)}" for name, kind, shape in lacking
        )
        raise codes.OG130.error(
            f"{spec.reference} does not say which values its integer inputs may take: name all of its "
            f"inputs under 'inputs', such as {lines}"
        )


def _dimension(name: str, of: str, axis: int) -> str:
    """Return a name that a manifest may have for a dynamic dimension of a file."""
    return name if name.isidentifier() and name.isascii() else f"{_word(of)}_{axis}"


def _word(name: str) -> str:
    word = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    return word if word[:1].isalpha() or word[:1] == "_" else f"input_{word}"


def _graph_inputs(proto: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    stored = {tensor.name for tensor in proto.graph.initializer}
    return [value for value in proto.graph.input if value.name not in stored]


def open_file(spec: ModelSpec, workspace: Path) -> FileModule:
    """Load the reference file; raises ``GateError`` (OG130) where it cannot stand for a model."""
    assert spec.reference is not None
    path = workspace / spec.reference
    proto = read_model(path, spec.reference)
    wanted = [value.name for value in _graph_inputs(proto)]
    names = list(spec.inputs)
    if set(wanted) == set(names):
        joined = {name: name for name in names}
    elif len(wanted) == len(names) and not set(wanted) & set(names):
        joined = dict(zip(names, wanted, strict=True))
    else:
        raise codes.OG130.error(
            f"{spec.reference} takes the inputs {', '.join(wanted) or '(none)'}, and the manifest "
            f"names {', '.join(names) or 'none'}: write the names that the file has"
        )
    module = FileModule(path, joined)
    try:
        module.session  # noqa: B018
    except GateError as error:
        raise codes.OG130.error(
            f"{spec.reference}, which the file is held against, does not load: {error.message}"
        ) from error
    return module


def run_float64(
    module: FileModule, inputs: Mapping[str, Array]
) -> tuple[tuple[str, ...], tuple[torch.Tensor, ...]] | None:
    """Return the outputs of the file in float64, ``None`` where it cannot be evaluated so."""
    arrays = _evaluate(module, inputs, wide=True)
    if arrays is None:
        return None
    names = tuple(value.name for value in module.session.outputs)
    return names, tuple(to_tensor(array) for array in arrays)


def run_moved(
    module: FileModule, inputs: Mapping[str, Array], mode: MovedRounding
) -> tuple[Array, ...] | None:
    """Return the outputs of the file with the rounding of its operators moved, or ``None``."""

    def around(
        node: onnx.NodeProto, given: Sequence[Any], run: Callable[[Sequence[Any]], Sequence[Any]]
    ) -> Sequence[Any]:
        made: list[Any] = mode.decide(node.op_type, list(run_node_moved(mode, node, given, run)))
        return made

    return _evaluate(module, inputs, wide=False, around=around)


def _evaluate(
    module: FileModule, inputs: Mapping[str, Array], *, wide: bool, around: Around | None = None
) -> tuple[Array, ...] | None:
    evaluator = _evaluator(module.path, wide)
    if evaluator is None:
        return None
    feeds = module.feeds([inputs[name] for name in module.inputs])
    try:
        return evaluator.run(feeds, EVALUATOR_SECONDS, around)
    except Exception:  # whatever an operator of the evaluator raises
        return None


@functools.lru_cache(maxsize=4)
def _evaluator(path: Path, wide: bool) -> Evaluator | None:
    try:
        proto = onnx.load(str(path), load_external_data=False)
        if stored_bytes(proto) > EVALUATOR_BYTES:
            return None
        return Evaluator(path, wide=wide)
    except Exception:  # an operator that the evaluator does not know
        return None
