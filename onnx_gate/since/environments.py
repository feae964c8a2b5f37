"""Environments that are this one but for some packages: made once, and kept."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

import onnx_gate
from onnx_gate.errors import UserError
from onnx_gate.gate.folder_lock import alone_in
from onnx_gate.report.io import write_text
from onnx_gate.text import plain
from onnx_gate.workers.launch import own_folder

Pins = Mapping[str, str]
"""Releases by the canonical names of packages."""

_MADE = "made.json"
_SECONDS = 1800
_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==([^\s;\\*,]+)", re.M)
# Makes an environment that sees the packages of folders behind its own.
_VENV = """
import pathlib, sys, venv
folder, *seen = sys.argv[1:]
venv.create(folder, symlinks=True)
packages = next(pathlib.Path(folder).glob("lib/python*/site-packages"))
lines = [f"import site; site.addsitedir({path!r})\\n" for path in seen]
(packages / "zz-onnx-gate.pth").write_text("".join(lines))
"""

# What uv and pip say where an index has answered, and has nothing that fits.
_NOTHING_FITS = ("No solution found", "No matching distribution")


class CannotInstall(UserError):
    """Nothing fits this Python, or what fits cannot be installed."""

    @property
    def nothing_fits(self) -> bool:
        """Whether the index has answered, and has no such release."""
        return any(words in str(self) for words in _NOTHING_FITS)


@dataclass(frozen=True)
class Environment:
    """An interpreter that sees this one's packages behind its own ``pins``."""

    folder: Path
    pins: Pins

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.folder / "bin" / "python"


