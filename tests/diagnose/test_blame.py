"""Who is blamed, on small models that go wrong at each link of the chain."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxscript
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from onnxscript import opset18 as op
from torch import Tensor, nn

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.blame.blame import find_blame
from onnx_gate.diagnose.blame.blame_result import BlameResult
from onnx_gate.diagnose.blame.optimisers import MOST, fewest_without
from onnx_gate.diagnose.blame.stale import remedy_of_stale
from onnx_gate.diagnose.diagnose import diagnose
from onnx_gate.diagnose.hints.hints import explaining
from onnx_gate.diagnose.localize.localize import Located, localize
from onnx_gate.diagnose.tie_break import decide_on_node
from onnx_gate.manifest import InputSpec, ModelSpec, RuntimeSpec
from onnx_gate.report.model import Metrics
from onnx_gate.report.model.check import Worst
from onnx_gate.report.model.diagnosis import Diagnosis, Evidence
from onnx_gate.report.story import diagnosed
from onnx_gate.runtimes.torch_eager import Eager, to_tensor
from onnx_gate.verify.build import build
from onnx_gate.verify.subject import Subject
from tests.support.diverging import Of, make, normal, padded
from tests.support.gate import run_few

PLAIN = "ONNX Runtime, optimisations off, against PyTorch"


def said(found: BlameResult, experiment: str) -> Any:
    """The evidence of the experiments that begin so."""
    chosen = [e for e in found.evidence if e.experiment.startswith(experiment)]
    assert chosen, [e.experiment for e in found.evidence]
    return chosen[0]


def shown(found: BlameResult) -> Evidence:
    """Return the experiment that the comment, the terminal and the page show beside the blame."""
    diagnosis = Diagnosis(
        runtime="onnxruntime", case="c", output="y", blame=found.blame, evidence=found.evidence
    )
    deciding = diagnosed.deciding(diagnosis)
    assert deciding is not None
    assert deciding.decisive
    return deciding


# -- model


class Counter(nn.Module):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


class Running(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += x.mean(0)
        return x - self.seen


@pytest.mark.parametrize(
    "module",
    [
        Counter(),
        Running(),
        Of(lambda x: x + torch.rand(4)),
        Of(lambda x: x * float(np.random.default_rng().random())),
    ],
    ids=["counter", "buffer", "torch.rand", "numpy"],
)
def test_a_model_that_disagrees_with_itself(tmp_path: Path, module: nn.Module) -> None:
    subject = make(tmp_path, module, normal(3, 4))
    state = {k: v.clone() for k, v in module.state_dict().items()}
    calls = getattr(module, "calls", None)
    found = find_blame(subject)
    assert found.blame == "model"
    assert "called twice" in found.evidence[-1].experiment
    assert "differs by" in found.evidence[-1].outcome
    assert calls == getattr(module, "calls", None)
    assert all(torch.equal(state[k], v) for k, v in module.state_dict().items())


# -- capture


def times_size(x: Tensor) -> Tensor:
    return x * int(x.shape[0])


def by_sign(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x - 1


def by_size(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] > 4 else x - 1


def by_largest(x: Tensor) -> Tensor:
    return x / float(x.abs().max())


def fixed_rows(x: Tensor) -> Tensor:
    return x.reshape(int(x.shape[0]), 2, 2).sum(1)


def traced_on_ones(folder: Path) -> Subject:
    """A committed file that someone traced on inputs that the gate does not know."""
    path = folder / "old.onnx"
    torch.onnx.export(Of(by_sign), (torch.ones(3, 4),), str(path), input_names=["x"], dynamo=False)
    return make(folder, Of(by_sign), -np.abs(normal(3, 4)), file=path)


def by_sum(x: Tensor) -> Tensor:
    return x * 2 if float(x.sum()) > 0 else x - 1


def traced_above(folder: Path) -> Subject:
    """A committed file of a branch that the gate's own example does not take, decided by a float."""
    path = folder / "old.onnx"
    torch.onnx.export(Of(by_sum), (torch.ones(3, 4),), str(path), input_names=["x"], dynamo=False)
    return make(folder, Of(by_sum), -np.abs(normal(3, 4)), file=path)


def traced_number(folder: Path) -> Subject:
    path = folder / "old.onnx"
    torch.onnx.export(Of(by_largest), (torch.full((3, 4), 7.0),), str(path), dynamo=False)
    return make(folder, Of(by_largest), normal(3, 4), file=path)


