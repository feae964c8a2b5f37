"""Committed files in fewer bits than their checkpoint, block by block."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.transformers.float16 import convert_float_to_float16

from onnx_gate.diagnose.blocks import locate
from onnx_gate.manifest.load import load
from onnx_gate.report.model import ModelResult
from onnx_gate.verify.context import Context
from onnx_gate.verify.verify import verify
from tests.support.blocks_project import committed


def int4(proto: onnx.ModelProto) -> list[str]:
    quantizer = MatMulNBitsQuantizer(proto, block_size=16, is_symmetric=False)
    quantizer.process()
    proto.CopyFrom(quantizer.model.model)
    return [node.input[2] for node in proto.graph.node if node.op_type == "MatMulNBits"]


def int8(proto: onnx.ModelProto) -> list[str]:
    stored = {tensor.name: tensor for tensor in proto.graph.initializer}
    scales = []
    for place, node in reversed([*enumerate(proto.graph.node)]):
        name = node.input[1] if node.op_type == "MatMul" else ""
        if name in stored:
            wide = numpy_helper.to_array(stored[name])
            scale = np.abs(wide).max(axis=0) / 127
            short = np.rint(wide / scale).astype(np.int8)
            stored[name].CopyFrom(numpy_helper.from_array(short, f"{name}_short"))
            scales.insert(0, f"{name}_scale")
            proto.graph.initializer.append(numpy_helper.from_array(scale, scales[0]))
            read = helper.make_node("DequantizeLinear", [f"{name}_short", scales[0]], [name])
            proto.graph.node.insert(place, read)
            read.attribute.append(helper.make_attribute("axis", 1))
    return scales


def float16(proto: onnx.ModelProto) -> list[str]:
    proto.CopyFrom(convert_float_to_float16(proto))
    stored = {tensor.name for tensor in proto.graph.initializer}
    return [n.input[1] for n in proto.graph.node if n.op_type == "MatMul" and n.input[1] in stored]


WAYS = {"int4": (int4, 12), "int8": (int8, 35), "float16": (float16, 50)}
# Of a layer that is wrong by far no value is near to what PyTorch's returns.
TIMES = {"int4": 2.0, "int8": 100.0, "float16": 100.0}


def overflow(proto: onnx.ModelProto, factor: str) -> None:
    """Scale what a matrix makes up, beyond what float16 holds, and down again."""
    (place, node) = next((i, n) for i, n in enumerate(proto.graph.node) if factor in n.input)
    proto.graph.initializer.append(numpy_helper.from_array(np.array(60000, np.float16), "by"))
    values = ["v0", "v1", "v2", "v3", node.output[0]]
    node.output[0] = values[0]
    for step, kind in enumerate(("Mul", "Mul", "Div", "Div")):
        scaled = helper.make_node(kind, [values[step], "by"], [values[step + 1]], f"{kind}{step}")
        proto.graph.node.insert(place + 1 + step, scaled)


def verified(folder: Path, how: str, fault: bool, beyond: bool = False) -> ModelResult:
    committed(folder, "dynamo")
    proto = onnx.load(folder / "model.onnx")
    make, least = WAYS[how]
    factors = make(proto)
    if beyond:
        overflow(proto, factors[3])
    if fault:  # the projection of the second of three layers, which have two each
        wrong = next(t for t in proto.graph.initializer if t.name == factors[3])
        values = numpy_helper.to_array(wrong)
        values = (TIMES[how] * values).astype(values.dtype)
        wrong.CopyFrom(numpy_helper.from_array(values, wrong.name))
    (folder / "w.bin").unlink()
    onnx.save_model(
        proto,
        folder / "model.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=100,
    )
    manifest = folder / "onnx-gate.yml"
    limit = f"    tolerance: {{snr_db: {least}}}\n"
    manifest.write_text(manifest.read_text().rstrip(" ") + limit)
    context = Context(folder, folder / "out")
    return verify(load(manifest).models[0], context, lambda _: None, locate=locate)


@pytest.mark.slow
@pytest.mark.parametrize("how", WAYS)
def test_every_layer_is_held_to_what_its_bits_may_cost(tmp_path: Path, how: str) -> None:
    result = verified(tmp_path, how, fault=False)
    assert result.verdict == "pass", result.error
    alone = {check.block for check in result.checks if " + " not in str(check.block)}
    assert alone == {"", "embed", *(f"layers.{n}" for n in range(3))}
    assert result.precision is not None
    assert result.precision.dtype == how
    (proposal,) = result.precision.proposals
    assert proposal.tolerance["snr_db"] >= WAYS[how][1]
    assert [f.code for f in result.findings].count("OG415") == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", WAYS)
def test_a_wrong_scale_is_found_in_its_layer(tmp_path: Path, how: str) -> None:
    result = verified(tmp_path, how, fault=True)
    wrong = {check.block for check in result.checks if check.verdict == "diverged" and check.block}
    assert wrong == {"layers.1"}
    assert result.diagnosis is not None
    assert result.diagnosis.blame == "reduced precision"
    assert result.diagnosis.cause.startswith("layers.1 computes something else")


@pytest.mark.slow
def test_what_overflows_float16_inside_of_a_block_is_found_as_a_device_stores_it(
    tmp_path: Path,
) -> None:
    result = verified(tmp_path, "float16", fault=False, beyond=True)
    wrong = {(check.runtime, check.block) for check in result.checks if check.verdict == "diverged"}
    assert wrong == {("half", "layers.1"), ("half", "")}
    assert result.headroom is not None
    assert result.headroom.first is not None
    assert result.headroom.first.op_type == "Mul"
