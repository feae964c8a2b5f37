"""By how much moved rounding moves a function, and the same function as a node of ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from onnx import helper
from torch import Tensor

from onnx_gate.verify.reference.perturb import MovedRounding

RUNS = 16


def moves(function: Callable[..., Tensor], *args: Tensor) -> Tensor:
    """Return the most that each element of a result moves."""
    own = function(*args).double()
    most = torch.zeros_like(own)
    for seed in range(RUNS):
        with torch.no_grad(), MovedRounding(seed):
            run = function(*args)
        most = torch.maximum(most, (run.double() - own).abs())
    return most


def node(op: str, *args: Tensor | np.ndarray, **attributes: Any) -> Tensor:
    """Run one node in ONNX Runtime."""
    arrays = {f"x{n}": np.asarray(a) for n, a in enumerate(args)}
    graph = helper.make_graph(
        [helper.make_node(op, list(arrays), ["y"], **attributes)],
        "one",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), None)
            for n, a in arrays.items()
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9
    ).SerializeToString()
    return torch.from_numpy(ort.InferenceSession(model).run(None, arrays)[0])
