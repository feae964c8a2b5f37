"""A file of a commit, read without a checkout."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import quote

from onnx_gate.errors import UserError
from onnx_gate.github.api_errors import GitHubError
from onnx_gate.github.client import Client

MAX_FILE_BYTES = 2**20


def read_file(
    client: Client, repository: str, path: str, ref: str, max_bytes: int = MAX_FILE_BYTES
) -> bytes | None:
    """Return a file's bytes at a commit, ``None`` where the commit has no such file.

    ``path`` is relative to the repository. Raises ``UserError`` where it is no path of a file, or
    the file is too large, and ``GitHubError``.
    """
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise UserError(f"{path!r} is not the path of a file in the repository")
    quoted = "/".join(quote(part, safe="") for part in parts)
    try:
        entry = client.get(f"/repos/{repository}/contents/{quoted}", {"ref": ref}, "contents=read")
    except GitHubError as error:
        if error.kind == "missing":
            return None
        raise
    if not isinstance(entry, dict) or entry.get("type") != "file":
        raise UserError(f"{path} at {ref[:7]} is not a file")
    size = entry.get("size")
    # GitHub leaves out the content of files beyond its own limit of 1 MB.
    if type(size) is not int or size > max_bytes or entry.get("encoding") != "base64":
        raise UserError(f"{path} at {ref[:7]} is larger than {max_bytes / 2**20:g} MiB")
    try:
        return base64.b64decode(str(entry.get("content")))
    except (binascii.Error, ValueError):
        pass
    raise GitHubError("server", f"{path} at {ref[:7]}: GitHub's answer cannot be decoded")
