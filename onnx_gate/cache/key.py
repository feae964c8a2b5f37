"""What of the manifest, the call and the machine a verdict, or an export, rests on."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnx_gate.cache.path_names import digest
from onnx_gate.manifest import FilesSuite, GeneratorSuite, ModelSpec

# Taken from the manifest at hand whatever the verdict is.
_INDIFFERENT = ("line", "lines", "required", "waivers")
# The rest says how the file is judged, not how it is made.
_OF_EXPORT = (
    *("name", "model", "reference", "inputs", "args", "kwargs", "call", "caches", "weights"),
    *("onnx", "outputs", "export", "dims", "named_dims", "seed", "examples"),
)


@dataclass(frozen=True)
class Key:
    """A digest, or a version, for each part of what decides; parts have names for a person.

    ``environment`` is the same for all models of a run, ``entry`` is the model's in the manifest.
    """

    environment: Mapping[str, str]
    entry: Mapping[str, str]

    @property
    def verdict(self) -> str:
        """The digest of everything."""
        return digest(json.dumps([dict(self.environment), dict(self.entry)]))

    @property
    def export(self) -> str:
        """The digest of what an exported file depends on."""
        made = {name: value for name, value in self.entry.items() if name in _OF_EXPORT}
        return digest(json.dumps([dict(self.environment), made]))


def key_of(
    spec: ModelSpec, environment: Mapping[str, str], cases: tuple[str, ...], today: datetime.date
) -> Key:
    """Return the key of a model; ``cases`` are the globs that select cases.

    A waiver counts with whether it is still in force.
    """
    entry = {
        each.name: digest(_text(getattr(spec, each.name)))
        for each in dataclasses.fields(spec)
        if each.name not in _INDIFFERENT
    }
    waivers = [(_plain(waiver), waiver.until >= today) for waiver in spec.waivers]
    # What cannot be drawn, or is refused, is taken from these for the export's example too.
    own = {n: s for n, s in spec.suites.items() if isinstance(s, FilesSuite | GeneratorSuite)}
    entry |= {
        "waivers": digest(_text(waivers)),
        "cases": digest(_text(cases)),
        "examples": digest(_text(own)),
    }
    return Key(environment, entry)


def key_changes(was: Key, now: Key) -> list[str]:
    """Return a phrase for each part in which two keys differ."""
    phrases = []
    for name in sorted({*was.environment, *now.environment}):
        before, after = was.environment.get(name), now.environment.get(name)
        if before != after:
            phrases.append(_environment_change(name, before, after))
    fields = [
        name for name in now.entry if was.entry.get(name) != now.entry[name] and name != "examples"
    ]
    if fields:
        phrases.append(f"{', '.join(fields)} in the manifest")
    return phrases


def _environment_change(name: str, before: str | None, after: str | None) -> str:
    shown = name.removeprefix("package ")
    if name.startswith("$") or before is None or after is None:
        what = "is new" if before is None else "is gone" if after is None else "changed"
        return f"{shown} {what}"
    old, new = before.split()[0], after.split()[0]
    if old != new and len(old) < 40:
        return f"{shown} {old} is now {new}"
    return f"{shown} changed"


def _text(value: Any) -> str:
    """Return a text that equal values share; the order of mappings counts."""
    return json.dumps(_plain(value), ensure_ascii=True)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [
            type(value).__name__,
            {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)},
        ]
    if isinstance(value, Mapping):
        return [[_plain(key), _plain(each)] for key, each in value.items()]
    if isinstance(value, (set, frozenset)):
        return sorted(map(_text, value))
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return f"float {value!r}"
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return f"{type(value).__name__} {value!r}"