@dataclass(frozen=True)
class Installer:
    """uv, or pip where ``uv`` is null; packages are looked for in the folders ``find_links``, too.

    With ``no_index`` they are looked for nowhere else; ``indexes`` are further ones. ``cache`` is where
    environments are kept. ``prefix`` stands before each command (a program that enters a sandbox with
    network), and ``owner`` is the uid that writes there, null where it is this process's.
    """

    uv: str | None
    cache: Path
    find_links: tuple[Path, ...] = ()
    no_index: bool = False
    indexes: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    owner: int | None = None

    def newest(self, asked: str) -> str:
        """Return the newest release of a package that a requirement allows, and has a wheel.

        Raises ``CannotInstall``.
        """
        package = re.split("[^A-Za-z0-9._-]", asked)[0]
        found = self._resolved([asked], ["--no-deps", f"--only-binary={package}"])
        return found[canonicalize_name(package)]

    def named(self, asked: Sequence[str], held: Pins) -> dict[str, str]:
        """Return the releases of the packages that lines of requirements name.

        What they leave open is as ``held`` has it, where they allow that. Raises ``CannotInstall``.
        """
        try:
            return self._resolved(asked, ["--no-deps"], held)
        except CannotInstall:
            return self._resolved(asked, ["--no-deps"])

    def _resolved(
        self, asked: Sequence[str], options: Sequence[str], held: Pins | None = None
    ) -> dict[str, str]:
        """Return what requirements come to, with ``held`` left as it is."""
        if held:
            pinned = "".join(f"{name}=={version}\n" for name, version in held.items())
            self.cache.mkdir(parents=True, exist_ok=True)
            constraints = self.cache / f"held-{_digest(pinned)}.txt"
            write_text(constraints, pinned)
            options = [*options, "--constraint", str(constraints)]
        if self.uv is not None:
            compiled = [self.uv, "pip", "compile", "-", *_BARE]
            return pins_of(self._run(compiled, *options, given="\n".join(asked)))
        words = (w for each in asked for w in (each.split(" ", 1) if each[0] == "-" else [each]))
        dry = ("--dry-run", "--ignore-installed", "--quiet", "--report", "-")
        report = json.loads(self._run([*_PIP, "install", *dry], *words, *options))
        packages = [each["metadata"] for each in report["install"]]
        return {canonicalize_name(each["name"]): each["version"] for each in packages}

    def with_releases(self, wanted: Pins) -> Environment:
        """Return the environment that has these releases, and what they need, and is else this one.

        All else is held fast where they can live with it. Raises ``CannotInstall``.
        """
        here = installed()
        differ = {n: v for n, v in wanted.items() if here.get(n) != Version(v).public}
        if not differ:
            return self.environment({})
        asked = [f"{name}=={version}" for name, version in differ.items()]
        held = {**here, **wanted}
        try:
            others = {n: v for n, v in held.items() if n not in differ}
            found = self._resolved(asked, (), others)
        except CannotInstall:
            found = self._resolved(asked, ())
        pins = {n: v for n, v in found.items() if here.get(n) != Version(v).public}
        return self.environment(pins)

    def environment(self, pins: Pins) -> Environment:
        """Return the environment that differs in ``pins`` from this one, made if it is not there.

        Nothing else is installed beside them. Raises ``CannotInstall``.
        """
        key = json.dumps([sys.version, _seen(), sorted(pins.items()), self._wheels(pins)])
        folder = self.cache / "environments" / _digest(key)
        made = Environment(folder / "venv", pins)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with alone_in(folder, "environment"):
                if not (folder / _MADE).exists():
                    own_folder(made.folder, self.owner)
                    self._make(made)
                    write_text(folder / _MADE, json.dumps(dict(pins)) + "\n")
        except OSError as error:
            raise UserError(f"{folder}: {error.strerror or error}") from error
        return made

    def _make(self, made: Environment) -> None:
        venv = [sys.executable, "-I", "-c", _VENV, str(made.folder), *_seen()]
        self._run(venv, own=True)
        exact = [f"{name}=={version}" for name, version in made.pins.items()]
        python = str(made.python)
        if exact and self.uv is not None:
            quiet = ("--no-deps", "--quiet", "--python", python)
            self._run([self.uv, "pip", "install", *exact], *quiet)
        elif exact:
            options = ("--no-deps", "--quiet", "--ignore-installed")
            self._run([*_PIP, "--python", python, "install", *exact], *options)

    def _wheels(self, pins: Pins) -> list[str]:
        """Tell local wheels of one version apart, which are built again and again."""
        files = (file for folder in self.find_links for file in sorted(folder.glob("*.whl")))
        mine = [f for f in files if canonicalize_name(f.name.split("-")[0]) in pins]
        return [f"{file} {file.stat().st_mtime_ns}" for file in mine]

    def _run(
        self, command: list[str], *options: str, given: str | None = None, own: bool = False
    ) -> str:
        """Return what an installer prints; raises ``CannotInstall`` with its first words."""
        where = [] if own else [f"--find-links={folder.resolve()}" for folder in self.find_links]
        index = ["--no-index"] if self.no_index and not own else []
        index += [] if own else [f"--extra-index-url={url}" for url in self.indexes]
        try:
            done = subprocess.run(
                [*self.prefix, *command, *options, *where, *index],
                input=given or "",
                text=True,
                capture_output=True,
                timeout=_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotInstall(f"{command[0]}: {plain(error, 300)}") from error
        if done.returncode != 0:
            raise CannotInstall(_words(done.stderr or done.stdout))
        return done.stdout


_BARE = ("--no-header", "--no-annotate", "--quiet", "--python", sys.executable)
_PIP = [sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]


def installer(find_links: Sequence[Path], *, no_index: bool) -> Installer:
    """Return uv, from beside this Python or from the PATH, or else pip."""
    for folder in find_links:
        if not folder.is_dir():
            raise UserError(f"--find-links {folder}: no such folder")
    beside = Path(sys.executable).parent / "uv"
    uv = str(beside) if beside.exists() else shutil.which("uv")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Installer(uv, Path(home) / "onnx-gate", tuple(find_links), no_index)


def installed() -> dict[str, str]:
    """Return what is installed here, without the parts of versions that are of a build only."""
    found: dict[str, str] = {}
    for each in metadata.distributions():
        try:
            found.setdefault(canonicalize_name(each.name), Version(each.version).public)
        except (InvalidVersion, TypeError):
            continue
    return found


def pins_of(text: str) -> dict[str, str]:
    """Return the exact releases that lines of requirements name."""
    return {canonicalize_name(name): version for name, version in _PIN.findall(text)}


def _seen() -> list[str]:
    """Return the folders of packages that this process imports from."""
    folders = [p for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]
    return [*folders, str(Path(onnx_gate.__file__).parents[1])]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _words(said: str) -> str:
    """Return what an installer says first, in one line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("WARNING", "warning", "hint"))]
    return plain(" ".join(kept or lines), 400) or "the installer failed without a word"
