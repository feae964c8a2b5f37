"""Which versions of a package load a file, by tables out of what they say of themselves, or measured.

A version of ONNX Runtime refuses a file of a later IR or operator set, and a node for which it has no
kernel on the CPU with these types. ``loads.json`` is written by ``tools/loads.py``. ONNX Runtime Web has
the same kernels, and no arrays of some types for the ends of a graph; of OpenVINO and OpenCV the operators
are known of which nothing loads: ``loads_elsewhere.json``, by ``tools/loads_elsewhere.py``.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto
from onnx.inliner import inline_selected_functions

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.graph.walk import inlined, nodes
from onnx_gate.manifest.values.targets import Target
from onnx_gate.verify.source_lines import at, finding_at, of_node

_RUNTIME, _WEB = "onnxruntime", "onnxruntime-web"
_OWN = ("", "ai.onnx")
# Read as an initializer, and never run.
_CONSTANT = "Constant"

_Types = Mapping[str, str]


@dataclass(frozen=True)
class _Kernel:
    """A kernel for ``first`` to ``last`` of an operator's versions, in some releases."""

    first: int
    last: int
    types: Mapping[str, frozenset[str]]
    since: int
    until: int

    def fits(self, version: int, release: int, types: _Types) -> bool:
        """Return whether a release has it for an operator's version and these types.

        One without a last version is for the first alone: a later one may be another function.
        """
        if not self.since <= release <= self.until:
            return False
        if self.first != version and not (self.last and self.first < version <= self.last):
            return False
        return all(types.get(key) in (None, *self.types[key]) for key in self.types)


@dataclass(frozen=True)
class Lack:
    """What a release lacks for a file, and the node that needs it."""

    what: str
    node: onnx.NodeProto | None = None


@functools.cache
def _releases() -> tuple[tuple[tuple[int, int], int, Mapping[str, int]], ...]:
    """Return each release, the newest IR version that it reads, and its operator sets."""
    return tuple(
        (_pair(each["version"]), each["ir"], each["opsets"]) for each in _table()["versions"]
    )


def _pair(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


@functools.cache
def _table() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text())
    return data


@functools.cache
def _elsewhere() -> dict[str, list[dict[str, Any]]]:
    data: dict[str, Any] = json.loads(Path(__file__).with_name("loads_elsewhere.json").read_text())
    return data


@functools.cache
def _kernels(name: str) -> tuple[_Kernel, ...]:
    return tuple(
        _Kernel(first, last, {k: frozenset(v.split()) for k, v in types.items()}, since, until)
        for first, last, types, since, until in _table()["kernels"].get(name, ())
    )


def inspect_loads(
    targets: Sequence[Target], model: onnx.ModelProto, root: Path | None
) -> Iterator[Finding]:
    """Yield for each target from which version on it loads the file; an error where that is too late."""
    for target in targets:
        lacks, known = lacking(model, target.name), releases(target.name)
        late = max((n for n, lack in enumerate(lacks) if lack is not None), default=-1)
        lack = lacks[late] if late >= 0 else None
        first = "" if late + 1 == len(known) else ".".join(map(str, known[late + 1]))
        # Of some it is known which operators they have, and not which forms of them.
        whole = target.name in (_RUNTIME, _WEB)
        since = (
            f"no version of {target.name} up to {'.'.join(map(str, known[-1]))} "
            f"{'loads the file' if whole else 'has all of its operators'}"
            if not first
            else f"{'loads' if whole else 'has its operators'} from {target.name} {first} on"
        )
        data = {"target": str(target), "from": first}
        asked = [n for n, release in enumerate(known) if release >= target.least]
        if lack is None or not asked or asked[0] > late:
            yield codes.OG432.finding(f"{since}, as {target} asks", severity="note", data=data)
            continue
        source = of_node(lack.node, root) if lack.node is not None else None
        remedy = "ask for another opset (export: {opset: N}), or for a later version"
        yield finding_at(
            codes.OG432,
            f"{since}; {lack.what}{at(source)} is what {'they' if not first else 'older ones'} lack, "
            f"and {target} asks for {'.'.join(map(str, target.least))}: {remedy}",
            source,
            data=data,
        )


def releases(package: str) -> list[tuple[int, int]]:
    """Return the releases of a package that are known, the oldest first."""
    if package == _RUNTIME:
        return [release for release, _, _ in _releases()]
    return [_pair(each["version"]) for each in _elsewhere()[package]]


def lacking(model: onnx.ModelProto, package: str = _RUNTIME) -> list[Lack | None]:
    """Return for each release of a package what it lacks first, ``None`` where it loads the file."""
    if package == _RUNTIME:
        return _of_runtime(model)
    if package == _WEB:
        of_runtime = dict(zip(releases(_RUNTIME), _of_runtime(model), strict=True))
        return [
            of_runtime[_pair(each["version"])] or _end(model, each["ends"])
            for each in _elsewhere()[package]
        ]
    whole = inlined(model)
    return [_operator(whole, each["lacks"].split()) for each in _elsewhere()[package]]


def _end(model: onnx.ModelProto, kinds: Collection[int]) -> Lack | None:
    """Return the first input or output of a type that has no array in JavaScript."""
    stored = {tensor.name for tensor in model.graph.initializer}
    for value in (*model.graph.input, *model.graph.output):
        kind = value.type.tensor_type.elem_type
        if kind in kinds and value.name not in stored:
            name = TensorProto.DataType.Name(kind).lower()
            return Lack(f"an array of {name}, as {value.name} is,")
    return None


