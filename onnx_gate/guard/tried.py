"""What a model is tried on: suites, and the sizes and values of its inputs."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping

from onnx_gate.guard.wording import listed, number
from onnx_gate.manifest import (
    DEFAULT_SUITES,
    EdgesSuite,
    FilesSuite,
    GeneratorSuite,
    InputSpec,
    ModelSpec,
    RandomSuite,
    StepsSpec,
    Suite,
)
from onnx_gate.manifest.dimensions import is_computed
from onnx_gate.text import quote
from onnx_gate.verify.inputs.sizes import combinations, sizes_label


def suites(base: ModelSpec, head: ModelSpec) -> Iterator[str]:
    """Yield what the base's suites try and the head's, all together, do not.

    A suite may be renamed, split or joined. Not so where the head has waivers: those go by the
    suite's name, and so does the comparison then.
    """
    if base.suites and not head.suites:
        yield (
            f"suites {listed(map(quote, base.suites))} → the default ones, which try fewer sizes "
            "and forgive what is named nowhere"
        )
    before, after = base.suites or DEFAULT_SUITES, head.suites or DEFAULT_SUITES
    wanted = {name: _demands(suite) for name, suite in before.items()}
    given = {name: _demands(suite) for name, suite in after.items()}
    spare: Counter[str] = Counter()
    if not head.waivers:
        for name, demands in given.items():
            spare += demands - wanted.get(name, Counter())
    for name, demands in wanted.items():
        lacking = demands - given.get(name, Counter())
        taken = lacking & spare
        spare -= taken
        lacking -= taken
        if lacking:
            default = "" if base.suites else "default "
            yield f"{default}suite {quote(name)}{_difference(before[name], after.get(name), lacking)}"


def dims(base: ModelSpec, head: ModelSpec) -> Iterator[str]:
    """Yield the sizes of dynamic dimensions, and combinations of them, that are tried no more.

    A dimension is known by its position in the inputs, so that it may have another name.
    """
    targets: dict[str, dict[str, None]] = {name: {} for name in base.dims}
    for name, old, new in _dimension_pairs(base, head):
        if is_computed(old) or is_computed(new):
            if old != new:
                yield f"input {quote(name)}: the size {old} → {new}"
        elif isinstance(old, str) and isinstance(new, str):
            targets[old][new] = None
        elif isinstance(old, str):
            yield f"input {quote(name)}: {old} ({listed(base.dims[old])}) → {new} only"
        elif isinstance(new, str) and old not in head.dims[new]:
            yield f"input {quote(name)}: {old} → {new} ({listed(head.dims[new])})"
    lost = False
    for old, renamed in targets.items():
        if not renamed and not _declared(base, head, old) and old in head.dims:
            renamed[old] = None
        for new in renamed:
            label = old if new == old else f"{old} → {new}"
            sizes = f"{listed(base.dims[old])} → {listed(head.dims[new])}"
            if set(base.dims[old]) - set(head.dims[new]):
                lost = True
                yield f"{label}: sizes {sizes}"
            elif old in base.named_dims and new not in head.named_dims:
                yield f"{label}: sizes {sizes}, the default ones, which PyTorch may refuse"
    if not lost:
        yield from _combinations(base, head, targets)


def inputs(base: ModelSpec, head: ModelSpec) -> Iterator[str]:
    """Yield the inputs that are gone, are of another dtype or shape, or take fewer values."""
    for name, old in base.inputs.items():
        new = head.inputs.get(name)
        if new is None:
            yield f"no longer declares the input {quote(name)}, {_shown(old)}"
        elif old.dtype != new.dtype or not _same_shape(old, new):
            yield f"declares another input {quote(name)}: {_shown(old)} → {_shown(new)}"
        elif not _as_wide(old, new):
            yield f"input {quote(name)}: range {_range(old)} → {_range(new)}"


def steps(base: ModelSpec, head: ModelSpec) -> Iterator[str]:
    """Yield the calls in a row that are made no more, and what no longer comes back in them."""
    if base.steps is None:
        return
    if head.steps is None:
        yield f"steps: {base.steps.count} → none; every case is one call"
        return
    if head.steps.count < base.steps.count:
        yield f"steps: {base.steps.count} → {head.steps.count}"
    before, after = _coming_back(base.steps), _coming_back(head.steps)
    for name, source in before.items():
        if after.get(name) != source:
            now = after.get(name, "nothing")
            yield f"steps: {quote(name)} is given {now} instead of {source}"


def _coming_back(steps: StepsSpec) -> dict[str, str]:
    """Return, for each input, what it is given in the next step, as it is written."""
    given = {name: quote(source) for name, source in steps.carry.items()}
    for name, feed in steps.feed.items():
        source = quote(feed.source)
        if feed.argmax:
            source = f"the argmax of {source}"
        given[name] = f"{source} + {feed.add}" if feed.add else source
    return given


def _demands(suite: Suite) -> Counter[str]:
    if isinstance(suite, RandomSuite):
        return Counter({f"random {suite.random}": suite.count})
    if isinstance(suite, EdgesSuite):
        return Counter(suite.edges)
    if isinstance(suite, FilesSuite):
        return Counter(f"files {quote(each)}" for each in suite.files)
    if isinstance(suite, GeneratorSuite):
        return Counter([f"generator {quote(suite.generator)}"])
    return Counter([json.dumps(suite.options, sort_keys=True, default=str)])


def _difference(base: Suite, head: Suite | None, lacking: Counter[str]) -> str:
    if head is None:
        return f" ({_described(base)}) dropped"
    if isinstance(base, EdgesSuite | FilesSuite) and type(base) is type(head):
        return f": {listed(lacking)} dropped"
    return f": {_described(base)} → {_described(head)}"


def _described(suite: Suite) -> str:
    if isinstance(suite, RandomSuite):
        return f"random {suite.random}, count {suite.count}"
    if isinstance(suite, EdgesSuite):
        return f"edges {listed(suite.edges)}"
    return listed(_demands(suite))


def _dimension_pairs(
    base: ModelSpec, head: ModelSpec
) -> Iterator[tuple[str, int | str, int | str]]:
    """Yield both sides' size or name at each position of the inputs that both declare alike."""
    for name, old in base.inputs.items():
        new = head.inputs.get(name)
        if new is not None and len(old.shape) == len(new.shape):
            for before, after in zip(old.shape, new.shape, strict=True):
                yield name, before, after


