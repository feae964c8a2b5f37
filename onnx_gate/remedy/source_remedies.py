"""Remedies in the source, from the texts of a model's files and the lines that were blamed; pure."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import libcst as cst
import libcst.matchers as m
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.change import KeyChange
from onnx_gate.remedy.candidate import Candidate
from onnx_gate.remedy.patterns import PATTERNS, STATE, Pattern
from onnx_gate.report.model import ModelResult

# The causes that a line of source may have.
_IN_THE_CODE = ("capture", "exporter", "kernel", "undecided")
# A file that is longer holds more than models, and takes longer to read than they do to verify.
_MOST_CHARACTERS = 400_000
_MARK = "\ufeff"
# Candidates of one file, at most: each is a trial.
_MOST = 12

_Places = Mapping[cst.CSTNode, CodeRange]


def blamed(spec: ModelSpec, result: ModelResult) -> dict[str, set[int]]:
    """Return the files that a model's failure may come from, each with the lines that are named.

    Paths are as they were found, relative to the manifest's folder; nothing where no source can help.
    """
    kind = result.error.kind if result.error is not None else None
    blame = result.diagnosis.blame if result.diagnosis is not None else None
    if spec.model is None or spec.onnx is not None:
        return {}
    in_code = kind in ("export", "runtime", "inspect") or blame in _IN_THE_CODE
    if not in_code and not states(result):
        return {}
    named = [(each.file, each.line) for each in result.findings if each.severity == "error"]
    for source in (
        result.diagnosis.source if result.diagnosis is not None else None,
        result.error.source if result.error is not None else None,
    ):
        named += [(source.file, source.line)] if source is not None else []
    found: dict[str, set[int]] = {}
    for file, line in named:
        if file is not None and line is not None and file.endswith(".py"):
            found.setdefault(file, set()).add(line)
    place = spec.model.partition(":")[0]
    if place.endswith(".py"):
        found.setdefault(place, set())
    return found


def states(result: ModelResult) -> tuple[KeyChange, ...]:
    """Return what the state that a model keeps is as its inputs, if that is what it is red for.

    In the order of their names, as in the rewrite.
    """
    error = result.error
    found = error.changes if error is not None and error.kind == "unverified" else ()
    return tuple(KeyChange(each.key, each.value) for each in sorted(found, key=lambda e: e.key))


def sources(
    spec: ModelSpec, result: ModelResult, texts: Mapping[str, str], lines: Mapping[str, set[int]]
) -> Iterator[Candidate]:
    """Yield the rewrites of the texts of files: those of lines that are blamed first, then the model's."""
    target = (spec.model or "").partition(":")[2].partition(".")[0]
    further = states(result)
    for name, text in texts.items():
        for each in rewrites(text, lines.get(name, ()), target):
            if (each.name == STATE) == bool(further):
                yield Candidate("source", further, {name: each.text}, each.name)


@dataclass(frozen=True)
class Rewrite:
    """A new text of a file; ``lines`` are those of the old one that it rewrites.

    It is a guess at what a line means that exporters and runtimes are known to take wrongly. Whether
    the model still answers as it did, and is green, is tried afterwards.
    """

    name: str
    text: str
    lines: tuple[int, ...]


def rewrites(text: str, lines: Collection[int] = (), target: str = "") -> Iterator[Rewrite]:
    """Yield what can be written otherwise in a file: at the ``lines`` that are blamed, then elsewhere.

    ``target`` is the class or function that the model is made by: what it does not come to is left
    alone. Each changes one line; where a pattern fits several lines of a class or function, there is
    one for all of these as well. What cannot be parsed, or is too long, has none.
    """
    read = _read(text)
    if read is None:
        return
    tree, places, fitting = read
    used = _used(tree, target)
    scopes = [(places[each].start.line, places[each].end.line, each in used) for each in tree.body]
    found: list[tuple[bool, Rewrite]] = []
    for name, pattern in PATTERNS.items():
        for first, last, is_used in scopes:
            within = sorted(line for line in fitting[name] if first <= line <= last)
            sets = [*([line] for line in within), *([within] if len(within) > 1 else [])]
            for each in sets:
                elsewhere = set(lines).isdisjoint(each)
                if elsewhere and not is_used:
                    continue
                made = _applied(tree, places, name, pattern, each)
                if made is not None:
                    found.append((elsewhere, made))
    found.sort(key=lambda each: each[0])
    mark = _MARK if text.startswith(_MARK) else ""  # which the parser leaves out
    yield from [replace(made, text=mark + made.text) for _, made in found[:_MOST]]


