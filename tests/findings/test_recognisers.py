"""Errors of torch, onnx and ONNX Runtime, as they come, and what is made of them."""

from __future__ import annotations

import importlib
import io
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from onnx_gate.diagnose.hints.facts import DivergenceFacts
from onnx_gate.diagnose.hints.hints import explaining, possible
from onnx_gate.diagnose.hints.operator_rules import OPERATOR_RULES, window
from onnx_gate.diagnose.hints.value_rules import DECISIVE_RULES, converted
from onnx_gate.errors import GateError
from onnx_gate.findings import CATALOGUE
from onnx_gate.findings.codes import OG116
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ExportSpec, InputSpec, ModelSpec, RuntimeSpec
from onnx_gate.report.model import Check, ModelError, ModelResult, Worst
from onnx_gate.report.model.diagnosis import Blame, Diagnosis, GraphNode, Nonfinite, Source
from onnx_gate.report.story.sentence import of_model
from onnx_gate.runtimes.base import Refusal
from onnx_gate.runtimes.onnxruntime import OnnxRuntime
from onnx_gate.verify.export.assumptions import assumptions
from onnx_gate.verify.export.constraints import FailedTrace, constraint
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.export.failures import export_error
from onnx_gate.verify.export.specialising import Stacks, specialising
from onnx_gate.verify.inspect.checker import check_file
from onnx_gate.verify.inspect.lowering import deleted_constants
from onnx_gate.verify.inspect.opsets import changed_between, first_opset, introduced_after
from onnx_gate.verify.source_lines import Line, at, finding_at, of_error, of_stack

SPEC = ModelSpec(
    name="m",
    model="m.py:m",
    inputs={"x": InputSpec("float32", ("batch", "seq", 8)), "y": InputSpec("int64", ("other",))},
)
NOTHING = FailedTrace([], Stacks(), None)
LINE = Line("m.py", 3, "return x + self.p", own=True)


def told(text: str) -> str:
    tied = constraint(text, SPEC, NOTHING, LINE)
    assert tied is not None
    return f"{tied.message}: {tied.remedy}"


FLOAT, DOUBLE, INT = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64


@pytest.mark.parametrize(
    ("fix", "words"),
    [
        ("batch = 5", "'batch' is tied to the size 5"),
        ("seq = 8*_seq", "dims: {seq: [8, 16]}"),
        ("_seq = Dim('_seq', min=1, max=oo)\n  seq = 8*_seq", "'seq' must be a multiple of 8"),
        ("batch = Dim('batch', max=4)", "at most 4 (m.py:3): list such sizes"),
        ("batch = Dim('batch', min=3, max=16)", "at least 3 and at most 16"),
        ("seq = batch", "'seq' must be the size of 'batch'"),
        ("seq = batch + 1", "'seq' must be batch + 1"),
    ],
)
def test_suggested_fixes_become_words_of_the_manifest(fix: str, words: str) -> None:
    text = f"Constraints violated (seq)! For more\n  - why\nSuggested fixes:\n  {fix}\n\nThe error above"
    assert words in told(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "Found the following conflicts between user-specified ranges and inferred ranges from "
            "model tracing:\n- Received user-specified dim hint Dim.DYNAMIC(min=None, max=None), but "
            "tracing inferred a static shape of 5 for dimension inputs['x'].shape[1].",
            'x: "float32[batch, 5, 8]"',
        ),
        (
            "Constraints violated (L['x'].size()[0])!\n  - You marked L['x'].size()[0] as dynamic but "
            "your code specialized it to be a constant (3). If",
            'x: "float32[3, seq, 8]"',
        ),
        (
            "- Modify the model code.\nFound the following conflicts between user-specified ranges "
            "and inferred ranges from model tracing:\n- Received user-specified min/max range of [1, 9].",
            "(m.py:3): Received user-specified min/max range of [1, 9]: list",
        ),
        (
            "- Modify the model code.\nFound the following conflicts between user-specified ranges "
            "and inferred ranges from model tracing:\n- Received user-specified dim hint, but tracing "
            "inferred a static shape of 2 for dimension inputs['args'][0].shape[0].",
            'x: "float32[2, seq, 8]"',
        ),
    ],
)
def test_dimensions_without_a_suggestion(text: str, words: str) -> None:
    assert words in told(text)


def test_a_size_is_declared_in_all_inputs_that_have_it_with_their_ranges() -> None:
    inputs = {
        "ids": InputSpec("int64", ("batch", "seq"), (0, 99)),
        "at": InputSpec("int64", ("batch", "seq + 1"), bounds=(0, "seq - 1")),
        "x": InputSpec("float32", ("batch", 8)),
    }
    text = (
        "Found the following conflicts between user-specified ranges and inferred ranges from model "
        "tracing:\n- tracing inferred a static shape of 7 for dimension inputs['ids'].shape[1]."
    )
    tied = constraint(text, replace(SPEC, inputs=inputs), NOTHING, LINE)
    assert tied is not None
    assert tied.remedy.endswith(
        "ids: {dtype: int64, shape: [batch, 7], range: [0, 99]}, and "
        "at: {dtype: int64, shape: [batch, 8], range: [0, 6]}"
    )


def test_the_order_of_einsum_s_operands_can_be_switched_off() -> None:
    places = ((__file__, 30), ("/lib/site-packages/opt_einsum/contract.py", 317))
    trace = FailedTrace([], Stacks({"L['x'].size()[0]": places}), Path(__file__).parent)
    text = "tracing inferred a static shape of 2 for dimension inputs['x'].shape[0]."
    tied = constraint(text, SPEC, trace, None)
    assert tied is not None
    assert tied.remedy.startswith("set torch.backends.opt_einsum.enabled = False")


