"""How the process that the models' code runs in is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnx_gate.files import remove_tree
from onnx_gate.sandbox.confine import Confinement
from onnx_gate.sandbox.policy import Policy


@dataclass(frozen=True)
class ServiceLaunch:
    """How a service is started where models are confined: beside them, and as somebody else.

    ``prefix`` as in ``Launch``; ``folder`` is what it may write to, and belongs to the uid ``owner``.
    """

    prefix: tuple[str, ...]
    folder: Path
    owner: int | None


@dataclass(frozen=True)
class Launch:
    """``prefix`` stands before the command (a program that enters a sandbox).

    ``python`` is another interpreter than the gate's, with packages of its own. ``environment``
    is the whole of it, null for the gate's own. ``owner`` is the uid that has to write into a
    model's folder, null where it is the gate's. ``policy`` is the sandbox's, and ``private`` the
    folder for what each model may write and no other, null without a sandbox. ``services`` is how
    services are started in one. ``forked``: it is a fork of the calling process, and so has that
    one's objects; nothing above applies to it then.
    """

    prefix: tuple[str, ...] = ()
    python: str | None = None
    environment: Mapping[str, str] | None = None
    owner: int | None = None
    policy: Policy | None = None
    private: Path | None = None
    services: ServiceLaunch | None = None
    forked: bool = False

    def confinement(self, name: str, folder: Path) -> Confinement | None:
        """Make the private folders of a model and say what it is confined to.

        ``name`` is a file name of the model's own, ``folder`` takes its ONNX file. Raises
        ``OSError``.
        """
        if self.policy is None or self.private is None:
            return None
        home, temporary = self.private / name / "home", self.private / name / "tmp"
        for path in (home, temporary):
            own_folder(path, self.owner)
        return Confinement(
            listable=self.policy.listable,
            readable=self.policy.readable,
            writable=(*self.policy.devices, str(folder)),
            home=str(home),
            temporary=str(temporary),
            landlock=self.policy.landlock,
        )


def own_folder(folder: Path, owner: int | None) -> None:
    """Make ``folder`` anew, empty, and the uid ``owner``'s where there is one; raises ``OSError``.

    It has to be there before a sandbox is entered, which opens what is there.
    """
    remove_tree(folder)
    folder.mkdir(parents=True)
    if owner is not None:
        os.chown(folder, owner, owner, follow_symlinks=False)
