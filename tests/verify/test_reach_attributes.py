"""Files of which one number among the attributes of a node is wrong: each beside its right twin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from onnx_gate.report.model import ModelResult
from tests.support.gate import run_few

pytestmark = [pytest.mark.process, pytest.mark.slow]

MODELS = '''
import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from torch import nn

DEPTH, FEATURES, TREES = 7, 5, 3

def _tree(random):
    """Return features and thresholds of a whole tree in which every leaf can be reached, and its leaves."""
    ends = {0: np.array([[-3.0] * FEATURES, [3.0] * FEATURES])}
    features, thresholds = [], []
    for node in range(2 ** DEPTH - 1):
        feature = int(random.integers(FEATURES))
        low, high = ends[node][:, feature]
        value = np.float32(low + (high - low) * random.uniform(0.3, 0.7))
        for child, side in ((2 * node + 1, 1), (2 * node + 2, 0)):
            ends[child] = ends[node].copy()
            ends[child][side, feature] = value
        features.append(feature)
        thresholds.append(value)
    return features, thresholds, random.normal(size=2 ** DEPTH).astype(np.float32)

class Forest(nn.Module):
    """Goes left where a feature is no larger than its threshold."""
    def __init__(self):
        super().__init__()
        random = np.random.default_rng(0)
        trees = [_tree(random) for _ in range(TREES)]
        for n, name in enumerate(("features", "thresholds", "leaves")):
            self.register_buffer(name, torch.from_numpy(np.array([tree[n] for tree in trees])))
    def forward(self, x):
        total = torch.zeros(len(x))
        for tree in range(TREES):
            node = torch.zeros(len(x), dtype=torch.int64)
            for _ in range(DEPTH):
                value = x.gather(1, self.features[tree][node][:, None])[:, 0]
                node = 2 * node + 1 + (value > self.thresholds[tree][node]).long()
            total = total + self.leaves[tree][node - (2 ** DEPTH - 1)]
        return total

class Codes(nn.Module):
    """Gives each of some codes its label, and others none."""
    def __init__(self):
        super().__init__()
        random = np.random.default_rng(0)
        codes = np.sort(random.choice(10**9, 200, replace=False))
        self.register_buffer("codes", torch.from_numpy(codes))
        self.register_buffer("labels", torch.from_numpy(random.integers(1, 10**6, 200)))
    def forward(self, ids):
        at = torch.searchsorted(self.codes, ids).clamp(max=199)
        return torch.where(self.codes[at] == ids, self.labels[at], 0)

def leaf(module, example, path):
    _write(module, path, leaf=61)

def branch(module, example, path):
    _write(module, path, branch=77)

def label(module, example, path):
    _write(module, path, label=123)

def write(module, example, path):
    _write(module, path)

def _write(module, path, leaf=None, branch=None, label=None):
    if isinstance(module, Codes):
        labels = module.labels.numpy().copy()
        if label is not None:
            labels[label] += 1
        node = helper.make_node(
            "LabelEncoder", ["ids"], ["y"], domain="ai.onnx.ml", default_int64=0,
            keys_int64s=module.codes.tolist(), values_int64s=labels.tolist(),
        )
        x = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", 3])
        y = helper.make_tensor_value_info("y", TensorProto.INT64, ["batch", 3])
    else:
        node = trees(module, leaf, branch)
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", FEATURES])
        y = helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["batch", 1])
    nodes = [node]
    if not isinstance(module, Codes):
        axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
        nodes += [
            helper.make_node("Constant", [], ["axes"], value=axes),
            helper.make_node("Squeeze", ["sum", "axes"], ["y"]),
        ]
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch"])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph(nodes, "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))

def trees(module, leaf, branch):
    inner = 2 ** DEPTH - 1
    features = np.concatenate((module.features.numpy(), np.zeros((TREES, inner + 1), np.int64)), 1)
    thresholds = module.thresholds.numpy().copy()
    leaves = module.leaves.numpy().copy()
    if leaf is not None:
        leaves[1, leaf] += 1
    if branch is not None:
        thresholds[2, branch] += 1e-3
    values = np.concatenate((thresholds, np.zeros((TREES, inner + 1), np.float32)), 1)
    nodes = np.tile(np.arange(2 * inner + 1), TREES)
    isleaf = nodes >= inner
    numbers = np.arange(TREES).repeat(2 * inner + 1)
    return helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["sum"], domain="ai.onnx.ml", n_targets=1,
        nodes_treeids=numbers.tolist(), nodes_nodeids=nodes.tolist(),
        nodes_featureids=features.reshape(-1).tolist(), nodes_values=values.reshape(-1).tolist(),
        nodes_modes=["LEAF" if each else "BRANCH_LEQ" for each in isleaf],
        nodes_truenodeids=np.where(isleaf, 0, 2 * nodes + 1).tolist(),
        nodes_falsenodeids=np.where(isleaf, 0, 2 * nodes + 2).tolist(),
        target_treeids=numbers[isleaf].tolist(), target_nodeids=nodes[isleaf].tolist(),
        target_ids=[0] * int(isleaf.sum()), target_weights=leaves.reshape(-1).tolist(),
    )
'''

FOREST = "model: models.py:Forest, inputs: {x: {dtype: float32, shape: [batch, 5], range: [-3, 3]}}"
CODES = (
    "model: models.py:Codes, "
    "inputs: {ids: {dtype: int64, shape: [batch, 3], range: [0, 1000000000]}}"
)
WRONG = {"leaf": FOREST, "branch": FOREST, "label": CODES}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ModelResult]:
    entries = {
        **{n: f'{model}, export: {{exporter: "models.py:{n}"}}' for n, model in WRONG.items()},
        "forest": f'{FOREST}, export: {{exporter: "models.py:write"}}',
        "codes": f'{CODES}, export: {{exporter: "models.py:write"}}',
    }
    return run_few(Path(tmp_path_factory.mktemp("attributes")), MODELS, entries)


@pytest.mark.parametrize("name", list(WRONG))
def test_what_a_file_tells_apart_is_given(results: Mapping[str, ModelResult], name: str) -> None:
    right = results["codes" if WRONG[name] == CODES else "forest"]
    assert right.verdict == "pass", [f.message for f in right.findings]
    checks = results[name].checks
    assert any(c.case.startswith("reached/apart/") for c in checks if c.verdict == "diverged")
