"""One file out of a zip archive that anybody may have made."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

from onnx_gate.errors import UserError

_MAX_DIRECTORY = 2**20
_ENCRYPTED = 0x1
_END = b"PK\x05\x06"
_END_SEARCH = 2**16 + 22


def read_member(archive: bytes, name: str, max_bytes: int) -> bytes:
    """Return the member ``name``, at the root or one folder deep, of at most ``max_bytes``.

    Raises ``UserError`` where the archive is broken, holds no such file or more than one, or
    unpacks to more.
    """
    try:
        return _read_member(archive, name, max_bytes)
    except (
        *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError),
        *(ValueError, RuntimeError, NotImplementedError, LookupError, OverflowError),
    ) as error:
        raise UserError(f"the archive with {name} is broken: {type(error).__name__}") from error


def _read_member(archive: bytes, name: str, max_bytes: int) -> bytes:
    end = archive.rfind(_END, max(0, len(archive) - _END_SEARCH))
    # zipfile makes an object of every entry before it can be asked how many there are.
    if end >= 0 and struct.unpack_from("<I", archive, end + 12)[0] > _MAX_DIRECTORY:
        raise UserError(f"the archive with {name} lists too many files")
    with zipfile.ZipFile(io.BytesIO(archive)) as unpacked:
        entry = _find(unpacked.infolist(), name)
        if entry.flag_bits & _ENCRYPTED:
            raise UserError(f"{name} in the archive is encrypted")
        # The other methods allocate what the archive asks for.
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UserError(f"{name} in the archive is packed by another method than deflate")
        if entry.file_size > max_bytes:
            raise _too_large(name, max_bytes)
        with unpacked.open(entry) as file:
            data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise _too_large(name, max_bytes)
    return data


def _find(entries: list[zipfile.ZipInfo], name: str) -> zipfile.ZipInfo:
    for depth in (0, 1):
        matching = [
            entry
            for entry in entries
            if entry.filename.count("/") == depth and entry.filename.rpartition("/")[2] == name
        ]
        if len(matching) == 1:
            return matching[0]
        if matching:
            raise UserError(f"the archive holds {len(matching)} files {name}")
    raise UserError(f"the archive holds no {name}")


def _too_large(name: str, max_bytes: int) -> UserError:
    return UserError(f"{name} in the archive is larger than {max_bytes / 2**20:g} MiB")
