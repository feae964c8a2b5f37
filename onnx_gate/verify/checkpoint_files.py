"""Which files a checkpoint consists of; plain data, without torch."""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from onnx_gate.findings import codes
from onnx_gate.manifest.paths import INDEX, PRETRAINED, is_inside

# A StringStringEntryProto of ONNX whose key is "location", and the length of its value, a varint.
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x80-\xff]{0,2}[\x00-\x7f])")


def main_file(path: Path) -> Path:
    """Return the file that a checkpoint is read from: of a folder, the first that it may have."""
    if path.is_dir():
        return next((path / name for name in PRETRAINED if (path / name).is_file()), path)
    return path


def shards(path: Path, shown: str, workspace: Path) -> Mapping[Path, frozenset[str]]:
    """Return the files that an index names, and of each the weights that are in it by the index.

    Of a checkpoint in one file that file, and no names. Raises ``GateError`` (OG205) for an index that
    cannot be read, and for a shard that is not there or leads out of the workspace.
    """
    if not path.name.endswith(INDEX):
        return {path: frozenset()}
    try:
        content: Any = json.loads(path.read_bytes())
        named: Mapping[str, str] = dict(content["weight_map"])
        names = sorted(set(named.values()))
        files = tuple(path.parent / name for name in names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise codes.OG205.error(
            f"{shown} is not the index of a sharded checkpoint: a JSON file whose weight_map has the "
            f"file of each weight ({type(error).__name__})",
            remedy="fetch or write the index again",
        ) from error
    for name, file in zip(names, files, strict=True):
        if not is_inside(workspace, file):
            raise codes.OG205.error(
                f"{shown} names the shard {name!r}, which leads out of the manifest's folder",
                remedy="keep all shards inside it",
            )
        if not file.is_file():
            raise codes.OG205.error(
                f"{shown} names the shard {name!r}, which is not there: {len(files)} shards belong to it",
                remedy="fetch all of them, and put them beside the index under the names that it has",
            )
    return {
        file: frozenset(weight for weight, its in named.items() if its == name)
        for name, file in zip(names, files, strict=True)
    }


def checkpoint_files(path: Path, workspace: Path) -> Iterator[Path]:
    """Yield every file that is read of a checkpoint, as far as that can be known."""
    file = main_file(path)
    yield file
    with suppress(Exception):
        yield from (each for each in shards(file, path.name, workspace) if each != file)


def external_data(path: Path) -> Iterator[Path]:
    """Yield the files beside an ONNX file that it names for its weights; nothing where it cannot be read.

    Its fields are looked for among its bytes, in the order in which all writers put them.
    """
    names = set()
    with (
        suppress(OSError, ValueError),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        for found in _LOCATION.finditer(content):
            length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(found[1]))
            names.add(content[found.end() : found.end() + length].decode("utf-8", "replace"))
    yield from (
        path.parent / name for name in sorted(names) if is_inside(path.parent, path.parent / name)
    )
