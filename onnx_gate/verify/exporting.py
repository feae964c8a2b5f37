"""From a prepared module to its export, at another example where the first one's serves no size.

The example's sizes are not those that are tested, where they can be primes. Code that asks whether a
size is a multiple of 8 answers otherwise for a prime, and torch.export keeps that answer: then the
export that is wrong at every tested size is of the gate's own making.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from onnx_gate.errors import GateError
from onnx_gate.manifest import ModelSpec
from onnx_gate.runtimes import state
from onnx_gate.verify.build import build
from onnx_gate.verify.context import Context
from onnx_gate.verify.export.export import export
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.export.guards import better_example, holding
from onnx_gate.verify.prepare import Prepared, prepare, restore_after_export


def export_prepared(
    spec: ModelSpec, context: Context, prepared: Prepared
) -> tuple[Exported, Prepared]:
    """Export a module; return the graph, and the module as it was before."""
    exported, after = _export(spec, context, prepared, context.folder)
    sizes = better_example(spec, exported)
    if sizes is None:
        return exported, after
    fixed = replace(spec, export=replace(spec.export, example=dict(sizes)))
    try:
        other = prepare(fixed, context, after.eager.module)
        again, other = _export(fixed, context, other, context.folder / "again")
        if holding(spec, again) <= holding(spec, exported):
            return exported, after
        return replace(_moved(again, context.folder), first=exported), other
    except GateError:  # then what is there is the export of this model
        return exported, after


def _export(
    spec: ModelSpec, context: Context, prepared: Prepared, folder: Path
) -> tuple[Exported, Prepared]:
    exported = _export_uncalled(spec, context, prepared, folder)
    if exported is None:
        try:
            exported = export(spec, prepared.eager, prepared.example, context.workspace, folder)
        except GateError:
            # A model that disagrees with itself is that before anything else.
            restore_after_export(spec, context, prepared)
            raise
    exported = replace(exported, example=dict(prepared.sizes))
    return exported, restore_after_export(spec, context, prepared)


def _export_uncalled(
    spec: ModelSpec, context: Context, prepared: Prepared, folder: Path
) -> Exported | None:
    """Export a module that was never called, as its owner does.

    What a first call keeps, such as a table of the sizes that it has met, is a condition for the
    trace of a second, and ties the graph to the example. ``None`` where a call keeps nothing, and
    where the export needs what it keeps.
    """
    if not prepared.call.keeps_state:
        return None
    with suppress(GateError):
        module = build(spec, context.workspace).module
        # Another build need not have the same weights: least squares in a factory come out by where
        # in memory its operands lie. What is compared is what has to be exported.
        state.take_values(module, prepared.eager.module, but=prepared.call.changed)
        eager = prepared.eager.with_module(module)
        return export(spec, eager, prepared.example, context.workspace, folder)
    return None


def _moved(exported: Exported, folder: Path) -> Exported:
    """Put a second export, and the data beside it, in place of the first."""
    for path in list(exported.path.parent.iterdir()):
        path.replace(folder / path.name)
    exported.path.parent.rmdir()
    return replace(exported, path=folder / exported.path.name)