class Inverse(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.istft(x.to(torch.complex64), 64)


def test_an_inverse_transform_of_one_size_is_no_remedy() -> None:
    number = Inverse.forward.__code__.co_firstlineno + 1
    stacks = Stacks({"L['x'].size()[1]": ((__file__, number),)})
    trace = FailedTrace([], stacks, Path(__file__).parent)
    text = "tracing inferred a static shape of 1601 for dimension inputs['x'].shape[1]."
    tied = constraint(text, SPEC, trace, None)
    assert tied is not None
    assert tied.remedy.startswith("write the transform as a transposed convolution")


def test_a_loop_over_a_size_is_said_to_be_unrolled() -> None:
    number = Loop.forward.__code__.co_firstlineno + 1
    stacks = Stacks({"L['x'].size()[1]": ((__file__, number),)})
    trace = FailedTrace([], stacks, Path(__file__).parent)
    text = "tracing inferred a static shape of 7 for dimension inputs['x'].shape[1]."
    tied = constraint(text, SPEC, trace, None)
    assert tied is not None
    assert "is unrolled at the example's size 7" in tied.message
    assert "torch.while_loop" in tied.remedy
    assert "input's shape" not in tied.remedy


def test_sizes_that_become_numbers_are_no_loop() -> None:
    number = Sizes.forward.__code__.co_firstlineno + 1
    stacks = Stacks({"L['x'].size()[1]": ((__file__, number),)})
    trace = FailedTrace([], stacks, Path(__file__).parent)
    text = "tracing inferred a static shape of 7 for dimension inputs['x'].shape[1]."
    tied = constraint(text, SPEC, trace, None)
    assert tied is not None
    assert "in x.shape)` (test_recognisers.py" in tied.message
    assert tied.message.endswith("ties it to the example's size 7")
    assert tied.remedy.startswith("take the size from the input's shape there")


def test_other_errors_are_none_about_a_dimension() -> None:
    assert constraint("KeyError: 'x'", SPEC, NOTHING, LINE) is None


def hints(diagnosis: Diagnosis, proto: onnx.ModelProto, checked: Check) -> tuple[Finding, ...]:
    found = explaining(diagnosis, proto, checked)
    return found or possible(diagnosis, proto, checked)


class Sizes(nn.Module):
    def forward(self, x: Tensor) -> tuple[int, ...]:
        return tuple(int(size) for size in x.shape)


class Loop(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([row * 2 for row in x])


class Digits(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * len(bin(x.shape[0]))


class Power(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        whole = 2 ** math.ceil(math.log2(x.shape[0]))
        return nn.functional.pad(x, (0, 0, 0, 0, 0, whole - x.shape[0]))


@pytest.mark.parametrize(
    ("module", "code", "remedy"),
    [
        (Loop(), "for row in x", "compute all steps at once there, or write the loop with"),
        (Digits(), "bin(x.shape[0])", "take it from the input's shape"),
        (Power(), "math.log2(x.shape[0])", "Python's math takes it as a number: compute"),
    ],
)
def test_what_no_operator_ties_to_a_size_has_its_line(
    module: nn.Module, code: str, remedy: str
) -> None:
    shapes = {"x": {0: torch.export.Dim.DYNAMIC}}
    with specialising() as stacks, pytest.raises(torch._dynamo.exc.UserError) as caught:
        torch.export.export(module, (torch.rand(2, 3, 8),), dynamic_shapes=shapes)
    trace = FailedTrace([], stacks, Path(__file__).parent)
    tied = constraint(str(caught.value), SPEC, trace, None)
    assert tied is not None
    assert "(test_recognisers.py:" in tied.message
    assert tied.remedy.startswith(remedy)
    line = trace.cause("['x']", 0)[1]
    assert line is not None
    assert code in line.code


class Promoted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 1.0 - x


class Bounded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(0, 6.0)


class Complex(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 1j).real


class Sorted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sort(stable=True).values


class Product(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumprod(-1)


class Apart(nn.Module):
    def __init__(self, degree: float) -> None:
        super().__init__()
        self.degree = degree

    def forward(self, x: Tensor) -> Tensor:
        return torch.cdist(x, x + 1, p=self.degree)


class Headless(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x)


class Looked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1).eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x, torch.triu(torch.ones(3, 3, dtype=torch.bool), 1))


@pytest.mark.parametrize(
    ("module", "tensor", "code", "words"),
    [
        (Product(), torch.ones(2, 3), "OG201", "prims::prod, which aten::cumprod is made of, to"),
        (Apart(2.0), torch.ones(2, 3), "OG201", "write export: {exporter: torchscript, opset: 17}"),
        # Of other distances the file of the other exporter is silently wrong.
        (
            Apart(1.0),
            torch.ones(2, 3),
            "OG201",
            "has no translation of aten::_cdist_forward to ONNX (t",
        ),
        (
            Apart(1.0),
            torch.ones(2, 3),
            "OG201",
            " write it as (x.unsqueeze(-2) - y.unsqueeze(-3)).abs().sum",
        ),
        (Apart(3.0), torch.ones(2, 3), "OG201", "unsqueeze(-3)).abs().pow(3).sum(-1).pow(1 / 3)"),
        (Headless(), torch.ones(2, 3, 4), "OG207", "an axis of one head there, unsqueeze(1)"),
        (Looked(), torch.ones(2, 3, 4), "OG203", "is_causal=False, which holds for every mask"),
        (Sorted(), torch.ones(2), "OG201", "aten::sort with `stable` to ONNX"),
        (Promoted(), torch.ones(2, dtype=torch.int64), "OG207", ".to(torch.float32)"),
        (Bounded(), torch.ones(2), "OG207", "where integers and floats meet"),
        (Complex(), torch.ones(2), "OG201", "computes with complex numbers"),
    ],
)
def test_what_the_exporter_cannot_write_has_its_line_and_a_remedy(
    module: nn.Module, tensor: Tensor, code: str, words: str
) -> None:
    with pytest.raises(torch.onnx.errors.OnnxExporterError) as caught:
        torch.onnx.export(module, (tensor,), dynamo=True, verbose=False)
    error = export_error(caught.value, SPEC)
    assert error.code == code
    assert words in f"{error.message} {error.remedy}"
    assert "test_recognisers.py:" in error.message


class Wordy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.istft(x.to(torch.complex64) * 0.12345678901234567890 + 0.98765432109876543210 - 0.11111111111111111111 * 0.5 + 0.22222222222222222222 - 0.33333333333333333333 * 0.25 + 0.44444444444444444444, 64)  # fmt: skip # noqa: E501


def test_a_long_line_leaves_the_reason_its_room_in_a_sentence() -> None:
    with pytest.raises(torch.onnx.errors.OnnxExporterError) as caught:
        torch.onnx.export(Wordy(), (torch.ones(33, 10),), dynamo=True, verbose=False)
    error = export_error(caught.value, SPEC)
    told = ModelError.model_validate(
        {"kind": error.kind, "code": error.code, "message": error.message, "remedy": error.remedy}
    )
    model = ModelResult(name="m", verdict="error", error=told)
    sentence = str(of_model(model, "onnx-gate.yml"))
    assert "return torch.istft(x.to(" in sentence
    assert "of which ONNX has none and the exporter translates a few operators only" in sentence


class Spectral(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        whole = torch.stft(x, 64, 16, window=torch.ones(64), return_complex=True)
        return torch.istft(whole, 64, 16, window=torch.ones(64))


def test_what_nobody_knows_of_an_error_has_the_other_exporter_as_what_can_be_tried() -> None:
    """So that it is no remedy any more where it was."""
    with pytest.raises(torch.onnx.errors.OnnxExporterError) as caught:
        torch.onnx.export(Spectral(), (torch.ones(1, 640),), io.BytesIO(), dynamo=False)  # type: ignore[arg-type]
    error = export_error(caught.value, replace(SPEC, export=ExportSpec(exporter="torchscript")))
    assert error.code == "OG207"
    assert error.changes == (("export", {"exporter": "dynamo"}),)
    assert "export: {exporter: dynamo}" in error.remedy
    assert error.otherwise == "reduce the model until the exporter's words make sense"


class Differences(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.diff(x, dim=1)


class Kept(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("kept", torch.zeros(2), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        return self.linear(x), self.kept


@pytest.mark.parametrize(
    ("module", "code", "message", "otherwise"),
    [
        (
            Differences(),
            "OG201",
            "no translation of aten::diff to ONNX at any opset (test_recognisers.py:",
            "torch.onnx.register_custom_op_symbolic('aten::diff', ...)",
        ),
        (
            Kept(),
            "OG207",
            "output 1 (counted from 0) does not depend on the inputs: forward returns a constant",
            "leave it out of what forward returns, or register a buffer with persistent=True",
        ),
    ],
)
def test_what_torchscript_cannot_write_has_what_that_exporter_takes(
    module: nn.Module, code: str, message: str, otherwise: str
) -> None:
    with pytest.raises(Exception, match=r".") as caught:
        torch.onnx.export(module, (torch.ones(2, 4),), io.BytesIO(), dynamo=False)  # type: ignore[arg-type]
    error = export_error(caught.value, replace(SPEC, export=ExportSpec(exporter="torchscript")))
    assert error.code == code
    assert message in error.message
    assert error.changes == (("export", {"exporter": "dynamo"}),)
    assert "export: {exporter: dynamo}" in error.remedy
    assert otherwise in error.otherwise
    assert "custom_translation_table" not in error.remedy


def test_a_sentence_of_an_exporter_s_that_runs_over_lines_is_joined() -> None:
    error = export_error(RuntimeError("value 1 (0\n[ Tensor{} ]) is none\nof these"), SPEC)
    first = error.message.partition("\n")[0]
    assert first.endswith("RuntimeError: value 1 (0 [ Tensor{} ]) is none")


class Grouped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        weight = torch.ones(1, 2, 3, 3).expand(x.shape[0], -1, -1, -1)
        rows = x.reshape(1, -1, *x.shape[2:])
        return torch.nn.functional.conv2d(rows, weight, groups=x.shape[0])


class Column(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).argmax(-1) % (2 * x.shape[0])


class Quantised(nn.Module):
    scale: Tensor
    zero: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([0.1]))
        self.register_buffer("zero", torch.tensor([0], dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero, -128, 127)


class Flagged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ready", torch.tensor(True))

    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if self.ready else x


class Signed(Flagged):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if (x.sum() > 0) & self.ready else x


class Sized(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=x.shape[0] > 5)


class OfTransformers(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        scope: dict[str, Any] = {"attend": nn.functional.scaled_dot_product_attention}
        code = "def sdpa(x):\n    return attend(x, x, x, is_causal=x.shape[0] > 5)\n"
        file = "/lib/site-packages/transformers/integrations/sdpa_attention.py"
        exec(compile(code, file, "exec"), scope)
        attended: Tensor = scope["sdpa"](x)
        return attended


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        mixtral: Any = importlib.import_module("transformers.models.mixtral.modeling_mixtral")
        config = mixtral.MixtralConfig(hidden_size=8, intermediate_size=8, num_local_experts=4)
        config._experts_implementation = "eager"
        self.experts = mixtral.MixtralExperts(config)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, 8)
        weights, chosen = rows[:, :4].topk(2, -1)
        mixed: Tensor = self.experts(rows, chosen, weights)
        return mixed


class Columns(nn.Module):
    """What reads the columns of an image, as a recogniser of text does."""

    def __init__(self, layer: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.layer = layer(16, 4, num_layers=2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        pooled = nn.functional.max_pool2d(x, 2)
        rows: Tensor = self.layer(pooled.permute(0, 3, 1, 2).flatten(2))[0]
        return rows


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_a_recurrent_layer_that_cannot_be_unrolled_is_told_of_the_other_exporter(
    layer: type[nn.LSTM | nn.GRU],
) -> None:
    sizes = ({0: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC},)
    x = torch.ones(2, 4, 8, 37)
    with pytest.raises(torch.onnx.errors.OnnxExporterError) as caught:
        torch.onnx.export(Columns(layer), (x,), dynamo=True, dynamic_shapes=sizes, verbose=False)
    error = export_error(caught.value, SPEC)
    assert f"unrolls nn.{layer.__name__} (" in error.message
    assert error.changes == (("export", {"exporter": "torchscript"}),)
    assert error.otherwise == "declare the dimension that it runs along with its one size"


class Packed(nn.Module):
    def __init__(self, both: bool) -> None:
        super().__init__()
        self.layer = nn.LSTM(8, 4, batch_first=True, bidirectional=both)

    def forward(self, x: Tensor) -> Tensor:
        rows, lengths = x[..., 0], 1 + (x.sum((1, 2, 3)) > 0).long()
        packed = nn.utils.rnn.pack_padded_sequence(rows, lengths, True, False)
        state: Tensor = self.layer(packed)[1][0]
        return state


class Guessed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(8, 2, 8, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, 1)

    def forward(self, x: Tensor) -> Tensor:
        rows = x[:, 0]
        return self.decoder(rows, rows, torch.triu(torch.ones(8, 8, dtype=torch.bool), 1))


def static_quantised() -> nn.Module:
    ao: Any = torch.ao.nn.quantized
    return nn.Sequential(ao.Quantize(0.1, 0, torch.quint8), ao.Conv2d(2, 3, 1), ao.DeQuantize())


class Same(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if torch.equal(x, x.round()) else x.exp()


class Validated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        # Said, as other code of this process may have switched the default off.
        return torch.distributions.Normal(x, x.exp(), validate_args=True).log_prob(x)


@pytest.mark.parametrize(
    ("module", "code", "words"),
    [
        (Sized(), "OG206", "give `is_causal` a value that no size decides"),
        (OfTransformers(), "OG206", 'attn_implementation="eager"'),
        (Packed(both=False), "OG203", "or run the layer on the padded sequence and mask"),
        (Packed(both=True), "OG203", "export: {exporter: torchscript}), or run a layer for each"),
        (Guessed(), "OG203", "of a decoder tgt_is_causal"),
        # A trace keeps the experts that the example's rows choose.
        (
            Experts(),
            "OG203",
            "which a graph cannot build the model with transformers' other experts",
        ),
        (static_quantised(), "OG207", "no translation of torch.ao's quantised modules"),
        (Validated(), "OG203", "set_default_validate_args(False)"),
        (Grouped(), "OG206", "as the groups of a convolution are"),
        (Column(), "OG207", "x % torch.full_like(x, size)"),
        (Quantised(), "OG201", "cannot follow aten::fake_quantize_per_tensor_affine (test"),
        (Flagged(), "OG203", "from the values of the module's own parameters or buffers"),
        (Flagged(), "OG203", "make a number of Python's of it where the module is built"),
        (Same(), "OG203", "from the values of tensors, which a graph cannot use torch.where where"),
        (
            Signed(),
            "OG203",
            "from the values of tensors, which a graph cannot use torch.where where both",
        ),
    ],
)
def test_what_the_exporter_cannot_follow_is_not_said_to_have_no_translation(
    module: nn.Module, code: str, words: str
) -> None:
    x, sizes = torch.ones(3, 2, 8, 8), ({0: torch.export.Dim("batch")},)
    with pytest.raises(Exception, match="export") as caught:
        torch.onnx.export(module, (x,), dynamo=True, dynamic_shapes=sizes, verbose=False)
    here = f"{Path(__file__).relative_to(Path(__file__).parents[2])}:Model"
    spec = replace(SPEC, model=here, inputs={"x": SPEC.inputs["x"]})
    error = export_error(caught.value, spec)
    assert error.code == code
    said = error.message.partition("\n")[0]
    assert words in f"{said} {error.remedy}"
    assert "no translation" not in error.message or "torch.ao" in words


class Guarded(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (
            *(x / (x.sum(-1, keepdim=True) + 1e-12), (x + 1e-11).log(), (x + 1e-10) / x),
            *(((x + 1e-9) ** 2).sqrt(), (x - 1e-13) * 2),
        )


def test_what_a_dropped_constant_was_there_for_is_said_where_it_is_known() -> None:
    program = torch.onnx.export(Guarded().eval(), (torch.rand(2, 3),), dynamo=True, verbose=False)
    assert program is not None
    assert program.exported_program is not None
    proto = program.model_proto
    found = deleted_constants(program.exported_program, proto, Path(__file__).parent)
    said = {each.message.partition(" from ")[0].split()[-1]: each.message for each in found}
    assert "so the division behind it meets zero where" in said["1e-12"]
    assert "so the logarithm behind it meets zero where" in said["1e-11"]
    assert "so the power behind it meets zero where" in said["1e-09"]
    # What is divided may be zero, and so may what is multiplied.
    assert "meets zero" not in said["1e-10"] + said["1e-13"]


def test_a_name_that_programs_have_themselves_is_said_to_be_taken() -> None:
    class Coded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.code = nn.Parameter(torch.ones(2))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.code

    with pytest.raises(Exception, match="already exists") as caught:
        torch.onnx.export(Coded(), (torch.ones(2),), dynamo=True, verbose=False)
    error = export_error(caught.value, SPEC)
    assert error.code == "OG207"
    assert "called code, which is the name" in error.message
    assert "give it another name" in error.remedy
    # Where tracing was tried, and does not help, the rest of the remedy is left.
    assert error.changes == (("export", {"exporter": "torchscript"}),)
    assert error.otherwise in error.remedy
    assert "torchscript" not in error.otherwise


def model(
    nodes: Sequence[onnx.NodeProto],
    *,
    kind: int = FLOAT,
    shape: Sequence[int | None] = (None, 8),
    opset: int = 18,
    **constants: object,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", kind, list(shape))],
        [helper.make_tensor_value_info("y", kind, [None, 8])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def node(op_type: str, *inputs: str, output: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, [output], name="n", **attributes)


@pytest.mark.parametrize(
    ("proto", "feed", "words"),
    [
        (model([node("Relu", "x")], shape=(3, 8)), (2, 8), "2 on axis 0, where .* for 3 only"),
        (model([node("Relu", "x")]), (2, 8, 1), "3 axes, where the graph takes 2"),
        (model([node("Relu", "x")]), None, "where the graph takes a tensor.float."),
        (
            model([node("Reshape", "x", "s")], s=np.array([3, 8])),
            (2, 8),
            r"^running Reshape 'n': The input tensor cannot be reshaped .*\{3,8\}$",
        ),
        (
            model([node("Add", "x", "w")], w=np.ones((5, 8), np.float32)),
            (2, 8),
            "^running Add 'n': Attempting to broadcast",
        ),
        (
            model([node("Gather", "x", "i")], i=np.array([4])),
            (2, 8),
            r"^running Gather 'n': indices element out of data bounds, idx=4",
        ),
    ],
)
def test_refusals_are_bare_sentences(
    proto: onnx.ModelProto, feed: tuple[int, ...] | None, words: str, tmp_path: Path
) -> None:
    onnx.save(proto, tmp_path / "m.onnx")
    session = OnnxRuntime().open(tmp_path / "m.onnx", RuntimeSpec("onnxruntime"), 1)
    array = np.zeros(feed or (2, 8), np.float32 if feed else np.int64)
    with pytest.raises(Refusal, match=words) as caught:
        session.run({"x": array})
    assert "onnxruntime_src" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("proto", "code", "words"),
    [
        (
            model([node("Erf", "x")], kind=DOUBLE),
            "OG202",
            "no kernel for Erf .opset 13. in float64",
        ),
        (
            # No file says of what type a value inside is.
            model([helper.make_node("Neg", ["x"], ["s"]), node("Erf", "s")], kind=DOUBLE),
            "OG202",
            "no kernel for Erf .opset 13. in float64",
        ),
        (
            model([node("Add", "x", "k")], k=np.ones(8, np.int64)),
            "OG303",
            "Add is given a tensor.float. and a tensor.int64.",
        ),
        (
            model([node("MatMul", "x", "w")], w=np.ones((9, 8), np.float32)),
            "OG303",
            "Incompatible dimensions",
        ),
        (
            model([node("ScatterND", "x", "k", "x")], k=np.zeros((1, 1), np.int32)),
            "OG303",
            "ScatterND of opset 18 takes no int32 as its indices, .* it takes int64",
        ),
        (
            model([node("ReduceMax", "x")], kind=TensorProto.BOOL),
            "OG303",
            "no bool as its data, .* it does from opset 20 on: export: .opset: 20",
        ),
        # From opset 22 on ONNX has it, and ONNX Runtime has no kernel for it there.
        (
            model(
                [node("Conv", "x", "w")],
                kind=TensorProto.BFLOAT16,
                shape=(1, 1, 8),
                w=np.ones((1, 1, 1), ml_dtypes.bfloat16),
            ),
            "OG202",
            "no kernel for Conv .opset 22. in bfloat16",
        ),
    ],
)
def test_files_that_do_not_load(
    proto: onnx.ModelProto, code: str, words: str, tmp_path: Path
) -> None:
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(GateError, match=words) as caught:
        OnnxRuntime().open(tmp_path / "m.onnx", RuntimeSpec("onnxruntime"), 1)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("proto", "words"),
    [
        (model([node("Relu", "nowhere")]), "'n' .Relu. reads 'nowhere'"),
        (model([node("Relu", "x", output="x"), node("Relu", "x")]), "two values are called 'x'"),
        (model([node("Gelu", "x")]), "Gelu exists from opset 20 on, and the file says opset 18"),
        (model([node("Frobnicate", "x")]), "ONNX has no operator Frobnicate"),
        (model([node("Foo", "x", domain="acme")]), "the domain 'acme', which .* does not import"),
        (model([node("Relu", "x", output="z")]), "no node computes the graph's output 'y'"),
        (model([node("Relu", "x", alpha=1.0)]), "'n' .Relu.: Unrecognized attribute: alpha"),
    ],
)
def test_what_the_checker_and_the_runtime_reject(
    proto: onnx.ModelProto, words: str, tmp_path: Path
) -> None:
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(GateError, match=words) as caught:
        list(check_file(Exported(tmp_path / "m.onnx", "file", proto), SPEC))
    assert caught.value.code == "OG117"


def test_what_the_checker_alone_dislikes_is_a_warning(tmp_path: Path) -> None:
    proto = model([node("Relu", "between", output="y"), node("Relu", "x", output="between")])
    proto.graph.node[1].name = "later"
    onnx.save(proto, tmp_path / "m.onnx")
    (finding,) = check_file(Exported(tmp_path / "m.onnx", "file", proto), SPEC)
    assert (finding.code, finding.severity) == ("OG117", "warning")
    assert "onnxruntime loads it all the same" in finding.message
    assert "What edits the graph" in finding.message
    (finding,) = check_file(Exported(tmp_path / "m.onnx", "dynamo", proto), SPEC)
    assert "torch's dynamo exporter wrote it so" in finding.message


def test_the_history_of_operators() -> None:
    assert first_opset("Gelu") == 20
    assert first_opset("Frobnicate") is None
    assert introduced_after(["Relu", "Gelu", "LayerNormalization"], 16) == {
        "Gelu": 20,
        "LayerNormalization": 17,
    }
    assert changed_between("ReduceMean", 17, 18) == (18,)


def test_the_line_of_the_user_is_the_last_below_the_manifest(tmp_path: Path) -> None:
    own = tmp_path / "models" / "a.py"
    own.parent.mkdir()
    own.write_text("def forward(x):\n    return x.nothing\n")
    space: dict[str, object] = {}
    exec(compile(own.read_text(), str(own), "exec"), space)
    forward = space["forward"]
    assert callable(forward)
    with pytest.raises(AttributeError) as caught:
        forward(1)
    own_line = Line("models/a.py", 2, "return x.nothing", own=True)
    assert of_error(caught.value, tmp_path) == own_line
    stack = (
        f'File "{own}", line 1, in forward\n'
        'File "/v/lib/site-packages/timm/layers.py", line 7, in forward\n'
        'File "/v/lib/site-packages/torch/nn/modules/module.py", line 9, in _call\n'
    )
    found = of_stack(stack, tmp_path)
    assert found is not None
    assert str(found) == "models/a.py:1"
    assert at(found) == " (timm/layers.py:7, from models/a.py:1)"
    assert finding_at(OG116, "m", found, "note").file == "models/a.py"
    installed = of_stack("\n".join(stack.splitlines()[1:]), tmp_path)
    assert installed is not None
    assert at(installed) == " (timm/layers.py:7)"
    assert finding_at(OG116, "m", installed, "note").file is None
    # Of nodes that a pass of torch's has put in, torch keeps the end of its own path.
    short = 'File "torch/fx/passes/runtime_assert.py", line 24, in insert_deferred_runtime_asserts'
    assert of_stack(short, tmp_path) is None
    inside = of_stack(f"{stack}\n{short}", tmp_path)
    assert inside is not None
    assert str(inside) == "models/a.py:1"


class Padded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        remainder = x.shape[1] % 8
        if remainder > 0:
            x = nn.functional.pad(x, (0, 8 - remainder))
        return x.view(x.shape[0], -1, 8).sum(-1)


class Behind(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.padded = Padded()

    def forward(self, x: Tensor) -> Tensor:
        x = x * 2
        return self.padded(x)


@pytest.mark.parametrize("module", [Padded(), Behind()])
def test_a_condition_has_the_line_of_the_branch_and_no_operator_s_before_it(
    module: nn.Module,
) -> None:
    shapes, given = {"x": {0: "batch", 1: "seq"}}, (torch.rand(2, 61),)
    with specialising() as stacks:
        program = torch.onnx.export(
            module.eval(), given, dynamo=True, dynamic_shapes=shapes, verbose=False
        )
    assert program is not None
    assert program.exported_program is not None
    graph = program.exported_program.graph_module
    found = assumptions(graph, {"x": ("batch", "seq")}, stacks, Path(__file__).parent)
    lines = {each.text: each.source for each in found}
    line = lines["seq is no multiple of 8"]
    assert line is not None
    assert line.code == "if remainder > 0:"


def test_what_called_an_export_is_no_line_of_the_model() -> None:
    with specialising() as stacks:
        torch.export.export(
            Padded(), (torch.rand(2, 61),), dynamic_shapes={"x": {1: torch.export.Dim.DYNAMIC}}
        )
    here = test_what_called_an_export_is_no_line_of_the_model.__code__.co_firstlineno
    assert stacks.conditions
    own = {line for each in stacks.conditions.values() for file, line in each if file == __file__}
    assert own
    assert max(own) < here


CHECK = Check(runtime="ort", suite="s", case="s/0", output="y", verdict="diverged")
DIAGNOSIS = Diagnosis(runtime="ort", case="s/0", output="y", blame="exporter")


def test_nothing_is_guessed_where_nothing_is_known() -> None:
    assert hints(DIAGNOSIS, onnx.ModelProto(), CHECK) == ()
    unknown = DIAGNOSIS.model_copy(update={"node": GraphNode(name="n", op_type="Einsum")})
    assert hints(unknown, model([node("Relu", "x")]), CHECK) == ()


@pytest.mark.parametrize(
    ("proto", "expected", "actual", "code", "words"),
    [
        (model([node("Mod", "x", "k", fmod=1)], k=np.float32(3)), 1.0, -2.0, "OG701", "fmod=1"),
        (
            model([node("Div", "x", "k")], kind=INT, k=np.array([3])),
            -4.0,
            -3.0,
            "OG701",
            "Div of int64",
        ),
        (
            model([node("Div", "x", "k")], k=np.float32(0)),
            0.0,
            float("inf"),
            "OG712",
            "Div meets zero",
        ),
        (model([node("Relu", "x")]), float("nan"), 0.0, "OG709", "PyTorch only"),
        (model([node("Softmax", "x")]), float("nan"), 0.2, "OG705", "a row of the mask"),
        (model([node("Exp", "x")]), 3.3e38, float("inf"), "OG704", "float32, which ends at 3.4e38"),
        (model([node("Gelu", "x")], opset=20), 0.1, 0.2, "OG707", "approximate='none'"),
    ],
)
def test_the_worst_element_and_the_attributes_are_in_the_hint(
    proto: onnx.ModelProto, expected: float, actual: float, code: str, words: str
) -> None:
    guilty = proto.graph.node[0]
    named = GraphNode(name=guilty.name, op_type=guilty.op_type, output=guilty.output[0])
    worst = Worst(index=(0,), expected=expected, actual=actual)
    found = hints(
        DIAGNOSIS.model_copy(
            update={"node": named, "source": Source(file="m.py", line=3, code="x / k")}
        ),
        proto,
        CHECK.model_copy(update={"worst": worst}),
    )
    assert found[0].code == code
    assert words in found[0].message
    assert (found[0].severity, found[0].file, found[0].line) == ("note", "m.py", 3)


@pytest.mark.parametrize(
    ("guilty", "source", "born", "code", "words"),
    [
        # no mask, but a root of what rounding has made negative
        ("Softmax", "cdist(x).softmax(-1)", ("Sqrt", "float32", math.nan, -1e-7), "OG712", "Sqrt"),
        ("Softmax", "softmax(-1)", ("Softmax", "float32", math.nan), "OG705", "a row of the mask"),
        ("Log", "x.logsumexp(1)", ("Exp", "float32", math.inf, 97.0), "OG704", "logsumexp"),
        ("Div", "x / (y + 1e-8)", ("Div", "float16", math.nan, 0.0, 0.0), "OG712", "in float16"),
        ("Acos", "c.acos()", ("Acos", "float32", math.nan, 1.0000001), "OG712", "x.clamp(-1, 1)"),
        # no NaN is handed on: the exporter's own quotient has made it
        ("Where", "torch.atan2(x, y)", ("Div", "float32", math.nan, 0.0, 0.0), "", ""),
    ],
)
def test_what_makes_nan_of_numbers_is_the_reason(
    guilty: str, source: str, born: tuple[Any, ...], code: str, words: str
) -> None:
    op_type, dtype, made, *of = born
    update = {
        "node": GraphNode(name="n", op_type=guilty, output="y"),
        "source": Source(file="m.py", line=3, code=source),
        "nonfinite": Nonfinite(name="b", op_type=op_type, dtype=dtype, made=made, of=tuple(of)),
    }
    worst = Worst(index=(0,), expected=0.27, actual=made)
    check = CHECK.model_copy(update={"worst": worst})
    found = hints(DIAGNOSIS.model_copy(update=update), model([node(guilty, "x")]), check)
    assert [each.code for each in found if each.code != "OG119"] == ([code] if code else [])
    assert words in "".join(each.message for each in found)


@pytest.mark.parametrize(("code", "clamped"), [("x / y", True), ("torch.atan2(x, y)", False)])
def test_a_quotient_that_the_exporter_wrote_is_not_to_be_clamped(code: str, clamped: bool) -> None:
    named = GraphNode(name="n", op_type="Div", output="y")
    source = Source(file="m.py", line=3, code=code)
    update = {"node": named, "source": source}
    worst = Worst(index=(0,), expected=0.0, actual=float("nan"))
    proto = model([node("Div", "x", "x")])
    check = CHECK.model_copy(update={"worst": worst})
    found = hints(DIAGNOSIS.model_copy(update=update), proto, check)
    assert any(each.code == "OG712" for each in found) == clamped


@pytest.mark.parametrize(
    ("blame", "operator", "kept", "named"),
    [
        ("exporter", "Sqrt", False, True),
        ("exporter", "Mul", False, False),  # what is wrong at the line is another operator
        ("exporter", "Sqrt", True, False),
        ("stale artifact", "Sqrt", False, False),
    ],
)
def test_a_constant_that_the_exporter_dropped_is_the_reason_at_its_line(
    blame: Blame, operator: str, kept: bool, named: bool
) -> None:
    diagnosis = DIAGNOSIS.model_copy(
        update={
            "blame": blame,
            "node": GraphNode(name="n", op_type=operator, output="y"),
            "source": Source(file="m.py", line=3, code="return (x**2 + 1e-9).sqrt() * k"),
        }
    )
    worst = Worst(index=(0,), expected=3.16e-5, actual=0.0)
    constants: dict[str, Any] = {"k": np.float32(1e-9)} if kept else {}
    proto = model([node(operator, "x")], **constants)
    found = hints(diagnosis, proto, CHECK.model_copy(update={"worst": worst}))
    assert any(each.code == "OG124" for each in found) == named


@pytest.mark.parametrize(("reader", "named"), [("Log", True), ("Relu", False)])
def test_a_constant_that_was_dropped_behind_the_guilty_node_is_the_reason(
    reader: str, named: bool
) -> None:
    guilty = GraphNode(name="n", op_type="ReduceMean", output="h")
    source = Source(file="m.py", line=3, code="return x.square().mean(1).add(1e-8).log()")
    diagnosis = DIAGNOSIS.model_copy(update={"node": guilty, "source": source})
    worst = Worst(index=(0,), expected=-7.0, actual=-math.inf)
    proto = model([node("ReduceMean", "x", output="h"), node(reader, "h")])
    found = hints(diagnosis, proto, CHECK.model_copy(update={"worst": worst}))
    assert any(each.code == "OG124" for each in found) == named


@pytest.mark.parametrize("operator", sorted(OPERATOR_RULES))
def test_rules_take_a_node_without_attributes(operator: str) -> None:
    bare = helper.make_node(operator, ["x"], ["y"])
    named = GraphNode(name="", op_type=operator, output="y")
    scene = DivergenceFacts(DIAGNOSIS.model_copy(update={"node": named}), model([bare]), CHECK)
    for rule in (*DECISIVE_RULES, converted, *OPERATOR_RULES[operator]):
        said = rule(scene)
        assert said is None or str(said[0]) in CATALOGUE


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        (
            {"refused": ("runtime",), "refusal": {"input": "x", "axis": 0, "expected": 3}},
            "OG102",
            "axis 0 of its input x as 3",
        ),
        (
            {
                "refused": ("runtime",),
                "refusal": {
                    "op_type": "Relu",
                    "node": "n",
                    "words": "The input tensor cannot be reshaped to {3,8}",
                    "sizes": True,
                },
            },
            "OG102",
            "Relu 'n' is made for the sizes of the example",
        ),
        (
            {"refused": ("pytorch",), "reason": "PyTorch refuses (ValueError: negative)"},
            "OG305",
            "ValueError: negative",
        ),
        (
            {"form": "shape", "reason": "shape [2, 8] where PyTorch has [2]"},
            "OG122",
            "shape [2, 8] where PyTorch has [2]",
        ),
        ({"form": "number", "reason": "1 outputs where PyTorch has 2"}, "OG122", "1 outputs"),
    ],
)
def test_what_was_not_compared_has_a_hint_too(
    failure: dict[str, object], code: str, words: str
) -> None:
    failed = CHECK.model_copy(update=failure)
    findings = hints(DIAGNOSIS, model([node("Relu", "x")]), failed)
    assert [finding.code for finding in findings] == [code]
    assert words in findings[0].message


def test_how_many_there_are_is_told_of_what_chooses_them() -> None:
    limits: dict[str, Any] = {"most": np.int64(10), "iou": np.float32(0.7), "first": np.int64(0)}
    nodes = [
        node("NonMaxSuppression", "x", "x", "most", "iou", output="kept"),
        node("Gather", "kept", "first"),
    ]
    failed = CHECK.model_copy(update={"form": "shape", "reason": "shape [9] where PyTorch has [4]"})
    (found,) = hints(DIAGNOSIS, model(nodes, **limits), failed)
    assert found.code == "OG718"
    assert (
        "NonMaxSuppression 'n' (max_output_boxes_per_class=10, iou_threshold=0.7)" in found.message
    )


@pytest.mark.parametrize(
    ("operator", "attributes", "said"),
    [
        ("Conv", {"pads": [0, 0, 0, 0], "auto_pad": "NOTSET"}, False),
        ("Conv", {"pads": [0, 1]}, True),
        ("Conv", {"auto_pad": "SAME_UPPER"}, True),
        ("AveragePool", {"pads": [1, 1]}, True),
        ("AveragePool", {"pads": [1, 1], "count_include_pad": 1}, False),
        ("MaxPool", {"ceil_mode": 1}, True),
    ],
)
def test_a_window_with_pytorch_s_attributes_is_no_cause(
    operator: str, attributes: dict[str, Any], said: bool
) -> None:
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    named = GraphNode(name="", op_type=operator, output="y")
    facts = DivergenceFacts(DIAGNOSIS.model_copy(update={"node": named}), model([node]), CHECK)
    assert (window(facts) is not None) == said


def test_a_file_that_never_runs_is_made_for_no_sizes() -> None:
    words = {
        "op_type": "Relu",
        "node": "n",
        "words": "Shape mismatch {2,8} != {3,8}",
        "sizes": True,
    }
    refused = CHECK.model_copy(update={"refused": ("runtime",), "refusal": words})
    proto = model([helper.make_node("Relu", ["x"], ["y"])])
    other = CHECK.model_copy(update={"case": "random/0"})
    [somewhere] = explaining(DIAGNOSIS, proto, refused, [refused, other])
    [nowhere] = explaining(DIAGNOSIS, proto, refused, [refused, refused])
    assert (somewhere.code, nowhere.code) == ("OG102", "OG305")
    # The sizes that ONNX Runtime makes of it are none of the file's.
    optimised = DIAGNOSIS.model_copy(update={"blame": "optimiser"})
    assert "OG102" not in [f.code for f in explaining(optimised, proto, refused, [refused, other])]


class Saturation(nn.Module):
    """As colour spaces have it: what keeps the quotient from zero stands at another line."""

    def __init__(self) -> None:
        super().__init__()
        self.eps = 1e-8

    def forward(self, x: Tensor) -> Tensor:
        top = x.amax(-1)
        safe = top + self.eps
        return (top - x.amin(-1)) / safe


def test_a_constant_that_was_dropped_at_another_line_is_the_reason() -> None:
    program = torch.onnx.export(Saturation(), (torch.rand(2, 3),), dynamo=True, verbose=False)
    assert program is not None
    assert program.exported_program is not None
    proto = program.model_proto
    said = list(deleted_constants(program.exported_program, proto, Path(__file__).parent))
    quotient = next(each for each in proto.graph.node if each.op_type == "Div")
    update = {
        "node": GraphNode(name=quotient.name, op_type="Div", output=quotient.output[0]),
        "source": Source(file=Path(__file__).name, line=1, code="return (top - x.amin(-1)) / safe"),
    }
    worst = Worst(index=(0,), expected=0.0, actual=math.nan)
    check = CHECK.model_copy(update={"worst": worst})
    (found,) = explaining(DIAGNOSIS.model_copy(update=update), proto, check, said=said)
    assert found.code == "OG124"
    assert "a constant that `safe = top + self.eps` adds" in found.message


def test_a_line_of_a_file_that_has_other_code_by_now_is_not_today_s(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("def forward(x):\n    return x + 1\n")
    stack = f'  File "{path}", line 2, in forward\n    return {{}}\n'
    same, changed = (of_stack(stack.format(code), tmp_path) for code in ("x + 1", "x + 2"))
    assert same is not None
    assert (same.own, same.code) == (True, "return x + 1")
    assert changed is not None
    assert (changed.own, changed.code) == (False, "return x + 2")