@functools.lru_cache(maxsize=16)  # several models of a manifest are often in one file
def _read(text: str) -> tuple[cst.Module, _Places, Mapping[str, Collection[int]]] | None:
    """Return a file, where its nodes are, and the lines that each pattern fits."""
    if len(text) > _MOST_CHARACTERS:
        return None
    try:
        wrapper = MetadataWrapper(cst.parse_module(text))
    except (cst.ParserSyntaxError, RecursionError):
        return None
    tree, places = wrapper.module, wrapper.resolve(PositionProvider)
    fitting: dict[str, Collection[int]] = {}
    for name, pattern in PATTERNS.items():
        transformer = _Transformer(pattern, places, None)
        with suppress(Exception):  # what goes wrong in one place may be right in others
            tree.visit(transformer)
        fitting[name] = transformer.lines
    return tree, places, fitting


def _used(tree: cst.Module, target: str) -> Collection[cst.CSTNode]:
    """Return the classes and functions that one of them comes to by names: all where it is not there."""
    named = {
        each.name.value: each
        for each in tree.body
        if isinstance(each, cst.ClassDef | cst.FunctionDef)
    }
    if target not in named:
        return tree.body
    found, waiting = {target}, [target]
    while waiting:
        names = {
            cst.ensure_type(n, cst.Name).value for n in m.findall(named[waiting.pop()], m.Name())
        }
        waiting += sorted((names & named.keys()) - found)
        found |= names & named.keys()
    return [named[name] for name in found]


def _applied(
    tree: cst.Module, places: _Places, name: str, pattern: Pattern, lines: Sequence[int]
) -> Rewrite | None:
    transformer = _Transformer(pattern, places, lines)
    try:
        new = tree.visit(transformer)
        if new.code == tree.code:
            return None
        if transformer.torch and not _imports_torch(tree):
            new = _with_import(new)
        compile(new.code, "rewritten", "exec")
    except Exception:  # a pattern that fits where its result does not is no remedy
        return None
    return Rewrite(name, new.code, tuple(lines))


class _Transformer(cst.CSTTransformer):
    """Puts a pattern's result in the place of each node that it fits, or of those of some lines."""

    def __init__(self, pattern: Pattern, places: _Places, only: Collection[int] | None) -> None:
        super().__init__()
        self._pattern, self._places, self._only = pattern, places, only
        self.lines: set[int] = set()
        self.torch = False

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        result = self._pattern(updated_node)
        if result is None:
            return super().on_leave(original_node, updated_node)
        line = self._places[original_node].start.line
        if self._only is not None and line not in self._only:
            return updated_node
        self.lines.add(line)
        parts = result if isinstance(result, cst.FlattenSentinel) else [result]
        self.torch |= any(m.findall(part, m.Name("torch")) for part in parts)
        return result


def _imports_torch(tree: cst.Module) -> bool:
    plain = m.ImportAlias(name=m.Name("torch"), asname=None)
    return bool(m.findall(tree, m.Import(names=[m.ZeroOrMore(), plain, m.ZeroOrMore()])))


def _with_import(tree: cst.Module) -> cst.Module:
    """Return a file that imports torch, before the first import but that of what is to come."""
    line = cst.parse_statement("import torch\n")
    future = m.SimpleStatementLine([m.ImportFrom(module=m.Name("__future__"))])
    some = m.SimpleStatementLine([m.Import() | m.ImportFrom()])
    body = list(tree.body)
    place = next(
        (n for n, each in enumerate(body) if m.matches(each, some) and not m.matches(each, future)),
        len(body),
    )
    if place < len(body) and isinstance(first := body[place], cst.SimpleStatementLine):
        line = line.with_changes(leading_lines=first.leading_lines)
        body[place] = first.with_changes(leading_lines=())
    return tree.with_changes(body=[*body[:place], line, *body[place:]])
