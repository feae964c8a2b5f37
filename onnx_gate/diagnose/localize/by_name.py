"""Find the first wrong node of a graph whose values have the names of the program's it came from.

torch.export's program is run once and every value kept; the dynamo exporter calls the values of the
graph as the program does. So every node can be held against PyTorch alone: it is run on PyTorch's
own values, and what it makes is wrong or it is not. That takes one run of each node.

Several nodes may be wrong at once (an infinity where PyTorch writes -1e4 for a mask, a name that
means another layout), and only some of them matter: all are overridden with PyTorch's values but
one, and the first whose error then still reaches the output is to blame.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np

from onnx_gate.diagnose.divergence import Divergence
from onnx_gate.diagnose.localize.faulty import NO_NODE, FaultyNode, SearchResult
from onnx_gate.diagnose.localize.in_float64 import explained_by_rounding
from onnx_gate.diagnose.trace.record_export import MAX_ERROR_RATIO
from onnx_gate.diagnose.trace.record_file import record_file
from onnx_gate.diagnose.trace.record_program import record_program
from onnx_gate.diagnose.trace.trace import Trace, TracedValue
from onnx_gate.diagnose.values import agree, distance
from onnx_gate.graph.run_node import Runner, run_until
from onnx_gate.graph.session import Value
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.file_module import FileModule

# Wrong values that are looked at one by one before the first is taken.
MOST = 8
# A node whose error moves the output by less than this share of its divergence is not to blame.
SHARE = 0.02
# Two files whose values share this much of their names are two forms of one graph.
_SHARED = 0.5
# A program as near as this to PyTorch is right, however small the error that is looked for.
_RIGHT = 1e-6


T = TypeVar("T")


def search_by_name(divergence: Divergence) -> SearchResult | None:
    """Run every node on the values of the exported program, and return the first wrong one.

    ``None`` where there is no program, or it does not compute what PyTorch does.
    """
    module, program = divergence.subject.eager.module, divergence.subject.exported.program
    if isinstance(module, FileModule):
        return _search_in_file(divergence, module)
    if program is None:
        return None
    trace = Trace()
    numbers = record_program(divergence.subject, program, trace, divergence.store)
    if numbers is None or divergence.index >= len(numbers):
        return None
    number = numbers[divergence.index]
    computed = None if number is None else trace[number].array
    limit = max(MAX_ERROR_RATIO * divergence.error, _RIGHT)
    if not distance(computed, divergence.expected) <= limit:
        return None
    for name, number in zip(divergence.graph.outputs, numbers, strict=False):
        if number is not None:
            trace.call(number, name)
    return _first_candidate(_substitute_reference(divergence, trace))


def _search_in_file(divergence: Divergence, module: FileModule) -> SearchResult | None:
    """Search by the names that a reference file and the file made of it share, if they do."""
    trace = Trace()
    record_file(divergence.subject, module, trace, divergence.store)
    graph = divergence.graph
    computed = [
        name
        for node in graph.ancestors([divergence.output])
        for name in node.outputs
        if not graph.is_constant(name)
    ]
    shared = [name for name in computed if trace.named(name) is not None]
    if len(shared) < _SHARED * len(computed):
        return None
    return _first_candidate(_substitute_reference(divergence, trace))


def _first_candidate(result: SearchResult) -> SearchResult:
    if not result.candidates:
        return result.noting(NO_NODE)
    return dataclasses.replace(result, faulty=result.candidates[0])


def _substitute_reference(divergence: Divergence, trace: Trace) -> SearchResult:
    """Run every node that the output depends on, on PyTorch's values."""
    runner, store = divergence.runner, divergence.store
    values: dict[str, Value] = dict(divergence.feeds)
    by_name: dict[str, TracedValue] = {}
    local_error: dict[str, float] = {}
    wrong: list[FaultyNode] = []
    for node in runner.graph.ancestors([divergence.output]):
        if all(runner.graph.is_constant(o) for o in node.outputs):
            continue
        divergence.deadline.check()
        for name, value in runner.run(node, values).items():
            traced = trace.named(name) or _recognised(value, trace)
            if traced is None:
                values[name] = store.put(value) if isinstance(value, np.ndarray) else value
                continue
            by_name[name] = traced
            if value is None and divergence.took_file:
                values[name] = traced.array
                continue
            local_error[name] = distance(value, traced.array)
            values[name] = _read_behind(value, traced.array)
            if not agree(value, traced.array) and not explained_by_rounding(value, traced, trace):
                wrong.append(FaultyNode(node, name, traced))
    return SearchResult(
        trace, candidates=tuple(wrong), values=values, traced=by_name, local_error=local_error
    )


def first_effective(divergence: Divergence, result: SearchResult) -> SearchResult:
    """Blame the first candidate whose error alone, all others put right, reaches the output."""
    if not result.candidates:
        return result
    faulty = _first_effective(divergence, result)
    lowering = tuple(divergence.graph.back(faulty.node, result.traced.__contains__))
    return dataclasses.replace(result, faulty=faulty, lowering=lowering)


def _first_effective(divergence: Divergence, result: SearchResult) -> FaultyNode:
    wrong = result.candidates
    if len(wrong) < 2:
        return wrong[0]

    def repaired(without: FaultyNode | None = None) -> dict[str, Array]:
        return {f.value: f.traced.array for f in repairs if f is not without}

    repairs = list(wrong)
    limit = SHARE * divergence.error if np.isfinite(divergence.error) else 1e-4
    if reaching(divergence, divergence.runner, [(wrong[0], repaired())], limit):
        repairs = [f for f in repairs if _same_shape(result.values.get(f.value), f.traced.array)]
        if reaching(divergence, divergence.runner, [(wrong[0], repaired())], limit):
            return wrong[0]
    each_alone = ((faulty, repaired(without=faulty)) for faulty in wrong[:MOST])
    return reaching(divergence, divergence.runner, each_alone, limit) or wrong[0]


def reaching(
    divergence: Divergence,
    runner: Runner,
    overrides: Iterable[tuple[T, Mapping[str, Value]]],
    limit: float,
) -> T | None:
    """Return the first thing with whose values in the graph the output is further off than ``limit``."""
    for each, values in overrides:
        divergence.deadline.check()
        made = run_until(runner, divergence.feeds, [divergence.output], values)
        if distance(made.get(divergence.output), divergence.expected) > limit:
            return each
    return None


def _recognised(value: Value, trace: Trace) -> TracedValue | None:
    """Return the traced value that one without a name is beyond chance."""
    equal = trace.find(value)
    return equal[0] if equal and equal[0].distinctive else None


def _read_behind(value: Value, expected: Array) -> Value:
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
