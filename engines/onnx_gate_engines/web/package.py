"""Where the npm package ``onnxruntime-web`` is: as Node looks for it, from the folder of the call."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "ONNXRUNTIME_WEB"
_NAME = "onnxruntime-web"
_SHARED = (Path("/usr/local/lib/node_modules"), Path("/usr/lib/node_modules"))


class PackageMissing(Exception):
    """There is no such package; the message says what to do."""


@dataclass(frozen=True)
class WebPackage:
    """One installation of it: ``dist`` has the files that a browser loads."""

    dist: Path
    version: str


def find_package() -> WebPackage:
    """Return the package that the variable names, or the nearest; raises ``PackageMissing``.

    Nearest: in ``node_modules`` of the working directory and the folders above it, then where
    ``npm install --global`` puts it.
    """
    named = os.environ.get(VARIABLE)
    here = Path.cwd()
    folders = (
        [Path(named)]
        if named
        else [
            *(folder / "node_modules" / _NAME for folder in (here, *here.parents)),
            *(folder / _NAME for folder in _SHARED),
        ]
    )
    for folder in folders:
        # False, too, where somebody else than the models may not look.
        if os.path.isdir(folder / "dist"):
            return WebPackage((folder / "dist").resolve(), _version(folder))
    if named:
        raise PackageMissing(f"{VARIABLE} is {named!r}, which is no folder of {_NAME}")
    raise PackageMissing(
        f"the npm package {_NAME} was not found: run 'npm install {_NAME}' in {here}, or name its "
        f"folder in the variable {VARIABLE}"
    )


def digest_of_package() -> str:
    """Return version and digest of what a browser loads of the package, or that there is none."""
    try:
        package = find_package()
    except PackageMissing:
        return "none"
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(package.dist.glob("*")):
        if file.suffix in (".mjs", ".wasm"):
            digest.update(f"{file.name}\0".encode())
            digest.update(file.read_bytes())
    return f"{package.version} {digest.hexdigest()}"


def _version(folder: Path) -> str:
    try:
        return str(json.loads((folder / "package.json").read_text("utf-8"))["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"
