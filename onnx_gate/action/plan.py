"""``mode: plan``: how many jobs the models are divided among, as a matrix for the workflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from onnx_gate.action import log
from onnx_gate.action.action_inputs import Inputs
from onnx_gate.action.failed import failed_report, of_manifest
from onnx_gate.errors import UserError
from onnx_gate.gate.history import history_of
from onnx_gate.gate.select import select
from onnx_gate.gate.shards import described, divisible, matrix
from onnx_gate.github.step_outputs import append_outputs
from onnx_gate.manifest import ManifestError
from onnx_gate.manifest.load import load
from onnx_gate.report.io import read_report
from onnx_gate.report.model import Report


def plan(inputs: Inputs, environ: Mapping[str, str]) -> Report | None:
    """Write the output ``matrix``; return null, or the report of why there is none.

    Where the input ``baseline`` is a file, the shards are balanced by what models took there.

    Raises ``UserError`` for a number of shards that is none.
    """
    shards = inputs.shard or "auto"
    if shards != "auto" and not (shards.isascii() and shards.isdigit() and int(shards) > 0):
        raise UserError(
            f"input 'shard': {shards!r} is no number of shards; with mode: plan it is a number "
            "from 1 to 256, or auto"
        )
    try:
        manifest = load(inputs.manifest_path)
    except ManifestError as error:
        return failed_report(of_manifest(error), inputs.manifest)
    selected = select(manifest.models, inputs.models)
    names, may = [model.name for model in selected], divisible(selected)
    seconds = _durations(inputs)
    planned_matrix = matrix(names, "auto" if shards == "auto" else int(shards), seconds, may)
    planned = json.dumps(planned_matrix, separators=(",", ":"))
    log.say([described(names, planned_matrix["shard"], seconds, may), planned])
    if path := environ.get("GITHUB_OUTPUT"):
        append_outputs(Path(path), {"matrix": planned})
    return None


def _durations(inputs: Inputs) -> Mapping[str, float]:
    if inputs.baseline in ("auto", "off"):
        return {}
    try:
        return history_of([read_report(inputs.directory / inputs.baseline)]).seconds
    except UserError as error:
        log.warn(f"planned without durations: {error}")
        return {}