CAPTURE: dict[str, Callable[[Path], Subject]] = {
    "traced branch": lambda f: make(
        f, Of(by_sign), np.abs(normal(3, 4)), exporter="torchscript"
    ),
    "traced size": lambda f: make(
        f, Of(times_size), normal(5, 4), shape=("n", 4), exporter="torchscript"
    ),
    "traced size, refused": lambda f: make(
        f, Of(fixed_rows), normal(5, 4), shape=("n", 4), exporter="torchscript"
    ),
    "traced branch, file": traced_on_ones,
    "traced branch by a float, file": traced_above,
    "traced number, file": traced_number,
    "exported branch on a size": lambda f: make(
        f, Of(by_size), normal(7, 4), shape=("n", 4)
    ),
}  # fmt: skip


# -- exporter


def wrong_gelu(module: nn.Module, x: Tensor, path: Path) -> None:
    """torch.export is right, the translation of one operator is not."""

    def gelu(self, approximate: str = "none"):
        return op.Mul(self, op.Sigmoid(op.Mul(self, op.Constant(value_float=1.702))))

    torch.onnx.export(
        module,
        (x,),
        dynamo=True,
        verbose=False,
        custom_translation_table={
            torch.ops.aten.gelu.default: onnxscript.values.TracedOnnxFunction(
                onnxscript.values.Opset("mine", 1), gelu
            )
        },
    ).save(str(path))


def wrong_symbolic(module: nn.Module, x: Tensor, path: Path) -> None:
    def elu(g, x, alpha, scale, input_scale):
        return g.op("Elu", x, alpha_f=0.5)

    torch.onnx.register_custom_op_symbolic("aten::elu", elu, 17)  # type: ignore[attr-defined]
    try:
        torch.onnx.export(
            module, (x,), str(path), input_names=["x"], dynamo=False, opset_version=17
        )
    finally:
        torch.onnx.unregister_custom_op_symbolic("aten::elu", 17)  # type: ignore[attr-defined]


def averaged(x: Tensor) -> Tensor:
    index = torch.tensor([[0, 0, 1], [1, 1, 1]])
    return x.scatter_reduce(1, index, torch.ones(2, 3) * 3, "mean")


def checked(x: Tensor) -> Tensor:
    if not torch.jit.is_tracing() and x.shape[0] > 5:  # type: ignore[attr-defined]
        raise ValueError("five rows at most")
    return x * 2


EXPORTER: dict[str, Callable[[Path], Subject]] = {
    "translation": lambda f: make(f, nn.GELU(), normal(3, 4), exporter=wrong_gelu),
    "symbolic": lambda f: make(f, nn.ELU(), normal(3, 4), exporter=wrong_symbolic),
    "scatter_reduce": lambda f: make(f, Of(averaged), normal(2, 3)),
    "dropped epsilon": lambda f: make(f, Of(norm), np.full((3, 7), 0.1, np.float32)),
    "file": lambda f: file_of(f, Of(averaged), normal(2, 3)),
}


def file_of(
    folder: Path,
    module: nn.Module,
    x: np.ndarray,
    change: Callable[[nn.Module], None] | None = None,
) -> Subject:
    """``module`` exported and committed, and then changed."""
    path = folder / "old.onnx"
    program = torch.onnx.export(module.eval(), (to_tensor(x),), dynamo=True, verbose=False)
    program.save(str(path))
    if change is not None:
        change(module)
    return make(folder, module, x, file=path)


# -- optimiser


def padded_and_tiny(x: Tensor) -> Tensor:
    # The exporter has exp(x) - 1 for expm1, which is off by a thousandth here.
    return padded(x) + 1e4 * torch.expm1(x.mean() * 1e-5)


def norm(x: Tensor) -> Tensor:
    d = x - x.mean(-1, keepdim=True)
    return d / torch.sqrt((d**2).mean(-1, keepdim=True) + 1e-12) * torch.ones(7) + torch.zeros(7)


CASTS = RuntimeSpec(
    "onnxruntime", session_options={"optimization.enable_cast_chain_elimination": "1"}
)

OPTIMISER: dict[str, tuple[str, Callable[[Path], Subject]]] = {
    "zero padding of a maximum": (
        "Pad_Fusion",
        lambda f: make(f, Of(padded), normal(1, 3, 12, 12) - 5),
    ),
    "beside a smaller fault": (
        "Pad_Fusion",
        lambda f: make(f, Of(padded_and_tiny), normal(1, 3, 12, 12) - 5),
    ),
    "norm of a constant": (
        "LayerNormFusionL1",
        lambda f: make(f, Of(norm), np.full((3, 7), 0.1, np.float32), exporter="torchscript"),
    ),
    "casts": (
        "CastChainElimination",
        lambda f: make(f, Of(lambda x: x.half().float()), normal(3, 4), runtime=CASTS),
    ),
}


