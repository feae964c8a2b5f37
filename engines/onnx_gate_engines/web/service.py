"""The owner's side of the broker: who starts it, and how sessions in other processes find it."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from onnx_gate_engines.web.chromium import version_of_chromium
from onnx_gate_engines.web.package import digest_of_package

VARIABLE = "ONNX_GATE_BROWSER"
_CLOSE_SECONDS = 10.0
# Chromium adds 50 characters for a socket of its own, and the folder's name has 27.
_LONGEST = 30


class Confined(Protocol):
    """A sandbox: what stands before the command, and the folder that it may write to."""

    @property
    def prefix(self) -> Sequence[str]:
        """A program that enters it."""
        ...

    @property
    def folder(self) -> Path:
        """Made already, with an owner that is not the models'."""
        ...


class BrowserService:
    """A broker that this process has started, and its browser; whatever ends this process ends both.

    ``variables`` are what a process that is to find it has in its environment; ``pid`` is the
    broker's.
    """

    def __init__(self, confined: Confined | None = None) -> None:
        """Start it, in the sandbox ``confined`` where there is one; raises ``OSError``."""
        self._owner = os.getpid()
        if confined is None:
            self._folder = Path(tempfile.mkdtemp(prefix="onnx-gate-browser-", dir=_parent()))
        else:
            self._folder = confined.folder
        address = str(self._folder / "socket")
        self.variables: Mapping[str, str] = {VARIABLE: address}
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen(64)
            if confined is not None:
                os.chmod(address, 0o666)  # models are somebody else, and only that far strangers
            descriptor = listener.fileno()
            self._process = subprocess.Popen(
                [
                    *(confined.prefix if confined is not None else ()),
                    # -I: no module comes from the folder of the call.
                    *(sys.executable, "-I", "-m", "onnx_gate_engines.web.broker"),
                    *(str(self._folder), str(descriptor), str(os.getpid())),
                ],
                stdin=subprocess.PIPE,
                pass_fds=(descriptor,),
                start_new_session=True,
            )
        self.pid = self._process.pid

    @staticmethod
    def versions() -> Mapping[str, str]:
        """Return what the numbers depend on: the browser's version, the package's files."""
        return {"onnxruntime-web": digest_of_package(), "the browser": version_of_chromium()}

    def close(self) -> None:
        """End the broker, its browser, and what they have written; a fork has no say in it."""
        if os.getpid() != self._owner:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _parent() -> str:
    """Return where the folder goes: the path of a socket has 107 characters at most."""
    usual = tempfile.gettempdir()
    return usual if len(usual) <= _LONGEST else "/tmp"


def connect() -> socket.socket:
    """Return a connection to the broker of this run, or of this process; raises ``OSError``."""
    if VARIABLE not in os.environ:
        service = BrowserService()
        atexit.register(service.close)
        os.environ.update(service.variables)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(os.environ[VARIABLE])
    except BaseException:
        connection.close()
        raise
    return connection
