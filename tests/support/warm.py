"""The command line in a fork of a process that has imported what a run imports.

A run of a small model takes longer to import PyTorch and its exporter than to verify, and the tests
start hundreds. Here each is a fork with its own arguments, folder, environment, output and status;
and its fork server, which would import the same once more, is a fork of it. What is to be true of a
process from its first instruction is tested with ``gate.started``.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path
from pkgutil import resolve_name
from typing import Any


def _of_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


_AT_START = _of_interpreter(os.environ)


def fits(environment: Mapping[str, str]) -> bool:
    """Return whether a process that is started with an environment would be one like the server."""
    return _of_interpreter(environment) == _AT_START


@cache
def _server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.warm_imports"])
    return context


@cache
def _path() -> list[str]:
    """Return where an interpreter finds modules: other tests have added to this one's."""
    code = "import json, sys; print(json.dumps(sys.path[1:]))"
    found: list[str] = json.loads(subprocess.check_output([sys.executable, "-c", code]))
    return found


def run(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run the command line; raises ``TimeoutExpired`` after ``timeout`` seconds."""
    words = ["onnx-gate", *arguments]
    # What keeps a test without a mark from starting processes hears of those that subprocess starts.
    sys.audit("subprocess.Popen", sys.executable, words, str(cwd), None)
    with tempfile.TemporaryDirectory() as folder:
        said = [Path(folder) / "stdout", Path(folder) / "stderr"]
        path = [str(cwd), *_path()]
        process = _server().Process(target=_run, args=(words, path, dict(environment), said))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(words, timeout)
        stdout, stderr = (path.read_text() for path in said)
        return subprocess.CompletedProcess(words, process.exitcode, stdout, stderr)


def _run(words: list[str], path: list[str], environment: dict[str, str], said: list[Path]) -> None:
    # By name: a test that runs the command line needs no PyTorch in its own process.
    server = resolve_name("onnx_gate.workers.forkserver:ForkServer")
    for place, stream in zip(said, (sys.stdout, sys.stderr), strict=True):
        with place.open("wb") as file:
            os.dup2(file.fileno(), stream.fileno())
    os.chdir(path[0])
    sys.path[:] = path
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = words
    start = server._start

    def forked(self: Any, control: Any, target: str, preload: Any, launch: Any) -> Any:
        if launch.prefix or launch.python or launch.environment is not None:
            return start(self, control, target, preload, launch)
        return self._fork(control, target, preload)

    server._start = forked
    resolve_name("onnx_gate.cli:main")()