# -- kernel, stale artifact, ill-conditioned


def with_nan(*shape: int, at: int = 0) -> np.ndarray:
    x = normal(*shape)
    x.flat[at] = np.nan
    return x


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))


def retrained(module: nn.Module) -> None:
    module[2].weight.data += 0.1


def rescaled(module: nn.Module) -> None:
    """A factor of one and a half units of float16, throughout."""
    for parameter in module[2].parameters():
        parameter.data *= 1.003


def with_relu(module: nn.Module) -> None:
    module[1] = nn.ReLU()


def leakier(module: nn.Module) -> None:
    module.negative_slope = 0.3


def cancelling(x: Tensor) -> Tensor:
    return ((x + 1e4) @ torch.ones(512, 1)) - 512e4


def in_reverse(module: nn.Module) -> None:
    module[2].weight.data = module[2].weight.data.flip(0)


class Placed(nn.Module):
    """What it computes of its weights alone is a constant of the file, under no name of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.down, self.along = (nn.Parameter(torch.randn(9, 6)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        places = torch.tensor([0, 3, 1, 2])
        return (x * self.down[places]).relu() + x.sin() * self.along[places]


def exchanged(module: nn.Module) -> None:
    module.down, module.along = module.along, module.down


def bounded(folder: Path) -> Subject:
    """A file that says of an operator what a fresh export leaves to its default."""
    x = normal(3, 4)
    x[1, 2] = -np.inf
    subject = file_of(folder, Of(lambda x: torch.where(torch.isinf(x), torch.zeros(()), x)), x)
    proto = onnx.load(str(subject.exported.path))
    node = next(node for node in proto.graph.node if node.op_type == "IsInf")
    node.attribute.append(onnx.helper.make_attribute("detect_negative", 0))
    onnx.save(proto, str(subject.exported.path))
    return subject


class Among(nn.Module):
    few = 2

    def forward(self, x: Tensor) -> Tensor:
        return (x == torch.tensor([0.0, 1.0, -1.0])[: self.few]).any(-1).float() + x[:, 0]


def longer(module: nn.Module) -> None:
    module.few = 3


OTHERS: dict[str, tuple[str, Callable[[Path], Subject]]] = {
    "sorting NaN": ("kernel", lambda f: make(f, Of(lambda x: x.sort()[0]), with_nan(4, 8))),
    "weights": ("stale artifact", lambda f: file_of(f, mlp(), normal(3, 8), retrained)),
    "graph": ("stale artifact", lambda f: file_of(f, mlp(), normal(3, 8), with_relu)),
    "half": (
        "stale artifact",
        lambda f: file_of(f, mlp().half(), normal(64, 8).astype(np.float16), rescaled),
    ),
    "cancellation": ("ill-conditioned", lambda f: make(f, Of(cancelling), normal(5, 512))),
    # log(1 + x), which it is exported as, is as good as a logarithm of 1 + x can be.
    "log1p": (
        "ill-conditioned",
        lambda f: make(f, Of(torch.log1p), np.asarray([1e-8, 1e-5, 1e-4], np.float32)),
    ),
    "tight": ("ill-conditioned", lambda f: make(f, mlp(), normal(64, 8))),
}


class Both(nn.Module):
    """Sorts, and then does what the reference evaluator cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 6, 3, 2, 1, 1, groups=3, dilation=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(x.sort(-1)[0].nan_to_num(0.5))


OTHERS |= {
    "sorting NaN, unseen": ("kernel", lambda f: make(f, Both(), with_nan(1, 3, 8, 8))),
    "sorting NaN, a file": ("kernel", lambda f: file_of(f, Both(), with_nan(1, 3, 8, 8))),
    "beside a wrong evaluator": (
        "exporter",
        lambda f: make(
            f,
            nn.Sequential(nn.MaxPool2d(2), nn.GELU()),
            with_nan(1, 1, 4, 4, at=5),
            exporter=wrong_gelu,
        ),
    ),
    "a checked size": (
        "exporter",
        lambda f: make(f, Of(checked), normal(7, 4), shape=("n", 4)),
    ),
    "wrong evaluator": (
        "kernel",
        lambda f: make(
            f, nn.MaxPool2d(2), with_nan(1, 1, 4, 4, at=5), runtime=RuntimeSpec("reference")
        ),
    ),
    "no optimisation": (
        "kernel",
        lambda f: make(
            f,
            Of(lambda x: x.sort()[0]),
            with_nan(4, 8),
            runtime=RuntimeSpec("onnxruntime", optimization="off"),
        ),
    ),
    "constants": ("stale artifact", lambda f: file_of(f, nn.LeakyReLU(0.2), normal(3, 8), leakier)),
    "reversed": ("stale artifact", lambda f: file_of(f, mlp(), normal(3, 8), in_reverse)),
    "exchanged": ("stale artifact", lambda f: file_of(f, Placed(), normal(3, 4, 6), exchanged)),
    "a usual attribute": ("stale artifact", bounded),
    "a list": ("stale artifact", lambda f: file_of(f, Among(), normal(64, 1).round(), longer)),
}


