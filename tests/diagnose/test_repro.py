"""A divergence cut down to what makes it, written in ONNX's test layout, and replayed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from onnx_gate.diagnose.localize.localize import Located
from onnx_gate.diagnose.repro.write import make_repro
from onnx_gate.graph.extract import between, cut, open_ends
from onnx_gate.graph.graph import read_graph
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.report.model.diagnosis import GraphNode
from onnx_gate.runtimes.onnxruntime import OnnxRuntime
from onnx_gate.verify.subject import Subject
from tests.support.diverging import Of, make, normal, padded
from tests.support.gate import gate
from tests.support.profiles import tries

BACKEND_TESTS = Path(onnx.__file__).parent / "backend" / "test" / "data"


class Layers(nn.Module):
    """Two layers with a GELU between them, whose value PyTorch's side of the test knows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 256), nn.Linear(256, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(nn.functional.gelu(self.first(x)))


@pytest.fixture
def wrong(
    tmp_path: Path,
) -> tuple[Subject, GraphNode, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A model whose GELU is another one, with PyTorch's values around the node."""
    module, x = Layers(), normal(3, 8)
    subject = make(tmp_path, module, x)
    model = onnx.load(str(subject.exported.path))
    node = next(n for n in model.graph.node if n.op_type == "Gelu")
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("approximate", "tanh"))
    # The weights beside the graph, as in a file of gigabytes.
    onnx.save(model, str(subject.exported.path), save_as_external_data=True, size_threshold=0)
    proto = onnx.load(str(subject.exported.path), load_external_data=False)
    subject = dataclasses.replace(
        subject, exported=dataclasses.replace(subject.exported, proto=proto)
    )
    with torch.no_grad():
        before = module.first(torch.from_numpy(x))
        inputs = {node.input[0]: before.numpy()}
        expected = {node.output[0]: nn.functional.gelu(before).numpy()}
    where = GraphNode(name=node.name, op_type="Gelu", output=node.output[0])
    return subject, where, inputs, expected


def test_the_guilty_node_alone(wrong, tmp_path: Path) -> None:
    subject, node, inputs, expected = wrong
    folder = make_repro(subject, Located(node, inputs=inputs, expected=expected)).path
    assert folder is not None
    assert subject.repro is not None
    assert folder == subject.repro / "model" / "typical_0"
    files = sorted(f.relative_to(folder).as_posix() for f in folder.rglob("*") if f.is_file())
    assert files == [
        "README.md",
        "model.onnx",
        "test_data_set_0/input_0.pb",
        "test_data_set_0/output_0.pb",
    ]
    model = onnx.load(str(folder / "model.onnx"))
    onnx.checker.check_model(model, full_check=True)
    assert [n.op_type for n in model.graph.node] == ["Gelu"]
    assert not model.graph.initializer
    assert model.graph.node[0].metadata_props
    stored = TensorProto.FromString((folder / "test_data_set_0" / "output_0.pb").read_bytes())
    assert stored.name == node.output
    np.testing.assert_array_equal(numpy_helper.to_array(stored), expected[node.output])
    text = (folder / "README.md").read_text()
    assert "1 of the 3 nodes" in text
    assert "onnx-gate replay . --runtime onnxruntime" in text
    finished = gate("replay", str(folder), cwd=tmp_path)
    assert finished.returncode == 1, finished.stderr
    assert f"test_data_set_0  {node.output}: differs, error " in finished.stdout
    assert "was expected" in finished.stdout
    assert gate("replay", str(folder), "--runtime", "reference", cwd=tmp_path).returncode == 1
    del model.graph.node[0].attribute[:]
    onnx.save(model, str(folder / "model.onnx"))
    assert gate("replay", str(folder), cwd=tmp_path).returncode == 0


def test_names_of_a_file_are_no_markup(wrong) -> None:
    subject, node, inputs, expected = wrong
    name = "y\x1b[2K<script>`[l](javascript:1)\n# pass"
    proto = subject.exported.proto
    for each in proto.graph.node:
        each.input[:] = [name if value == node.output else value for value in each.input]
        each.output[:] = [name if value == node.output else value for value in each.output]
    onnx.save(proto, str(subject.exported.path))
    (value,) = expected.values()
    named = node.model_copy(update={"output": name})
    folder = make_repro(subject, Located(named, inputs=inputs, expected={name: value})).path
    text = (folder / "README.md").read_text()
    assert "y" in text.split("Seen here: ")[1]
    for markup in ("\x1b", "<script>", "](", "\n# pass", "`["):
        assert markup not in text


