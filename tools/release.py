"""What a release needs beside the images; used by .github/workflows/release.yml only.

python tools/release.py check v0.1.0            version and major, as outputs of a step
python tools/release.py pin IMAGE:TAG DIGEST    have action.yml use this very image
python tools/release.py pin IMAGE:TAG DIGEST publish/action.yml
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_VERSION = re.compile(r"v(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})")
_PROJECT = re.compile(r'^version = "([^"]+)"$', re.M)
_SOURCE = re.compile(r"^  image: (?:\.\./)?Dockerfile(?:\.publish)?(?: #.*)?$", re.M)
_IMAGE = re.compile(
    r"[a-z0-9]+(?:[.-][a-z0-9]+)*(?::[0-9]{1,5})?"
    r"(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)+"
    r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def check(tag: str, *projects: str) -> str:
    """Return ``tag`` and its major version, as lines of outputs.

    ``projects`` are the texts of every distribution's pyproject.toml. Raises ``ValueError`` where the
    tag is not vX.Y.Z, or not the version of all of them.
    """
    match = _VERSION.fullmatch(tag)
    if match is None:
        raise ValueError(f"{tag!r} is not a version such as v1.2.3")
    for project in projects:
        found = _PROJECT.findall(project)
        if found != [tag[1:]]:
            said = ", ".join(found) or "none"
            raise ValueError(f"the tag is {tag}, and a pyproject.toml says {said}")
    return f"version={tag}\nmajor=v{match[1]}\n"


def pin(action: str, image: str, digest: str) -> str:
    """Return the text of an action.yml with an image by its digest in place of the Dockerfile.

    Raises ``ValueError`` for anything but registry/name:tag, sha256 and 64 digits, and an action
    that is built from a Dockerfile.
    """
    if not _IMAGE.fullmatch(image):
        raise ValueError(f"{image!r} is not an image such as ghcr.io/owner/name:v1.2.3")
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"{digest!r} is not sha256: and 64 hexadecimal digits")
    pinned, count = _SOURCE.subn(f"  image: docker://{image}@{digest}", action)
    if count != 1:
        raise ValueError(f"the action has the line 'image: Dockerfile' {count} times, not once")
    return pinned


def main(arguments: list[str]) -> None:
    """Do what the workflow asks for."""
    try:
        match arguments:
            case ["check", tag]:
                files = (ROOT / folder / "pyproject.toml" for folder in (".", "engines"))
                print(check(tag, *(file.read_text(encoding="utf-8") for file in files)), end="")
            case ["pin", image, digest, *file] if len(file) < 2:
                path = ROOT / (file[0] if file else "action.yml")
                pinned = pin(path.read_text(encoding="utf-8"), image, digest)
                path.write_text(pinned, encoding="utf-8")
            case _:
                raise SystemExit(__doc__)
    except ValueError as error:
        raise SystemExit(f"release: {error}") from None


if __name__ == "__main__":
    main(sys.argv[1:])
