"""Weights that a file makes of several constants, and makes others of: told where they are made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from onnx_gate.diagnose.dequantised import told_of_constant
from onnx_gate.diagnose.localize.faulty import WrongConstant
from onnx_gate.diagnose.localize.localize import localize
from onnx_gate.diagnose.reduced.layers import weigh_layers
from onnx_gate.diagnose.single_out import single_out
from onnx_gate.verify.context import Reduced
from onnx_gate.verify.subject import Subject
from tests.support.diverging import make, normal
from tests.support.gate import run_few

node = helper.make_node


class Packed(nn.Module):
    """Two numbers of four bits a byte, with a scale a row, as GPTQ stores them."""

    qweight: Tensor
    scales: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("qweight", torch.randint(0, 256, (16, 16), dtype=torch.int64))
        self.register_buffer("scales", torch.rand(16, 1) * 0.02 + 0.01)

    def unpacked(self) -> Tensor:
        high = torch.div(self.qweight, 16, rounding_mode="floor")
        return torch.stack((torch.remainder(self.qweight, 16), high), -1).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        return x @ ((self.unpacked().float() - 8) * self.scales).t()


class Mixed(nn.Module):
    """A layer that is convolved, and one that is packed."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.fc = nn.Conv2d(2, 8, 1, bias=False), Packed()
        with torch.no_grad():
            self.conv.weight.copy_(torch.randn(8, 2, 1, 1) * (torch.rand(8, 1, 1, 1) + 0.2))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.relu(self.conv(x)).flatten(1))


def written(fault: str, module: Mixed) -> onnx.ModelProto:
    """The file of a tool that quantises the module's first weight, and stores the second as it is."""
    weight = module.conv.weight.detach().numpy()
    scale = np.abs(weight).max((1, 2, 3)) / 127
    numbers = np.rint(weight / scale[:, None, None, None]).astype(np.int8)
    packed, axis, zero = module.fc.unpacked().numpy(), 0, 8
    scales = module.fc.scales.numpy().copy()
    if fault == "rounded":
        pass
    elif fault == "values":
        numbers[3] *= -1
    elif fault == "one scale":
        scale = np.where(np.arange(8) == 4, 3 * scale, scale)
    elif fault == "bytes":
        packed = packed.reshape(16, 16, 2)[..., ::-1].reshape(16, 32)
    elif fault == "zero point":
        zero = 9
    elif fault == "scales":
        scales *= 1.5
    folded = ((packed - zero) * scales).T.astype(np.float32)
    exact = fault in ("bytes", "zero point", "scales", "folded")
    layers = [
        node("DequantizeLinear", ["numbers", "scale"], ["conv.w"], "conv_dq", axis=axis),
        node("Conv", ["x", "exact" if exact else "conv.w"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("Flatten", ["b"], ["c"]),
        node("DequantizeLinear", ["packed", "scales", "zero"], ["w"], "fc_dq", block_size=32),
        node("Transpose", ["w"], ["w.t"], perm=[1, 0]),
        node("MatMul", ["c", "folded" if fault == "folded" else "w.t"], ["y"]),
    ]
    if fault == "folded":
        folded = ((packed - 9) * scales).T.astype(np.float32)
    stored = {"numbers": numbers, "scale": scale.astype(np.float32), "scales": scales}
    stored |= {"folded": folded, "exact": weight}
    graph = helper.make_graph(
        layers,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 2, 2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 16])],
        [
            *(numpy_helper.from_array(array, name) for name, array in stored.items()),
            helper.make_tensor("packed", TensorProto.UINT4, packed.shape, packed.reshape(-1)),
            helper.make_tensor("zero", TensorProto.UINT4, (16, 1), [zero] * 16),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def diverged(folder: Path, fault: str) -> Subject:
    module, path = Mixed(), folder / "committed.onnx"
    onnx.save(written(fault, module), str(path))
    return make(folder, module, normal(5, 2, 2, 2), shape=("b", 2, 2, 2), file=path)


OF_CONV = ("DequantizeLinear", "conv")
OF_FC = ("DequantizeLinear", "fc")
TOLD = {
    "rounded": (*OF_CONV, "conv.weight", "it is rounded to int8 there, by 3.2e-03 at most"),
    "values": (*OF_CONV, "conv.weight", "2 of 16 numbers are not PyTorch's, beyond rounding"),
    "one scale": (*OF_CONV, "conv.weight", "1 of 8 scales are not PyTorch's, the first"),
    "bytes": (*OF_FC, "fc.qweight, fc.scales", "two by two, as halves of a byte do"),
    "zero point": (*OF_FC, "fc.qweight, fc.scales", "its zero point is 9, and with 8 it agrees"),
    "scales": (*OF_FC, "fc.qweight, fc.scales", "its scales are 1.5 times PyTorch's"),
    "folded": ("MatMul", "fc", "fc.qweight, fc.scales", "in the file, in 512 of 512 numbers"),
}


@pytest.mark.parametrize("fault", TOLD)
def test_a_weight_in_few_bits_is_told_for_what_it_is(fault: str, tmp_path: Path) -> None:
    op_type, module, weight, why = TOLD[fault]
    subject = diverged(tmp_path, fault)
    located = localize(subject)
    assert located.node is not None, located.note
    assert (located.node.op_type, located.node.module) == (op_type, module)
    told = single_out(subject, located, 60).told
    assert weight in told
    assert why in told


def test_another_axis_of_a_square_weight_is_told(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Conv2d(8, 8, 1, bias=False), nn.ReLU())
    weight = (normal(8, 8, 1, 1, seed=1) * np.linspace(0.1, 2, 8).reshape(8, 1, 1, 1)).astype("f")
    with torch.no_grad():
        module[0].weight.copy_(torch.from_numpy(weight))
    scale = (np.abs(weight).max((1, 2, 3)) / 127).astype("f")
    numbers = np.rint(weight / scale[:, None, None, None]).astype(np.int8)
    graph = helper.make_graph(
        [
            node("DequantizeLinear", ["numbers", "scale"], ["w"], axis=1),
            node("Conv", ["x", "w"], ["a"]),
            node("Relu", ["a"], ["y"]),
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 8, 3, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in (("numbers", numbers), ("scale", scale))],
    )
    path = tmp_path / "committed.onnx"
    opset = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), str(path))
    subject = make(tmp_path, module, normal(2, 8, 3, 3), shape=("b", 8, 3, 3), file=path)
    told = single_out(subject, localize(subject), 60).told
    assert "the weight 0.weight is another one behind DequantizeLinear: it has axis=1" in told
    assert "and with 0 it agrees with PyTorch" in told


