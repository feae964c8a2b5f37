"""One entry of a cache as a file: a line with keys and a checksum, then JSON."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, ValidationError

from onnx_gate.cache.dependencies import Dependencies
from onnx_gate.cache.key import Key
from onnx_gate.report.model import ModelResult

FORMAT = "onnx-gate-cache-1"
MOST_BYTES = 64 << 20

_HEAD_BYTES = len(FORMAT) + 3 * 65 + 1


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    environment_key: dict[str, str]
    entry_key: dict[str, str]
    dependencies: Dependencies | None = None
    result: ModelResult | None = None
    files: dict[str, str] = {}
    exported: dict[str, str] = {}
    refusal: str = ""


@dataclass(frozen=True)
class StoredVerdict:
    """What is remembered of one verification.

    ``result`` and ``dependencies`` are null where ``refusal`` says why they cannot be remembered.
    ``files`` are those of the reproduction, by paths relative to its folder; ``exported`` maps the
    names of exported files to the digests of their contents.
    """

    key: Key
    dependencies: Dependencies | None = None
    result: ModelResult | None = None
    files: Mapping[str, bytes] | None = None
    exported: Mapping[str, str] | None = None
    refusal: str = ""


@dataclass(frozen=True)
class Head:
    """The first line of an entry: both keys, and the checksum of the rest."""

    verdict: str
    export: str
    checksum: str


def to_bytes(entry: StoredVerdict) -> bytes:
    """Return the entry as a file's content; raises ``ValueError`` where it is too large."""
    files = {
        name: base64.b64encode(zlib.compress(data)).decode("ascii")
        for name, data in (entry.files or {}).items()
    }
    body = _Body(
        environment_key=dict(entry.key.environment),
        entry_key=dict(entry.key.entry),
        dependencies=entry.dependencies,
        result=entry.result,
        files=files,
        exported=dict(entry.exported or {}),
        refusal=entry.refusal,
    )
    text = body.model_dump_json(by_alias=True).encode()
    if len(text) > MOST_BYTES:
        raise ValueError(f"the entry has {len(text)} bytes")
    checksum = hashlib.sha256(text).hexdigest()
    head = " ".join((FORMAT, entry.key.verdict, entry.key.export, checksum))
    return head.encode("ascii") + b"\n" + text


def read_head(data: bytes) -> Head | None:
    """Return what the first line says; ``None`` where it is no entry's."""
    line = data[:_HEAD_BYTES].partition(b"\n")[0].decode("ascii", "replace")
    words = line.split(" ")
    if len(words) != 4 or words[0] != FORMAT:
        return None
    return Head(*words[1:])


def from_bytes(data: bytes) -> StoredVerdict | None:
    """Return the entry; ``None`` for anything that ``to_bytes`` has not written so."""
    head = read_head(data)
    body = data.partition(b"\n")[2]
    if head is None or hashlib.sha256(body).hexdigest() != head.checksum:
        return None
    try:
        read = _Body.model_validate_json(body)
        files = {
            name: _inflate(base64.b64decode(text, validate=True))
            for name, text in read.files.items()
        }
    except (ValidationError, ValueError, RecursionError, zlib.error):
        return None
    entry = StoredVerdict(
        key=Key(read.environment_key, read.entry_key),
        dependencies=read.dependencies,
        result=read.result,
        files=files,
        exported=read.exported,
        refusal=read.refusal,
    )
    return entry if (entry.key.verdict, entry.key.export) == (head.verdict, head.export) else None


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    content = inflater.decompress(data, MOST_BYTES)
    if inflater.unconsumed_tail:
        raise ValueError("a file is larger than any that was stored")
    return content
