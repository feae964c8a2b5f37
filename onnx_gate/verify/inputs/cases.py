"""Which inputs a model is tried on: its suites, or the default ones where it names none."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from onnx_gate.findings import codes
from onnx_gate.manifest import (
    ADVICE_SUITES,
    BUILT_IN_SUITES,
    DEFAULT_SUITES,
    EdgesSuite,
    FilesSuite,
    GeneratorSuite,
    ModelSpec,
    PluginSuite,
    RandomSuite,
    Suite,
)
from onnx_gate.plugins import plugins
from onnx_gate.report.model.check import REACHED
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inputs.sizes import Sizes, cheapest, combinations, larger
from onnx_gate.verify.inputs.suites.base import ENTRY_POINT_GROUP, SuiteContext, SuiteKind


@dataclass(frozen=True)
class Case:
    """One set of inputs. ``id`` is stable: ``typical/batch=2,seq=16/0``.

    ``kind`` is the suite's (``random``, ``edges``, ``files``, ``generator``, or a plugin's own),
    ``edge`` the kind of edge (one of ``EDGE_KINDS``), empty for other cases. ``sizes`` has the
    size of every dynamic dimension that the arrays have, wherever they come from. ``advice`` cases
    never fail a model. ``named``: the manifest names the suite. ``sized``: the user gives every
    size in it. ``steps`` are how many calls it begins, where those are not as many as the manifest's.
    """

    suite: str
    id: str
    kind: str
    arrays: Mapping[str, Array]
    sizes: Sizes
    edge: str = ""
    expected: Mapping[str, Array] = field(default_factory=dict)
    advice: bool = False
    named: bool = True
    sized: bool = True
    steps: int = 0

    @property
    def is_edge(self) -> bool:
        """Whether its values are at the ends of what a model decides or can hold, and not typical."""
        return self.kind in ("edges", REACHED)


class Cases(Iterator[Case]):
    """The cases of a model in a fixed order, those that ``patterns`` select.

    ``counts`` grows as they are yielded: how many each suite has made, by suite and kind of edge
    (an empty one where the suite is not of edges), those counted too that ``patterns`` leave out.
    What has made none is there with 0.
    """

    def __init__(
        self,
        spec: ModelSpec,
        suites: Mapping[str, Suite],
        context: SuiteContext,
        patterns: tuple[str, ...],
        advice: bool,
    ) -> None:
        self._spec = spec
        self.suites = suites
        self._context = context
        self._patterns = patterns
        self._advice = advice
        self._cases = self._all()
        self.counts = Counter(
            {
                (name, edge): 0
                for name, suite in suites.items()
                for edge in (suite.edges if isinstance(suite, EdgesSuite) else ("",))
            }
        )

    def __next__(self) -> Case:
        return next(self._cases)

    def drawn(self) -> Cases:
        """Return those cases whose ids are known without a file and without the user's code.

        Their values are not the right ones: every fixed size is 1, which makes them cheap.
        """
        suites = {n: s for n, s in self.suites.items() if isinstance(s, RandomSuite | EdgesSuite)}
        inputs = {
            name: replace(each, shape=tuple(d if isinstance(d, str) else 1 for d in each.shape))
            for name, each in self._context.inputs.items()
        }
        context = replace(self._context, inputs=inputs)
        return Cases(self._spec, suites, context, self._patterns, self._advice)

    @property
    def without_any(self) -> tuple[str, ...]:
        """The suites that have made no case so far."""
        made = {name for (name, _), count in self.counts.items() if count}
        return tuple(name for name in self.suites if name not in made)

    @property
    def edges_without_any(self) -> tuple[tuple[str, str], ...]:
        """The suites that have made cases, each with a kind of edge of which it has made none.

        The built-in ones name every kind, for whatever the inputs have of them.
        """
        own = {n for n, suite in self.suites.items() if suite != BUILT_IN_SUITES.get(n)}
        own -= set(self.without_any)
        return tuple(
            (name, edge)
            for (name, edge), made in self.counts.items()
            if edge and not made and name in own
        )

    def _all(self) -> Iterator[Case]:
        spec = self._spec
        own_sizes = spec.dims.keys() <= spec.named_dims
        for name, suite in self.suites.items():
            kind = kind_of(suite)
            context = replace(self._context, name=name)
            for draft in suite_reader(kind).cases(suite, context):
                self.counts[name, draft.edge] += 1
                case_id = "/".join((name, *draft.parts))
                if selected(case_id, self._patterns):
                    yield Case(
                        suite=name,
                        id=case_id,
                        kind=kind,
                        arrays=draft.arrays,
                        sizes=draft.sizes,
                        edge=draft.edge,
                        expected=draft.expected,
                        advice=self._advice,
                        named=bool(spec.suites) or name in spec.given,
                        sized=own_sizes or kind in _OWN_SIZES,
                    )


def cases(
    spec: ModelSpec,
    example: Sizes,
    workspace: Path,
    patterns: tuple[str, ...] = (),
    *,
    advice: bool = False,
    focus: Sizes | None = None,
) -> Cases:
    """Return the cases of a model, made as they are asked for.

    ``example`` is the sizes of the example of the export, at which the default suites begin, and
    ``focus`` those at which they try values, the cheapest ones without. With ``advice`` the default
    advice is returned instead, which is nothing for a model that names its suites. Asking for the next
    case raises ``GateError`` of kind ``unverified`` where a suite cannot be read.
    """
    if spec.suites:
        context = SuiteContext("", spec.inputs, combinations(spec.dims), workspace, larger(spec))
        return Cases(spec, {} if advice else spec.suites, context, patterns, advice)
    focus = cheapest(spec, example) if focus is None else focus
    context = SuiteContext("", spec.inputs, (focus,), workspace, focus=focus)
    if advice:
        return Cases(spec, ADVICE_SUITES, context, patterns, advice)
    sizes = [example, focus, *combinations(spec.dims)]
    distinct = tuple(each for index, each in enumerate(sizes) if each not in sizes[:index])
    context = replace(context, combinations=distinct, once=larger(spec))
    return Cases(spec, {**spec.given, **DEFAULT_SUITES}, context, patterns, advice)


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


def kind_of(suite: Suite) -> str:
    """Return the kind of a suite: the key that tells it from others in the manifest."""
    return suite.kind if isinstance(suite, PluginSuite) else _KIND_NAMES[type(suite)]


def suite_reader(kind: str) -> SuiteKind:
    """Return the reader of a kind of suite; raises ``GateError`` where none is installed."""
    kinds = plugins(ENTRY_POINT_GROUP)
    if kind not in kinds.names:
        raise codes.OG108.error(f"no suite kind is called {kind!r}")
    reader: SuiteKind = kinds[kind].load()()
    return reader


# What these hold is the user's, its sizes too.
_OWN_SIZES = ("files", "generator")
_KIND_NAMES: Mapping[type, str] = {
    RandomSuite: "random",
    EdgesSuite: "edges",
    FilesSuite: "files",
    GeneratorSuite: "generator",
}
