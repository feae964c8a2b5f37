"""Remedies in the manifest, from the verdict alone: the likely ones first, each one change; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from onnx_gate.findings import codes
from onnx_gate.manifest import COMMAND, EXPORTERS, ModelSpec
from onnx_gate.manifest.change import KeyChange, export_data
from onnx_gate.manifest.values.runtimes import Optimization
from onnx_gate.remedy.candidate import Candidate
from onnx_gate.report.model import ModelResult

# The oldest that the dynamo exporter writes, and newer ones that brought operators with them.
_OPSETS = (18, 20, 23)
# What an input may have been meant to be, where forward refuses what the manifest says.
_DTYPES = {
    "bool": ("float32", "int64"),
    "float16": ("float32",),
    "bfloat16": ("float32",),
    "float32": ("int64", "bool"),
    "float64": ("float32", "int64"),
    "int8": ("int64",),
    "uint8": ("int64", "float32"),
    "int32": ("int64", "float32"),
    "int64": ("float32", "int32", "bool"),
}
# What a trace has refused no opset mends, and no optimiser that comes after it.
_OF_TRACES = (codes.OG203.code, codes.OG206.code)
_OF_WRITING = ("opset", "optimize")
_HIGHEST = 999
# Nothing that can be changed here helps these: no PyTorch to be right, or none that agrees with itself.
_HOPELESS = ("model", "ill-conditioned")


def settings(spec: ModelSpec, result: ModelResult) -> Iterator[Candidate]:
    """Yield what to try for a model that is red, each candidate a change of its entry or its file."""
    blame = result.diagnosis.blame if result.diagnosis is not None else None
    kind = result.error.kind if result.error is not None else None
    fitting = tuple(_fitting(spec, result))
    if kind == "unverified" and fitting:
        yield Candidate("inputs", fitting)
    if blame in _HOPELESS or kind in ("unverified", "timeout", "memory"):
        return
    if result.error is not None and kind == "build":
        found = tuple(KeyChange(each.key, each.value) for each in result.error.changes)
        if found:
            yield Candidate("inputs", found)
        else:
            yield from _inputs(spec)
        return
    if blame == "optimiser":
        yield from _optimiser(spec, result)
    # What would be exported instead is in full precision, which the file is not meant to have.
    if spec.model is None or any(codes.OG415.among(result.findings)):
        return
    if spec.onnx is not None:
        # In the place of one that is not here, as behind a pointer of Git LFS, it is nobody's.
        if kind != "export":
            yield Candidate("fresh export", fresh=True)
        return
    if blame != "optimiser":
        changes = result.error.changes if result.error is not None else ()
        asked = {each.value["exporter"]: each.value for each in changes}
        traced = result.error is None or result.error.code not in _OF_TRACES
        yield from _exports(spec, asked, traced=traced, unread=kind is not None)
    # Last, as it makes the graph no better: it says what the graph is for.
    if fitting and kind is None:
        yield Candidate("inputs", fitting)
    if blame != "optimiser" and spec.writer:
        yield from _instead(spec)


def _fitting(spec: ModelSpec, result: ModelResult) -> Iterator[KeyChange]:
    """Yield sizes that the model is made for, of dimensions of which the manifest says none."""
    found = {
        each.data["dimension"]: each.data["sizes"]
        for each in result.findings
        if "sizes" in each.data
    }
    for dim, sizes in found.items():
        if dim not in spec.named_dims:
            yield KeyChange(f"dims.{dim}", sizes)


def _exports(
    spec: ModelSpec, asked: Mapping[str, Mapping[str, Any]], *, traced: bool, unread: bool
) -> Iterator[Candidate]:
    """Yield other ways to the file; ``unread``: none was made yet, or none that could be run.

    ``traced``: there was something to write. ``asked`` is, by exporters, what the error's own
    remedy says of them.
    """
    own = export_data(spec.export)
    tried: list[dict[str, Any]] = [
        {**{k: v for k, v in own.items() if k != key}, "exporter": spec.export.exporter}
        for key in own
        if key not in ("exporter", "options", COMMAND, "file")
        and (traced or key not in _OF_WRITING)
    ]
    tried += [
        {**own, "options": {k: v for k, v in spec.export.options.items() if k != key}}
        for key in spec.export.options
    ]
    if not spec.writer:
        others = [each for each in EXPORTERS if each != spec.export.exporter]
        tried += [{**_kept(spec), "exporter": each, **asked.get(each, {})} for each in others]
        if traced and spec.export.exporter == "dynamo" and spec.export.optimize is not False:
            tried.append({**own, "optimize": False})
        if traced and unread:
            tried += [{**own, "opset": each} for each in _OPSETS if each != spec.export.opset]
    for each in tried:
        value = {key: given for key, given in each.items() if given != {}}
        yield Candidate("export", (KeyChange("export", value),))


def _instead(spec: ModelSpec) -> Iterator[Candidate]:
    """Yield what PyTorch's own exporters make in the place of the owner's: what is shipped stays."""
    for each in EXPORTERS:
        change = KeyChange("export", {**_kept(spec), "exporter": each})
        yield Candidate("export", (change,), evidence=True)


def _kept(spec: ModelSpec) -> dict[str, Any]:
    """Return what an export says that holds for every exporter."""
    own = export_data(spec.export)
    return {key: own[key] for key in ("example",) if key in own}


def _optimiser(spec: ModelSpec, result: ModelResult) -> Iterator[Candidate]:
    """Yield the session without the one fusion, and then with lower levels."""
    diagnosis = result.diagnosis
    runtime = next((r for r in spec.runtimes if diagnosis and r.label == diagnosis.runtime), None)
    if diagnosis is None or runtime is None:
        return
    key = f"engines.{runtime.label}"
    if diagnosis.fused_by:
        given = dict(runtime.without(diagnosis.fused_by.split(" and ")).session_options)
        yield Candidate("runtime", (KeyChange(key, {"session_options": given}),))
    levels: tuple[Optimization, ...] = get_args(Optimization)
    place = levels.index(runtime.optimization or levels[-1])
    for level in reversed(levels[:place]):
        yield Candidate("runtime", (KeyChange(key, {"optimization": level}),))


def _inputs(spec: ModelSpec) -> Iterator[Candidate]:
    """Yield other types and values for one input of a model whose forward takes nothing as it is."""
    for name, given in spec.inputs.items():
        for dtype in _DTYPES.get(given.dtype, ()):
            change = KeyChange(f"inputs.{name}.dtype", dtype)
            whole = dtype.startswith(("int", "uint"))
            if whole == given.has_range:
                yield Candidate("inputs", (change,))
            elif whole:
                for high in _highs(_HIGHEST):
                    values = KeyChange(f"inputs.{name}.range", [0, high])
                    yield Candidate("inputs", (change, values))
        if given.range is not None and given.dtype.startswith(("int", "uint")):
            low, high = map(int, given.range)
            for other in _highs(high // 2):
                if low < other:
                    values = KeyChange(f"inputs.{name}.range", [low, other])
                    yield Candidate("inputs", (values,))


def _highs(high: int) -> Iterator[int]:
    """Yield ends of ranges, the widest first, each half the one before."""
    while high >= 1:
        yield high
        high //= 2