# -- what is said of each


@pytest.mark.parametrize("name", CAPTURE)
def test_what_capture_bakes_in(tmp_path: Path, name: str) -> None:
    found = find_blame(CAPTURE[name](tmp_path))
    assert found.blame == "capture"
    assert found.plain_agrees is False
    if "traced" in name:
        traced = [e for e in found.evidence if e.experiment.startswith("torch.jit.trace")][-1]
        assert traced.agrees is False or "number" in name
        assert "torch warns at test_blame.py:" in traced.outcome
    else:
        assert "Guard failed: x.size()[0] <= 4" in said(found, "ExportedProgram").outcome
    if "size" in name:
        assert said(found, f"{PLAIN}, on the export's example (x [2, 4])").agrees is True


@pytest.mark.parametrize("name", EXPORTER)
def test_a_wrong_lowering(tmp_path: Path, name: str) -> None:
    found = find_blame(EXPORTER[name](tmp_path))
    assert found.blame == "exporter"
    assert said(found, "ONNX reference evaluator, against PyTorch").agrees is False
    assert said(found, "ONNX reference evaluator against ONNX Runtime").agrees is True
    # Two engines that share nothing make the same error of the graph: it is not the engine's.
    assert (shown(found).kind, shown(found).agrees) == ("same error", True)
    if name == "file":
        assert said(found, "a fresh export (dynamo) against the file").agrees is True


def test_the_exporter_s_own_optimiser_is_left_out_where_that_makes_it_right(
    tmp_path: Path,
) -> None:
    found = find_blame(make(tmp_path, Of(lambda x: (x * 1e-9 + 1e-9) * 1e9), normal(3, 8)))
    assert found.blame == "exporter"
    assert said(found, "a fresh export (dynamo) that its own optimiser has not").agrees is True
    assert found.likely == "the exporter's own optimiser changed what the graph computes"
    assert found.remedy == "leave that optimiser out, `export: {optimize: false}`"
    assert shown(found).kind == "same error"


def apart(x: Tensor) -> Tensor:
    d = x[:, None] - x
    return d / ((d**2).sum(-1, keepdim=True) + 1e-9).sqrt()


def test_an_answer_that_has_nan_too_agrees_with_none(tmp_path: Path) -> None:
    found = find_blame(make(tmp_path, Of(apart), normal(4, 3), shape=("n", 3)))
    assert found.blame == "exporter"
    example = said(found, f"{PLAIN}, on the export's example")
    assert example.agrees is False
    assert "NaN" in example.outcome


def louder(module: nn.Module, x: Tensor, path: Path) -> None:
    wrong = nn.Sequential(module, Of(lambda y: y * 1.5)).eval()
    torch.onnx.export(wrong, (x,), path, dynamo=True, verbose=False)


