"""Entries are whole or not there: whatever is damaged, whoever writes at once, whoever is killed."""

from __future__ import annotations

import datetime
import json
import multiprocessing
import os
import py_compile
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_gate.cache.cache import StoredCache
from onnx_gate.cache.dependencies import Dependencies, Recorded, depend, differences
from onnx_gate.cache.git_index import tracked
from onnx_gate.cache.opened import FolderWatch
from onnx_gate.cache.path_names import PathNames, State
from onnx_gate.cache.reads import installed
from onnx_gate.cache.store import PER_MODEL, Store
from onnx_gate.cache.stored_verdict import from_bytes, to_bytes
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.model import ModelResult
from tests.support.profiles import tries
from tests.support.store_writer import entry_of, writer


def test_an_entry_comes_back_as_it_was() -> None:
    assert from_bytes(to_bytes(entry_of(7))) == entry_of(7)


@settings(max_examples=tries(300))
@given(st.data())
def test_any_damage_is_seen(data: st.DataObject) -> None:
    whole = to_bytes(entry_of(40))
    place = data.draw(st.integers(0, len(whole) - 1))
    kind = data.draw(st.sampled_from(("cut", "flip", "insert")))
    if kind == "cut":
        damaged = whole[:place]
    elif kind == "flip":
        damaged = whole[:place] + bytes([whole[place] ^ (1 << data.draw(st.integers(0, 7)))])
        damaged += whole[place + 1 :]
    else:
        damaged = whole[:place] + data.draw(st.binary(min_size=1, max_size=9)) + whole[place:]
    assert damaged == whole or from_bytes(damaged) is None


@pytest.mark.process
def test_many_write_at_once_and_are_killed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    folder, dice = tmp_path / "cache", random.Random(0)
    running = []
    for seed in range(40):
        while len(running) >= 6:
            victim = running.pop(dice.randrange(len(running)))
            time.sleep(0.05 * dice.random())
            assert victim.is_alive(), f"ended by itself with {victim.exitcode}"
            victim.kill()
            victim.join()
            assert victim.exitcode == -signal.SIGKILL
        process = context.Process(target=writer, args=(str(folder), seed), daemon=True)
        process.start()
        running.append(process)
    store = Store.open(folder)
    while not all(store.heads(f"model {model}") for model in range(5)):
        time.sleep(0.05)
    for process in running:
        assert process.is_alive(), f"ended by itself with {process.exitcode}"
        process.kill()
        process.join()
    for model in range(5):
        heads = store.heads(f"model {model}")
        assert 0 < len(heads) <= PER_MODEL + 6
        for path, _ in heads:
            entry = store.read(path)
            assert entry is not None
            assert entry.result is not None
            assert entry == entry_of(int(entry.result.name))
    for path in folder.rglob(".*"):
        os.utime(path, (0, 0))
    store.prune()
    assert not list(folder.rglob(".*"))


def state_of(folder: Path) -> State:
    places = PathNames(str(folder), str(folder), "", own=(str(folder / "out"),))
    return State(places, {})


names = st.sampled_from(["a.py", "b.py", "sub/c.py", "sub/d.txt", "out/report.json", "lib.pyc"])


@settings(max_examples=tries(150))
@given(
    before=st.dictionaries(names, st.sampled_from("xyz")),
    after=st.dictionaries(names, st.sampled_from("xyz")),
    read=st.sets(names),
    listed=st.booleans(),
)
def test_what_was_read_holds_if_and_only_if_it_is_the_same(
    before: dict[str, str],
    after: dict[str, str],
    read: set[str],
    listed: bool,
) -> None:
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as first,
        tempfile.TemporaryDirectory(dir="/var/tmp") as second,
    ):
        for folder, files in ((first, before), (second, after)):
            (Path(folder) / "sub").mkdir()
            for name, text in files.items():
                (Path(folder) / name).parent.mkdir(exist_ok=True)
                (Path(folder) / name).write_text(text)
        recorded = Recorded(
            opened=tuple(f"{first}/{name}" for name in read),
            listed=(f"{first}/sub",) if listed else (),
        )
        found = depend(recorded, (), state_of(Path(first)), time.time_ns() + 10**9)
        assert isinstance(found, Dependencies)
        changed = {
            name
            for name in read
            if before.get(name) != after.get(name) and not name.startswith("out")
        }
        below = [{name for name in files if name.startswith("sub/")} for files in (before, after)]
        same = not changed and (not listed or below[0] == below[1])
        assert same == (not list(differences(found, state_of(Path(second)))))


