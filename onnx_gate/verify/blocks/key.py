"""The worker's half of a block's key: what its checks come from beside code and options."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import onnx
from onnx.external_data_helper import ExternalDataInfo

from onnx_gate.runtimes.tensors import to_array
from onnx_gate.verify.blocks.known import StoredBytes
from onnx_gate.verify.blocks.pieces import BlockStage
from onnx_gate.verify.blocks.torch_side import Said, TorchSide
from onnx_gate.verify.key_hash import KeyHash


class BlockKeys:
    """Makes the keys of a model's blocks, and reads each weight once for all of them.

    With ``pairs`` a block is run with the one before as well.
    """

    def __init__(self, torch: TorchSide, pairs: bool) -> None:
        self._torch, self._bytes, self._pairs = torch, StoredBytes(), pairs

    def of(self, stage: BlockStage, graph: onnx.ModelProto, said: Iterable[Said]) -> str:
        """Return the key of a block, whose piece is ``graph``.

        Empty where nothing is to be kept of a stage: between blocks it would be no less work, and what
        PyTorch refuses, or has to be run with the block before, is tried again.
        """
        if not stage.inside or self._torch.hidden(stage.number):
            return ""
        path, skeleton = self._torch.path(stage), self._torch.skeleton
        key, bare = KeyHash(), onnx.ModelProto()
        bare.CopyFrom(graph)
        for node in bare.graph.node:
            del node.metadata_props[:]  # the lines of code, with their folders
        for tensor in bare.graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                place = ExternalDataInfo(tensor)
                file = self._torch.divided.folder / place.location
                key.add(self._bytes.digest(file, place.offset or 0, place.length or None))
                del tensor.external_data[:]  # which bytes they are, not where these lie
        key.add(self._pairs, stage.name, stage.names, bare.SerializeToString(deterministic=True))
        for name in sorted({*stage.piece.parameters, *self._torch.read_by(path)}):
            stored = skeleton.parameters[name].stored
            key.add(name, self._bytes.digest(stored.file, stored.offset, stored.nbytes))
        for part in self._torch.staged.read_by(path):
            for name, buffer in part.named_buffers():
                key.add(name, to_array(buffer))
        for each in said:
            if each.asked.reference is None or each.line.given is None:
                return ""
            given = each.line.given
            key.add(replace(each.case, arrays={}), given.plain, given.objects, each.asked.slow)
            for name, array in each.case.arrays.items():
                key.add(name, array)
            outputs = each.asked.reference.outputs
            key.add(outputs.names, *outputs.arrays)
        return key.hex
