"""What an exporter's exception comes down to: its code and its essential lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onnx_gate.errors import GateError
from onnx_gate.manifest import ModelSpec

MAX_LINES = 8
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_BOILERPLATE = (
    "Next steps:",
    "- Modify the model code",
    "- Debug `torch.export",
    "- Create an issue",
    "(Refer to the full stack trace",
    "For more information",
    "Set TORCH_LOGS",
    "If you want to",
    "The following call raised this error",
    "Specifically, we",
)
_SPECIALISED = re.compile(
    r"tracing inferred a static shape of (\d+) for dimension inputs\['([^']+)'\]\.shape\[(\d+)\]"
)
_NO_TRANSLATION = re.compile(
    r"No ONNX function found for <OpOverload\(op='([^']+)'|"
    r"(?:Exporting the operator|Unsupported: ONNX export of operator) '?([\w:.]+)'?"
)


def export_error(error: BaseException, spec: ModelSpec) -> GateError:
    """Return the ``GateError`` of kind ``export`` that says what ``error`` says, in a few lines."""
    if isinstance(error, GateError):
        return error
    chain = list(_chain(error))
    text = "\n".join(_ANSI.sub("", str(e)) for e in chain)
    exporter = spec.export.exporter
    specialised = _SPECIALISED.search(text)
    if specialised is not None:
        size, name, axis = specialised.groups()
        dim = _dim_name(spec, name, int(axis))
        return GateError(
            "export",
            "OG206",
            f"{dim} of input {name!r} (axis {axis}) is declared dynamic, and the model only works at "
            f"the size {size}, the example's: something in forward ties it to a fixed size. "
            f"Take the size from the input's shape there, or write {size} in the manifest",
        )
    if "data-dependent" in text or "GuardOnDataDependentSymNode" in text:
        return GateError(
            "export",
            "OG203",
            "forward branches or takes a size from the values of its inputs, which a graph cannot: "
            "use torch.where or torch.cond.\n" + _essential(chain[-1]),
        )
    missing = _NO_TRANSLATION.search(text)
    if missing is not None:
        operator = next(group for group in missing.groups() if group)
        return GateError(
            "export",
            "OG201",
            f"the {exporter} exporter has no translation of {operator} to ONNX at this opset: "
            "replace the operator, try another opset, or register a translation.\n"
            + _essential(chain[-1]),
        )
    if "Constraints violated" in text or "conflicts between user-specified ranges" in text:
        return GateError(
            "export",
            "OG206",
            "the model does not work at every size that the manifest declares.\n"
            + _essential(chain[-1]),
        )
    return GateError("export", "OG207", f"the {exporter} exporter failed: {_essential(chain[-1])}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (
            None if current.__suppress_context__ else current.__context__
        )


def _essential(error: BaseException) -> str:
    lines = []
    for raw in _ANSI.sub("", str(error)).splitlines():
        line = raw.rstrip()
        if not line.strip() or line.strip().startswith(_BOILERPLATE):
            continue
        if re.match(r'\s*File ".*", line \d+', line) and "site-packages" in line:
            continue
        lines.append(line if len(line) <= 300 else line[:299] + "…")
        if len(lines) == MAX_LINES:
            lines.append("…")
            break
    return f"{type(error).__name__}: " + "\n".join(lines)


def _dim_name(spec: ModelSpec, name: str, axis: int) -> str:
    declared = spec.inputs.get(name)
    if declared is not None and axis < len(declared.shape):
        return f"dimension {declared.shape[axis]!r}"
    return "a dimension"