def test_what_onnxruntime_has_no_kernel_for_is_decided_by_what_runs_the_file(
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(8, 8).bfloat16()
    brain = nn.Sequential(Of(lambda x: x.bfloat16()), layer, Of(lambda x: x.float()))
    found = find_blame(
        make(tmp_path, brain, normal(3, 8), exporter=louder, runtime=RuntimeSpec("half"))
    )
    assert found.blame == "exporter"
    assert said(found, PLAIN).agrees is None
    assert said(found, "ONNX reference evaluator against half").agrees is True


@pytest.mark.parametrize("name", OPTIMISER)
def test_a_fusion_that_changes_the_answer_is_named(tmp_path: Path, name: str) -> None:
    optimiser, make_subject = OPTIMISER[name]
    found = find_blame(make_subject(tmp_path))
    assert (found.blame, found.fused_by) == ("optimiser", optimiser)
    assert found.plain_agrees is True
    assert said(found, "ONNX Runtime at level basic, against").agrees is False
    healed = said(found, f"ONNX Runtime at level basic without {optimiser},")
    assert healed.agrees is True
    assert shown(found) == healed


@given(harmful=st.sets(st.integers(0, 22), min_size=1, max_size=5), count=st.integers(1, 23))
def test_of_several_that_do_harm_each_alone_all_are_named(harmful: set[int], count: int) -> None:
    names = [f"Fusion{place}" for place in range(count)]
    wrong = {names[place % count] for place in harmful}
    tried = 0

    def without(off: Sequence[str]) -> bool:
        nonlocal tried
        tried += 1
        return wrong <= set(off)

    found = fewest_without(names, without, lambda: 60.0)
    assert set(found) == (wrong if len(wrong) <= MOST else set())
    assert fewest_without(names, without, lambda: 0.0) == []
    if len(wrong) == 1:
        assert tried <= 4 + 2 * math.ceil(math.log2(count + 1))


DIFFERENCES = {
    "weights": "the weight 2.weight has other values in the file, all of them",
    "half": ", and 1 of 3 others",
    "graph": "it has 1 Gelu that a fresh export has not and lacks 1 Relu",
    "constants": "has alpha=0.2 where a fresh export has 0.3",
    "reversed": "the weight 2.weight is in another order in the file: the same rows in reverse order",
    "exchanged": "2 constants are in each other's places in the file",
    "a usual attribute": "has detect_negative=0 where a fresh export has 1",
    "a list": "of Equal is [0.0, 1.0] where a fresh export has [0.0, 1.0, -1.0]",
}


DECIDING = {
    "weights": "file",
    "graph": "graph",
    "half": "file",
    "constants": "graph",
    "reversed": "graph",
    "exchanged": "graph",
    "a usual attribute": "graph",
    "a list": "graph",
    "cancellation": "runtime",
    "log1p": "runtime",
    "tight": "runtime",
    "beside a wrong evaluator": "all nodes",
    "a checked size": "same error",
    "wrong evaluator": "optimised",
}


# The least error, of the output's scale, that rounding explains.
EXPLAINED = {"cancellation": 1e-3, "log1p": 1e-4}


@pytest.mark.parametrize("name", OTHERS)
def test_other_verdicts(tmp_path: Path, name: str) -> None:
    blame, make_subject = OTHERS[name]
    found = find_blame(make_subject(tmp_path))
    assert found.blame == blame
    assert shown(found).kind == DECIDING.get(name, "node")
    if blame == "stale artifact":
        assert DIFFERENCES[name] in found.note
        assert DIFFERENCES[name] in said(found, "the file against a fresh export").outcome
    if name in EXPLAINED:
        deciding = said(found, "onnxruntime, against PyTorch")
        assert deciding.error > EXPLAINED[name]
        assert "which rounding explains" in deciding.outcome


def test_a_file_of_renamed_values_is_compared_by_content(tmp_path: Path) -> None:
    subject = file_of(tmp_path, mlp(), normal(3, 8), retrained)
    model = onnx.load(str(subject.exported.path))
    names: dict[str, str] = {}
    for tensor in model.graph.initializer:
        tensor.name = names.setdefault(tensor.name, f"w{len(names)}")
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    onnx.save(model, str(subject.exported.path))
    found = find_blame(subject)
    assert found.blame == "stale artifact"
    assert "1 of the file's 4 weights are none of the module's" in found.note


def test_weights_that_are_accounted_for_are_not_what_is_stale(tmp_path: Path) -> None:
    """A fresh export has folded the norm, and training mode moves statistics that nothing reads."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(2, 6, 1), nn.BatchNorm2d(6)).eval()
    x, path = normal(4, 2, 3, 3), tmp_path / "old.onnx"
    torch.onnx.export(
        module,
        (to_tensor(x),),
        path,
        dynamo=False,
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
        verbose=False,
    )
    found = find_blame(make(tmp_path, module.eval(), x, file=path))
    assert found.blame == "stale artifact"
    assert shown(found).kind == "graph"
    assert not [each for each in found.evidence if "weight" in each.outcome]
    assert not found.likely


class Shifted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]))
        self.fc = nn.Linear(3, 8)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.fc(x - self.mean)
        return result


def test_few_numbers_are_a_weight_too(tmp_path: Path) -> None:
    """A mean of three channels, of other numbers and under a name of the script's."""
    subject = file_of(tmp_path, Shifted(), normal(3, 3))
    model = onnx.load(str(subject.exported.path))
    node = next(each for each in model.graph.node if each.op_type == "Sub")
    node.input[1] = "pre_mean"
    values = np.array([0.7, 0.5, 0.4], np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(values, "pre_mean"))
    onnx.save(model, str(subject.exported.path))
    found = find_blame(
        dataclasses.replace(
            subject,
            exported=make(
                tmp_path, subject.eager.module, normal(3, 3), file=subject.exported.path
            ).exported,
        )
    )
    assert found.blame == "stale artifact"
    assert shown(found).kind == "file"
    assert "the first is pre_mean, where mean belongs" in found.likely


def test_a_stale_file_parts_from_a_fresh_export_at_a_line(tmp_path: Path) -> None:
    """An epsilon that is added, where the module clamps: no node alone is visibly wrong."""
    (tmp_path / "floor.py").write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    floor = False\n\n"
        "    def forward(self, x):\n        x = x.abs()\n        if self.floor:\n"
        "            x = x.clamp(min=1e-5)\n        else:\n            x = x + 1e-5\n"
        "        return x.log()\n"
    )
    spec = ModelSpec("model", "floor.py:Model", {"x": InputSpec("float32", (3, 8))})
    module = build(spec, tmp_path).module
    subject = file_of(tmp_path, module, normal(3, 8), lambda m: setattr(m, "floor", True))
    found = find_blame(subject)
    assert found.blame == "stale artifact"
    assert "lacks 1 Clip; they part at `x = x.clamp(min=1e-5)` (floor.py:10)" in found.note
    # What decides is shown by itself, and is no note beside it.
    assert "they part" not in diagnose(subject, Deadline(60.0)).note


