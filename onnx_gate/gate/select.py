"""Which models of a manifest a call is about, and in which runtimes."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from onnx_gate.errors import UserError
from onnx_gate.gate.shards import divisible, part
from onnx_gate.manifest import BUILT_IN_SUITES, ModelSpec, RuntimeSpec
from onnx_gate.manifest.lookup import registered
from onnx_gate.manifest.resolve import BUILT_IN_RUNTIMES
from onnx_gate.manifest.values.runtimes import runtime_of_label
from onnx_gate.report.model import Shard
from onnx_gate.report.model.check import REACHED
from onnx_gate.text import did_you_mean, quote


def select(
    models: Sequence[ModelSpec], patterns: Sequence[str], shard: Shard | None = None
) -> tuple[ModelSpec, ...]:
    """Return the models that match a glob, of these the part of ``shard``.

    One of which it has some blocks alone says so (``portion``). Raises ``UserError`` for a glob that
    matches none, and for more shards than models.
    """
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(model.name, pattern) for model in models):
            hint = did_you_mean(pattern, [model.name for model in models])
            raise UserError(f"no model of the manifest matches {quote(pattern)}{hint}")
    chosen = tuple(
        model
        for model in models
        if not patterns or any(fnmatch.fnmatchcase(model.name, p) for p in patterns)
    )
    if shard is None:
        return chosen
    units = part([model.name for model in chosen], shard, divisible(chosen))
    own = {unit.name: unit.portion for unit in units}
    return tuple(replace(m, portion=own[m.name]) for m in chosen if m.name in own)


def check_cases(models: Sequence[ModelSpec], patterns: Sequence[str]) -> None:
    """Raise ``UserError`` for the id of a case whose first part is no suite of any model.

    Which cases a suite has, a model may decide; which suites there are, it does not.
    """
    own = {name for model in models for name in (*model.suites, *model.given)}
    known = {*BUILT_IN_SUITES, REACHED, *own}
    for pattern in patterns:
        first = pattern.partition("/")[0]
        # A glob reaches beyond a slash.
        if first not in known and not set(first) & set("*?["):
            hint = did_you_mean(first, known)
            more = "onnx-gate list --cases prints every case"
            raise UserError(
                f"--case {quote(pattern)}: no suite is called {quote(first)}{hint}; {more}"
            )


def with_runtimes(models: Sequence[ModelSpec], names: Sequence[str]) -> tuple[ModelSpec, ...]:
    """Return the models with the runtimes of these names only (no names: as they are).

    Of an engine, or a label, that a model lists it keeps every entry, with its options; one that it
    does not list it gets as it is spelled. Raises ``UserError`` for a name that no engine has.
    """
    if not names:
        return tuple(models)
    known = registered("onnx_gate.runtimes") | set(BUILT_IN_RUNTIMES)
    asked = {name: _spelled(name) for name in names}
    for spec in asked.values():
        if spec.name not in known:
            raise UserError(
                f"no runtime is called {quote(spec.name)}{did_you_mean(spec.name, known)}"
            )
    return tuple(replace(model, runtimes=tuple(_entries(model, asked))) for model in models)


def _spelled(name: str) -> RuntimeSpec:
    try:
        return runtime_of_label(name)
    except ValueError as error:
        raise UserError(f"--runtime {error}") from None


def _entries(model: ModelSpec, asked: Mapping[str, RuntimeSpec]) -> Iterator[RuntimeSpec]:
    for name, spec in asked.items():
        listed = [each for each in model.runtimes if name in (each.name, each.label)]
        yield from listed or [spec]
