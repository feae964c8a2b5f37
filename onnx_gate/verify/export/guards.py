"""At which tested sizes an export holds, as far as torch.export says, and where another would."""

from __future__ import annotations

from collections import Counter

from onnx_gate.manifest import ModelSpec
from onnx_gate.verify.export.assumptions import UPTO, Assumption, from_some_size_on
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.inputs.example import example_sizes
from onnx_gate.verify.inputs.sizes import Sizes, tried_sizes


def answers(exported: Exported, sizes: Sizes) -> tuple[bool, ...]:
    """Return whether each range and each condition that an export relies on holds at some sizes."""
    return (
        *(within(bounds, sizes.get(dim)) for dim, bounds in exported.ranges.items()),
        *(condition.holds(sizes) for condition in exported.conditions),
    )


def holding(spec: ModelSpec, exported: Exported) -> int:
    """Return at how many of the tested combinations of sizes all of it holds."""
    return sum(all(answers(exported, sizes)) for sizes in tried_sizes(spec))


def fitting(exported: Exported, dim: str) -> list[int]:
    """Return the smallest and the largest size, of those tried, at which all holds about ``dim`` alone."""
    _, high = exported.ranges.get(dim, (0, None))
    tried = [*range(1, UPTO + 1), *([high] if high is not None and high > UPTO else [])]
    sizes = [n for n in tried if all(answers(exported, {dim: n}))]
    return list(dict.fromkeys((*sizes[:1], *sizes[-1:])))


def within(bounds: tuple[int, int | None], size: int | None) -> bool:
    """Return whether torch.export vouches for a size, or leaves it open as it does 0 and 1."""
    low, high = bounds
    if size is None or (low in (1, 2) and size < low):
        return True
    return low <= size and (high is None or size <= high)


def better_example(spec: ModelSpec, exported: Exported) -> Sizes | None:
    """Return sizes for an example whose export would hold at more of the tested sizes.

    ``None`` where there are none. An export takes for granted what is so at its example, so it
    holds at those sizes at which each condition has the answer that it has there. One that holds for
    all large sizes is not given up for one that holds for small ones, of which more are tested where
    the manifest says nothing of them.
    """
    numbers = Counter(answers(exported, sizes) for sizes in tried_sizes(spec))
    held = sum(count for each, count in numbers.items() if all(each))
    if held == numbers.total():
        return None
    kept = [
        *(d not in spec.named_dims and high is None for d, (_, high) in exported.ranges.items()),
        *(_is_of_large_sizes(condition, spec) for condition in exported.conditions),
    ]
    serving = {
        each: count
        for each, count in numbers.items()
        if all(holds for holds, keep in zip(each, kept, strict=True) if keep)
    }
    wanted, number = max(serving.items(), key=lambda i: (i[1], all(i[0])), default=((), 0))
    if all(wanted) or number <= held:
        return None
    return next((s for s in example_sizes(spec) if answers(exported, s) == wanted), None)


def _is_of_large_sizes(condition: Assumption, spec: ModelSpec) -> bool:
    """Return whether a condition on a dimension that the manifest leaves open holds if that is large."""
    dim, *further = condition.dims
    return not further and dim not in spec.named_dims and from_some_size_on(condition.sizes())
