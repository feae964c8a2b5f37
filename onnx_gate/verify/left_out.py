"""What a model returns beside tensors, and what of that is in no graph: constants and strings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.prepare import Prepared


def leave_out(prepared: Prepared, exported: Exported) -> Prepared:
    """Leave the numbers that the graph does not have out of the model's outputs from now on."""
    numbers = _missing(prepared.eager, exported)
    if not numbers:
        return prepared
    prepared.eager.left_out = numbers
    outputs = prepared.call.outputs.without(numbers)
    return replace(prepared, call=replace(prepared.call, outputs=outputs))


def _missing(eager: Eager, exported: Exported) -> frozenset[str]:
    """Return the numbers without an output: those that the exporter dropped, or else all or none."""
    returned = eager.returned
    if returned is None or not returned.numbers:
        return frozenset()
    if exported.outputs is not None:
        return returned.numbers - set(exported.outputs)
    tensors = len(returned.names) - len(returned.numbers)
    return returned.numbers if len(exported.proto.graph.output) == tensors else frozenset()


def findings(eager: Eager) -> Iterator[Finding]:
    """Say what was left out, once every case has been tried."""
    for name in sorted(eager.left_out):
        values = eager.numbers.get(name, [])
        if len(values) > 1:
            some = " and ".join(map(str, values[:2]))
            yield codes.OG115.finding(
                f"the output {name} is a Python number that depends on the inputs ({some} were seen), "
                "and the graph does not have it: return a tensor made of the inputs, or their sizes"
            )
        else:
            value = f" ({values[0]})" if values else ""
            yield codes.OG115.finding(
                f"the output {name} is a Python number that is always the same{value}; the graph "
                "does not have it, because exporters leave constants out",
                severity="note",
            )
    for name, text in (eager.returned.strings if eager.returned is not None else {}).items():
        yield codes.OG115.finding(
            f"the output {name} is text ({text[:40]!r}); a graph made of PyTorch's operators has no "
            "strings, so it is left out",
            severity="note",
        )