def test_where_the_node_is_right_more_of_the_graph_is_written(wrong) -> None:
    subject, node, inputs, expected = wrong
    right = GraphNode(name="", op_type="Gemm", output="linear")
    values = {"linear": next(iter(inputs.values()))}
    whole = make_repro(subject, Located(right, inputs={"x": subject.arrays["x"]}, expected=values))
    assert whole.nodes == 3
    model = onnx.load(str(whole.path / "model.onnx"))
    assert {tuple(t.dims) for t in model.graph.initializer} == {(256, 8), (256,), (8, 256), (8,)}
    assert all(t.data_location == TensorProto.DEFAULT for t in model.graph.initializer)
    # Again, with values further up and down: what lies between them is cut out.
    group = make_repro(subject, Located(node, inputs={"x": subject.arrays["x"]}, expected=expected))
    assert group.nodes == 2
    assert [n.op_type for n in onnx.load(str(group.path / "model.onnx")).graph.node] == [
        "Gemm",
        "Gelu",
    ]
    assert [f.name for f in subject.repro.rglob("*") if f.name.startswith(".")] == []


def test_nothing_is_left_where_nothing_can_be_shown(wrong, tmp_path: Path) -> None:
    subject, node, inputs, expected = wrong
    small = make_repro(subject, Located(node, inputs=inputs, expected=expected), max_bytes=1000)
    assert (small.path, small.reason) == (None, "a reproduction would be larger than 0.000954 MiB")
    fine = make(tmp_path / "fine", Layers(), normal(3, 8))
    found = make_repro(fine, Located())
    assert found.path is None
    assert "no part of the graph" in found.reason
    broken = dataclasses.replace(fine, graph_inputs={"y": "y"})
    assert "KeyError" in make_repro(broken, Located()).reason
    for each in (subject, fine):
        assert not list(each.repro.rglob("*")) if each.repro.exists() else True


@pytest.mark.parametrize(
    ("model", "case"), [("../../up", "a/../../b"), ("..", "c:\\d"), ("é" * 300, "/")]
)
def test_names_stay_inside_the_folder(wrong, model: str, case: str) -> None:
    subject, node, inputs, expected = wrong
    subject = dataclasses.replace(
        subject,
        spec=dataclasses.replace(subject.spec, name=model),
        check=subject.check.model_copy(update={"case": case}),
    )
    folder = make_repro(subject, Located(node, inputs=inputs, expected=expected)).path
    assert folder is not None
    assert folder.resolve().parent.parent == subject.repro.resolve()


def test_a_refusal_is_reproduced(tmp_path: Path) -> None:
    def fixed(x: Tensor) -> Tensor:
        return x.relu().reshape(int(x.shape[0]), 2, 2).sum(1)

    subject = make(tmp_path, Of(fixed), normal(5, 4), shape=("n", 4), exporter="torchscript")
    reason = "onnxruntime refuses: it cannot reshape"
    check = subject.check.model_copy(
        update={"reason": reason, "output": "*", "refused": ("runtime",)}
    )
    found = make_repro(dataclasses.replace(subject, check=check), Located())
    assert found.path is not None
    finished = gate("replay", str(found.path), cwd=tmp_path)
    assert finished.returncode == 1
    assert "it refuses" in finished.stdout


# -- what an optimiser makes wrong


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.before = nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1) for _ in range(6))
        self.after = nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.before:
            x = layer(x).tanh()
        x = padded(x - 5) * 2
        for layer in self.after:
            x = layer(x).tanh()
        return x


def test_the_nodes_that_are_fused_wrongly(tmp_path: Path) -> None:
    subject = make(tmp_path, Deep(), normal(1, 3, 12, 12))
    found = make_repro(subject, Located(), plain_agrees=True)
    assert found.path is not None
    model = onnx.load(str(found.path / "model.onnx"))
    assert [n.op_type for n in model.graph.node] == ["Pad", "MaxPool"]
    folder = str(found.path)
    assert gate("replay", folder, cwd=tmp_path).returncode == 1
    for arguments in (
        ("--optimization", "off"),
        ("--option", "optimization.disable_specified_optimizers=Pad_Fusion"),
        ("--runtime", "reference"),
        ("--atol", "100"),
    ):
        assert gate("replay", folder, *arguments, cwd=tmp_path).returncode == 0, arguments


