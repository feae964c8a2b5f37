"""The ways to capture a module other than the one that was exported, each run in a fork."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
import torch.utils._pytree as pytree

from onnx_gate.diagnose.bench import EXPORT, FORWARD, Answer, Bench, Fresh
from onnx_gate.findings import codes
from onnx_gate.manifest import ExportSpec
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.torch_eager import Eager, to_array, to_tensor
from onnx_gate.verify.build import build
from onnx_gate.verify.export.export import by_parameter, export, exportable
from onnx_gate.verify.export.program import run_program
from onnx_gate.verify.export.scripts import Flat
from onnx_gate.verify.inspect.inspect import join_inputs


def run_captured(bench: Bench, arrays: Mapping[str, Array], *, guards: bool = True) -> Answer:
    """Run torch.export's program, with or without the conditions that it was captured under."""
    program = bench.subject.exported.program
    assert program is not None
    return bench.answer(lambda: run_program(program, bench.eager, arrays, guards=guards), FORWARD)


def run_before_decomposition(bench: Bench, arrays: Mapping[str, Array]) -> Answer:
    """Capture the module again and run the program before any operator is decomposed."""
    example = bench.example()
    if example is None:
        return Answer(failed="the example of the export cannot be drawn again")

    def work() -> Sequence[Array]:
        tensors = {name: to_tensor(array) for name, array in example[0].items()}
        args, kwargs = bench.eager.binding.for_export(tensors)
        axes = {
            name: {i: torch.export.Dim.AUTO for i, d in enumerate(s.shape) if isinstance(d, str)}
            for name, s in bench.subject.spec.inputs.items()
        }
        dynamic = by_parameter(bench.eager, axes)
        with torch.no_grad(), exportable(bench.eager, tensors):
            program = torch.export.export(
                bench.eager.module, args, kwargs, dynamic_shapes=dynamic, strict=False
            )
        return run_program(program, bench.eager, arrays, guards=False)

    return bench.answer(work, EXPORT)


def traced(bench: Bench, example: Mapping[str, Array], arrays: Mapping[str, Array]) -> Answer:
    """Trace the module on ``example`` and run the trace on ``arrays``.

    What the tracer warns of is noticed: each warning is a number or a branch that it bakes in.
    """

    def work() -> Answer:
        torch.backends.mha.set_fastpath_enabled(False)
        order = bench.eager.binding.order
        with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            script = torch.jit.trace(
                Flat(bench.eager), tuple(to_tensor(example[n]) for n in order), check_trace=False
            )
        noticed = tuple(
            f"{Path(w.filename).name}:{w.lineno}: {str(w.message).split('. ')[0]}"
            for w in caught
            if w.category.__name__ == "TracerWarning"
        )
        try:
            with torch.no_grad():
                outputs = script(*(to_tensor(arrays[name]) for name in order))
        except Exception as error:
            return Answer(refused=_last_line(error), noticed=noticed)
        return replace(
            bench.select([to_array(t) for t in pytree.tree_leaves(outputs)]), noticed=noticed
        )

    answer, trouble = bench.apart(work, EXPORT)
    return answer if answer is not None else Answer(failed=trouble)


def rebuilt(bench: Bench) -> Answer:
    """Call the module built anew from the manifest, for the first time.

    Fails where it has other parameters than the one that diverged.
    """
    spec = bench.subject.spec

    def work() -> Sequence[Array]:
        module = build(spec, bench.subject.workspace).module
        own = dict(bench.eager.module.named_parameters())
        new = dict(module.named_parameters())
        if own.keys() != new.keys() or not all(torch.equal(own[k], new[k]) for k in own):
            raise codes.OG204.error("built anew, it has other parameters")
        eager = Eager.of(module, spec)
        eager.left_out = bench.eager.left_out
        return (eager.without_fast_path() or eager).run(bench.subject.arrays).arrays

    return bench.answer(work, EXPORT)


def export_again(
    bench: Bench, exporter: str, opset: int | None = None, *, optimize: bool | None = None
) -> Fresh:
    """Export the module again into a folder of its own."""
    example = bench.example()
    if example is None:
        return Fresh(failed="the example of the export cannot be drawn again")
    subject = bench.subject
    folder = Path(tempfile.mkdtemp(prefix="fresh-", dir=subject.folder))
    spec = replace(subject.spec, onnx=None, export=ExportSpec(exporter, opset, optimize=optimize))

    def work() -> Fresh:
        # The fused operator of attention's fast path is one that exporters do not know.
        torch.backends.mha.set_fastpath_enabled(False)
        exported = export(spec, bench.eager, example[0], subject.workspace, folder)
        joined = join_inputs(spec, exported)
        program = None
        if exported.program is not None:
            try:
                program = bench.select(
                    run_program(exported.program, bench.eager, subject.arrays, guards=True)
                )
            except Refusal as error:
                program = Answer(refused=str(error))
        return Fresh(exported.path, joined, program)

    fresh, trouble = bench.apart(work, EXPORT)
    return fresh if fresh is not None else Fresh(failed=trouble)


def _last_line(error: BaseException) -> str:
    """Return the last line of an error, where TorchScript puts what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
