"""Which rows come to the leaves of a graph's trees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from onnx_gate.graph.graph import read_graph
from onnx_gate.graph.trees import boxes


def test_a_tree_that_goes_in_circles_ends() -> None:
    tree = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 1, 0],
        nodes_modes=["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"],
        nodes_values=[0.5, 0.25, 0.0],
        nodes_truenodeids=[1, 1, 0],
        nodes_falsenodeids=[2, 2, 0],
        target_treeids=[0],
        target_nodeids=[2],
        target_ids=[0],
        target_weights=[1.0],
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 1])
    model = helper.make_model(helper.make_graph([tree], "g", [x], [y]))
    ((name, leaves),) = boxes(read_graph(model, Path("model.onnx")), {"x": 2})
    assert name == "x"
    beyond = np.nextafter(np.float32(0.5), np.float32(1))
    assert leaves.corners(np.zeros(2, np.float32))[0].tolist() == [beyond, 0.0]