# -- parts of graphs


@st.composite
def graphs(draw: st.DrawFn) -> tuple[onnx.ModelProto, list[str], list[str]]:
    """A graph of small operators, a value to make, and values to start from."""
    values = ["x"]
    nodes, weights = [], []
    for place in range(draw(st.integers(2, 12))):
        kind = draw(st.sampled_from(["Tanh", "Add", "Mul", "Scale", "Split"]))
        first = draw(st.sampled_from(values))
        if kind == "Scale":
            weights.append(
                numpy_helper.from_array(np.asarray([place + 1], np.float32), f"w{place}")
            )
            nodes.append(helper.make_node("Div", [first, f"w{place}"], [f"v{place}"]))
        elif kind == "Split":
            nodes.append(
                helper.make_node(
                    "Split", [first], [f"a{place}", f"b{place}"], num_outputs=2, axis=0
                )
            )
            nodes.append(
                helper.make_node("Concat", [f"b{place}", f"a{place}"], [f"v{place}"], axis=0)
            )
        else:
            others = [] if kind == "Tanh" else [draw(st.sampled_from(values))]
            nodes.append(helper.make_node(kind, [first, *others], [f"v{place}"]))
        values.append(f"v{place}")
    graph = helper.make_graph(
        nodes,
        "random",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in values[1:]],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    wanted = draw(st.lists(st.sampled_from(values[1:]), min_size=1, max_size=2, unique=True))
    stop = draw(st.lists(st.sampled_from(values), max_size=3, unique=True))
    return model, wanted, [name for name in stop if name not in wanted]


