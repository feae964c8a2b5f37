"""What the export took for granted about sizes that the manifest allows, or that are tested."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec
from onnx_gate.text import counted
from onnx_gate.verify.export.assumptions import Assumption, bounded_by
from onnx_gate.verify.export.exported import Exported, shapes_of
from onnx_gate.verify.export.guards import fitting, within
from onnx_gate.verify.inputs.sizes import Sizes, sizes_label, tried_sizes
from onnx_gate.verify.source_lines import Line, finding_at, shown

_SHOWN = 4


def inspect_sizes(spec: ModelSpec, exported: Exported, root: Path | None) -> Iterator[Finding]:
    """Yield a finding for each range and condition that torch.export relied on.

    Its ``data`` has ``broken``, the tested sizes at which it does not hold, and ``named``, those of
    them that the manifest gives itself.
    """
    if exported.first is not None:
        yield _chosen(exported.first, exported)
    for dim, bounds in exported.ranges.items():
        yield from _bounded(spec, exported, root, dim, bounds)
    # What fails at the same sizes has one remedy, however many lines take it for granted.
    alike: dict[str, list[Assumption]] = {}
    for condition in exported.conditions:
        broken = _distinct(condition.dims, (s for s in tried_sizes(spec) if not condition.holds(s)))
        if broken:
            alike.setdefault(str(broken), []).append(condition)
    for condition, *others in alike.values():
        broken = _distinct(condition.dims, (s for s in tried_sizes(spec) if not condition.holds(s)))
        places = dict.fromkeys(shown(other.source, "forward") for other in others)
        places.pop(shown(condition.source, "forward"), None)
        more = f", and the like at {counted(len(places), 'more line')}" if places else ""
        dim, *further = condition.dims
        remedy, sizes = ("", {}) if further else _remedy(exported, dim)
        yield finding_at(
            codes.OG116,
            f"torch.export took for granted that {condition.text}, by "
            f"{shown(condition.source, 'forward')}{more}, and the graph does not check it; tested as "
            f"well: {'; '.join(map(sizes_label, broken[:_SHOWN]))}{remedy}",
            condition.source,
            data=_data(spec, broken) | sizes,
        )


def _remedy(exported: Exported, dim: str) -> tuple[str, dict[str, object]]:
    """Return sizes at which an export holds, as the end of a sentence and as data."""
    sizes = fitting(exported, dim)
    if not sizes:
        return "", {}
    listed = ", ".join(map(str, sizes))
    return (
        f". Sizes for which it holds: dims: {{{dim}: [{listed}]}}",
        {"dimension": dim, "sizes": sizes},
    )


def _bounded(
    spec: ModelSpec, exported: Exported, root: Path | None, dim: str, bounds: tuple[int, int | None]
) -> Iterator[Finding]:
    low, high = bounds
    broken = _distinct((dim,), (s for s in tried_sizes(spec) if not within(bounds, s.get(dim))))
    if low == high:
        text = f"the size {low}"
    elif high is not None:
        text = f"sizes from {low} to {high}"
    elif broken:
        text = f"sizes of at least {low}"
    else:
        return
    source: Line | None = None
    if exported.program is not None:
        with contextlib.suppress(Exception):  # what torch keeps of a trace is private to it
            graph, shapes = exported.program.graph_module, shapes_of(spec, exported)
            source = bounded_by(graph, shapes, dim, high is not None, root)
    outside = ", ".join(str(sizes[dim]) for sizes in broken)
    why = "has a condition on it, and the graph has no trace of the other branch"
    if source is not None and source.code.startswith("assert "):
        why = f"refuses others in {spec.against}, and the graph does not ask"
    remedy, sizes = _remedy(exported, dim) if broken else ("", {})
    yield finding_at(
        codes.OG116,
        f"torch.export vouches for {text} of the dynamic dimension {dim!r} only: "
        f"{shown(source, 'forward')} {why}{f'; tested outside it: {outside}' if outside else ''}{remedy}",
        source,
        data=_data(spec, broken) | sizes,
    )


def _distinct(dims: Sequence[str], combinations: Iterator[Sizes]) -> list[dict[str, int]]:
    """Return the sizes of some dimensions in the combinations, each once."""
    every = [{dim: sizes[dim] for dim in dims} for sizes in combinations]
    return [each for index, each in enumerate(every) if each not in every[:index]]


def _data(spec: ModelSpec, broken: list[dict[str, int]]) -> dict[str, object]:
    named = [
        sizes
        for sizes in broken
        if all(dim in spec.named_dims and size in spec.dims[dim] for dim, size in sizes.items())
    ]
    return {"broken": broken, "named": named}


def _chosen(first: Exported, second: Exported) -> Finding:
    broken = next((c for c in first.conditions if not c.holds(second.example)), None)
    why = "torch.export bounds the sizes"
    if broken is not None:
        where = shown(broken.source, "forward")
        why = f"torch.export takes for granted that {broken.text}, by {where}"
    written = ", ".join(f"{name}: {size}" for name, size in second.example.items())
    return finding_at(
        codes.OG116,
        f"exported at {sizes_label(second.example)}: at {sizes_label(first.example)} {why}, which "
        "most of the tested sizes break. To choose the sizes yourself write "
        f"export: {{example: {{{written}}}}}",
        broken.source if broken is not None else None,
        severity="note",
    )
