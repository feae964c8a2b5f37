"""The text of a manifest: an entry for one model, alone or added to what is there; pure."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from onnx_gate.errors import UserError
from onnx_gate.init.facts import Guess, Learned
from onnx_gate.manifest import yaml_source
from onnx_gate.manifest.change import WORDS, flow

SCHEMA = "https://raw.githubusercontent.com/onnx-gate/onnx-gate/main/schema/onnx-gate.schema.json"
_PLAIN = re.compile(r"[A-Za-z_][\w./:-]*")
_LAYER = re.compile(r"(.+)\.\d+\.(key|value)")


def model_name(reference: str) -> str:
    """Return what to call a model: its class, or its file where that is only called ``build``."""
    place, _, attribute = reference.partition(":")
    last = attribute.rpartition(".")[2] or Path(place).stem
    if re.fullmatch(r"(build|create|make|get|load)(_?model)?|model|net|Model|Net", last):
        last = re.sub(r"\.py$", "", place).rpartition("/")[2].rpartition(".")[2]
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", last)
    return re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-").lower() or "model"


def entry(name: str, reference: str, learned: Learned) -> str:
    """Return the lines below ``models:`` for one model, indented by two."""
    lines = [f"  {_scalar(name)}:", f"    model: {_scalar(reference)}"]
    if learned.args:
        lines.append(f"    args: {flow(list(learned.args), _scalar)}")
    if learned.kwargs:
        lines.append(f"    kwargs: {flow(learned.kwargs, _scalar)}")
    lines.append("    inputs:")
    lines += [f"      {line}" for line in inputs(learned)]
    if learned.call:
        lines.append(f"    call: {flow(learned.call, _scalar)}")
    if learned.dims:
        lines.append(f"    dims: {flow(learned.dims, _scalar)}")
    if learned.recorded:
        lines.append(f"    suites: {flow(['typical', 'edges', f'{name}-calls'], _scalar)}")
    return "\n".join(lines) + "\n"


def suite(name: str, learned: Learned) -> str | None:
    """Return the lines below ``suites:`` for the recorded calls of a model, indented by two."""
    if not learned.recorded:
        return None
    files = learned.recorded[0] if len(learned.recorded) == 1 else list(learned.recorded)
    return f"  {_scalar(f'{name}-calls')}: {{files: {flow(files, _scalar)}}}\n"


def inputs(learned: Learned) -> list[str]:
    """Return a line for each input, and one for all layers of a cache."""
    lines: dict[str, str] = {}
    for name, guess in learned.inputs.items():
        layer = _LAYER.fullmatch(name)
        below = {n: g for n, g in learned.inputs.items() if layer and n.startswith(f"{layer[1]}.")}
        keys, values = (
            [g for n, g in below.items() if (kind := _LAYER.fullmatch(n)) and kind[2] == which]
            for which in ("key", "value")
        )
        if layer is None or not _are_layers(keys, values) or len(keys + values) < len(below):
            lines[name] = f"{name}: {shown(guess)}"
            continue
        dtype = "" if guess.dtype == "float32" else f", dtype: {guess.dtype}"
        layers = f"cache: dynamic, layers: {len(keys)}{dtype}, shape: {_shape(keys[0])}"
        if values[0].shape != keys[0].shape:
            layers += f", value_shape: {_shape(values[0])}"
        lines[layer[1]] = f"{layer[1]}: {{{layers}}}"
    return list(lines.values())


def _are_layers(keys: list[Guess], values: list[Guess]) -> bool:
    """Return whether all keys are alike and all values, and differ in their last size alone."""
    alike = all(len({(g.dtype, g.shape) for g in each}) == 1 for each in (keys, values))
    if not alike or len(keys) != len(values):
        return False
    return (keys[0].dtype, keys[0].shape[:-1]) == (values[0].dtype, values[0].shape[:-1])


def manifest(text: str, suite: str | None = None, requirements: str | None = None) -> str:
    """Return a new manifest with one entry."""
    needs = f"requirements: {_scalar(requirements)}\n" if requirements else ""
    suites = f"suites:\n{suite}" if suite else ""
    return f"# yaml-language-server: $schema={SCHEMA}\nversion: 1\n{needs}{suites}models:\n{text}"


def added(old: str, name: str, text: str, suite: str | None = None) -> str:
    """Return a manifest with an entry added below its models, and everything else as it stands.

    Raises ``UserError`` where the name is taken, or the file is written so that nothing can be
    added to it.
    """
    before = yaml_source.read(old)
    models = before.data.get("models") if isinstance(before.data, dict) else None
    if isinstance(models, dict) and name in models:
        line = before.keys["models", name].line
        raise UserError(
            f"the manifest has a model {name!r} on line {line}; choose another name with --name"
        )
    new, wanted, after = old, dict(before.data or {}), None
    with suppress(yaml_source.Unreadable):
        for section, lines in (("models", text), ("suites", suite)):
            if lines is not None:
                new = _inserted(new, section, lines)
                more = yaml_source.read(f"{section}:\n{lines}").data[section]
                wanted[section] = {**(wanted.get(section) or {}), **more}
        after = yaml_source.read(new).data
    if after != wanted:
        rest = f"\nsuites:\n{suite}" if suite else ""
        raise UserError(
            f"nothing can be added to the manifest as it is written; paste\nmodels:\n{text}{rest}"
        )
    return new


def _inserted(old: str, section: str, text: str) -> str:
    """Return a manifest with lines added at the end of a section, or with a new section."""
    before = yaml_source.read(old)
    entries = before.data.get(section)
    lines = old.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    if not isinstance(entries, dict) or not entries:
        return "".join([*lines, f"{section}:\n", text])
    column = before.keys[section, next(iter(entries))].column
    begin = before.keys[section,].line
    later = [at.line for path, at in before.keys.items() if len(path) == 1 and at.line > begin]
    end = min(later, default=len(lines) + 1) - 1
    while end > begin and _stands_before_what_follows(lines[end - 1], column):
        end -= 1
    indent = " " * (column - 1)
    block = [indent + line[2:] for line in text.splitlines(keepends=True)]
    return "".join([*lines[:end], *block, *lines[end:]])


def _stands_before_what_follows(line: str, column: int) -> bool:
    stripped = line.strip()
    indent = len(line) - len(line.lstrip())
    return not stripped or (stripped.startswith("#") and indent < column - 1)


def _shape(guess: Guess) -> str:
    return "[" + ", ".join(str(dim) for dim in guess.shape) + "]"


def shown(guess: Guess) -> str:
    """Return an input as a manifest has it."""
    shape = _shape(guess)
    if guess.range is None:
        return f"{guess.dtype}{shape}"
    low, high = (_scalar(bound) for bound in guess.range)
    return f"{{dtype: {guess.dtype}, shape: {shape}, range: [{low}, {high}]}}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and (
        (_PLAIN.fullmatch(value) and value.lower() not in WORDS and not value.endswith(":"))
        or re.fullmatch(r"\w+ [-+*] \w+", value)
    ):
        return value
    return json.dumps(value)