@settings(max_examples=tries(40))
@given(graphs())
def test_a_part_of_a_graph_makes_what_the_whole_makes(tmp_path_factory, drawn) -> None:
    model, wanted, stop = drawn
    folder = tmp_path_factory.mktemp("part")
    x = {"x": normal(4)}

    def run(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        onnx.checker.check_model(proto)
        onnx.save(proto, str(folder / "m.onnx"))
        session = OnnxRuntime().open(
            folder / "m.onnx", RuntimeSpec("onnxruntime", optimization="off"), 1
        )
        return dict(zip((v.name for v in session.outputs), session.run(feeds), strict=True))

    everything = {**run(model, x), **x}
    graph = read_graph(model, folder / "m.onnx")
    nodes = between(graph, wanted, stop)
    assert not any(set(node.outputs) <= set(stop) for node in nodes)
    feeds = {name: everything[name] for name in open_ends(graph, nodes) if name in everything}
    if set(feeds) != set(open_ends(graph, nodes)):
        return  # half of a Split, which the whole graph does not put out
    part = cut(model, graph, nodes, feeds, {name: everything[name] for name in wanted})
    for name, value in run(part, feeds).items():
        np.testing.assert_array_equal(value, everything[name])


# -- replay


@pytest.mark.parametrize(
    "name",
    ["simple/test_sign_model", "simple/test_shrink", "pytorch-operator/test_operator_exp"],
)
def test_onnx_s_own_tests_are_replayed(tmp_path: Path, name: str) -> None:
    folder = BACKEND_TESTS / name
    if not folder.exists():
        pytest.skip("this onnx does not bring its tests")
    finished = gate("replay", str(folder), cwd=tmp_path)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "agrees" in finished.stdout


def write_case(folder: Path, sets: int = 1) -> Path:
    """``y = a - b`` on data sets whose tensors are named and in the other order."""
    graph = helper.make_graph(
        [helper.make_node("Sub", ["a", "b"], ["y"])],
        "sub",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "ab"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    folder.mkdir(parents=True)
    onnx.save(model, str(folder / "model.onnx"))
    for number in range(sets):
        data = folder / f"test_data_set_{number}"
        data.mkdir()
        values = {"b": [1, 2], "a": [5, 5 + number], "y": [4, 3 + number]}
        for file, name in (("input_0", "b"), ("input_1", "a"), ("output_0", "y")):
            tensor = numpy_helper.from_array(np.asarray(values[name], np.float32), name)
            (data / f"{file}.pb").write_bytes(tensor.SerializeToString())
    return folder


def test_data_sets_in_order_and_inputs_by_name(tmp_path: Path) -> None:
    folder = write_case(tmp_path / "case", 12)
    wrong = numpy_helper.from_array(np.asarray([4, np.nan], np.float32), "y")
    (folder / "test_data_set_10" / "output_0.pb").write_bytes(wrong.SerializeToString())
    finished = gate("replay", str(folder), cwd=tmp_path)
    assert finished.returncode == 1
    lines = finished.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [f"test_data_set_{i}" for i in range(12)]
    assert "y: differs at [1]: nan was expected, 13" in lines[10]
    assert all("agrees" in line for line in lines[:10] + lines[11:])


def no_model(folder: Path) -> None:
    (folder / "model.onnx").unlink()


def no_graph(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"\xff\xfe not a model")


def no_data(folder: Path) -> None:
    (folder / "test_data_set_0").rename(folder / "data")


def no_first_input(folder: Path) -> None:
    (folder / "test_data_set_0" / "input_0.pb").unlink()


def one_input(folder: Path) -> None:
    (folder / "test_data_set_0" / "input_1.pb").unlink()


def no_output(folder: Path) -> None:
    (folder / "test_data_set_0" / "output_0.pb").unlink()


def no_tensor(folder: Path) -> None:
    (folder / "test_data_set_0" / "input_1.pb").write_bytes(b"\x99\x99\x99")


def another_file(folder: Path) -> None:
    tensor = TensorProto(name="a", data_type=TensorProto.FLOAT, dims=[2])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    (folder / "test_data_set_0" / "input_1.pb").write_bytes(tensor.SerializeToString())


def too_few_bytes(folder: Path) -> None:
    tensor = TensorProto(name="a", data_type=TensorProto.FLOAT, dims=[2**40], raw_data=b"1234")
    (folder / "test_data_set_0" / "input_1.pb").write_bytes(tensor.SerializeToString())


def a_sequence(folder: Path) -> None:
    model = onnx.load(str(folder / "model.onnx"))
    inner = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    model.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(inner))
    onnx.save(model, str(folder / "model.onnx"))


BROKEN: list[tuple[Callable[[Path], None], str]] = [
    (no_model, "holds no model.onnx"),
    (no_graph, "is not an ONNX model"),
    (no_data, "holds no test_data_set_0"),
    (no_first_input, "has 1 inputs and no input_0.pb"),
    (one_input, "has 1 inputs and the model takes 2: a, b"),
    (no_output, "holds no output_0.pb"),
    (no_tensor, "is not a tensor"),
    (another_file, "points at another file"),
    (too_few_bytes, "is not a tensor"),
    (a_sequence, "is a sequence; only tensors can be replayed"),
]


@pytest.mark.parametrize(("break_it", "words"), BROKEN, ids=[f.__name__ for f, _ in BROKEN])
def test_a_broken_folder_is_a_sentence(
    tmp_path: Path, break_it: Callable[[Path], None], words: str
) -> None:
    from onnx_gate.diagnose.repro.replay import Limits, replay
    from onnx_gate.errors import UserError

    folder = write_case(tmp_path / "case")
    assert all(r.agrees for r in replay(folder, RuntimeSpec("onnxruntime"), Limits()))
    break_it(folder)
    with pytest.raises(UserError, match=words):
        replay(folder, RuntimeSpec("onnxruntime"), Limits())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nowhere is not a folder"),
        (["case", "--runtime", "nothing"], "no runtime is called 'nothing'"),
        (["case", "--provider", "abacus"], "'abacus' is not in this build"),
        (["case", "--option", "text"], "--option takes KEY=VALUE, not 'text'"),
        (["case", "--atol", "-1"], "--atol"),
        (["case", "--optimization", "most"], "--optimization"),
    ],
)
def test_a_wrong_call_is_a_sentence_and_status_2(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    write_case(tmp_path / "case")
    finished = gate("replay", *arguments, cwd=tmp_path)
    assert finished.returncode == 2
    assert words in " ".join(finished.stderr.split())
    assert "Traceback" not in finished.stderr
