"""An ONNX file as it lies there: its graph, without its weights."""

from __future__ import annotations

from pathlib import Path

import onnx

from onnx_gate.findings import codes
from onnx_gate.graph.constants import CutShort, cut_short
from onnx_gate.verify.checkpoint import is_lfs_pointer


def read_model(path: Path, shown: str, *, beside: bool = True) -> onnx.ModelProto:
    """Read a graph; the external data stay where they are, ``beside`` it or anywhere else.

    Raises ``GateError`` (OG208) for a file that is no ONNX model, or lacks data that should be beside it.
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
    try:
        short = cut_short(proto, path.parent) if beside else None
    except ValueError as error:
        raise codes.OG208.error(f"{shown}: {error}", kind="inspect") from error
    if short is not None:
        raise codes.OG208.error(f"{shown}: {_told(short, path.parent)}", kind="inspect")
    return proto


def _told(short: CutShort, folder: Path) -> str:
    file = repr(Path(short.file).name)
    if short.size is None:
        return f"the weights of {short.tensor!r} should be in {file} beside it, which is not there"
    if is_lfs_pointer(folder / short.file):
        return f"{file}, which has the weights of {short.tensor!r}, is a Git LFS pointer"
    return (
        f"the weights of {short.tensor!r} should end at byte {short.end} of {file}, which has "
        f"{short.size}: it was cut short, or is another model's"
    )