class Grouped(nn.Module):
    def __init__(self, groups: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv1d(5, 8, 3, padding=1), nn.GroupNorm(groups, 8)

    def forward(self, x: Tensor) -> Tensor:
        spread = x.std(-1, keepdim=True) + 1e-5
        result: Tensor = self.norm(self.conv((x - x.mean(-1, keepdim=True)) / spread))
        return result * spread.mean(1, keepdim=True)


def test_numbers_that_exporters_count_up_are_not_taken_for_each_other(tmp_path: Path) -> None:
    """Of eight groups the ones of the scale have the name that of four the zeros have."""
    sizes = ({0: torch.export.Dim("n"), 2: torch.export.Dim("t")},)
    x, path = normal(3, 5, 9), tmp_path / "old.onnx"
    old = Grouped(8).eval()
    torch.onnx.export(old, (to_tensor(x),), path, dynamo=True, dynamic_shapes=sizes, verbose=False)
    found = find_blame(make(tmp_path, Grouped(4), x, shape=("n", 5, "t"), file=path))
    assert found.blame == "stale artifact"
    assert "everywhere" not in found.note
    assert "[0, 8, -1] where a fresh export has [0, 4, -1]" in found.note


class Thirds(nn.Module):
    """Of negative numbers the older exporter's third is another one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc((x.long() // 3).float())


def test_no_exporter_is_advised_that_is_wrong_elsewhere(tmp_path: Path) -> None:
    """Retrained since: on numbers from 0 up a fresh export of the older exporter agrees."""
    module, x = Thirds().eval(), 9 * np.abs(normal(8, 5))
    path = tmp_path / "old.onnx"
    torch.onnx.export(module, (to_tensor(x),), path, dynamo=False, verbose=False)
    module.fc.weight.data += 0.3
    subject = make(tmp_path, module, x, file=path)
    found = find_blame(subject)
    assert found.blame == "stale artifact"
    assert found.remedy == (
        "export the file anew whenever the model or its weights change, or leave onnx out and let "
        "the gate export (torchscript gets it wrong, too)"
    )
    # A file that is as wrong as any is no reason to leave it to the gate.
    for by, remedy in (
        ({"dynamo": False, "torchscript": True}, "with `export: {exporter: torchscript}`"),
        ({"dynamo": False}, "a fresh export (dynamo) is wrong as well"),
        ({"dynamo": None}, "export the file anew whenever the model or its weights change"),
    ):
        made = [
            Evidence(kind="fresh export", experiment="", outcome="", agrees=agrees, exporter=name)
            for name, agrees in by.items()
        ]
        assert remedy in remedy_of_stale(made)
        assert ("leave onnx out" in remedy_of_stale(made)) == (True in by.values())


class Heard(nn.Module):
    """Attention to the keys above a bar, which is over nothing where none is."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        heard = (x[..., 0] > 0.9)[:, None, None, :].expand(-1, 1, x.shape[1], -1)
        x = self.fc(x)[:, None]
        return F.scaled_dot_product_attention(x, x, x, attn_mask=heard)[:, 0]


def test_what_pytorch_leaves_open_makes_no_fresh_export_wrong(tmp_path: Path) -> None:
    """On the export's example no key is heard: PyTorch says 0 there, and an export another number."""
    module, x = Heard().eval(), 1 + np.abs(normal(2, 3, 4))
    old, path = Heard().eval(), tmp_path / "old.onnx"
    torch.nn.init.zeros_(old.fc.weight)
    sizes = ({0: torch.export.Dim("n")},)
    torch.onnx.export(old, (to_tensor(x),), path, dynamo=True, dynamic_shapes=sizes, verbose=False)
    found = find_blame(make(tmp_path, module, x, file=path, shape=("n", 3, 4)))
    assert found.blame == "stale artifact"
    elsewhere = [e for e in found.evidence if e.kind == "export's example" and e.exporter]
    assert [e.agrees for e in elsewhere if e.exporter == "dynamo"] == [True]
    assert "gets it wrong" not in found.remedy
    assert "wrong as well" not in found.remedy


def test_state_that_two_calls_do_not_show(tmp_path: Path) -> None:
    (tmp_path / "saturating.py").write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    calls = 0\n\n"
        "    def forward(self, x):\n        self.calls = min(self.calls + 1, 9)\n"
        "        return x * float(self.calls)\n"
    )
    spec = ModelSpec("model", "saturating.py:Model", {"x": InputSpec("float32", (3, 4))})
    built, x = build(spec, tmp_path).module, normal(3, 4)
    subject = make(tmp_path, build(spec, tmp_path).module, x)
    for _ in range(12):
        built(to_tensor(x))
    subject = dataclasses.replace(subject, spec=spec, eager=Eager(built, ("x",)))
    found = find_blame(subject)
    assert found.blame == "model"
    assert "keeps state" in found.note


