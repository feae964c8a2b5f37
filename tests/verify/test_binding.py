"""Inputs are joined with the parameters of ``forward`` by name, or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from onnx_gate.errors import GateError
from onnx_gate.manifest import ExportSpec, InputSpec, ModelSpec
from onnx_gate.runtimes.binding import bind
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.inspect.inspect import inspect_graph, inspect_proto, join_inputs


class Two(nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        return a - 2 * b


class Optional(nn.Module):
    def forward(self, a: Any, mask: Any = None, *, b: Any = None, **others: Any) -> Any:
        return a


class Positional(nn.Module):
    def forward(self, a: Any, b: Any, /) -> Any:
        return a - 2 * b


class Rest(nn.Module):
    def forward(self, a: Any, *rest: Any) -> Any:
        return a


class Anything(nn.Module):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return args


@pytest.mark.parametrize(
    ("module", "names", "args", "kwargs"),
    [
        (Two(), "ab", [], {"a": "a", "b": "b"}),
        (Two(), "ba", [], {"a": "a", "b": "b"}),
        (Positional(), "ba", ["a", "b"], {}),
        (torch.jit.script(nn.Bilinear(2, 2, 2)), ["input2", "input1"], ["input1", "input2"], {}),
        (nn.Identity(), ["image"], ["image"], {}),
        (Optional(), ["image"], ["image"], {}),
        (Optional(), ["b", "a"], [], {"a": "a", "b": "b"}),
        (Optional(), ["extra", "a"], [], {"a": "a", "extra": "extra"}),
        (Rest(), ["x", "a", "y"], ["a", "x", "y"], {}),
        (Anything(), "yx", ["y", "x"], {}),
    ],
)
def test_names_decide_and_not_their_order(
    module: nn.Module, names: Any, args: list[str], kwargs: dict[str, str]
) -> None:
    binding = bind(module, tuple(names))
    assert binding.split({name: name for name in names}) == (tuple(args), kwargs)
    assert list(binding.split({name: name for name in names})[1]) == list(kwargs)
    assert binding.order == (*args, *kwargs)


@pytest.mark.parametrize(
    ("module", "names", "message"),
    [
        (Two(), ["a", "bb"], "no parameter 'bb' (is it 'b'?); its parameters are a, b"),
        (Two(), ["x", "y"], "no parameter 'x'; its parameters are a, b"),
        (Two(), ["a"], "missing a required argument: 'b'"),
        (Two(), ["x"], "missing a required argument: 'b'"),
        (Optional(), ["a", "maks"], "no parameter 'maks' (is it 'mask'?)"),
    ],
)
def test_a_name_that_is_no_parameter_is_an_error(
    module: nn.Module, names: list[str], message: str
) -> None:
    with pytest.raises(GateError) as caught:
        bind(module, tuple(names))
    assert caught.value.code == "OG104"
    assert message in caught.value.message


def _file(path: Path, names: list[str]) -> Exported:
    """A graph that subtracts twice its second input from its first."""
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch"]) for n in names]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch"])
    nodes = [
        helper.make_node("Add", [names[1], names[1]], ["twice"]),
        helper.make_node("Sub", [names[0], "twice"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, str(path))
    return Exported(path, "file", model, order=("a", "b"))


@pytest.mark.parametrize(
    ("names", "joined", "warned"),
    [
        (["a", "b"], {"a": "a", "b": "b"}, False),
        (["b", "a"], {"a": "a", "b": "b"}, False),
        (["input.1", "input.2"], {"a": "input.1", "b": "input.2"}, True),
    ],
)
def test_a_file_of_other_names_is_joined_in_the_order_of_forward(
    names: list[str], joined: dict[str, str], warned: bool, tmp_path: Path
) -> None:
    shape = InputSpec("float32", ("batch",))
    spec = ModelSpec("net", "models.py:Two", {"b": shape, "a": shape})
    exported = _file(tmp_path / "two.onnx", names)
    assert join_inputs(spec, exported) == joined
    findings = [f for f in inspect_graph(spec, exported) if f.code == "OG112"]
    assert len(findings) == warned


@pytest.mark.parametrize(
    ("export", "onnx_file", "writer", "file"),
    [
        (ExportSpec(), None, "", None),
        (ExportSpec("command", command="python release.py {output}"), None, "release.py", True),
        (ExportSpec("command", command="make {output}"), None, "export.command", None),
        (ExportSpec("release.py:export"), None, "release.py:export", True),
        (ExportSpec(), "two.onnx", "two.onnx", None),
    ],
)
def test_an_axis_that_is_fixed_is_the_matter_of_who_wrote_the_file(
    export: ExportSpec,
    onnx_file: str | None,
    writer: str,
    file: bool | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "release.py").write_text("")
    monkeypatch.setattr("onnx_gate.verify.inspect.inspect.workspace_of", lambda _: tmp_path)
    shape = InputSpec("float32", ("batch",))
    spec = ModelSpec("net", "models.py:Two", {"a": shape, "b": shape}, export=export)
    exported = _file(tmp_path / "two.onnx", ["a", "b"])
    exported.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
    (found,) = inspect_proto(replace(spec, onnx=onnx_file), exported)
    assert (found.code, found.data) == ("OG102", {"dims": {"batch": 3}, "writer": writer})
    assert found.file == ("release.py" if file else None)


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("class_hierarchy", "['net.Seg', 'torch.nn.modules.dropout.Dropout2d']", "OG113"),
        (
            "fx_node",
            "%native_dropout : call_function[target=torch.ops.aten.native_dropout]",
            "OG113",
        ),
        ("class_hierarchy", "['net.Seg', 'net.Noise', 'aten.rand_like']", "OG114"),
    ],
)
def test_draws_that_a_dropout_was_taken_apart_into_are_its(
    key: str, value: str, code: str, tmp_path: Path
) -> None:
    shape = InputSpec("float32", ("batch",))
    spec = ModelSpec("net", "models.py:Two", {"a": shape, "b": shape}, onnx="two.onnx")
    exported = _file(tmp_path / "two.onnx", ["a", "b"])
    node = helper.make_node("RandomUniformLike", ["a"], ["drawn"], name="draw")
    node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=value)
    exported.proto.graph.node.append(node)
    (found,) = inspect_proto(spec, exported)
    assert found.code == code
    assert found.data == {"node": "RandomUniformLike 'draw'", "writer": "two.onnx"}
