"""Which inputs a model is tried on: its suites, or the default ones where it names none."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path

from onnx_gate.errors import GateError
from onnx_gate.manifest import BUILT_IN_SUITES, ModelSpec, PluginSuite, Suite
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.sizes import Sizes, combinations
from onnx_gate.verify.inputs.suites.base import ENTRY_POINT_GROUP, SuiteContext, SuiteKind

# What reveals faults, by measurement: several seeds at the example's sizes, every size of every
# dimension, and each kind of edge once.
DEFAULT_SUITES = {name: BUILT_IN_SUITES[name] for name in ("typical", "edges")}
# Tried as well, and reported as warnings: what many correct models promise nothing about.
ADVICE_SUITES = {"advice": BUILT_IN_SUITES["advice"]}


@dataclass(frozen=True)
class Case:
    """One set of inputs. ``id`` is stable: ``typical/batch=2,seq=16/0``.

    ``advice`` cases never fail a model. ``named``: the manifest names the suite. ``sized``: the
    manifest gives every size in it.
    """

    suite: str
    id: str
    arrays: Mapping[str, Array]
    sizes: Sizes
    expected: Mapping[str, Array] = field(default_factory=dict)
    advice: bool = False
    named: bool = True
    sized: bool = True


def cases(
    spec: ModelSpec,
    example: Sizes,
    workspace: Path,
    patterns: tuple[str, ...] = (),
    *,
    advice: bool = False,
) -> Iterator[Case]:
    """Yield the cases of a model in a fixed order, those that ``patterns`` select.

    ``example`` is the sizes of the example of the export, at which the default suites draw their
    several seeds. With ``advice`` the default advice is yielded instead, which is nothing for a
    model that names its suites. Raises ``GateError`` of kind ``unverified`` where a suite cannot
    be read.
    """
    default = not spec.suites
    suites = (ADVICE_SUITES if default else {}) if advice else (spec.suites or DEFAULT_SUITES)
    combos: tuple[Sizes, ...]
    own_sizes = spec.dims.keys() <= spec.named_dims
    for name, suite in suites.items():
        combos = combinations(spec.dims)
        if advice:
            combos = (example,)
        elif default:
            combos = (example, *(c for c in combos if c != example))
        context = SuiteContext(name, spec.inputs, combos, workspace, spread=default)
        for draft in suite_kind(suite).cases(suite, context):
            case_id = "/".join((name, *draft.parts))
            if selected(case_id, patterns):
                yield Case(
                    suite=name,
                    id=case_id,
                    arrays=draft.arrays,
                    sizes=draft.sizes,
                    expected=draft.expected,
                    advice=advice,
                    named=not default,
                    sized=own_sizes or not draft.sizes,
                )


def selected(case_id: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a case is among those asked for: by its id, or by a glob over it."""
    return not patterns or any(matches(case_id, pattern) for pattern in patterns)


def matches(case_id: str, pattern: str) -> bool:
    """Match a case id against a glob; ``edges/large/*`` and ``edges/large`` match all its sizes."""
    return (
        fnmatch.fnmatchcase(case_id, pattern)
        or fnmatch.fnmatchcase(case_id + "/", pattern)
        or fnmatch.fnmatchcase(case_id, pattern.rstrip("/") + "/*")
    )


def suite_kind(suite: Suite) -> SuiteKind:
    """Return the reader of a suite's kind; raises ``GateError`` where none is installed."""
    kind = suite.kind if isinstance(suite, PluginSuite) else _KIND_NAMES[type(suite).__name__]
    found = entry_points(group=ENTRY_POINT_GROUP, name=kind)
    if not found:
        raise GateError("unverified", "OG108", f"no suite kind is called {kind!r}")
    reader: SuiteKind = next(iter(found)).load()()
    return reader


_KIND_NAMES = {
    "RandomSuite": "random",
    "EdgesSuite": "edges",
    "FilesSuite": "files",
    "GeneratorSuite": "generator",
}
