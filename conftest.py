from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import gate as command
from tests.support import profiles
from tests.support.layers import refuse_processes, refuse_torch, without_torch

UNIT = pytest.StashKey[frozenset[Path]]()
PROCESS = pytest.StashKey[bool]()

profiles.load()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--unit", action="store_true", help="only what needs no torch, in a process without torch"
    )
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files anew, and pass"
    )


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So it is in the background of a shell, and every process started here would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--unit"):
        refuse_torch()
        refuse_processes(lambda: config.stash.get(PROCESS, True))
        config.stash[UNIT] = without_torch()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    unit = config.stash.get(UNIT, None)
    if unit is None or not re.fullmatch(r"test_\w+\.py", collection_path.name):
        return None
    return collection_path not in unit or None


def pytest_runtest_setup(item: pytest.Item) -> None:
    marks = {mark.name for mark in item.iter_markers()}
    item.config.stash[PROCESS] = not marks.isdisjoint(
        {"process", "slow"}
    )  # neither is in make unit


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with a golden file; with ``--update-golden`` write the file instead."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(text.encode())
        assert text == path.read_bytes().decode(), f"{path.name} differs: make golden"

    return compare


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Make a folder once, however many processes the tests are spread over.

    The second process to ask waits for the first. A folder that could not be made is made again by
    the next who asks, so that each test fails with its own reason.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make(name: str, fill: Callable[[Path], None]) -> Path:
        folder = shared / "once" / name
        done = folder.with_suffix(".done")
        folder.parent.mkdir(exist_ok=True)
        with _locked(folder.with_suffix(".lock")):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                done.touch()
        return folder

    return make


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def project(once: Callable[..., Path]) -> Path:
    """A user's repository: models, exporters, manifests, and the files that they name."""

    def fill(folder: Path) -> None:
        tests = command.ROOT / "tests"
        shutil.copytree(tests / "e2e" / "project", folder, dirs_exist_ok=True)
        shutil.copytree(tests / "findings" / "project", folder / "findings")
        for each in (folder, folder / "findings"):
            subprocess.run(
                [sys.executable, "make_data.py"],
                cwd=each,
                check=True,
                capture_output=True,
                timeout=300,
            )

    return once("project", fill)


@pytest.fixture(scope="session")
def verify_manifest(project: Path, once: Callable[..., Path]) -> Callable[..., command.Run]:
    """Run a manifest of the project once, however many tests look at the result."""

    def run(manifest: str, *arguments: str) -> command.Run:
        # Hostile models reach for the processes above their own.
        start = command.started if manifest == "hostile.yml" else command.gate

        def fill(folder: Path) -> None:
            done = start(
                *("run", "--manifest", manifest, "--output", str(folder), "--remedies", "0"),
                *arguments,
                cwd=project,
            )
            output = done.stdout + done.stderr
            assert (folder / "report.json").exists(), output
            (folder / "status").write_text(str(done.returncode))
            (folder / "output").write_text(output)

        return command.finished_run(
            once(re.sub(r"\W+", "-", " ".join((manifest, *arguments))), fill)
        )

    return run