def _operator(model: onnx.ModelProto, lacks: Collection[str]) -> Lack | None:
    """Return the first node whose operator loads in no form."""
    for node, _ in nodes(model.graph):
        name = f"{node.domain}:{node.op_type}" if node.domain not in _OWN else node.op_type
        if name in lacks:
            return Lack(name, node)
    return None


def _of_runtime(model: onnx.ModelProto) -> list[Lack | None]:
    plans = _Plans(inlined(model))
    opsets = plans.opsets
    found: list[Lack | None] = []
    for index, (_, ir, known) in enumerate(_releases()):
        newer = [d for d, v in opsets.items() if d in known and v > known[d]]
        if model.ir_version > ir:
            found.append(Lack(f"IR version {model.ir_version}"))
        elif newer:
            found.append(Lack(f"opset {opsets[newer[0]]}{f' of {newer[0]}' * bool(newer[0])}"))
        else:
            found.append(plans.lack(index))
    return found


@dataclass(frozen=True)
class _Need:
    """A kernel that a node needs, unless it is a ``function`` of other operators."""

    lack: Lack
    key: tuple[str, str]
    version: int
    types: _Types
    function: bool

    def met(self, release: int) -> bool:
        """Return whether a release has a kernel for it."""
        domain, name = self.key
        kernels = _kernels(f"{domain}:{name}" if domain else name)
        return any(kernel.fits(self.version, release, self.types) for kernel in kernels)


class _Plans:
    """What a file needs, with those functions expanded for which a release has no kernel."""

    def __init__(self, model: onnx.ModelProto) -> None:
        own = ((o.domain if o.domain not in _OWN else "", o.version) for o in model.opset_import)
        self.opsets = dict(own)
        self._model = model
        self._known: dict[frozenset[tuple[str, str]], tuple[_Need, ...]] = {}

    def lack(self, release: int) -> Lack | None:
        """Return what a release lacks first."""
        expanded: frozenset[tuple[str, str]] = frozenset()
        while True:
            unmet = [need for need in self._needs(expanded) if not need.met(release)]
            missing = next((need for need in unmet if not need.function), None)
            if missing is not None:
                return missing.lack
            more = expanded | {need.key for need in unmet}
            if more == expanded:
                return None
            expanded = more

    def _needs(self, expanded: frozenset[tuple[str, str]]) -> tuple[_Need, ...]:
        if expanded not in self._known:
            model = self._model
            if expanded:
                # What cannot be expanded, ONNX Runtime is taken to expand.
                with suppress(Exception):
                    model = inline_selected_functions(
                        model, sorted(expanded), inline_schema_functions=True
                    )
            self._known[expanded] = tuple(_needs(model, self.opsets))
        return self._known[expanded]


def _needs(model: onnx.ModelProto, opsets: Mapping[str, int]) -> Iterator[_Need]:
    kinds, seen = _types(model), set()
    for node, _ in nodes(model.graph):
        domain = "" if node.domain in _OWN else node.domain
        if (domain, node.op_type) == ("", _CONSTANT):
            continue
        schema = _schema(node.op_type, opsets.get(domain, 1), domain)
        version = 1 if schema is None else schema.since_version
        types = {} if schema is None else _of_node(node, schema, kinds)
        key = domain, node.op_type, version, tuple(sorted(types.items()))
        if key in seen:
            continue
        seen.add(key)
        # A release expands functions of the domains that it knows.
        function = (
            schema is not None
            and domain in ("", "ai.onnx.ml")
            and (schema.has_function or schema.has_context_dependent_function)
        )
        said = ", ".join(dict.fromkeys(types.values()))
        opset = f" at opset {opsets.get(domain, 1)}" if not domain else f" of {domain}"
        lack = Lack(f"{node.op_type}{opset}{f' in {said}' * bool(said)}", node)
        yield _Need(lack, (domain, node.op_type), version, types, function)


@functools.cache
def _schema(name: str, opset: int, domain: str) -> Any:
    try:
        return onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        return None


def _of_node(node: onnx.NodeProto, schema: Any, kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the types of a node's values, by what kernels may call them."""
    types: dict[str, str] = {}
    for names, formals in ((node.input, schema.inputs), (node.output, schema.outputs)):
        for place, name in enumerate(names):
            if name in kinds and formals:
                formal = formals[min(place, len(formals) - 1)]
                for key in (formal.type_str, formal.name):
                    types.setdefault(key, kinds[name])
    return types


def _types(model: onnx.ModelProto) -> dict[str, str]:
    """Return the element types of tensors, as far as they are known.

    What is in float16 has kernels in float32 on a CPU, between casts that ONNX Runtime puts there.
    """
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # what cannot be inferred is not known
        graph = model.graph
    kinds = {}
    for value in (*graph.value_info, *graph.input, *graph.output):
        kinds[value.name] = value.type.tensor_type.elem_type
    kinds |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    return {
        name: TensorProto.DataType.Name(
            TensorProto.FLOAT if kind == TensorProto.FLOAT16 else kind
        ).lower()
        for name, kind in kinds.items()
        if kind
    }
