"""What the verdict on a model rests on beside its entry in the manifest, and whether it still does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from pydantic import BaseModel, ConfigDict, Field

from onnx_gate.cache.path_names import (
    ABSENT,
    CLOSED,
    FOLDER,
    PathNames,
    State,
    is_bytecode,
    source_of,
)

MOST_PATHS = 200_000


class Recorded(BaseModel):
    """The words of a model's process on what it has read; see ``Recorder.message``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    opened: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    searched: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    probed: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    network: bool = False
    lost: bool = False


class Dependencies(BaseModel):
    """Names of files, folders and variables, each with the digest of what was there.

    ``files`` were opened; of the folders ``listings`` every name counts, of ``searches`` what can
    be imported under one of ``modules``; of ``probes`` it was only asked what they are.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: Mapping[str, str] = Field(default_factory=dict)
    listings: Mapping[str, str] = Field(default_factory=dict)
    searches: Mapping[str, str] = Field(default_factory=dict)
    modules: tuple[str, ...] = ()
    probes: Mapping[str, str] = Field(default_factory=dict)
    variables: Mapping[str, str] = Field(default_factory=dict)


def depend(
    recorded: Recorded, others: Iterable[str], state: State, began: int
) -> Dependencies | str:
    """Return what a model depends on, or why that cannot be told.

    ``others`` are absolute paths that it opened by means that Python does not see. ``began`` is
    when the first process of the run started, in nanoseconds of the wall clock: what has changed
    since then may have been read before or after.
    """
    if recorded.lost:
        return "a part of what it read went unseen"
    if recorded.network:
        return "it opened a network connection"
    path_names = state.names
    others = (source_of(path) if is_bytecode(path) else path for path in others)
    opened = _names((*recorded.opened, *others), path_names)
    if len(opened) + len(recorded.probed) + len(recorded.listed) > MOST_PATHS:
        return f"it read more than {MOST_PATHS} files"
    files: dict[str, str] = {}
    for name in opened:
        if state.changed_since(name, began) and state.probe(name) == "file":
            return f"{name} changed while it ran"
        files[name] = state.file(name)
        if files[name] == CLOSED:
            return f"{name} cannot be read by the gate"
    modules = frozenset(recorded.modules)
    return Dependencies(
        files=files,
        listings={name: state.listing(name) for name in _names(recorded.listed, path_names)},
        searches={
            name: state.search(name, modules)
            for name in _names(recorded.searched, path_names)
            if not name.startswith(("/", "~"))
        },
        modules=recorded.modules,
        probes={
            name: state.probe(name)
            for name in _names(recorded.probed, path_names)
            if not is_bytecode(path_names.path(name))
            and name not in files
            and not name.startswith("/")
        },
        variables={name: state.variable(name) for name in recorded.variables},
    )


def differences(dependencies: Dependencies, state: State) -> Iterator[str]:
    """Yield a phrase for each thing that is not as it was: none, where all is."""
    modules = frozenset(dependencies.modules)
    for name, was in sorted(dependencies.files.items()):
        now = state.file(name)
        if now != was:
            yield f"{name} {_turn(was, now)}"
    yield from _changed(dependencies.listings, state.listing, "{}/ has other files")
    yield from _changed(
        dependencies.searches, lambda name: state.search(name, modules), "{}/ has other modules"
    )
    yield from _changed(dependencies.probes, state.probe, "{} is there or gone")
    yield from _changed(dependencies.variables, state.variable, "${} changed")


def _changed(recorded: Mapping[str, str], find: Callable[[str], str], phrase: str) -> Iterator[str]:
    for name, was in sorted(recorded.items()):
        if find(name) != was:
            yield phrase.format(name)


def _turn(was: str, now: str) -> str:
    if now in (ABSENT, FOLDER):
        return "is gone"
    return "is new" if was in (ABSENT, FOLDER) else "changed"


def _names(paths: Iterable[str], path_names: PathNames) -> list[str]:
    return sorted({name for path in paths if (name := path_names.name(path)) is not None})
