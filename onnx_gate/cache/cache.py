"""The cache of one run: what it knows of each model, and what it learns."""

from __future__ import annotations

import datetime
import os
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from onnx_gate.cache.dependencies import Dependencies, Recorded, depend, differences
from onnx_gate.cache.fingerprint import fingerprint_of, variables_that_matter
from onnx_gate.cache.git_index import tracked
from onnx_gate.cache.key import Key, key_changes, key_of
from onnx_gate.cache.opened import FolderWatch
from onnx_gate.cache.path_names import State, find_names
from onnx_gate.cache.reads import installed
from onnx_gate.cache.reproduction import files_of
from onnx_gate.cache.store import Store, Unusable
from onnx_gate.cache.stored_verdict import StoredVerdict
from onnx_gate.errors import UserError
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.model import ModelResult
from onnx_gate.verify.checkpoint_files import checkpoint_files, external_data
from onnx_gate.verify.context import EXPORT_NOTES
from onnx_gate.workers.launch import Launch

MOST_EXPORT_BYTES = 512 << 20
_VERDICTS = ("pass", "diverged")
# A file's time of change is of the kernel's last tick, which may be this long ago.
_TICK_NS = 20_000_000


@dataclass(frozen=True)
class CacheLookup:
    """What a cache has for a model.

    ``entry`` is null where its verdict does not hold any more, and ``exported`` are the files of
    an export that still does. ``reasons`` say in a phrase each why the verdict does not, and
    ``past`` is the newest result there is, whether it holds or not.
    """

    entry: StoredVerdict | None = None
    exported: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    past: ModelResult | None = None


@dataclass
class _Ended:
    spec: ModelSpec
    entry: StoredVerdict
    recorded: Recorded
    opened: frozenset[str]
    overlaps: set[str]


