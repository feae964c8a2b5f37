"""A verdict is taken from the cache where nothing that decides about it has changed, and only there.

The models are verified once; what holds after a change is then asked of copies of the repository
and of the cache, which another checkout is, too.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from onnx_gate.cache.cache import StoredCache, open_cache
from onnx_gate.cache.hits import look_up
from onnx_gate.cache.store import Unusable
from onnx_gate.manifest import Manifest
from onnx_gate.manifest.load import load
from onnx_gate.report.io import read_report
from onnx_gate.report.layout import Layout
from onnx_gate.report.model import Report
from onnx_gate.workers.launch import Launch
from tests.support import gate as command
from tests.support.cache_project import EVERY, outside, write_project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TODAY = datetime.date(2026, 11, 21)
THREADS = max(1, len(os.sched_getaffinity(0)) // 2)
READERS = {
    *("native", "other", "configured", "switched", "counted", "declared", "outside", "scratching"),
}

# Writes down that torch was imported, in whatever process.
WITNESS = """
import os, sys
class Witness:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            open(os.environ["WITNESS"], "w").close()
        return None
sys.meta_path.insert(0, Witness())
"""


@dataclass(frozen=True)
class Repository:
    """A checkout with its cache, and what the first run said."""

    folder: Path
    first: Report
    output: str

    @property
    def manifest(self) -> Manifest:
        return load(self.folder / "onnx-gate.yml")


def gate(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return command.gate("run", "--jobs", "2", *arguments, cwd=folder, variables=variables)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    folder = tmp_path_factory.mktemp("cached")
    write_project(folder)
    done = gate(folder, "--cache", "cache", "--changed", "--keep-models")
    assert (folder / "onnx-gate-report/report.json").exists(), done.stdout + done.stderr
    return Repository(folder, read_report(folder / "onnx-gate-report/report.json"), done.stdout)


@pytest.fixture
def repository(original: Repository, tmp_path: Path) -> Repository:
    """Another checkout, at another place, of the same files and the same cache."""
    folder = tmp_path / "elsewhere"
    shutil.copytree(original.folder, folder)
    return Repository(folder, original.first, original.output)


def opened(repository: Repository, today: datetime.date = TODAY, **variables: str) -> StoredCache:
    return open_cache(
        repository.folder / "cache",
        repository.folder,
        Launch(),
        own=(repository.folder / "onnx-gate-report",),
        threads=THREADS,
        cases=(),
        today=today,
        variables=dict(os.environ) | variables,
        versions={},
    )


def holding(repository: Repository, today: datetime.date = TODAY, **variables: str) -> set[str]:
    """The models whose verdict is taken from the cache."""
    cache = opened(repository, today, **variables)
    return {s.name for s in repository.manifest.models if cache.look_up(s).entry is not None}


def reasons(repository: Repository, name: str, **variables: Any) -> str:
    cache = opened(repository, **variables)
    spec = next(spec for spec in repository.manifest.models if spec.name == name)
    return "; ".join(cache.look_up(spec).reasons)


def edit(repository: Repository, name: str, old: str, new: str) -> None:
    path = repository.folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_first_run_verifies_everything(original: Repository) -> None:
    assert not any(model.cached for model in original.first.models)
    verdicts = {model.name: model.verdict for model in original.first.models}
    assert {name for name, verdict in verdicts.items() if verdict != "pass"} == {"diverging"}
    assert "cache: 0 of 16 verdicts still hold" in original.output


def test_what_has_not_changed_holds_in_another_checkout(repository: Repository) -> None:
    for path in repository.folder.rglob("*.py"):
        os.utime(path)
    assert {name: reasons(repository, name) for name in EVERY - holding(repository)} == {}


Change = Callable[[Repository], None]


def write(name: str, text: str = "") -> Change:
    def change(repository: Repository) -> None:
        path = repository.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return change


def replace(name: str, old: str, new: str) -> Change:
    return lambda repository: edit(repository, name, old, new)


def same_size(name: str) -> Change:
    """Change one byte of a file, and neither its size nor its time."""

    def change(repository: Repository) -> None:
        path = repository.folder / name
        before = path.stat()
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    return change


NEW = "  new: {model: 'models/plain.py:Plain', inputs: {x: 'float32[batch, 5]'}}\n"
ALONE = {"alone", "filed", "measured", "waived", "diverging"}
CHANGES: dict[str, tuple[Change, set[str], str]] = {
    # what changes: how, the models that have to be verified, what is said of one of them
    "a model's file": (replace("models/plain.py", "tanh", "sin"), {"plain"}, "models/plain.py changed"),
    "an import": (replace("models/common.py", "5", "4 + 1"), {"plain"}, "models/common.py changed"),
    "a comment": (replace("models/alone.py", "x / 3", "x / 3  # a third"), ALONE, "models/alone.py"),
    "weights read by native code": (
        same_size("weights/native.safetensors"), {"native"}, "weights/native.safetensors changed"
    ),
    "weights of the manifest": (
        same_size("weights/declared.safetensors"), {"declared"}, "weights/declared.safetensors"
    ),
    "a file's existence": (write("switch"), {"switched"}, "switch is there or gone"),
    "a folder's files": (write("parts/c.txt"), {"counted"}, "parts/ has other files"),
    "an input of a suite": (same_size("data/case.npz"), {"filed"}, "data/case.npz changed"),
    "a new input of a suite": (write("data/other.npz"), {"filed"}, "data/ has other files"),
    "a metric": (replace("models/limits.py", "0.0", "0.5"), {"measured"}, "models/limits.py"),
    "a module that hides another": (
        write("pyclbr.py"), READERS, "./ has other modules"
    ),
    "a file that nobody reads": (write("README.md", "hello"), set(), ""),
    "a model of its own": (write("models/new.py", "X = 1"), set(), ""),
    "another model's entry": (
        replace("onnx-gate.yml", "  plain:", NEW + "  plain:"), {"new"}, "never verified"
    ),
    "its own entry": (
        replace("onnx-gate.yml", "max: 1.0", "max: 2.0"), {"measured"}, "tolerance in the manifest"
    ),
    "an entry's sizes": (
        replace("onnx-gate.yml", 'alone.py:Alone",', 'alone.py:Alone", dims: {batch: [1, 4]},'),
        {"alone"}, "dims, named_dims in the manifest",
    ),
    "whether it is required": (
        replace("onnx-gate.yml", 'plain.py:Plain"', 'plain.py:Plain", required: false'), set(), ""
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_loses_the_verdicts_that_rest_on_it(repository: Repository, what: str) -> None:
    change, lost, said = CHANGES[what]
    change(repository)
    names = {spec.name for spec in repository.manifest.models} - {"chatty", "restless"}
    assert names - holding(repository) == lost
    assert all(said in reasons(repository, name) for name in lost)


def test_a_file_that_nobody_saw_opened_counts_for_all_that_ran(repository: Repository) -> None:
    """``other`` reads by the C library: the kernel says that, and not who it was."""
    same_size("weights/raw.bin")(repository)
    assert "other" not in holding(repository)
    assert "weights/raw.bin changed" in reasons(repository, "other")
    assert "diverging" in holding(repository)  # long after it


def test_a_file_of_others_in_the_temporary_folder_counts(
    original: Repository, repository: Repository
) -> None:
    file = outside(original.folder)
    assert file.is_relative_to(tempfile.gettempdir())
    whole = file.read_bytes()
    try:
        # Another number in it: the one of an altered file is read as weights, too.
        file.write_bytes(whole.replace(b"\x00\x00\x00@", b"\x00\x00@@"))
        assert holding(repository) == EVERY - {"outside"}
        assert f"{file} changed" in reasons(repository, "outside")
    finally:
        file.write_bytes(whole)


def test_variables_that_a_model_asks_for_count(repository: Repository) -> None:
    assert holding(repository, SCALE_OF_MODEL="2") == EVERY - {"configured"}
    assert "$SCALE_OF_MODEL changed" in reasons(repository, "configured", SCALE_OF_MODEL="2")
    assert holding(repository, GITHUB_RUN_ID="17", UNHEARD_OF="1") == EVERY
    assert holding(repository, OMP_NUM_THREADS="3") == set()


def test_a_waiver_that_ends_is_a_change(repository: Repository) -> None:
    assert holding(repository, datetime.date(2999, 1, 1)) == EVERY
    assert holding(repository, datetime.date(2999, 1, 2)) == EVERY - {"waived"}


def test_another_machine_or_another_package_verifies_anew(repository: Repository) -> None:
    cache = opened(repository)
    spec = next(spec for spec in repository.manifest.models if spec.name == "plain")
    for part in (
        "the CPU's instruction set",
        "package torch",
        "onnx-gate",
        "Python",
        "the sandbox",
    ):
        environment = {**cache._environment, part: "9.9 another"}
        other = StoredCache(cache._store, cache._state, environment, (), TODAY)
        found = other.look_up(spec)
        assert found.entry is None
        assert not found.exported
        assert any(part.removeprefix("package ") in reason for reason in found.reasons)


def test_what_cannot_be_told_is_not_kept_and_said(repository: Repository) -> None:
    assert "it opened a network connection" in reasons(repository, "chatty")
    assert "counter.txt changed while it ran" in reasons(repository, "restless")


def test_a_run_takes_what_holds_and_says_so(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(WITNESS)
    witness = tmp_path / "witness"
    environment = {
        "PYTHONPATH": os.pathsep.join(
            [str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
        "WITNESS": str(witness),
        "GITHUB_RUN_ID": "8",
    }
    names = [argument for name in sorted(EVERY) for argument in ("--model", name)]
    first = gate(repository.folder, "--cache", "cache", *names, **environment)
    assert first.returncode == 1, first.stdout + first.stderr
    assert witness.exists()
    shutil.rmtree(repository.folder / "onnx-gate-report")
    witness.unlink()
    again = gate(repository.folder, "--cache", "cache", "--changed", *names, **environment)
    assert again.returncode == 1
    assert not witness.exists(), again.stdout
    assert f"cache: {len(EVERY)} of {len(EVERY)} verdicts still hold" in again.stdout
    report = read_report(repository.folder / "onnx-gate-report/report.json")
    assert all(model.cached for model in report.models)
    before = {model.name: model for model in repository.first.models}
    for model in report.models:
        known, found = before[model.name].checks, model.checks
        assert len(known) == len(found)
        for one, other in zip(known, found, strict=True):
            assert other == one.model_copy(update={"seconds": other.seconds})
        assert model.seconds
    assert report.environment["torch"]
    diverging = next(model for model in report.models if model.name == "diverging")
    assert diverging.diagnosis is not None
    if diverging.diagnosis.repro is not None:
        assert (repository.folder / "onnx-gate-report" / diverging.diagnosis.repro).is_dir()


def test_an_export_is_taken_up_where_only_the_judgement_changed(repository: Repository) -> None:
    edit(repository, "onnx-gate.yml", "max: 1.0", "max: 2.0")
    edit(repository, "onnx-gate.yml", "atol: 1.0e-30", "atol: 1.0e-31")
    done = gate(
        repository.folder, "--cache", "cache", "--model", "measured", "--model", "diverging"
    )
    report = read_report(repository.folder / "onnx-gate-report/report.json")
    measured, diverging = report.models
    assert not measured.cached
    assert measured.verdict == "pass", done.stdout
    assert "export" not in [stage.name for stage in measured.stages]
    # What is wrong is looked into with an export of its own.
    assert "export" in [stage.name for stage in diverging.stages]
    before = {model.name: model for model in repository.first.models}
    assert diverging.verdict == "diverged"
    assert (diverging.diagnosis is None) == (before["diverging"].diagnosis is None)


def test_what_a_model_took_is_known_though_its_verdict_is_lost(repository: Repository) -> None:
    edit(repository, "models/plain.py", "tanh", "sin")
    spec = next(spec for spec in repository.manifest.models if spec.name == "plain")
    layout = Layout(repository.folder / "nowhere")
    known = look_up(opened(repository), [spec], layout, keep_models=False)
    assert not known.results
    before = next(model for model in repository.first.models if model.name == "plain")
    assert [(each.name, each.seconds, each.peak_memory) for each in known.past] == [
        ("plain", before.seconds, before.peak_memory)
    ]


def test_kept_models_come_from_the_cache_too(repository: Repository) -> None:
    shutil.rmtree(repository.folder / "onnx-gate-report")
    # Two of them, as one alone would have all threads and so another key.
    names = ("--model", "alone", "--model", "plain")
    gate(repository.folder, "--cache", "cache", "--keep-models", *names)
    report = read_report(repository.folder / "onnx-gate-report/report.json")
    assert [model.cached for model in report.models] == [True, True]
    kept = repository.folder / "onnx-gate-report/models/alone/model.onnx"
    assert kept.stat().st_size == report.models[1].export.bytes  # type: ignore[union-attr]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "forged", "link", "pipe"])
def test_a_damaged_entry_is_as_good_as_none(repository: Repository, damage: str) -> None:
    for path in repository.folder.glob("cache/entries/*/*.entry"):
        data = path.read_bytes()
        if damage == "cut":
            path.write_bytes(data[: len(data) // 2])
        elif damage == "flip":
            path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "forged":
            path.write_bytes(data.replace(b'"verdict":"diverged"', b'"verdict":"pass"'))
        elif damage == "link":
            moved = path.rename(path.with_suffix(".away"))
            path.symlink_to(moved)
        else:
            path.unlink()
            os.mkfifo(path)
    left = holding(repository)
    assert left == ((EVERY - {"diverging"}) if damage == "forged" else set())


def test_an_entry_of_another_model_says_nothing(repository: Repository) -> None:
    folders = sorted((repository.folder / "cache/entries").iterdir())
    for mine, other in zip(folders, folders[1:] + folders[:1], strict=True):
        for path in list(other.glob("*.entry")):
            shutil.copy(path, mine / f"{path.stem}x.entry")
    assert holding(repository) == EVERY
    for folder in folders:
        for path in folder.glob("*.entry"):
            if not path.stem.endswith("x"):
                path.unlink()
    assert holding(repository) == set()


def test_a_damaged_export_is_not_taken_up(repository: Repository) -> None:
    edit(repository, "onnx-gate.yml", "max: 1.0", "max: 2.0")
    for path in repository.folder.glob("cache/exports/*"):
        path.write_bytes(path.read_bytes()[:-1])
    cache = opened(repository)
    spec = next(spec for spec in repository.manifest.models if spec.name == "measured")
    found = cache.look_up(spec)
    assert found.exported
    target = repository.folder / "restored"
    assert not cache.restore(found.exported, target)
    assert list(target.iterdir()) == []


def test_a_folder_that_is_no_cache_is_left_alone(repository: Repository, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("mine")
    for folder, words in (
        (foreign, "thesis.txt"),
        (foreign / "thesis.txt", "File exists"),
        (Path("/proc/1/cache"), "No such file"),
    ):
        with pytest.raises(Unusable, match=words):
            open_cache(
                folder,
                repository.folder,
                Launch(),
                own=(),
                threads=1,
                cases=(),
                today=TODAY,
                variables={},
                versions={},
            )
    assert [path.name for path in foreign.iterdir()] == ["thesis.txt"]
    done = gate(repository.folder, "--cache", str(foreign), "--model", "alone")
    assert done.returncode == 0
    report = json.loads((repository.folder / "onnx-gate-report/report.json").read_text())
    assert any("is not used: it holds other files" in note for note in report["notes"])


def test_a_cache_that_git_tracks_is_not_believed(repository: Repository) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]

    def run(*arguments: str) -> None:
        subprocess.run([*git, *arguments], cwd=repository.folder, check=True, capture_output=True)

    run("init", "-q")
    run("add", "models", "onnx-gate.yml", "weights")
    assert holding(repository) >= {"plain", "native"}
    run("add", "-f", "cache/CACHEDIR.TAG")
    with pytest.raises(Unusable, match="git tracks"):
        opened(repository)
    for version in ("3", "4"):
        run("update-index", "--index-version", version)
        with pytest.raises(Unusable):
            opened(repository)
    run("rm", "-q", "--cached", "cache/CACHEDIR.TAG")
    run("update-index", "--index-version", "2")
    opened(repository)


def test_changed_needs_a_cache(repository: Repository) -> None:
    done = gate(repository.folder, "--changed")
    assert done.returncode == 2
    assert "name it with --cache" in done.stderr
