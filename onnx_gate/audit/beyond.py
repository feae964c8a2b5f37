"""Inputs beyond a manifest's own: what only these show of a fault is no proof that there is none.

Others are drawn, at the sizes of the default suites too, and where they lead the module further ones
are made as in any run. What no input shows is asked of the operators. A fault that neither shows has
no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnx_gate.audit.edit import CHANGED, Edit
from onnx_gate.audit.files import is_large
from onnx_gate.audit.graph import FlatGraph
from onnx_gate.audit.trial import TrialBench
from onnx_gate.errors import GateError
from onnx_gate.graph.session import PlainSession
from onnx_gate.manifest import BUILT_IN_SUITES, DEFAULT_SIZES, RandomSuite, Suite
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.inputs.draw import is_drawable
from onnx_gate.verify.inspect.exact import ExactWeights
from onnx_gate.verify.inspect.weights import account
from onnx_gate.verify.probing import compared_at_operators

# So many cases of the manifest's say whether a place was reached.
_LOOKED_AT = 20
# The seed is another than that of the default suites.
SUITES: Mapping[str, Suite] = {
    "beyond": RandomSuite(random="normal", count=3, seed=1),
    "lognormal": RandomSuite(random="lognormal", count=1),
    "uniform": RandomSuite(random="uniform", count=1),
    "edges": BUILT_IN_SUITES["edges"],
}


def beyond(checker: Checker, path: Path) -> TrialBench | None:
    """Return a bench of inputs that the manifest does not try, ``None`` where none can be drawn."""
    spec = checker.setting.spec
    if not all(is_drawable(each) for each in spec.inputs.values()):
        return None
    dims = {name: tuple(sorted({*sizes, *DEFAULT_SIZES})) for name, sizes in spec.dims.items()}
    more = replace(spec, suites=SUITES, dims=dims)
    setting = replace(checker.setting, spec=more, path=path, patterns=(), keeps=True)
    other = Checker(setting)
    try:
        other.run()
    except GateError:
        return None
    return TrialBench(other, other.tally.answered)


def shown_by_operators(checker: Checker, path: Path) -> bool:
    """Return whether an operator of a file answers otherwise where no input of the manifest's led."""
    try:
        return any(each.differs for each in compared_at_operators(checker, path))
    except Refusal:
        return False


def wrong_weights(edit: Edit, checker: Checker, exact: ExactWeights | None = None) -> str:
    """Return in what way constants that a fault has changed fail the model, "" where they do not."""
    if checker.setting.spec.reference is not None:
        return ""
    tensors = [numpy_helper.from_array(a, n.removesuffix(CHANGED)) for n, a in edit.tensors.items()]
    model = helper.make_model(helper.make_graph([], "changed", [], [], tensors))
    setting = checker.setting
    _, found = account(model, Path(), setting.eager.module, setting.written, exact)
    return next((each.message for each in found if each.severity == "error"), "")


def is_reached(
    bench: TrialBench, graph: FlatGraph, edit: Edit, original: Path, faulty: Path
) -> bool | None:
    """Return whether some case of the manifest's changes what the place of a fault makes.

    ``None`` where the place is inside of a body, which shows nothing of itself.
    """
    if is_large(faulty.parent):
        return None
    names = bench.checker.setting.graph_inputs
    cases = [case.arrays for case, _ in bench.answered[:_LOOKED_AT]]
    feeds = [{graph: arrays[name] for name, graph in names.items()} for arrays in cases]
    if edit.feed is not None:
        return any(_differ(list(edit.feed(each).values()), list(each.values())) for each in feeds)
    if any(graph.nodes[index].within is not graph.model.graph for index in edit.nodes):
        return None
    made = [name for index in edit.nodes for name in graph.nodes[index].outputs]
    try:
        first, second = (_opened(path, made) for path in (original, faulty))
        return any(_differ(_run(first, each), _run(second, each)) for each in feeds)
    except Refusal:
        return None


def _opened(path: Path, names: Iterable[str]) -> PlainSession:
    model = onnx.load(str(path))
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name)
    return PlainSession(model)


def _run(session: PlainSession, feeds: Mapping[str, Array]) -> list[Array] | None:
    try:
        return [np.asarray(each) for each in session.run(feeds)]
    except Refusal:
        return None


def _differ(one: list[Array] | None, other: list[Array] | None) -> bool:
    if one is None or other is None:
        return one is not other
    return any(
        a.shape != b.shape or a.tobytes() != b.tobytes() for a, b in zip(one, other, strict=True)
    )