class Cache:
    """A cache that knows nothing, and remembers nothing; ``notes`` are for the report.

    With ``records`` models have to report what they read.
    """

    records = False

    def __init__(self, *notes: str) -> None:
        self.notes = list(notes)

    def look_up(self, spec: ModelSpec) -> CacheLookup:
        """Return what holds of a model without running it."""
        return CacheLookup()

    def restore(self, exported: Mapping[str, str], folder: Path) -> bool:
        """Copy exported files into ``folder``; false, and none of them, where one is gone."""
        return False

    def watch(self) -> None:
        """Watch the repository from now on; models run."""

    def started(self, name: str) -> None:
        """The process of a model runs."""

    def heard(self) -> None:
        """Something has happened: a good time to look which files were opened."""

    def ended(
        self,
        spec: ModelSpec,
        result: ModelResult,
        messages: Iterable[Mapping[str, Any]],
        exported: Path,
        repro: Path | None,
    ) -> None:
        """Take down what is known of a model; it is written by ``close``.

        ``exported`` is the folder with its ONNX file, ``repro`` that of its reproduction.
        """

    def basis(self, spec: ModelSpec, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what a part of a verdict rests on beside the weights, ``None`` where none is kept.

        ``message`` is a worker's that has what it has read so far.
        """
        return None

    def holds(self, spec: ModelSpec, basis: Mapping[str, Any]) -> bool:
        """Return whether all is still as ``basis`` says."""
        return False

    def close(self) -> None:
        """Write what is to be remembered, and tidy up; nothing here can fail a run."""


class StoredCache(Cache):
    """The verdicts of earlier runs for this one."""

    records = True

    def __init__(
        self,
        store: Store,
        state: State,
        environment: Mapping[str, str],
        cases: tuple[str, ...],
        today: datetime.date,
        *,
        believing: bool = True,
    ) -> None:
        """With ``believing`` false no model's word takes a file from one that ran beside it.

        Otherwise one that lies could have a neighbour's verdict hold whatever becomes of a file. Where
        models can write into the cache itself, nothing is lost by believing them.
        """
        super().__init__()
        self._believing = believing
        self._store = store
        self._state = state
        self._environment = environment
        self._cases = cases
        self._today = today
        self._began = time.time_ns() - _TICK_NS
        self._watch: FolderWatch | None = None
        self._blind = True
        self._overlaps: dict[str, set[str]] = {}
        self._known: dict[str, frozenset[str]] = {}
        self._waiting: dict[str, _Ended] = {}

    def look_up(self, spec: ModelSpec) -> CacheLookup:
        """Return what holds of a model without running it."""
        key = self._key(spec)
        heads = self._store.heads(spec.name)
        exported: Mapping[str, str] = {}
        for path, head in heads:
            if head.verdict != key.verdict and (exported or head.export != key.export):
                continue
            entry = self._store.read(path)
            if entry is None or entry.dependencies is None or entry.result is None:
                continue
            if entry.result.name != spec.name or any(differences(entry.dependencies, self._state)):
                continue
            if head.verdict == key.verdict and entry.result.verdict in _VERDICTS:
                self._store.touch(path)
                return CacheLookup(entry)
            exported = exported or entry.exported or {}
        return self._lost(key, exported, [path for path, _ in heads])

    def restore(self, exported: Mapping[str, str], folder: Path) -> bool:
        """Copy exported files into ``folder``; false, and none of them, where one is gone."""
        if not exported:
            return False
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if all(
                Path(name).name == name and self._store.restore_export(digest, folder / name)
                for name, digest in exported.items()
            ):
                return True
        for name in exported:
            with suppress(OSError):
                (folder / Path(name).name).unlink()
        return False

    def watch(self) -> None:
        """Watch the repository from now on; models run."""
        names = self._state.names
        self._watch = FolderWatch(names.root, names.own)
        self._blind = not self._watch.complete
        if self._blind:
            self.notes.append(
                "cache: nothing is remembered of this run, as the files that models open cannot be "
                f"watched here (on Linux only, and up to {FolderWatch.MOST_FOLDERS} folders)"
            )

    def started(self, name: str) -> None:
        """The process of a model runs."""
        if self._watch is None:
            return
        running = [each for each in self._overlaps if each != name and each not in self._known]
        self._overlaps[name] = {*self._overlaps.get(name, ()), *running}
        for other in running:
            self._overlaps[other].add(name)
        self._known.pop(name, None)
        self._watch.start(name)

    def heard(self) -> None:
        """Something has happened: a good time to look which files were opened."""
        if self._watch is not None:
            self._watch.read()

    def ended(
        self,
        spec: ModelSpec,
        result: ModelResult,
        messages: Iterable[Mapping[str, Any]],
        exported: Path,
        repro: Path | None,
    ) -> None:
        """Take down what is known of a model; it is written by ``close``."""
        if self._watch is None:
            return
        opened = self._watch.end(spec.name)
        recorded = _recorded(messages)
        self._known[spec.name] = frozenset(recorded.opened if recorded is not None else ())
        if recorded is not None and result.verdict in _VERDICTS and not self._blind:
            if self._watch.lost(spec.name):
                recorded = recorded.model_copy(update={"lost": True})
            entry = StoredVerdict(
                key=self._key(spec),
                result=result,
                files=files_of(repro),
                exported=self._keep(exported),
            )
            overlaps = self._overlaps.get(spec.name, set())
            self._waiting[spec.name] = _Ended(spec, entry, recorded, opened, overlaps)

    def basis(self, spec: ModelSpec, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what a part of a verdict rests on beside the weights, ``None`` where none is kept.

        Files that the gate looks at meanwhile count as well, and those of models that still run: that
        makes more of it rest on them than need be.
        """
        recorded = _recorded([message])
        if self._watch is None or self._blind or recorded is None or self._watch.lost(spec.name):
            return None
        weights = _weights(spec, Path(self._state.names.workspace))
        read = {path for path in recorded.opened if os.path.realpath(path) not in weights}
        explained = self._explained(self._overlaps.get(spec.name, set()))
        others = self._watch.seen(spec.name).difference(recorded.opened, weights, *explained)
        recorded = recorded.model_copy(update={"opened": tuple(sorted(read))})
        dependencies = depend(recorded, others, self._state, self._began)
        if isinstance(dependencies, str):
            return None
        return {"verdict": self._key(spec).verdict, "dependencies": dependencies.model_dump()}

    def holds(self, spec: ModelSpec, basis: Mapping[str, Any]) -> bool:
        """Return whether all is still as ``basis`` says."""
        try:
            dependencies = Dependencies.model_validate(basis.get("dependencies"))
        except ValidationError:
            return False
        same = basis.get("verdict") == self._key(spec).verdict
        return same and not any(differences(dependencies, self._state))

    def close(self) -> None:
        """Write what is to be remembered, and tidy up; nothing here can fail a run.

        Only now is it known which process opened which file; and before, the gate's own reading of
        the files would count for whatever model was running.
        """
        if self._watch is None:
            return
        self._watch.close()
        try:
            for ended in self._waiting.values():
                self._write(ended)
            self._store.prune()
        except Exception as error:
            self.notes.append(f"cache: not all is kept: {type(error).__name__}: {error}")
        self._waiting.clear()

    def _write(self, ended: _Ended) -> None:
        others = ended.opened.difference(*self._explained(ended.overlaps))
        dependencies = depend(ended.recorded, others, self._state, self._began)
        if isinstance(dependencies, str):
            entry = StoredVerdict(key=ended.entry.key, refusal=dependencies)
        else:
            entry = replace(ended.entry, dependencies=dependencies)
        try:
            self._store.write(ended.spec.name, entry)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.notes.append(f"cache: the verdict on {ended.spec.name} is not kept: {reason}")

    def _explained(self, names: Iterable[str]) -> list[frozenset[str]]:
        """Return what Python's events of other processes explain, so that it was not this one's."""
        return [self._known.get(name, frozenset()) for name in names] if self._believing else []

    def _keep(self, folder: Path) -> Mapping[str, str]:
        """Store the exported files of a model that says how they came to be."""
        with suppress(OSError):
            files = [p for p in folder.iterdir() if p.is_file() and not p.is_symlink()]
            small = sum(path.stat().st_size for path in files) <= MOST_EXPORT_BYTES
            if small and (folder / EXPORT_NOTES).is_file():
                return {path.name: self._store.keep_export(path) for path in files}
        return {}

    def _lost(self, key: Key, exported: Mapping[str, str], paths: Iterable[Path]) -> CacheLookup:
        """Say in what the newest entry differs from how things are now."""
        for entry in filter(None, map(self._store.read, paths)):
            changes = key_changes(entry.key, key)
            if entry.dependencies is not None:
                changes += differences(entry.dependencies, self._state)
            if entry.refusal:
                changes.append(f"it is never remembered: {entry.refusal}")
            return CacheLookup(exported=exported, reasons=tuple(changes), past=entry.result)
        return CacheLookup(exported=exported, reasons=("it was never verified with this cache",))

    def _key(self, spec: ModelSpec) -> Key:
        return key_of(spec, self._environment, self._cases, self._today)


def open_cache(
    folder: Path,
    workspace: Path,
    launch: Launch,
    *,
    own: Iterable[Path],
    threads: int,
    cases: tuple[str, ...],
    today: datetime.date,
    variables: Mapping[str, str],
    versions: Mapping[str, str],
) -> StoredCache:
    """Open the cache in ``folder`` for the manifest in ``workspace``.

    ``own`` are further folders that this run writes to; ``variables`` are those of the gate's
    environment, which models see where ``launch`` has none of its own; ``versions`` are of what
    runs beside them. Raises ``Unusable``.
    """
    seen = launch.environment if launch.environment is not None else variables
    if tracked(folder):
        raise Unusable(
            "git tracks files in it, so that anyone can write a verdict into it with a commit"
        )
    if tracked(folder, unknown=bool(variables.get("CI"))):
        raise Unusable(
            "there is no .git to tell whether a commit brought it, and with it verdicts; install git "
            "before actions/checkout, which downloads an archive where there is none"
        )
    store = Store.open(folder)
    if launch.owner is not None and folder.stat().st_mode & stat.S_IWOTH:
        raise Unusable("everyone may write into it, the models' user too")
    # Known by version, and where they lie in the repository not by every file of theirs.
    packages = map(Path, installed(str(workspace)))
    names = find_names(
        workspace,
        [folder, *own, *([launch.private] if launch.private is not None else []), *packages],
        seen.get("HOME", ""),
        shared=launch.owner is not None,
    )
    try:
        environment = fingerprint_of(launch.python, launch.prefix)
    except UserError as error:
        raise Unusable(str(error)) from error
    confined = launch.policy.landlock if launch.policy is not None else None
    environment |= {
        **variables_that_matter(seen),
        **versions,
        "the number of threads": str(threads),
        "the sandbox": f"{launch.owner is not None} {confined}",
    }
    believing = launch.policy is None
    state = State(names, seen)
    return StoredCache(store, state, environment, cases, today, believing=believing)


def _weights(spec: ModelSpec, workspace: Path) -> set[str]:
    """Return the files of a model's own weights, of which each block's key names its part."""
    files: list[Path] = []
    if spec.weights is not None:
        every = checkpoint_files(workspace / spec.weights.file, workspace)
        files += (each for each in every if each.suffix == ".safetensors")
    if spec.onnx is not None:
        files += external_data(workspace / spec.onnx)
    return {os.path.realpath(each) for each in files}


def _recorded(messages: Iterable[Mapping[str, Any]]) -> Recorded | None:
    """Return what a model's process reports of itself; it is not to be trusted with the form."""
    recorded = None
    for message in messages:
        with suppress(ValidationError):
            recorded = Recorded.model_validate(message.get("recorded"))
    return recorded