SCALE = {"value": 2.0}


def test_what_the_module_reads_and_the_program_has_read(tmp_path: Path) -> None:
    subject = make(tmp_path, Of(lambda x: x * SCALE["value"]), normal(3, 4))
    SCALE["value"] = 3.0
    try:
        found = find_blame(subject)
    finally:
        SCALE["value"] = 2.0
    assert found.blame == "capture"
    assert "captured now it is right" in found.note


def test_a_wrong_decomposition_is_the_exporter_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = torch._decomp.decomposition_table
    monkeypatch.setitem(table, torch.ops.aten.hypot.default, lambda a, b: a.abs() + b.abs())
    subject = make(tmp_path, Of(lambda x: torch.hypot(x, x + 1)), normal(3, 4), shape=("n", 4))
    found = find_blame(subject)
    assert found.blame == "exporter"
    assert "decomposition" in found.note
    assert found.program_agrees is False


def test_a_divergence_that_is_not_there_again(tmp_path: Path) -> None:
    subject = make(tmp_path, mlp(), normal(3, 8))
    seen = Metrics(elements=24, max_abs=0.5, max_rel=1.0, rms=0.1)
    check = subject.check.model_copy(update={"metrics": seen})
    found = find_blame(dataclasses.replace(subject, check=check))
    assert found.blame == "undecided"
    assert "does not repeat" in found.note


def test_no_time_and_no_process_is_an_answer_too(tmp_path: Path) -> None:
    subject = file_of(tmp_path, mlp(), normal(3, 8), retrained)
    late = find_blame(subject, seconds=0.0)
    assert late.blame == "undecided"
    assert "no time was left" in late.evidence[0].outcome
    slow = Eager(Of(lambda x: time.sleep(600)), ("x",))
    found = find_blame(dataclasses.replace(subject, eager=slow), seconds=1.0)
    assert (found.blame, found.evidence[0].outcome) == (
        "undecided",
        "could not be run: no answer after 1 s",
    )
    deadly = Eager(Of(lambda x: os.kill(os.getpid(), signal.SIGKILL)), ("x",))
    found = find_blame(dataclasses.replace(subject, eager=deadly))
    assert found.blame == "undecided"
    assert "SIGKILL" in found.evidence[0].outcome


def test_no_kernel_is_wrong_where_each_node_is_right_alone(tmp_path: Path) -> None:
    """The logarithm of a sigmoid is -inf in ONNX Runtime, and not in the evaluator."""
    x = np.asarray([[-40.0, -20.0, 0.0, 3.0]], np.float32)
    subject = make(tmp_path, nn.LogSigmoid(), x)
    found = find_blame(subject)
    assert found.blame != "kernel"
    assert said(found, "ONNX reference evaluator, against PyTorch").agrees is True
    assert "nodes could be compared and agree" in said(found, "each node").outcome
    # It is one operator of PyTorch's, and two nodes.
    assert decide_on_node(subject, found, localize(subject)).blame == "exporter"
    written = make(tmp_path, Of(lambda x: torch.log(torch.sigmoid(x))), x)
    found, located = find_blame(written), localize(written)
    assert decide_on_node(written, found, located).blame == "undecided"
    worst = Worst(index=(0, 0), expected=-40.0, actual=-math.inf)
    check = written.check.model_copy(update={"worst": worst})
    hints = explaining(_diagnosis(located), written.exported.proto, check)
    assert [hint.code for hint in hints] == ["OG126"]


