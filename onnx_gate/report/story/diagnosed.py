"""A diagnosis in words: whom it blames, the few nodes worth showing, the error along the graph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from onnx_gate.manifest.values.runtimes import engine_of_label
from onnx_gate.report.model.diagnosis import Blame, Diagnosis, Evidence, Experiment, NodeError
from onnx_gate.report.story.locations import Place
from onnx_gate.text import format_int, plain

TITLES: Mapping[Blame, str] = {
    "model": "The model",
    "capture": "Capture",
    "exporter": "The exporter",
    "graph": "The graph",
    "optimiser": "ONNX Runtime's optimiser",
    "kernel": "A kernel of {engine}",
    "stale artifact": "Another file",
    "conversion": "The conversion",
    "reduced precision": "Reduced precision",
    "ill-conditioned": "An ill-conditioned model",
    "undecided": "Undecided",
}
MEANINGS: Mapping[Blame, str] = {
    "model": "{against} does not agree with itself, so no graph can agree with it.",
    "capture": "what was captured of the module is not what the module computes.",
    "exporter": "the graph computes something else than the program that it was made from.",
    "graph": "{engine} computes what the graph says, and that is something else.",
    "optimiser": "the graph agrees with {against} until ONNX Runtime optimises it.",
    "kernel": "the graph is right, and {engine} computes it wrongly.",
    "stale artifact": "the committed file is not what the model exports to.",
    "conversion": "the file computes something else than the one that it is held against.",
    "reduced precision": "the file computes in fewer bits than the model, and this is what it costs.",
    "ill-conditioned": "{against}'s own rounding moves the result as far.",
    "undecided": "the experiments do not agree on one link.",
}

# Whom it blames, and what that means, where that experiment has decided it.
_TITLES_BY: Mapping[tuple[Blame, Experiment | None], str] = {
    ("stale artifact", "graph"): "Another graph",
    ("stale artifact", "file"): "A stale file",
}
_MEANINGS_BY: Mapping[tuple[Blame, Experiment | None], str] = {
    (
        "stale artifact",
        "file",
    ): "the committed file was not made from this model and these weights.",
    (
        "stale artifact",
        "graph",
    ): "the weights of the committed file are the model's, and its graph is not what the model exports to.",
    (
        "kernel",
        "same error",
    ): "{engine} makes something else of the file than it says, which is not "
    "what {against} computes either.",
    (
        "reduced precision",
        "float32",
    ): "{engine} rounds otherwise than {against} does, and the graph is right.",
}

# The graph may ask for what a runtime has every right to refuse, as where a size is baked into it.
_REFUSED = (
    "it does not run the graph on these inputs; a number that it computes wrongly was not seen."
)

_AROUND = 2
_BARS = 40
_LEAST = -9.0


def sentence(diagnosis: Diagnosis) -> str:
    """Return whom the diagnosis blames, and what that means."""
    return f"{title(diagnosis)}: {meaning(diagnosis)}"


def title(diagnosis: Diagnosis) -> str:
    """Return whom the diagnosis blames."""
    if is_refusal(diagnosis):
        return worded("A refusal of {engine}", diagnosis)
    title = _TITLES_BY.get((diagnosis.blame, _decided_by(diagnosis)), TITLES[diagnosis.blame])
    return worded(title, diagnosis)


def meaning(diagnosis: Diagnosis) -> str:
    """Return what the blame means."""
    if diagnosis.blame == "undecided" and not diagnosis.evidence:
        return "no experiment was made."
    if is_refusal(diagnosis):
        return worded(_REFUSED, diagnosis)
    by = _decided_by(diagnosis)
    return worded(_MEANINGS_BY.get((diagnosis.blame, by), MEANINGS[diagnosis.blame]), diagnosis)


def is_refusal(diagnosis: Diagnosis) -> bool:
    """Return whether the kernel that is blamed has computed nothing at all, wrong or right."""
    return diagnosis.refused and diagnosis.blame == "kernel"


def _decided_by(diagnosis: Diagnosis) -> Experiment | None:
    decided = deciding(diagnosis)
    return decided.kind if decided is not None else None


def worded(text: str, diagnosis: Diagnosis, writer: str = "") -> str:
    """Return a text with the names of the side that is right, of the engine that is not, and the code.

    ``writer`` is the function of the user's that wrote the file.
    """
    engine = engine_of_label(diagnosis.runtime)
    name = "ONNX Runtime" if engine == "onnxruntime" else plain(engine, 40)
    line = "that line" if diagnosis.source is not None else "the module"
    by = plain(writer, 80)
    return text.format(against=diagnosis.against, engine=name, line=line, writer=by)


def deciding(diagnosis: Diagnosis) -> Evidence | None:
    """Return the experiment that settled the blame.

    Where none did, the last in which two sides disagree, and without that the last.
    """
    decisive = [each for each in diagnosis.evidence if each.decisive]
    broken = [each for each in diagnosis.evidence if each.agrees is False]
    return next(reversed(decisive or broken or diagnosis.evidence), None)


def around(diagnosis: Diagnosis) -> list[tuple[NodeError, bool]]:
    """Return the faulty node and its neighbours, each with whether it is the faulty one.

    Nothing where it is the only one: the sentence above has said all of it.
    """
    nodes, place = diagnosis.nodes, diagnosis.guilty
    if place is None or not 0 <= place < len(nodes) or len(nodes) < 2:
        return []
    start = max(0, place - _AROUND)
    return [
        (node, start + offset == place)
        for offset, node in enumerate(nodes[start : place + _AROUND + 1])
    ]


def levels(nodes: Sequence[NodeError]) -> list[float]:
    """Return log10 of the error along the graph, at most 40 values, each the worst of its part.

    No error is shown as -9, an infinite one as the worst finite one and three orders more.
    """
    logs = [math.log10(n.error) if 0 < n.error < math.inf else None for n in nodes]
    finite = [value for value in logs if value is not None]
    top = max(finite, default=0.0) + 3
    values = [
        max(_LEAST, value) if value is not None else (top if node.error > 0 else _LEAST)
        for value, node in zip(logs, nodes, strict=True)
    ]
    share = -(-len(values) // _BARS) if values else 1
    return [round(max(values[i : i + share]), 2) for i in range(0, len(values), share)]


def lines(diagnosis: Diagnosis, place: Place) -> list[str]:
    """Return whom it blames, the experiment that decided, the node, the line, and what is open."""
    shown = [sentence(diagnosis)]
    evidence = deciding(diagnosis)
    if evidence is not None:
        shown.append(f"{evidence.experiment}: {evidence.outcome}")
    node = diagnosis.node
    if node is not None:
        where = f" in {node.module}" if node.module else ""
        of = f"{node.operator}, {node.op_type}" if node.operator else node.op_type
        shown.append(f"first wrong at {of} {node.name or node.output}{where}")
    if diagnosis.cause:
        shown.append(diagnosis.cause)
    if diagnosis.fused_by:
        shown.append(f"the fusion is {diagnosis.fused_by}")
    if diagnosis.source is not None:
        file = place.location.file if place.location is not None else place.file
        shown.append(f"{file}:{format_int(diagnosis.source.line)}: {diagnosis.source.code}")
    return [*shown, diagnosis.note] if diagnosis.note else shown
