"""Files that appear together or not at all, and never over another."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from onnx_gate.errors import UserError, unwritten


def place(new: Mapping[Path, bytes], changed: Mapping[Path, tuple[bytes, bytes]]) -> None:
    """Write the files in ``new``, and those of ``changed`` that are still as they were.

    ``changed`` has what a file held and what it is to hold. Raises ``UserError``; then every file
    is as it was before.
    """
    staged: list[tuple[Path, Path]] = []
    done: list[tuple[Path, bytes | None]] = []
    try:
        for path, content in {
            **new,
            **{path: after for path, (_, after) in changed.items()},
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            staged.append((path, Path(name)))
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else _mode())
        for path, temporary in staged:
            if path in new:
                os.link(temporary, path)  # unlike a rename, over no other file
                done.append((path, None))
            else:
                before = changed[path][0]
                if path.read_bytes() != before:
                    raise UserError(f"{path} has changed meanwhile; start again")
                os.replace(temporary, path)
                done.append((path, before))
    except BaseException as error:
        for path, earlier in reversed(done):
            with suppress(OSError):
                path.unlink() if earlier is None else path.write_bytes(earlier)
        if isinstance(error, FileExistsError):
            raise UserError(f"{error.filename2 or error.filename} is there already") from error
        if isinstance(error, OSError):
            # The file that is written first is one beside it, which nobody has heard of.
            instead = "check the permissions of the file and of its folder"
            raise unwritten(path, error, instead) from error
        raise
    finally:
        for _, temporary in staged:
            with suppress(OSError):
                temporary.unlink()


def _mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
