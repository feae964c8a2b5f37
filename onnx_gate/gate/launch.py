"""How the process that the models' code runs in is started."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Launch:
    """``prefix`` stands before the command (a program that enters a sandbox).

    ``python`` is another interpreter than the gate's, with packages of its own. ``environment``
    is the whole of it, null for the gate's own. ``owner`` is the uid that has to write into a
    model's folder, null where it is the gate's.
    """

    prefix: tuple[str, ...] = ()
    python: str | None = None
    environment: Mapping[str, str] | None = None
    owner: int | None = None


def own_folder(folder: Path, owner: int) -> None:
    """Make ``folder`` anew, empty, and give it to the uid ``owner``; raises ``OSError``."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.chown(folder, owner, owner, follow_symlinks=False)


def plain_files_only(folder: Path) -> None:
    """Remove from a folder that another uid filled whatever is neither a file nor a folder.

    An upload of the folder would follow a symbolic link, with the rights of whoever uploads.
    """
    for top, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(top, name)
            with suppress(OSError):
                mode = os.lstat(path).st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    path.unlink()
