"""The releases that a file of requirements, or a lock, names."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from onnx_gate.errors import UserError
from onnx_gate.report.model.since import Package
from onnx_gate.since.environments import CannotInstall, Installer, installed, pins_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_COMMENT = re.compile(r"(^|\s)#.*$|\\$", re.M)
_HASH = re.compile(r"--hash=\S+")
_NOT_OURS = ("onnx-gate", "onnx-gate-engines")
# What uv.lock, poetry.lock and pylock.toml call their lists of packages.
_LISTS = ("package", "packages")


def read_pins(path: Path, packages: Installer) -> dict[str, str]:
    """Return the releases by names of packages; what a file leaves open the installer decides.

    Raises ``UserError`` where it cannot be read, or comes to nothing.
    """
    try:
        text = path.read_text(encoding="utf-8")
        read = _of_toml if path.suffix in (".toml", ".lock") else _of_requirements
        found, asked = read(text, path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UserError(f"{path}: {reason}; name a file of requirements, or a lock") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: {error}; name a file of requirements, or a lock") from error
    if asked:
        held = {name: version for name, version in installed().items() if name not in found}
        try:
            found = packages.named(asked, held)
        except CannotInstall as error:
            raise UserError(f"{path}: what it asks for cannot be told: {error}") from error
    if not found:
        raise UserError(f"{path} names no release of any package")
    return {name: version for name, version in found.items() if name not in _NOT_OURS}


def _of_requirements(text: str, path: Path) -> tuple[dict[str, str], list[str]]:
    """Return the exact releases of a file of requirements, and what an installer has to be asked."""
    bare = [line for line in _HASH.sub("", _COMMENT.sub("", text)).splitlines() if line.strip()]
    exact = all("==" in line and not line.startswith("-") for line in bare)
    found = pins_of("\n".join(line.strip() for line in bare))
    return found, [] if exact else [f"--requirement {path.resolve()}"]


def _of_toml(text: str, path: Path) -> tuple[dict[str, str], list[str]]:
    """Return the releases of a lock, or what a project depends on."""
    data = tomllib.loads(text)
    rows = next((data[key] for key in _LISTS if isinstance(data.get(key), list)), ())
    pins: dict[str, str] = {}
    for row in rows:
        # A project's own row, and one from a folder or a repository, may have no version.
        if isinstance(row, dict) and isinstance(row.get("version"), str):
            pins[canonicalize_name(str(row.get("name")))] = row["version"]
    project = data.get("project")
    asked = project.get("dependencies", []) if isinstance(project, dict) else []
    return pins, [str(each) for each in asked] if isinstance(asked, list) else []


@dataclass(frozen=True)
class ChangedPins:
    """Two files and the packages of which they name two releases; ``needed`` are all of the base's."""

    base: Path
    head: Path
    needed: dict[str, str]
    packages: tuple[Package, ...]


def changed_pins(base: Path, head: Path, packages: Installer) -> ChangedPins:
    """Read two files; raises ``UserError`` as ``read_pins`` does."""
    before, after = read_pins(base, packages), read_pins(head, packages)
    return ChangedPins(base, head, needed(base, before), changed(before, after))


def changed(base: dict[str, str], head: dict[str, str]) -> tuple[Package, ...]:
    """Return the packages of which base and head name two releases, by name."""
    names = sorted(n for n in base.keys() | head.keys() if base.get(n) != head.get(n))
    return tuple(Package(name=n, old=base.get(n), new=head.get(n)) for n in names)


def needed(path: Path, pins: dict[str, str]) -> dict[str, str]:
    """Return the releases that environments have to have: all of requirements.

    Of locks and constraints, which name more than is used, what is installed here.
    """
    if (
        path.suffix != ".lock"
        and path.name != "pylock.toml"
        and not path.name.startswith("constraints")
    ):
        return pins
    here = installed()
    return {name: version for name, version in pins.items() if name in here}


def wanted(
    base: dict[str, str], packages: tuple[Package, ...], swapped: frozenset[str]
) -> dict[str, str]:
    """Return the releases of an environment: the base's, and of ``swapped`` packages the head's."""
    theirs = {each.name: each.new if each.name in swapped else each.old for each in packages}
    return {name: v for name, v in {**base, **theirs}.items() if v is not None}
