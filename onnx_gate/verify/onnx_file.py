"""An ONNX file as it lies there: its graph, without its weights."""

from __future__ import annotations

from pathlib import Path

import onnx

from onnx_gate.findings import codes
from onnx_gate.verify.checkpoint import is_lfs_pointer


def read_model(path: Path, shown: str) -> onnx.ModelProto:
    """Read a graph; the external data stays where it is.

    Raises ``GateError`` (OG208) for a file that is no ONNX model.
    """
    try:
        proto: onnx.ModelProto = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        why = f"cannot be read as an ONNX model: {error}"
        if is_lfs_pointer(path):
            why = (
                "is a Git LFS pointer, not the model; fetch it with git lfs pull (lfs: true of "
                "actions/checkout)"
            )
        raise codes.OG208.error(f"{shown} {why}") from error
    if not proto.graph.node and not proto.graph.output:
        raise codes.OG208.error(f"{shown} holds no graph: it is no ONNX model")
    return proto
