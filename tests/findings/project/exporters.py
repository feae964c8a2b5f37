"""Export scripts with a mistake each, by which the findings of a graph are brought about."""

from __future__ import annotations

import copy
from pathlib import Path

import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn


def _right(module: nn.Module, example: dict[str, Tensor], path: Path, **options: object) -> None:
    torch.onnx.export(
        module,
        (),
        str(path),
        kwargs=dict(example),
        dynamo=True,
        verbose=False,
        dynamic_shapes={
            name: {0: "batch"} if tensor.ndim else {} for name, tensor in example.items()
        },
        **options,
    )


def _insert(model: onnx.ModelProto, op_type: str, *inputs: str, **attributes: object) -> None:
    """Put a node behind the first output."""
    output = model.graph.output[0]
    node = helper.make_node(
        op_type, [output.name, *inputs], ["behind"], name=f"node_{op_type}", **attributes
    )
    model.graph.node.append(node)
    output.name = "behind"


def live_dropout(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    _right(module, example, path)
    model = onnx.load(str(path))
    model.graph.initializer.extend(
        [
            helper.make_tensor("ratio", TensorProto.FLOAT, [], [0.0]),
            helper.make_tensor("training", TensorProto.BOOL, [], [True]),
        ]
    )
    _insert(model, "Dropout", "ratio", "training")
    onnx.save(model, str(path))


def false_shape(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    """Declare another number of classes than the graph computes."""
    _right(module, example, path)
    model = onnx.load(str(path))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 5
    onnx.save(model, str(path))


class _Penalised(nn.Module):
    """Masks with -100 instead of -inf, which cancels in a row that is masked from end to end."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        penalties: Tensor = self.module(x, torch.where(mask, 0.0, -100.0))
        return penalties


def penalised(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    _right(_Penalised(module), example, path)


def double_input(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    _right(module, example, path)
    model = onnx.load(str(path))
    first = model.graph.input[0]
    model.graph.node.insert(0, helper.make_node("Cast", [first.name], ["narrow"], to=1))
    for node in model.graph.node[1:]:
        node.input[:] = ["narrow" if name == first.name else name for name in node.input]
    first.type.tensor_type.elem_type = TensorProto.DOUBLE
    onnx.save(model, str(path))


def half_output(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    _right(module, example, path)
    model = onnx.load(str(path))
    _insert(model, "Cast", to=TensorProto.FLOAT16)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    onnx.save(model, str(path))


def other_names(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    _right(module, example, path, input_names=["x", "scales"])


def newest_opset(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    """Write an opset that ONNX has and ONNX Runtime has not."""
    _right(module, example, path)
    model = onnx.load(str(path))
    model.opset_import[0].version = onnx.defs.onnx_opset_version()
    onnx.save(model, str(path))


def missing_weights(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    """Forget to ship the file with the weights."""
    _right(module, example, path)
    model = onnx.load(str(path))
    onnx.save(
        model,
        str(path),
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    (path.parent / "weights.bin").unlink()


def too_new_operator(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    _right(module, example, path, opset_version=18)
    model = onnx.load(str(path))
    _insert(model, "Gelu")
    onnx.save(model, str(path))


def named_twice(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    _right(module, example, path)
    model = onnx.load(str(path))
    model.graph.node[0].output[0] = model.graph.input[0].name
    model.graph.node[1].input[0] = model.graph.input[0].name
    onnx.save(model, str(path))


def unknown_domain(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    _right(module, example, path)
    model = onnx.load(str(path))
    _insert(model, "Twice", domain="com.example")
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    onnx.save(model, str(path))


def bfloat16_dropout(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    """A node that only the optimiser can take away, and that ONNX Runtime cannot run."""
    _right(module, example, path)
    model = onnx.load(str(path))
    graph = model.graph
    del graph.node[:]
    graph.node.extend(
        [
            helper.make_node("Cast", [graph.input[0].name], ["short"], to=TensorProto.BFLOAT16),
            helper.make_node("Dropout", ["short"], ["kept"], name="drop"),
            helper.make_node("Cast", ["kept"], [graph.output[0].name], to=TensorProto.FLOAT),
        ]
    )
    del graph.value_info[:]
    onnx.save(model, str(path))


def with_bounds(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    """Name dimensions by torch.export.Dim, which holds the model to every size of them."""
    names = ("batch", "seq")
    dims = {name: torch.export.Dim(name) for name in names}
    torch.export.export(
        module,
        (),
        kwargs=dict(example),
        dynamic_shapes={k: {a: dims[names[a]] for a in range(t.ndim)} for k, t in example.items()},
    )


def raising(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    _ = example["image"]


def nearly_tied(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    twin = type(module)(factor=1 + 1.5e-7)
    torch.onnx.export(
        twin,
        tuple(example.values()),
        str(path),
        input_names=list(example),
        output_names=["logits", "present"],
        dynamic_axes={"token": {0: "batch"}, "past": {0: "batch", 1: "length"}},
        dynamo=False,
    )


def stale_row(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    """Export, and put another number into a bias behind a unit that never fires."""
    _right(module, example, path)
    model = onnx.load(str(path))
    for tensor in model.graph.initializer:
        if tensor.name == "gate.bias":
            values = numpy_helper.to_array(tensor).copy()
            values[0] -= 1
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(model, str(path))


def other_guard(module: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    """Export with another eps, which nothing comes near to."""
    twin = copy.deepcopy(module)
    twin.eps = 1e-9
    _right(twin, example, path)
