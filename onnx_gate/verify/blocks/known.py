"""Blocks that an earlier run has verified: what tells one from another, and what is kept of it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import onnx
from onnx.external_data_helper import ExternalDataInfo
from pydantic import ValidationError

from onnx_gate.findings.finding import Finding
from onnx_gate.report.io import to_message
from onnx_gate.report.model import Check
from onnx_gate.runtimes.tensors import to_array
from onnx_gate.verify.blocks.pieces import BlockStage
from onnx_gate.verify.blocks.torch_side import Said, TorchSide
from onnx_gate.verify.key_hash import KeyHash
from onnx_gate.verify.reach.sites import ComparedSide, DecisionSite

_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class KnownBlock:
    """What verifying a block has come to, where it passes: of any other all is said anew.

    ``compared`` are the sides of decisions that were compared at their operators.
    """

    checks: tuple[Check, ...]
    findings: tuple[Finding, ...]
    compared: frozenset[ComparedSide] = frozenset()

    @classmethod
    def of(
        cls, known: Mapping[str, Mapping[str, Any]] | None, key: str, names: Collection[str]
    ) -> KnownBlock | None:
        """Return what is known of the block called so, ``None`` where nothing is, or no sense.

        ``names`` are its own, and that of it and the one before.
        """
        value = (known or {}).get(key)
        if value is None:
            return None
        try:
            checks = tuple(map(Check.model_validate, value["checks"]))
            findings = tuple(map(Finding.model_validate, value["findings"]))
            compared = frozenset((DecisionSite(*site), side) for *site, side in value["compared"])
        except (ValidationError, KeyError, TypeError):
            return None
        sound = checks and all_pass(checks) and all(check.block in names for check in checks)
        return cls(checks, findings, compared) if sound else None

    @property
    def value(self) -> dict[str, Any]:
        """The block as JSON data."""
        return {
            "checks": [to_message(check) for check in self.checks],
            "findings": [to_message(finding) for finding in self.findings],
            "compared": [[*astuple(site), side] for site, side in self.compared],
        }


def all_pass(checks: Sequence[Check]) -> bool:
    """Return whether all of these pass."""
    return all(check.verdict == "pass" for check in checks)


class StoredBytes:
    """Digests of parts of files, each read once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, int, int | None], str] = {}

    def digest(self, path: Path, offset: int, nbytes: int | None) -> str:
        """Return the SHA-256 of so many bytes (``None``: all) of a file from an offset on."""
        place = path, offset, nbytes
        if place not in self._known:
            hashed = hashlib.sha256()
            left = path.stat().st_size - offset if nbytes is None else nbytes
            with path.open("rb") as file:
                file.seek(offset)
                while data := file.read(min(_AT_ONCE, left)):
                    hashed.update(data)
                    left -= len(data)
            self._known[place] = hashed.hexdigest()
        return self._known[place]


class BlockKeys:
    """Makes the worker's half of the keys of a model's blocks, and reads each weight once for all of them.

    It is what a block's checks come from beside code and options. With ``pairs`` a block is run with the
    one before as well.
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
