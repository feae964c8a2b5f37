"""What a blame comes to in a sentence: the reason, and what to do. Facts of the diagnosis alone."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_gate.report.model.diagnosis import Blame, Diagnosis
from onnx_gate.report.story.diagnosed import is_refusal, worded

_CAUSES: Mapping[Blame, str] = {
    "model": "{against} does not agree with itself",
    "capture": "what was captured of the module is not what it computes",
    "exporter": "the exporter wrote another computation",
    "graph": "the file holds another computation",
    "optimiser": "ONNX Runtime's optimiser changes what is computed",
    "kernel": "a kernel of {engine} is wrong",
    "stale artifact": "the committed file is not what the model exports to",
    "conversion": "the file computes something else than the one that it was made from",
    "reduced precision": "the file computes in fewer bits",
    "ill-conditioned": "rounding alone moves {against}'s own result as far",
    "undecided": "no single cause was found",
}
# What is known where a function of the user's wrote the file: that it did.
_WRITTEN: Mapping[Blame, str] = {
    "capture": "what {writer} wrote of the module is not what it computes",
    "exporter": "{writer} wrote another computation",
}
_REFUSED = "{engine} does not run the graph on these inputs"
_NO_OTHER = "Write {line} with other operators."
_ACTIONS: Mapping[Blame, str] = {
    "model": "Make `forward` give the same answer twice on equal inputs.",
    "capture": "Write {line} so that nothing of the inputs is decided while it is exported.",
    "exporter": "Write {line} with other operators, or export with another exporter.",
    "graph": "Write {line} with other operators, or make the file anew.",
    "optimiser": "Switch that optimisation off where the model is served.",
    "kernel": "Write {line} with other operators, and report the reproduction to {engine}.",
    "stale artifact": "Export the file anew and commit it.",
    "conversion": "Leave that node out of what the tool changes, or name a tolerance that you can "
    "stand for.",
    "reduced precision": "Name a tolerance that is meant for it.",
    "ill-conditioned": "Compute it in a stabler way, or name a tolerance that you can stand for.",
    "undecided": "Replay the reproduction and follow the error along the graph.",
}
# Where no time was left for a reproduction, or it would have been too large.
_WITHOUT_REPRO: Mapping[Blame, str] = {
    "kernel": "Write {line} with other operators, and report it to {engine}.",
    "undecided": "Run this case alone (`--case`), with more `timeout` or `memory`: no reproduction was "
    "written.",
}


def cause(diagnosis: Diagnosis, writer: str = "") -> str:
    """Return why it diverges; ``writer`` is the function of the user's that wrote the file."""
    if is_refusal(diagnosis):
        return worded(_REFUSED, diagnosis)
    causes = _WRITTEN if writer and diagnosis.blame in _WRITTEN else _CAUSES
    return worded(causes[diagnosis.blame], diagnosis, writer)


def action(diagnosis: Diagnosis, *, no_other: bool) -> str:
    """Return what to do; ``no_other`` is whether another exporter is known to be no help."""
    text = _NO_OTHER if no_other else _ACTIONS[diagnosis.blame]
    if diagnosis.repro is None:
        text = _WITHOUT_REPRO.get(diagnosis.blame, text)
    return worded(text, diagnosis)