def test_a_layer_that_is_too_noisy_for_its_bits_has_the_weight_named(tmp_path: Path) -> None:
    weighed = weigh_layers(diverged(tmp_path, "zero point"), Reduced("weights", "int4", {}), 60)
    assert weighed.suspect is not None
    assert weighed.suspect.module == "fc"
    assert weighed.constant is not None
    assert weighed.constant.of == ("fc.qweight", "fc.scales")
    assert weighed.made_by is not None
    assert weighed.made_by.op_type == "DequantizeLinear"


PACKED = '''
import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

ROWS, SIZE, BLOCK = 32, 64, 16


class Layer(torch.nn.Module):
    """A layer whose weights four bits hold exactly."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(SIZE, ROWS, bias=False)
        with torch.no_grad():
            blocks = self.fc.weight.view(ROWS, -1, BLOCK)
            scale = blocks.abs().amax(-1, keepdim=True) / 7
            self.fc.weight.copy_(((blocks / scale).round() * scale).view(ROWS, SIZE))

    def forward(self, x):
        return torch.relu(self.fc(x))


def packed(module, path, fault):
    blocks = module.fc.weight.detach().numpy().reshape(ROWS, -1, BLOCK)
    scale = np.abs(blocks).max(-1) / 7
    numbers = np.rint(blocks / scale[..., None]).astype(int) + 8
    zero = np.full(scale.shape, 9 if fault == "zero" else 8)
    scale[3] *= 1.5 if fault in ("row", "scales") else 1
    scale *= np.where(np.arange(ROWS) == 3, 1, 1.5)[:, None] if fault == "scales" else 1
    first = int(fault == "bytes")
    numbers = numbers[..., first::2] | numbers[..., 1 - first :: 2] << 4
    stored = {"B": numbers.astype(np.uint8), "S": scale.astype(np.float32)}
    stored["Z"] = (zero[:, 0::2] | zero[:, 1::2] << 4).astype(np.uint8)
    layer = helper.make_node(
        "MatMulNBits", ["x", "B", "S", "Z"], ["h"], "fc_Q4", domain="com.microsoft",
        K=SIZE, N=ROWS, bits=4, block_size=BLOCK,
    )
    graph = helper.make_graph(
        [layer, helper.make_node("Relu", ["h"], ["y"])], "graph",
        [helper.make_tensor_value_info("x", 1, ["batch", SIZE])],
        [helper.make_tensor_value_info("y", 1, ["batch", ROWS])],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


def right(module, example, path): packed(module, path, "")
def zero(module, example, path): packed(module, path, "zero")
def row(module, example, path): packed(module, path, "row")
def scales(module, example, path): packed(module, path, "scales")
def bytes_(module, example, path): packed(module, path, "bytes")
'''
IN_PACKED = {
    "zero": "its zero point is 9, and with 8 it agrees with PyTorch",
    "row": "4 of 128 scales are not PyTorch's, the first",
    "scales": "its scales are 1.5 times PyTorch's",
    "bytes_": "its numbers have changed places two by two, as halves of a byte do",
}


