"""Closing to everyone else what the runner left open, before any model's code runs.

The runner's files keep their owner, who has to read them afterwards; only the rights of others
go. This is what protects them where the kernel has no Landlock.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from onnx_gate.sandbox.git_folders import Survey

COMMAND_FILES = (
    "GITHUB_ENV",
    "GITHUB_PATH",
    "GITHUB_OUTPUT",
    "GITHUB_STATE",
    "GITHUB_STEP_SUMMARY",
)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def private_paths(environ: Mapping[str, str], survey: Survey) -> tuple[Path, ...]:
    """Return what no model has any business with: the runner's files and git's folders."""
    files = [Path(environ[name]) for name in COMMAND_FILES if environ.get(name)]
    paths = [*files, *(file.parent for file in files)]
    if event := environ.get("GITHUB_EVENT_PATH"):
        paths += [Path(event), Path(event).parent]
    paths += [Path(environ[name]) for name in ("RUNNER_TEMP", "HOME") if environ.get(name)]
    paths += [
        Path("/github") / name for name in ("file_commands", "runner_temp", "workflow", "home")
    ]
    return tuple(dict.fromkeys([*paths, *survey.git, *survey.unknown]))


@contextmanager
def closed(paths: Iterable[Path], keep_open: Iterable[Path]) -> Iterator[tuple[str, ...]]:
    """Take the rights of group and others away, and give them back at the end.

    Folders on the way to ``keep_open`` stay as they are, and so do sticky ones (``/tmp``), which
    everyone needs. Yields the paths that could not be closed.
    """
    needed = {parent for path in keep_open for parent in (path, *path.parents)}
    before: list[tuple[Path, int]] = []
    failed: list[str] = []
    try:
        for path in paths:
            try:
                status = os.lstat(path)
            except OSError:
                continue
            mode = stat.S_IMODE(status.st_mode)
            if path in needed or stat.S_ISLNK(status.st_mode) or mode & stat.S_ISVTX:
                continue
            try:
                os.chmod(path, mode & ~_OTHERS)
                before.append((path, mode))
            except OSError:
                failed.append(str(path))
        yield tuple(failed)
    finally:
        for path, mode in reversed(before):
            with suppress(OSError):
                os.chmod(path, mode)


@contextmanager
def opened(workspace: Path, folder: Path, gid: int | None) -> Iterator[None]:
    """Let the group ``gid`` enter the workspace and every folder from it down to ``folder``.

    Some runners' folders are closed to all but their owner. Only these are opened, to this group
    only, and given back at the end; files that are closed stay closed, for it may be on purpose.
    """
    chain = [folder, *folder.parents]
    chain = chain[: chain.index(workspace) + 1] if workspace in chain else []
    before: list[tuple[Path, os.stat_result]] = []
    try:
        for path in chain if gid is not None else ():
            with suppress(OSError):
                status = os.lstat(path)
                if stat.S_ISDIR(status.st_mode) and status.st_mode & 0o005 != 0o005:
                    before.append((path, status))
                    os.chown(path, -1, gid if gid is not None else -1)
                    os.chmod(path, stat.S_IMODE(status.st_mode) | 0o050)
        yield
    finally:
        for path, status in before:
            with suppress(OSError):
                os.chown(path, -1, status.st_gid)
                os.chmod(path, stat.S_IMODE(status.st_mode))


def credentials(survey: Survey, runner_temp: Path | None) -> Path | None:
    """Return a file with credentials that a checkout left where the gate can see it."""
    files = [folder / "config" for folder in survey.git]
    if runner_temp is not None:
        with suppress(OSError):
            files += sorted(runner_temp.glob("git-credentials-*.config"))
    for file in files:
        with suppress(OSError):
            if file.is_file() and not file.is_symlink() and _has_secret(file.read_bytes()):
                return file
    return None


def _has_secret(config: bytes) -> bool:
    lowered = config.lower()
    return b"extraheader" in lowered or b"x-access-token:" in lowered