def test_what_lies_around_the_workspace_is_not_installed(tmp_path: Path) -> None:
    inside = f"{sys.prefix}/src/app"
    assert sys.prefix not in installed(inside)
    assert sys.prefix in installed(str(tmp_path))
    assert not any(f"{inside}/".startswith(f"{folder}/") for folder in installed(inside))


@pytest.mark.process
def test_a_folder_called_importlib_does_not_import(tmp_path: Path) -> None:
    script = tmp_path / "importlib-demo" / "model.py"
    script.parent.mkdir()
    script.write_text("import os; names = os.listdir(os.path.dirname(__file__))")
    code = (
        "import json, runpy, sys; from onnx_gate.cache.reads import AccessRecorder; "
        "recorder = AccessRecorder(); recorder.start(); runpy.run_path(sys.argv[1]); "
        "print(json.dumps(recorder.message('/')))"
    )
    command = [sys.executable, "-c", code, str(script)]
    done = subprocess.run(command, check=True, capture_output=True)
    assert str(script.parent) in json.loads(done.stdout)["listed"]


PUT = PycInvalidationMode.UNCHECKED_HASH
BY_HASH = PycInvalidationMode.CHECKED_HASH
BY_TIME = PycInvalidationMode.TIMESTAMP


def compiled(mode: PycInvalidationMode, value: int) -> Callable[[Path], None]:
    """Return what puts bytecode of other code beside ``other.py``."""

    def put(folder: Path) -> None:
        source = folder / "elsewhere.txt"
        source.write_text(f"VALUE = {value}\n")
        cache = Path(cache_from_source(str(folder / "other.py")))
        py_compile.compile(str(source), str(cache), "other.py", invalidation_mode=mode)

    return put


def hidden(text: str) -> Callable[[Path], None]:
    return lambda folder: exists(folder / "__pycache__" / "impl.py", text)


def exists(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "before", "after", "holds"),
    [
        # What Python makes of a source comes and goes, and says nothing.
        ("import other", None, None, True),
        ("import other", compiled(BY_TIME, 1), None, True),
        ("import other", None, compiled(BY_TIME, 2), True),
        # What it runs in every checkout, in the source's place.
        ("import other", None, compiled(PUT, 2), False),
        ("import other", compiled(PUT, 1), compiled(PUT, 2), False),
        ("import other", None, compiled(BY_HASH, 2), False),
        # The folder is one like any other to whoever does not import a source.
        (
            "sys.path.insert(0, HERE + '/__pycache__'); import impl",
            hidden("A = 1"),
            hidden("A = 2"),
            False,
        ),
        (
            "sys.path.insert(0, HERE + '/__pycache__'); import impl",
            hidden("A = 1"),
            hidden("A = 1"),
            True,
        ),
        ("import other; open(CACHED, 'rb')", compiled(BY_TIME, 1), compiled(BY_TIME, 2), False),
        (
            "import other, importlib.machinery as m; "
            "m.SourcelessFileLoader('other', CACHED).get_code('other')",
            compiled(BY_TIME, 1),
            compiled(BY_TIME, 2),
            False,
        ),
    ],
)
def test_bytecode_counts_where_it_is_not_pythons_own(
    tmp_path: Path,
    code: str,
    before: Callable[[Path], None] | None,
    after: Callable[[Path], None] | None,
    holds: bool,
) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder, change in zip(folders, (before, after), strict=True):
        exists(folder / "other.py", "VALUE = 0\n")
        if change is not None:
            change(folder)
    script = (
        "import importlib.util, json, sys; HERE = sys.argv[1]; sys.path.insert(0, HERE); "
        "CACHED = importlib.util.cache_from_source(HERE + '/other.py'); "
        "from onnx_gate.cache.reads import AccessRecorder; "
        "recorder = AccessRecorder(); recorder.start(); "
        f"exec({code!r}); print(json.dumps(recorder.message(HERE)))"
    )
    command = [sys.executable, "-c", script, str(folders[0])]
    done = subprocess.run(command, check=True, capture_output=True)
    recorded = Recorded.model_validate_json(done.stdout)
    found = depend(recorded, (), state_of(folders[0]), time.time_ns() + 10**9)
    assert isinstance(found, Dependencies)
    assert holds == (not list(differences(found, state_of(folders[1]))))


