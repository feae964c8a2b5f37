"""Rewrites of lines that exporters and runtimes are known to take wrongly: text in, text out; pure.

A rewrite is a guess at what the line means. Whether the model still answers as it did, and is green, is
tried afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import libcst as cst
import libcst.matchers as m
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from onnx_gate.remedy.patterns import PATTERNS, Pattern

# A file that is longer holds more than models, and takes longer to read than they do to verify.
_MOST_CHARACTERS = 400_000
_MARK = "\ufeff"
# Candidates of one file, at most: each is a trial.
_MOST = 12

_Places = Mapping[cst.CSTNode, CodeRange]


@dataclass(frozen=True)
class Rewrite:
    """A new text of a file; ``lines`` are those of the old one that it rewrites."""

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
