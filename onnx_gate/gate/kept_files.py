"""The digests of the files that a run keeps, by the gate's own reading of them.

A statement is about these files and in the gate's name. What a model's process says of them is a
list of names and no more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from onnx_gate.files import sha256_of
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.layout import Layout
from onnx_gate.report.model import ModelResult


def with_kept_files(
    workspace: Path, specs: Sequence[ModelSpec], layout: Layout
) -> Callable[[ModelResult], ModelResult]:
    """Return what puts into a result the digests of its files, where they lie when the run ends.

    None of them where one is not there, or lies elsewhere: half a file is not what was verified.
    """
    own = {spec.name: spec.onnx for spec in specs}

    def hashed(result: ModelResult) -> ModelResult:
        if result.export is None:
            return result
        onnx = own[result.name]
        top = layout.model(result.name) if onnx is None else (workspace / onnx).parent
        within = os.path.realpath(top if onnx is None else workspace)
        files = {}
        try:
            for name in result.export.files:
                files[name] = sha256_of(_inside(top / name, within))
        except OSError:
            files = {}
        if onnx is not None and next(iter(files), None) != Path(onnx).name:
            files = {}
        export = result.export.model_copy(update={"files": files})
        return result.model_copy(update={"export": export})

    return hashed


def _inside(path: Path, folder: str) -> str:
    """Return where a file lies, if it is a plain one in the folder; raises ``OSError``."""
    real = os.path.realpath(path)
    hidden = ".git" in Path(real).parts
    if hidden or not real.startswith(folder + os.sep) or not os.path.isfile(real):
        raise FileNotFoundError(real)
    return real
