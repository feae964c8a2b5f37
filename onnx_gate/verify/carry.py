"""Writing down what PyTorch said, for machines that have none: one folder for a model."""

from __future__ import annotations

import shutil
from itertools import chain
from pathlib import Path

from onnx_gate.deadline import Deadline
from onnx_gate.files import sha256_of
from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.report.io import write_bytes, write_text
from onnx_gate.text import listed
from onnx_gate.verify.carried import INDEX, CarriedCase, CarriedModel, packed
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.context import ANSWERS
from onnx_gate.verify.export.exported import Exported

# What the cases of one model may take, compressed; its file is carried whole.
MAX_BYTES = 64 << 20


def carry(checker: Checker, exported: Exported, folder: Path, deadline: Deadline) -> list[Finding]:
    """Write the model's file and every case that fits; return what is to be said of the rest.

    Each run that a verdict could ask for is made here, of every case: another machine may need what
    this one did not. No case is begun once the time is over.
    """
    folder = folder / ANSWERS
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    for name, digest in exported.info().files.items():
        target = folder / "model" / name
        if ".." in Path(name).parts:
            return [_note(f"nothing: {name} is not beside the ONNX file that names it")]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(exported.path.parent / name, target)
        files[f"model/{name}"] = digest
    cases: list[CarriedCase] = []
    left_out: list[str] = []
    left = MAX_BYTES
    answered = checker.tally.answered or []
    tried = len(answered)
    while answered:
        first = answered.pop(0)  # with its runs it is many times as large
        for step, (case, asked) in enumerate(chain([first], checker.further(*first)), 1):
            fits = not deadline.passed()
            if fits:
                about, data = packed(case, asked, f"{len(cases)}.npz", step)
                fits = len(data) <= left
            if not fits:
                left_out.append(case.id if step == 1 else f"{case.id} from step {step} on")
                break
            write_bytes(folder / about.file, data)
            files[about.file] = sha256_of(folder / about.file)
            cases.append(about)
            left -= len(data)
    index = CarriedModel(
        model=checker.setting.spec.name,
        file=f"model/{exported.path.name}",
        files=files,
        inputs=dict(checker.setting.graph_inputs),
        outputs=checker.setting.graph_outputs,
        reduced=checker.setting.reduced,
        cases=tuple(cases),
        left_out=tuple(left_out),
        whole=not (left_out or checker.setting.patterns),
    )
    write_text(folder / INDEX, index.model_dump_json(by_alias=True) + "\n")
    if not left_out:
        return []
    return [
        _note(
            f"{tried - len(left_out)} of {tried} cases: the rest take more than "
            f"{MAX_BYTES >> 20} MiB, or than the model's time ({listed(left_out, 3, 'cases')})"
        )
    ]


def _note(what: str) -> Finding:
    return codes.OG430.finding(f"the answers that are carried hold {what}")