@pytest.mark.parametrize("confined", [True, False])
def test_no_model_takes_a_file_from_one_beside_it(tmp_path: Path, confined: bool) -> None:
    """``evil`` says that it opened what ``honest`` has read by means that Python does not see."""
    names = PathNames(str(tmp_path), str(tmp_path), "", own=(str(tmp_path / "cache"),))
    file, mine = tmp_path / "data/k.txt", tmp_path / "data/__pycache__/own.txt"
    exists(file, "1")
    exists(mine, "1")

    def cache() -> StoredCache:
        store = Store.open(tmp_path / "cache")
        day = datetime.date(2026, 11, 21)
        return StoredCache(store, State(names, {}), {}, (), day, believing=not confined)

    time.sleep(0.05)  # The files are older than the run.
    run = cache()
    run.watch()
    specs = [ModelSpec(name=name, model="m.py:f", inputs={}) for name in ("honest", "evil")]
    for spec in specs:
        run.started(spec.name)
    file.read_text()
    mine.read_text()
    for spec, opened in zip(specs, ((), (str(file),)), strict=True):
        result = ModelResult(name=spec.name, verdict="pass")
        message = {"environment": {}, "recorded": {"opened": opened}}
        run.ended(spec, result, [message], tmp_path / "out", None)
    run.close()
    assert run.notes == []
    assert all(cache().look_up(spec).entry for spec in specs)
    file.write_text("2")
    assert [bool(cache().look_up(spec).entry) for spec in specs] == [not confined, False]
    file.write_text("1")
    mine.write_text("2")
    assert not any(cache().look_up(spec).entry for spec in specs)


@pytest.mark.process
def test_a_package_is_known_by_version_and_files_and_the_first_on_the_path_counts(
    tmp_path: Path,
) -> None:
    def install(where: str, version: str, *files: str) -> None:
        info = tmp_path / where / f"some_package-{version}.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))

    def package(*folders: str) -> str:
        path = os.pathsep.join([*(str(tmp_path / folder) for folder in folders), *sys.path])
        command = [sys.executable, "-m", "onnx_gate.cache.fingerprint"]
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, env=environment, check=True, capture_output=True)
        version: str = json.loads(done.stdout)["package some-package"]
        return version

    install("a", "1.0", "some/module.py")
    install("b", "2.0", "some/module.py")
    first = package("a", "b")
    assert first.startswith("1.0 ")
    assert package("b", "a").startswith("2.0 ")
    install("a", "1.0", "some/module.py", "../../../bin/tool", "some/__pycache__/module.pyc")
    assert package("a", "b") == first
    install("a", "1.0", "some/module.py", "some/other.py")
    assert package("a", "b") != first


@pytest.mark.process
def test_the_kernel_says_what_other_programs_open(tmp_path: Path) -> None:
    for name in ("seen/a", "apart/b", ".git/c", "venv/pyvenv.cfg", "venv/d"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")

    def cat(*files: str) -> None:
        subprocess.run(["cat", *(str(tmp_path / name) for name in files)], check=True)

    watch = FolderWatch(str(tmp_path), (str(tmp_path / "apart"),))
    assert watch.complete is (sys.platform == "linux")
    cat("seen/a")
    watch.start("early")
    cat("apart/b", ".git/c", "venv/d")
    watch.start("late")
    assert watch.end("early") == {str(tmp_path / "seen/a")}
    cat("seen/a")
    assert watch.end("late") == {str(tmp_path / "seen/a")}
    assert not watch.lost("late")
    watch.start("flooded")
    (tmp_path / "seen" / "b").write_text("")
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    files = [tmp_path / "seen" / name for name in ("a", "b")]
    for number in range(limit + 10):
        files[number % 2].open().close()
    watch.end("flooded")
    assert watch.lost("flooded")
    assert not watch.lost("late")
    watch.close()


def test_what_no_repository_tells_of_is_unknown(tmp_path: Path) -> None:
    assert tracked(tmp_path / "cache", unknown=True)
    assert not tracked(tmp_path / "cache")


def test_a_submodule_is_no_place_for_a_cache(tmp_path: Path) -> None:
    git = [
        *("git", "-c", "user.name=a", "-c", "user.email=a@b"),
        *("-c", "protocol.file.allow=always"),
    ]

    def run(*arguments: str, cwd: Path) -> None:
        subprocess.run([*git, *arguments], cwd=cwd, check=True, capture_output=True)

    inner, outer = tmp_path / "inner", tmp_path / "outer"
    for repository in (inner, outer):
        repository.mkdir()
        (repository / "kept.txt").touch()
        run("init", "-q", cwd=repository)
        run("add", "-A", cwd=repository)
        run("commit", "-qm", "one", cwd=repository)
    run("submodule", "add", "-q", str(inner), "caches/one", cwd=outer)
    assert tracked(outer / "caches/one")
    assert tracked(outer / "caches")
    assert not tracked(outer / "caches/two")
    # An ignored folder of the submodule's is nobody's.
    assert not tracked(outer / "caches/one/ignored")
    # Checked out without its .git, as by an archive.
    (outer / "caches/one/.git").unlink()
    assert tracked(outer / "caches/one")
    assert tracked(outer / "caches/one/below")
