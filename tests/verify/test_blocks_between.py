"""What leads to a block of a committed file: searched with it where the file has not what it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from safetensors.torch import save_file
from torch.utils._python_dispatch import TorchDispatchMode

from onnx_gate.diagnose.blocks import locate
from onnx_gate.manifest.load import load
from onnx_gate.verify.context import Context
from onnx_gate.verify.subject import Subject
from onnx_gate.verify.verify import verify

JOINED = """
import torch
import torch.nn.functional as F
from torch import nn


class Joined(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(4, 4, 3, padding=1)
        self.last, self.out = nn.Conv2d(8, 4, 3), nn.Conv2d(4, 4, 1)

    def forward(self, x):
        coarse = F.interpolate(self.first(x[:, :, ::2, ::2]), scale_factor=2, mode="nearest")
        return self.out(torch.tanh(self.last(torch.cat([coarse, x], 1))))
"""


class Seen(TorchDispatchMode):
    """The operators that PyTorch runs."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func))
        return func(*args, **kwargs or {})


def located(cause: str, subject: Subject, seconds: float) -> dict[str, Any]:
    """Return the diagnosis of a stage, its cause being what PyTorch's side runs to be searched with."""
    found = locate(cause, subject, seconds)
    with Seen() as seen:
        subject.eager.run(subject.arrays)
    return {**found, "cause": " ".join(seen.names)}


@pytest.mark.slow
def test_the_node_between_two_blocks_is_named_and_not_the_right_one_before_it(
    tmp_path: Path,
) -> None:
    names: dict[str, Any] = {}
    (tmp_path / "joined.py").write_text(JOINED)
    exec(compile(JOINED, str(tmp_path / "joined.py"), "exec"), names)
    torch.manual_seed(0)
    module = names["Joined"]().eval()
    save_file(module.state_dict(), tmp_path / "w.safetensors")
    example, sizes = (torch.randn(2, 4, 8, 8),), {"x": {0: "batch"}}
    torch.onnx.export(module, example, tmp_path / "m.onnx", dynamic_shapes=sizes, verbose=False)
    proto = onnx.load(tmp_path / "m.onnx")
    (joins,) = (node for node in proto.graph.node if node.op_type == "Concat")
    joins.input[:] = reversed(joins.input)
    onnx.save_model(proto, tmp_path / "m.onnx")
    path = tmp_path / "onnx-gate.yml"
    path.write_text(
        "version: 1\nmodels:\n  m: {model: joined.py:Joined, weights: w.safetensors, onnx: m.onnx, "
        'verify: blocks, inputs: {x: "float32[batch, 4, 8, 8]"}}\n'
    )
    spec, context = load(path).models[0], Context(tmp_path, tmp_path / "out")
    result = verify(spec, context, lambda _: None, locate=located)
    assert result.diagnosis is not None
    assert "upsample_nearest2d" in result.diagnosis.cause
    assert result.diagnosis.node is not None
    assert result.diagnosis.node.op_type == "Concat"
    assert result.diagnosis.source is not None
    assert "torch.cat" in result.diagnosis.source.code