def _declared(base: ModelSpec, head: ModelSpec, dim: str) -> bool:
    """Return whether some input that has the dimension in the base can be compared with the head's."""
    return any(before == dim for _, before, _ in _dimension_pairs(base, head))


def _combinations(
    base: ModelSpec, head: ModelSpec, targets: Mapping[str, Mapping[str, None]]
) -> Iterator[str]:
    """Yield the loss of combinations, of which the cross product is tried where it is small."""
    known = {name: renamed for name, renamed in targets.items() if renamed}
    joined = len({new for renamed in known.values() for new in renamed}) < sum(
        map(len, known.values())
    )
    tried = combinations(base.dims)
    if not joined and len(tried) < math.prod(map(len, base.dims.values())):
        return
    kept = {
        tuple(sizes[new] for renamed in known.values() for new in renamed)
        for sizes in combinations(head.dims)
    }
    gone = [
        sizes
        for sizes in tried
        if tuple(sizes[name] for name, renamed in known.items() for _ in renamed) not in kept
    ]
    if gone:
        label = sizes_label({name: gone[0][name] for name in known})
        yield f"{len(gone)} of {len(tried)} combinations of sizes are tried no more, as {label}"


def _same_shape(base: InputSpec, head: InputSpec) -> bool:
    """Return whether ranks and fixed sizes agree; dynamic dimensions are compared by their sizes."""
    return len(base.shape) == len(head.shape) and all(
        old == new or isinstance(old, str) or isinstance(new, str)
        for old, new in zip(base.shape, head.shape, strict=True)
    )


def _as_wide(base: InputSpec, head: InputSpec) -> bool:
    if base.bounds is not None or head.bounds is not None:
        return base.bounds == head.bounds
    if base.range is None or head.range is None:
        # Integers without a range come from suites that bring their own values.
        integers = "int" in base.dtype and base.range is None
        return base.range == head.range or integers
    return head.range[0] <= base.range[0] and base.range[1] <= head.range[1]


def _shown(spec: InputSpec) -> str:
    return f"{spec.dtype}[{listed(spec.shape)}]"


def _range(spec: InputSpec) -> str:
    if spec.bounds is not None:
        return f"[{listed(spec.bounds)}]"
    if spec.range is None:
        return "none"
    return f"[{number(spec.range[0])}, {number(spec.range[1])}]"
