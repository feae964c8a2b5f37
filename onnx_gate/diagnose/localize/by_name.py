"""Find the first wrong node of a graph whose values have the names of the program's it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from onnx_gate.deadline import Deadline
from onnx_gate.diagnose.graph.run_graph import run_until
from onnx_gate.diagnose.graph.run_node import Runner
from onnx_gate.diagnose.graph.values import Store, Value, agree, distance
from onnx_gate.diagnose.localize.by_value import FaultyNode
from onnx_gate.diagnose.localize.exact import explained_by_rounding
from onnx_gate.diagnose.trace.trace import Trace, TracedValue
from onnx_gate.runtimes.base import Array

# Wrong values that are looked at one by one before the first is taken.
_MOST = 8
# A node whose error moves the output by less than this share of its divergence is not to blame.
_SHARE = 0.02


@dataclass(frozen=True)
class ReferenceInputs:
    """What running every node on PyTorch's values says.

    ``values`` are those that nodes read (PyTorch's where it has them), ``moments`` PyTorch's by
    name, ``local_error`` the errors of single nodes, ``wrong`` the values that disagree, in order.
    """

    values: Mapping[str, Value]
    moments: Mapping[str, TracedValue]
    local_error: Mapping[str, float]
    wrong: tuple[FaultyNode, ...]


def substitute_reference(
    runner: Runner,
    feeds: Mapping[str, Array],
    output: str,
    pool: Trace,
    store: Store,
    deadline: Deadline,
) -> ReferenceInputs:
    """Run every node that ``output`` depends on, on PyTorch's values."""
    values: dict[str, Value] = dict(feeds)
    moments: dict[str, TracedValue] = {}
    local_error: dict[str, float] = {}
    wrong: list[FaultyNode] = []
    for node in runner.graph.ancestors([output]):
        if all(runner.graph.is_constant(o) for o in node.outputs):
            continue
        deadline.check()
        for name, value in runner.run(node, values).items():
            moment = pool.named(name) or _recognised(value, pool)
            if moment is None:
                values[name] = store.put(value) if isinstance(value, np.ndarray) else value
                continue
            moments[name], local_error[name] = moment, distance(value, moment.array)
            values[name] = _lesson(value, moment.array)
            if not agree(value, moment.array) and not explained_by_rounding(value, moment, pool):
                wrong.append(FaultyNode(node, name, moment))
    return ReferenceInputs(values, moments, local_error, tuple(wrong))


def first_effective(
    runner: Runner,
    feeds: Mapping[str, Array],
    output: str,
    expected: Array,
    error: float,
    reference_inputs: ReferenceInputs,
    deadline: Deadline,
) -> FaultyNode | None:
    """Return the first wrong value whose error alone, all others put right, reaches the output.

    An infinity for a mask's -1e4, or a value whose name means another layout, does not.
    """
    if len(reference_inputs.wrong) < 2:
        return reference_inputs.wrong[0] if reference_inputs.wrong else None

    def off(right: list[FaultyNode]) -> float:
        deadline.check()
        overrides = {g.value: g.moment.array for g in right}
        return distance(run_until(runner, feeds, [output], overrides).get(output), expected)

    repairs = list(reference_inputs.wrong)
    limit = _SHARE * error if np.isfinite(error) else 1e-4
    if off(repairs) > limit:
        repairs = [
            g for g in repairs if _same_shape(reference_inputs.values.get(g.value), g.moment.array)
        ]
        if off(repairs) > limit:
            return reference_inputs.wrong[0]
    for guilty in reference_inputs.wrong[:_MOST]:
        if off([g for g in repairs if g is not guilty]) > limit:
            return guilty
    return reference_inputs.wrong[0]


def _recognised(value: Value, pool: Trace) -> TracedValue | None:
    """Return the moment that an unnamed value is beyond chance."""
    found = pool.find(value)
    return found[0] if found and found[0].distinctive else None


def _lesson(value: Value, expected: Array) -> Value:
    """Return what the nodes behind read: PyTorch's value, in the graph's layout and dtype."""
    if not isinstance(value, np.ndarray):
        return expected
    if value.size == expected.size and value.shape != expected.shape:
        return value
    if value.dtype != expected.dtype:
        with np.errstate(all="ignore"):
            return expected.astype(value.dtype)
    return expected


def _same_shape(value: Value, expected: Array) -> bool:
    return isinstance(value, np.ndarray) and value.shape == expected.shape
