"""Modules as people have them: whatever they hold or raise, the gate answers and says why."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from onnx_gate.manifest.load import load
from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelResult
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.context import Context
from onnx_gate.verify.reference.float64 import Float64Reference
from onnx_gate.verify.reference.perturb import MovedRounding
from onnx_gate.verify.verify import verify
from tests.support.gate import gate

MODELS = """
import collections
import torch
import torch.utils._pytree as pytree
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 3)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))

class Around(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * 2

def scripted():
    return torch.jit.script(Net().eval())

def traced():
    return torch.jit.trace(Net().eval(), torch.rand(2, 4))

def frozen():
    return torch.jit.freeze(scripted())

class Mapping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return {"one": self.layer(x), "two": x.sum(1)}

def mapping():
    return torch.jit.script(Mapping().eval())

class Unconvertible(nn.Module):
    def forward(self, x):
        for _ in range(int(x.shape[1])):
            x = torch.celu(x).narrow(0, 0, x.size(0)) * 2
        return x

def unconvertible():
    return torch.jit.script(Unconvertible().eval())

def scripted_inside():
    return Around(scripted())

def traced_inside():
    return Around(traced())

def quantised():
    return torch.ao.quantization.quantize_dynamic(Net().eval(), {nn.Linear}, dtype=torch.qint8)

class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LazyLinear(5)

    def forward(self, x):
        return self.layer(x)

def inference():
    with torch.inference_mode():
        return Net()

class Hostile:
    def __len__(self):
        raise NotImplementedError("no length")

    def __eq__(self, other):
        raise RuntimeError("not comparable")

    __hash__ = None

class Holder(Net):
    def __init__(self):
        super().__init__()
        data = torch.utils.data.TensorDataset(torch.rand(8, 4))
        self.loader = torch.utils.data.DataLoader(data, batch_size=2)
        self.hostile = Hostile()

class Answer:
    def __init__(self, logits, hidden):
        self.logits, self.hidden = logits, hidden

pytree.register_pytree_node(
    Answer, lambda a: ([a.logits, a.hidden], None), lambda children, _: Answer(*children),
    serialized_type_name="odd.Answer",
)

class Keyless(Net):
    def forward(self, x):
        y = super().forward(x)
        return Answer(y, y + 1)

class NoParameters(Net):
    def named_parameters(self, *args, **kwargs):
        raise RuntimeError("ask somebody else")

class NoEval(Net):
    def eval(self):
        raise RuntimeError("cannot be evaluated")

class Raises(Net):
    def forward(self, x):
        return self.second(self.missing(x))

class Sparse(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.eye(4).to_sparse())

    def forward(self, x):
        return super().forward(torch.sparse.mm(self.table, x.T).T)

def meta():
    return Net().to("meta")

class Leaves(Net):
    def forward(self, x):
        raise SystemExit("no such file")

def interrupts():
    raise KeyboardInterrupt

def spread():
    return nn.DataParallel(Net())

class Remembers(Net):
    '''Keeps what it has computed for the longest input so far, as rotary embeddings do.'''
    def __init__(self):
        super().__init__()
        self.longest = 0
        self.register_buffer("table", torch.zeros(64, 4), persistent=False)

    def forward(self, x):
        length = x.shape[0]
        if length <= self.longest:
            return super().forward(x + self.table[:length])
        angles = torch.arange(length)[:, None].sin().expand(-1, 4)
        self.table[:length] = angles
        self.longest = length
        return super().forward(x + angles)
"""
PACKAGE = """
def __getattr__(name):
    raise RuntimeError(f"{name} needs a licence")
"""


def _line(code: str) -> str:
    number = next(n for n, line in enumerate(MODELS.splitlines(), 1) if code in line)
    return f"models.py:{number}"


TORCHSCRIPT = ("scripted", "traced", "frozen", "mapping", "unconvertible", "scripted_inside")
# The verdict with the default exporter; for errors what the message has to say.
EXPECTED = {
    "scripted": "",
    "traced": "",
    "frozen": "",
    "mapping": "",
    "unconvertible": "exporter: torchscript",
    "scripted_inside": "",
    "traced_inside": "",
    "quantised": "quantised modules",
    "Lazy": "",
    "inference": "",
    "Holder": "",
    "Keyless": "",
    "NoParameters": "RuntimeError: ask somebody else",
    "NoEval": f"RuntimeError: cannot be evaluated ({_line('cannot be evaluated')})",
    "Raises": f"has no attribute 'missing' ({_line('self.missing')})",
    "Sparse": _line("torch.sparse.mm"),
    "meta": "device meta",
    "spread": "",
    "Remembers": "",
    "Leaves": f"SystemExit: no such file ({_line('no such file')})",
    "interrupts": f"raised KeyboardInterrupt ({_line('raise KeyboardInterrupt')})",
    "licensed": "RuntimeError: build needs a licence (package/__init__.py:3)",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelResult]:
    folder = tmp_path_factory.mktemp("odd")
    (folder / "models.py").write_text(MODELS)
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text(PACKAGE)
    inputs = 'inputs: {x: "float32[batch, 4]"}'
    entries = {name: f'model: "models.py:{name}", {inputs}' for name in EXPECTED}
    entries["licensed"] = f'model: "package:build", {inputs}'
    for name in TORCHSCRIPT:
        entries[f"{name}_ts"] = f"{entries[name]}, export: {{exporter: torchscript}}"
    lines = [f"  {name}: {{{entry}}}" for name, entry in entries.items()]
    text = "version: 1\nsuites: {few: {random: normal, count: 1}}\ndefaults: {suites: [few]}\nmodels:\n"
    (folder / "onnx-gate.yml").write_text(text + "\n".join(lines))
    gate("run", "--remedies", "0", cwd=folder)
    report = read_report(folder / "onnx-gate-report" / "report.json")
    for model in report.models:
        if model.error is not None:
            assert model.error.log is not None
            log = (folder / "onnx-gate-report" / model.error.log).read_text()
            assert "Traceback" in log, f"{model.name}: {log!r}"
    return {model.name: model for model in report.models}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", EXPECTED)
def test_an_odd_module_passes_or_says_why(results: dict[str, ModelResult], name: str) -> None:
    model, expected = results[name], EXPECTED[name]
    message = model.error.message if model.error is not None else ""
    assert model.verdict == ("error" if expected else "pass"), message
    assert expected in message
    assert model.error is None or model.error.kind in ("build", "export", "crashed")


@pytest.mark.slow
@pytest.mark.parametrize("name", TORCHSCRIPT)
def test_torchscript_verifies_with_its_own_exporter(
    results: dict[str, ModelResult], name: str
) -> None:
    assert results[f"{name}_ts"].verdict == "pass"


# --- any combination of oddities ------------------------------------------------------------------


def _raise(*_: Any, **__: Any) -> Any:
    raise LookupError("odd")


class _Odd:
    """Everything that one may ask of an attribute raises."""

    __len__ = __bool__ = __iter__ = __repr__ = __float__ = __index__ = _raise
    __eq__ = _raise  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise LookupError(name)


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x)


BUFFERS = {
    "bool": torch.ones(3, dtype=torch.bool),
    "complex": torch.ones(3, dtype=torch.complex64),
    "half": torch.ones(3, dtype=torch.float16),
    "float8": torch.ones(3).to(torch.float8_e4m3fn),
    "sparse": torch.eye(3).to_sparse(),
    "quantised": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "empty": torch.ones(0),
    "nan": torch.full((2,), float("nan")),
    "large": torch.ones(5000),
    "scalar": torch.tensor(1),
    "inference": torch.inference_mode()(torch.ones)(3),
    "meta": torch.ones(3, device="meta"),
}
OVERRIDDEN = (
    *("named_parameters", "parameters", "named_buffers", "buffers", "modules", "named_modules"),
    *("children", "state_dict", "eval", "train", "extra_repr", "__len__", "__eq__", "__iter__"),
    *("__bool__", "__repr__", "__deepcopy__", "__getstate__"),
)
LEAVES: dict[str, Any] = {
    "tensor": lambda y: y,
    "again": lambda y: y + 1,
    "none": lambda y: None,
    "int": lambda y: 3,
    "size": lambda y: y.shape[0],
    "float": lambda y: 2.5,
    "bool": lambda y: True,
    "string": lambda y: "text",
    "sparse": lambda y: y.to_sparse(),
    "complex": lambda y: torch.complex(y, y),
    "object": lambda y: _Odd(),
    "set": lambda y: {1},
}
_leaf = st.sampled_from(sorted(LEAVES)).map(lambda name: LEAVES[name])
_shapes: st.SearchStrategy[Any] = st.recursive(
    _leaf,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from(["a", "b.c", ""]), inner, max_size=2),
    ),
    max_leaves=5,
)


def _fill(shape: Any, y: torch.Tensor) -> Any:
    if isinstance(shape, dict):
        return {key: _fill(inner, y) for key, inner in shape.items()}
    if isinstance(shape, (list, tuple)):
        return type(shape)(_fill(inner, y) for inner in shape)
    return shape(y)


def _after(module: nn.Module, hook: str) -> None:
    if hook == "raises":
        module.register_forward_hook(_raise)
    elif hook == "raises before":
        module.register_forward_pre_hook(_raise)
    elif hook == "doubles":
        module.register_forward_hook(lambda _, __, value: value * 2)


@st.composite
def odd_modules(draw: st.DrawFn) -> nn.Module:
    shape = draw(st.one_of(st.just(LEAVES["tensor"]), _shapes))
    methods: dict[str, Any] = dict.fromkeys(
        draw(st.sets(st.sampled_from(OVERRIDDEN), max_size=2)), _raise
    )
    methods["forward"] = lambda self, x: _fill(shape, self.layer(x))
    if draw(st.booleans()):
        methods["device"] = property(_raise)
    module: Any = type("Odd", (_Net,), methods)()
    for name in draw(st.sets(st.sampled_from(sorted(BUFFERS)), max_size=2)):
        module.register_buffer(f"{name}_buffer", BUFFERS[name])
    inner = draw(st.sampled_from(["none", "script", "lazy", "list", "dict", "itself", "odd"]))
    if inner == "script":
        module.inner = torch.jit.script(nn.Linear(4, 3))
    elif inner == "lazy":
        module.inner = nn.LazyLinear(2)
    elif inner == "list":
        module.inner = nn.ModuleList([nn.Linear(2, 2), module.layer])
    elif inner == "dict":
        module.inner = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Identity()})
    elif inner == "itself":
        module._modules["inner"] = module
    elif inner == "odd":
        module._modules["inner"] = None
        module.thing = _Odd()
    _after(module.layer, draw(st.sampled_from(["", "", "doubles", "raises", "raises before"])))
    return module


CURRENT: list[nn.Module] = []


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(module=odd_modules())
def test_no_oddity_takes_the_gate_down(
    module: nn.Module, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    source = "from tests.verify.test_odd_modules import CURRENT\n\ndef build():\n    return CURRENT[-1]\n"
    (folder / "models.py").write_text(source)
    (folder / "onnx-gate.yml").write_text(
        "version: 1\nsuites: {few: {random: normal, count: 1}}\nmodels:\n  odd:\n"
        "    model: models.py:build\n    suites: [few]\n    export: {exporter: torchscript}\n"
        '    inputs: {x: "float32[batch, 4]"}\n'
    )
    CURRENT[:] = [module]
    spec = load(folder / "onnx-gate.yml").models[0]
    with contextlib.redirect_stderr(io.StringIO()) as log:
        result = verify(spec, Context(folder, folder / "out"), lambda _: None)
    if result.verdict == "error":
        assert result.error is not None
        assert result.error.message.strip(": ")
        # A model's log is its standard error: it has the traceback, or what was compared with nothing.
        assert "Traceback" in log.getvalue() or result.error.message in log.getvalue()
    if any(check.refused for check in result.checks):
        assert "Traceback" in log.getvalue()


class Branching(nn.Module):
    def __init__(self, yes: Any = torch.cos, no: Any = torch.sin) -> None:
        super().__init__()
        self.yes, self.no = yes, no

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = torch.cond(x.sum() > 0, self.yes, self.no, (x,))
        return answer


def test_a_branch_is_watched_and_answers_as_before() -> None:
    eager = Eager(Branching().eval(), ("x",))
    inputs = {"x": np.linspace(0.1, 1, 6, dtype=np.float32).reshape(2, 3)}
    first = eager.run(inputs).arrays[0]
    for _ in range(2):
        moved = eager.run(inputs, mode=MovedRounding(0)).arrays[0]
        assert 0 < np.abs(moved - first).max() < 1e-6
        wide = Float64Reference(eager).run_tensors(inputs)
        assert wide is not None
        np.testing.assert_allclose(wide[1][0], np.cos(inputs["x"].astype(np.float64)), rtol=1e-15)
        np.testing.assert_array_equal(eager.run(inputs).arrays[0], first)


@pytest.mark.parametrize(("yes", "verdict"), [(torch.cos, "pass"), (torch.tanh, "diverged")])
def test_rounding_decides_a_branch_where_a_sum_is_nothing_else(
    tmp_path: Path, yes: Any, verdict: str
) -> None:
    torch.onnx.export(
        Branching(yes).eval(),
        (torch.ones(3, 8),),
        tmp_path / "net.onnx",
        dynamo=True,
        dynamic_shapes=({0: "batch"},),
        verbose=False,
    )
    (tmp_path / "models.py").write_text("from tests.verify.test_odd_modules import Branching\n")
    (tmp_path / "onnx-gate.yml").write_text(
        "version: 1\nmodels:\n  net:\n    model: models.py:Branching\n    onnx: net.onnx\n"
        '    inputs: {x: "float32[batch, 8]"}\n'
    )
    spec = load(tmp_path / "onnx-gate.yml").models[0]
    result = verify(spec, Context(tmp_path, tmp_path / "out"), lambda _: None)
    assert result.verdict == verdict
    # The values of this edge lie evenly around zero.
    opened = {check.case.split("/")[1] for check in result.checks if check.open}
    assert verdict == "diverged" or opened == {"sweep"}
