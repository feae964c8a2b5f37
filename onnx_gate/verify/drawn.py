"""Whether what a graph answers depends on the random numbers that it draws.

A model of speech with its noise set to 0 draws as before and multiplies by nothing. That the file
answers alike when it is called again would not tell that from noise that is small, or rarely meets
anything. So the draws are made others by far, in a copy of the graph: where none of the values on any
of the cases is another one, they depend on no draw there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.graph.graph import RANDOM
from onnx_gate.graph.session import PlainSession
from onnx_gate.graph.walk import all_nodes, attribute
from onnx_gate.report.model import Check
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.export.exported import Exported

# The numbers become so many times as large: noise of 1e-12 shows beside 1, as does what is some units
# in the last place, and float32 is far from its end.
_TIMES = 2.0**20
# What scales the draws of an operator, and its default. What Bernoulli and Multinomial draw cannot be
# made others without others in what follows (an index beyond a table).
_SCALES = {
    "RandomNormal": {"mean": 0.0, "scale": 1.0},
    "RandomNormalLike": {"mean": 0.0, "scale": 1.0},
    "RandomUniform": {"low": 0.0, "high": 1.0},
    "RandomUniformLike": {"low": 0.0, "high": 1.0},
}


def weigh_draws(
    checker: Checker, exported: Exported, checks: Sequence[Check], findings: Sequence[Finding]
) -> Iterator[Finding]:
    """Yield ``findings``, those of random nodes as warnings where no answer depends on what they draw.

    Only where every one of ``checks`` that counts agrees: what diverges may do so for what was drawn.
    """
    drawing = {finding.data.get("node") for finding in codes.OG114.among(findings)}
    known = bool(drawing) and None not in drawing and _agree(checks)
    count = _unmoved(checker, exported) if known else 0
    for finding in findings:
        if count and finding.code == codes.OG114.code:
            yield finding.model_copy(
                update={
                    "severity": "warning",
                    "message": f"the graph draws random numbers ({finding.data['node']}), though no "
                    f"answer depends on them here: with draws {_TIMES:,.0f} times as large all values "
                    f"are the same in {count} cases",
                }
            )
        else:
            yield finding


def _agree(checks: Sequence[Check]) -> bool:
    verdicts = {check.verdict for check in checks if not check.advice}
    return "pass" in verdicts and verdicts <= {"pass", "refused"}


def _unmoved(checker: Checker, exported: Exported) -> int:
    """Return on how many cases the file answers the same whatever it draws, 0 where not on all."""
    setting, count = checker.setting, 0
    # float16 ends below such draws.
    model = _with_other_draws(exported.proto) if setting.half is None else None
    if model is None:
        return 0
    try:
        sessions = (
            PlainSession(exported.path, setting.threads),
            PlainSession(model, setting.threads, folder=exported.path.resolve().parent),
        )
    except Refusal:
        return 0
    for case in checker.tried():
        feeds = {graph: case.arrays[name] for name, graph in setting.graph_inputs.items()}
        one, other = (_answer(session, feeds) for session in sessions)
        if one is None and other is None:
            continue
        if one is None or other is None or not all(map(_same, one, other)):
            return 0
        count += 1
    return count


def _answer(session: PlainSession, feeds: Mapping[str, Array]) -> Sequence[Any] | None:
    try:
        return session.run(feeds)
    except Refusal:
        return None


def _with_other_draws(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a copy that draws far larger numbers; ``None`` where some node cannot be made to."""
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    for node in (each for each in all_nodes(model) if each.op_type in RANDOM):
        scales = _SCALES.get(node.op_type)
        if scales is None or any(each.ref_attr_name for each in node.attribute):
            return None
        values = {name: _TIMES * attribute(node, name, least) for name, least in scales.items()}
        kept = [each for each in node.attribute if each.name not in values]
        made = [onnx.helper.make_attribute(name, value) for name, value in values.items()]
        del node.attribute[:]
        node.attribute.extend([*kept, *made])
    return model


def _same(one: Any, other: Any) -> bool:
    # By value: 0 times what is drawn is a zero of its sign.
    alike = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    return alike and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