@pytest.mark.slow
def test_a_weight_that_a_product_packs_is_told_for_what_it_is(tmp_path: Path) -> None:
    entry = (
        'model: models.py:Layer, inputs: {x: "float32[batch, 64]"}, export: {exporter: "models.py'
    )
    names = ("right", *IN_PACKED)
    found = run_few(tmp_path, PACKED, {name: f'{entry}:{name}"}}' for name in names})
    assert found["right"].verdict == "pass"
    for name, why in IN_PACKED.items():
        diagnosis, precision = found[name].diagnosis, found[name].precision
        assert diagnosis is not None
        assert diagnosis.cause.startswith("the weight fc.weight is another one in MatMulNBits: ")
        assert why in diagnosis.cause
        assert diagnosis.remedy == "Put its scale, its zero point or its weights right"
        # What lets that pass is proposed to nobody.
        assert precision is not None
        assert not any(each.tolerance for each in precision.proposals)


def test_what_is_computed_of_weights_has_its_own_name() -> None:
    """Here the weight is equal to the direction that it is made of, and the file has the weight."""
    with pytest.warns(FutureWarning):
        layer = torch.nn.utils.weight_norm(nn.Linear(8, 4))
    right = layer.weight_v.detach().numpy()
    wrong = WrongConstant("0.weight", 2 * right, right, ("0.weight_v",), True)
    told = told_of_constant(
        wrong, node("Gemm", ["x", "0.weight"], ["y"]), {}, nn.Sequential(layer), ""
    )
    assert told == "the weight 0.weight is 2 times the module's in the file"


def test_what_is_made_of_another_weight_is_no_training(tmp_path: Path) -> None:
    """An exporter computes what depends on no input, and the file has that of the other table."""
    code = PLACED.replace("EXPORT", "module.down, module.along = module.along, module.down")
    entry = 'model: models.py:Placed, inputs: {x: "float32[batch, 4, 6]"}, export: {exporter: "models.py'
    found = run_few(tmp_path, code, {"placed": f'{entry}:swapped"}}'})["placed"].diagnosis
    assert found is not None
    assert found.cause in (
        "the file has what is made of along where what is made of down belongs",
        "the file has what is made of down where what is made of along belongs",
    )


PLACED = """
import torch

class Placed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.along = (torch.nn.Parameter(torch.randn(9, 6)) for _ in range(2))

    def forward(self, x):
        places = torch.tensor([0, 3, 1, 2])
        return (x * self.down[places]).relu() + x.sin() * self.along[places]

def swapped(module, example, path):
    EXPORT
    program = torch.onnx.export(
        module, tuple(example.values()), dynamo=True, verbose=False, dynamic_shapes=({0: "batch"},)
    )
    program.save(path)
    EXPORT
"""