def _diagnosis(located: Located) -> Diagnosis:
    return Diagnosis(
        runtime="onnxruntime", case="c", output="y", blame="undecided", node=located.node
    )


def test_what_onnx_does_not_say_of_nan_is_no_fault_of_the_exporter(tmp_path: Path) -> None:
    """The evaluator runs GridSample, and fails at a NaN in the grid, of which ONNX Runtime makes 0."""
    image = torch.arange(9.0).reshape(1, 1, 3, 3) + 1

    def sampled(x: Tensor) -> Tensor:
        x = (x * 2).abs() * x.sign() / 2 + 0.25
        return F.grid_sample(image.expand(x.shape[0], 1, 3, 3), x + 0.1, align_corners=True)

    x = np.clip(normal(2, 2, 2, 2), -0.5, 0.5)
    x[0, 0, 0] = math.nan
    subject = make(tmp_path, Of(sampled), x)
    found = find_blame(subject)
    each = said(found, "each node in the ONNX reference evaluator")
    assert "it fails at GridSample: ValueError: cannot convert float NaN to integer" in each.outcome
    assert "does not run" not in each.outcome
    assert found.blame == "exporter"
    decided = decide_on_node(subject, found, localize(subject))
    assert decided.blame == "kernel"
    undecided = BlameResult("undecided", plain_agrees=False)
    assert decide_on_node(subject, undecided, localize(subject)).blame == "kernel"
    assert decided.likely.startswith(
        "GridSample is fed NaN or infinity, of which ONNX does not say"
    )
    assert "torch.nan_to_num" in decided.remedy
    assert shown(decided).kind == "node"


def test_broken_files_are_evidence(tmp_path: Path) -> None:
    subject = file_of(tmp_path, mlp(), normal(3, 8), retrained)
    subject.exported.path.write_bytes(b"\x08\x01nonsense")
    found = find_blame(subject)
    assert found.blame in ("stale artifact", "undecided")
    assert "it refuses" in said(found, "onnxruntime, against").outcome


def test_one_node_decides_where_the_whole_is_too_much(tmp_path: Path) -> None:
    undecided = BlameResult("undecided", plain_agrees=False)
    subject = make(tmp_path, Of(lambda x: x.sort()[0] * 2), with_nan(4, 8))
    located = localize(subject)
    found = decide_on_node(subject, undecided, located)
    assert (found.blame, found.evidence[-1].agrees) == ("kernel", True)
    assert decide_on_node(subject, BlameResult("capture"), located).blame == "capture"
    assert decide_on_node(subject, undecided, Located()).blame == "undecided"
    subject = make(tmp_path, Of(averaged), normal(2, 3))
    found = decide_on_node(subject, undecided, localize(subject))
    assert (found.blame, found.evidence[-1].agrees) == ("exporter", False)
    # That a file computes something else does not say whether it ever was right.
    stale = file_of(tmp_path, mlp(), normal(3, 8), retrained)
    assert decide_on_node(stale, undecided, localize(stale)).blame == "undecided"


OLD_TRAINING = """
import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper


class Normed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(x)


def training(module, example, path):
    stored = [module.norm.weight, module.norm.bias, module.norm.running_mean, module.norm.running_var]
    names = ["weight", "bias", "mean", "var"]
    made = ["y", "new_mean", "new_var", "saved_mean", "saved_var"]
    graph = helper.make_graph(
        [helper.make_node("BatchNormalization", ["x", *names], made, "norm")],
        "graph",
        [helper.make_tensor_value_info("x", 1, ["batch", 4])],
        [helper.make_tensor_value_info("y", 1, ["batch", 4])],
        [numpy_helper.from_array(t.detach().numpy(), n) for n, t in zip(names, stored)],
    )
    opsets = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=7), path)
"""


def test_training_mode_of_an_old_opset_is_no_kernel_of_onnx_runtime(tmp_path: Path) -> None:
    """Before opset 14 it is the number of outputs, and the reference evaluator has another one."""
    entry = 'model: models.py:Normed, inputs: {x: "float32[batch, 4]"}, '
    (result,) = run_few(
        tmp_path, OLD_TRAINING, {"old": entry + 'export: {exporter: "models.py:training"}'}
    ).values()
    assert result.verdict == "diverged"
    assert "OG113" in {finding.code for finding in result.findings}
    assert result.diagnosis is not None
    assert result.diagnosis.blame != "kernel"
