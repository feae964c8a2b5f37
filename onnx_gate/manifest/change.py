"""A change of one model's entry: what the manifest would mean then, and its text.

Both sides are made here, so that a caller can hold the one against the other: a text in which the
change did not come to what was meant (an anchor that other models share, a suite of another name)
is refused, and nothing is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from onnx_gate.errors import UserError
from onnx_gate.manifest.load import load_bytes
from onnx_gate.manifest.problems import ManifestError
from onnx_gate.manifest.spec import ModelSpec
from onnx_gate.manifest.values.exports import ExportSpec
from onnx_gate.manifest.values.inputs import InputSpec
from onnx_gate.manifest.values.runtimes import RuntimeSpec
from onnx_gate.manifest.values.suites import DEFAULT_SUITES, EdgesSuite, RandomSuite, Suite
from onnx_gate.manifest.values.tolerances import Tolerance, TopK
from onnx_gate.text import quote

_PLAIN = re.compile(r"[A-Za-z_][\w-]*")
# Texts that YAML 1.1 reads as something else.
WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


@dataclass(frozen=True)
class KeyChange:
    """``key`` is below the model.

    It is ``tolerance``, ``outputs.NAME`` (the tolerance of that output), ``runtimes.LABEL`` (that of
    the runtime with this label), ``engines.LABEL`` (one other key of that runtime), ``suites``,
    ``dims.NAME``, ``inputs.NAME`` (a further one), ``inputs.NAME.range``, ``inputs.NAME.dtype``,
    ``export`` or ``waivers.NUMBER.ceiling``. ``value`` is plain data: what it is set to, for
    ``suites`` the suite that is tried besides, and for ``engines`` the key with its value.
    """

    key: str
    value: Any

    @property
    def adds(self) -> bool:
        """Whether what is there stays."""
        return self.key == "suites"

    @property
    def judges(self) -> bool:
        """Whether it changes how answers are judged, and not what is asked."""
        return self.key.partition(".")[0] in ("tolerance", "outputs", "runtimes", "waivers")


def changed(spec: ModelSpec, change: KeyChange) -> ModelSpec:
    """Return what the manifest means with the change; raises ``ValueError`` for an unknown one."""
    part, _, rest = change.key.partition(".")
    if part == "tolerance":
        return replace(spec, tolerance=_tolerance(change.value))
    if part == "outputs":
        outputs = {**(spec.outputs or {}), rest: _tolerance(change.value)}
        return replace(spec, outputs=outputs)
    if part == "runtimes":
        return _with_engine(spec, rest, {"tolerance": _tolerance(change.value)})
    if part == "engines":
        return _with_engine(spec, rest, change.value)
    if part == "export":
        return replace(spec, export=ExportSpec(**change.value))
    if part == "waivers":
        waivers = list(spec.waivers)
        number = int(rest.removesuffix(".ceiling"))
        waivers[number] = replace(waivers[number], ceiling=float(change.value))
        return replace(spec, waivers=tuple(waivers))
    if part == "suites":
        own = spec.suites or DEFAULT_SUITES
        return replace(spec, suites={**own, suite_name(own, change.value): suite_of(change.value)})
    if part == "dims":
        dims = {**spec.dims, rest: tuple(change.value)}
        return replace(spec, dims=dims, named_dims=spec.named_dims | {rest})
    if part == "inputs":
        name, key = of_input(change.key)
        return replace(spec, inputs={**spec.inputs, name: _given(spec, name, key, change.value)})
    raise ValueError(change.key)


def of_input(key: str) -> tuple[str, str]:
    """Return the input that a change's key is about, and which of its keys (empty: all of it).

    Two empty strings where it is about no input. A name may have points; what ends in a key is one.
    """
    part, _, rest = key.partition(".")
    name, _, last = rest.rpartition(".")
    if part != "inputs":
        return "", ""
    return (name, last) if name and last in ("range", "dtype") else (rest, "")


def _given(spec: ModelSpec, name: str, key: str, value: Any) -> InputSpec:
    if key == "range":
        low, high = value
        return replace(spec.inputs[name], range=(low, high))
    if key == "dtype":
        return replace(spec.inputs[name], dtype=value)
    if name in spec.inputs:
        raise ValueError(f"inputs.{name} is there already")
    bounds = tuple(value["range"]) if "range" in value else None
    return InputSpec(value["dtype"], tuple(value["shape"]), bounds)


def _with_engine(spec: ModelSpec, label: str, keys: Mapping[str, Any]) -> ModelSpec:
    runtimes = (replace(each, **keys) if each.label == label else each for each in spec.runtimes)
    return replace(spec, runtimes=tuple(runtimes))


def export_data(export: ExportSpec) -> dict[str, Any]:
    """Return what an export says as the manifest has it."""
    usual = ExportSpec()
    return {
        each.name: value
        for each in fields(export)
        if (value := getattr(export, each.name)) != getattr(usual, each.name)
    }


def tolerance_data(tolerance: Tolerance) -> dict[str, Any]:
    """Return what a tolerance says as the manifest has it."""
    usual = Tolerance()
    return {
        name: value for name, value in asdict(tolerance).items() if value != getattr(usual, name)
    }


def _tolerance(value: Mapping[str, Any]) -> Tolerance:
    given = dict(**value)
    if given.get("topk") is not None:
        given["topk"] = TopK(**given["topk"])
    return Tolerance(**given)


def suite_name(suites: Iterable[str], value: Mapping[str, Any]) -> str:
    """Return what a suite is called that is written where a model names its suites."""
    kind = next(iter(value))
    taken = set(suites)
    numbered = (f"{kind}-{n}" if n > 1 else str(kind) for n in count(1))
    return next(each for each in numbered if each not in taken)


def suite_of(value: Mapping[str, Any]) -> Suite:
    """Return what a suite means that is written where a model names its suites."""
    if "random" in value:
        return RandomSuite(value["random"], value.get("count", 2), value.get("seed", 0))
    return EdgesSuite(tuple(value["edges"]))


def written(text: str, path: Path, model: str, changes: Sequence[KeyChange]) -> str:
    """Return the text of a manifest with changes made to a model.

    Comments, order, the ends of lines and a mark of the byte order stay.

    Raises ``UserError`` with what to write by hand where the text cannot be changed, or where it
    would mean something else than the changes do.
    """
    before = load_bytes(text.encode(), path, on_disk=True)
    spec = next(spec for spec in before.models if spec.name == model)
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    windows = text.count("\r\n") == text.count("\n")
    new = text.removeprefix(mark).replace("\r\n", "\n") if windows else text.removeprefix(mark)
    try:
        for change in changes:
            new = _with(new, spec, change)
            spec = changed(spec, change)
        after = load_bytes(new.encode(), path, on_disk=True)
    except (_CannotBeWritten, ManifestError, yaml.YAMLError):
        after = None
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(f"{path}: not a change of a manifest: {quote(error, 200)}") from error
    meant = {**{each.name: each for each in before.models}, model: spec}
    if after is None or _without_lines(after.models) != _without_lines(meant.values()):
        by_hand = "; ".join(f"{change.key}: {flow(change.value)}" for change in changes)
        raise UserError(
            f"{path}: the entry of {model!r} is written so that it cannot be changed here (an anchor "
            f"or a merge that others share, or a comment inside a value); write by hand: {by_hand}"
        )
    return mark + (new.replace("\n", "\r\n") if windows else new)


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in WORDS:
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)


def flow(value: object, scalar: Callable[[Any], str] = _scalar) -> str:
    """Return plain data as YAML on one line; what is in no brackets as ``scalar`` has it."""
    if isinstance(value, Mapping):
        pairs = (f"{scalar(str(k))}: {flow(v, scalar)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(each, scalar) for each in value) + "]"
    return scalar(value)


class _CannotBeWritten(Exception):
    """The text has a form that nothing can be put into."""


def _without_lines(specs: Iterable[ModelSpec]) -> list[ModelSpec]:
    return [replace(spec, line=0) for spec in specs]


def _with(text: str, spec: ModelSpec, change: KeyChange) -> str:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    entry = _child(_child(root, "models"), spec.name)
    part, _, rest = change.key.partition(".")
    if not isinstance(entry, yaml.MappingNode):
        raise _CannotBeWritten
    there = _child(entry, part)
    if part == "tolerance":
        return _set(text, entry, part, change.value)
    if part == "outputs":
        return _with_output(text, entry, spec, rest, change.value)
    if part == "export":
        return _set(text, entry, part, change.value)
    if part == "runtimes":
        return _with_runtime(text, entry, spec, rest, "tolerance", change.value)
    if part == "engines":
        ((key, value),) = change.value.items()
        return _with_runtime(text, entry, spec, rest, key, value)
    if part == "waivers":
        number, _, key = rest.partition(".")
        return _set(text, _item(there, int(number)), key, change.value)
    if part == "suites":
        return _with_suite(text, entry, spec, change.value)
    if part == "dims":
        if there is None:
            return _set(text, entry, part, {rest: change.value})
        return _set(text, there, rest, change.value)
    name, key = of_input(change.key)
    if not key:
        return _set(text, there, name, change.value)
    given = _child(there, name)
    if isinstance(given, yaml.ScalarNode):
        own = spec.inputs[name]
        if key == "range":
            return _replaced(text, given, _input(own, change.value))
        shape = ", ".join(map(str, own.shape))
        return _replaced(text, given, flow(f"{change.value}[{shape}]"))
    return _set(text, given, key, change.value)


def _with_output(
    text: str, entry: yaml.MappingNode, spec: ModelSpec, name: str, value: object
) -> str:
    """Return the text with a tolerance for one output, whose mask stays."""
    there = _child(entry, "outputs")
    if name in spec.where:
        assert isinstance(value, Mapping)
        value = {**value, "where": spec.where[name]}
    if isinstance(there, yaml.MappingNode):
        return _set(text, there, name, value)
    others = spec.outputs or {}
    if there is None and any(each or other in spec.where for other, each in others.items()):
        raise _CannotBeWritten  # these are in the defaults
    return _set(text, entry, "outputs", {**dict.fromkeys(others), name: value})


def _with_runtime(
    text: str, entry: yaml.MappingNode, spec: ModelSpec, label: str, key: str, value: object
) -> str:
    """Return the text with a key of one runtime of the list."""
    there = _child(entry, "runtimes")
    number = [each.label for each in spec.runtimes].index(label)
    if there is None:
        listed = [
            {**_runtime_data(each), **({key: value} if each.label == label else {})}
            for each in spec.runtimes
        ]
        return _set(text, entry, "runtimes", listed)
    item = _item(there, number)
    if isinstance(item, yaml.ScalarNode):
        return _replaced(text, item, flow({"name": item.value, key: value}))
    return _set(text, item, key, value)


def _runtime_data(runtime: RuntimeSpec) -> dict[str, Any]:
    given = {each.name: getattr(runtime, each.name) for each in fields(runtime)}
    if given["tolerance"] is not None:
        given["tolerance"] = tolerance_data(given["tolerance"])
    return {key: value for key, value in given.items() if value not in (None, {})}


def _item(node: yaml.Node | None, number: int) -> yaml.Node:
    if not isinstance(node, yaml.SequenceNode):
        raise _CannotBeWritten
    item: yaml.Node = node.value[number]
    return item


def _with_suite(text: str, entry: yaml.MappingNode, spec: ModelSpec, value: object) -> str:
    there = _child(entry, "suites")
    if there is None:
        return _set(text, entry, "suites", [*(spec.suites or DEFAULT_SUITES), value])
    if not isinstance(there, yaml.SequenceNode) or not there.value:
        raise _CannotBeWritten
    last = there.value[-1]
    end = _end(last)
    if there.flow_style:
        return f"{text[:end]}, {flow(value)}{text[end:]}"
    return _line_after(text, end, f"{' ' * last.start_mark.column}", f"- {flow(value)}", dash=True)


def _set(text: str, mapping: yaml.Node | None, key: str, value: object) -> str:
    """Return the text with a key of a mapping set, new or not."""
    if not isinstance(mapping, yaml.MappingNode):
        raise _CannotBeWritten
    there = _child(mapping, key)
    if there is not None:
        return _replaced(text, there, flow(value))
    if not mapping.value:
        raise _CannotBeWritten
    end = _end(mapping.value[-1][1])
    pair = f"{flow(key)}: {flow(value)}"
    if mapping.flow_style:
        return f"{text[:end]}, {pair}{text[end:]}"
    return _line_after(text, end, " " * mapping.value[0][0].start_mark.column, pair)


def _replaced(text: str, node: yaml.Node, value: str) -> str:
    old = text[node.start_mark.index : _end(node)]
    if "#" in old or "&" in old or "*" in old:
        raise _CannotBeWritten
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        before = text[: node.start_mark.index].rstrip()
        if not before.endswith(":"):  # a comment between the key and its block
            raise _CannotBeWritten
        return f"{before} {value}{text[_end(node) :]}"
    if not old:  # nothing is behind the key's colon
        before = text[: node.start_mark.index].rstrip()
        return f"{before} {value}{text[node.start_mark.index :]}"
    return f"{text[: node.start_mark.index]}{value}{text[_end(node) :]}"


def _line_after(text: str, end: int, indent: str, line: str, *, dash: bool = False) -> str:
    """Return the text with a line below the one that ends a node; its comment stays with it."""
    rest = text.find("\n", end)
    at = len(text) if rest < 0 else rest
    indent = indent[:-2] if dash else indent
    return f"{text[:at]}\n{indent}{line}{text[at:]}"


def _end(node: yaml.Node) -> int:
    """Return where a node's last character is: a block's own mark is that of what comes next."""
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        raise _CannotBeWritten
    if not isinstance(node, yaml.CollectionNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(node, yaml.MappingNode) else last)


def _child(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        for each, value in node.value:
            if each.value == key:
                found: yaml.Node = value
                return found
    return None


def _input(spec: InputSpec, bounds: object) -> str:
    shape = ", ".join(map(str, spec.shape))
    return f"{{dtype: {spec.dtype}, shape: [{shape}], range: {flow(bounds)}}}"
