"""A file in fewer bits of which one row has another zero point: wrong by its weights, not by its bits."""

from __future__ import annotations

from pathlib import Path

from onnx_gate.report.story import precision
from onnx_gate.report.story.sentence import of_model
from tests.support.gate import run_few

MODELS = """
import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import nn


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))


def write(module, path, zero):
    nodes, stored, value = [], [], "x"
    for place in (0, 2):
        layer = module[place]
        made = "y" if place else "h"
        w = layer.weight.detach().numpy()
        low, high = np.minimum(w.min(1), 0), np.maximum(w.max(1), 0)
        scale = ((high - low) / 255).astype("float32")
        point = np.clip(np.round(-low / scale), 0, 255)
        kept = np.clip(np.round(w / scale[:, None]) + point[:, None], 0, 255).astype("uint8")
        if not place:
            point[20] -= zero
        arrays = {"q": kept, "s": scale, "z": point.astype("uint8"), "b": layer.bias.detach().numpy()}
        stored += [numpy_helper.from_array(a, f"{n}{place}") for n, a in arrays.items()]
        given = [f"q{place}", f"s{place}", f"z{place}"]
        nodes.append(helper.make_node("DequantizeLinear", given, [f"w{place}"], axis=0))
        before = "r" if place else "x"
        nodes.append(helper.make_node("Gemm", [before, f"w{place}", f"b{place}"], [made], transB=1))
        if not place:
            nodes.append(helper.make_node("Relu", ["h"], ["r"]))
    x = helper.make_tensor_value_info("x", 1, ["batch", 32])
    y = helper.make_tensor_value_info("y", 1, ["batch", 10])
    graph = helper.make_graph(nodes, "g", [x], [y], stored)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def wrong(module, example, path):
    write(module, path, 2)


def right(module, example, path):
    write(module, path, 0)
"""


def test_a_wrong_row_is_told_and_no_tolerance_for_it(tmp_path: Path) -> None:
    given = 'model: models.py:net, inputs: {x: "float32[batch, 32]"}'
    loose = "tolerance: {cosine: 0.995, snr_db: 25}"
    entries = {
        name: f'{given}, {loose}, export: {{exporter: "models.py:{name}"}}'
        for name in ("wrong", "right")
    }
    results = run_few(tmp_path, MODELS, entries)
    assert {name: each.verdict for name, each in results.items()} == {
        "wrong": "diverged",
        "right": "pass",
    }
    said = str(of_model(results["wrong"], "onnx-gate.yml"))
    assert "a weight of the file is not the module's" in said
    assert "Paste" not in said
    for name, proposed in (("wrong", False), ("right", True)):
        found = results[name].precision
        assert found is not None
        assert any(line.startswith("tolerance: ") for line in precision.lines(found)) is proposed
