"""YAML text as plain data that remembers where everything stands.

Scalars are read by the YAML 1.2 core schema: ``1e-4`` is a number, ``off``, ``no`` and ``12:30``
are text, only ``true`` and ``false`` are booleans. Keys are always the text as written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from onnx_gate.manifest.problems import Keys, Mistake, TextPosition
from onnx_gate.pages import page
from onnx_gate.text import quote

MAX_DEPTH = 40
MAX_NODES = 100_000
MAX_DIGITS = 40

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_INT = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"[-+]?\.(inf|Inf|INF)")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_OLD_BOOLEANS = {"yes": True, "on": True, "no": False, "off": False}
_TEXT_TAGS = ("!", "tag:yaml.org,2002:str")
_STRUCTURE_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


class Unreadable(Exception):
    """Text from which no data can be had: where, and why."""

    def __init__(self, location: TextPosition, message: str) -> None:
        super().__init__(message)
        self.location = location
        self.message = message


@dataclass
class ManifestSource:
    """Plain data, and for each path in it the locations of the key and of the value.

    ``old_booleans`` has the paths of the unquoted words that are booleans in YAML 1.1 and text in
    YAML 1.2, with what they were in YAML 1.1.
    """

    data: Any = None
    keys: dict[Keys, TextPosition] = field(default_factory=dict)
    values: dict[Keys, TextPosition] = field(default_factory=dict)
    old_booleans: dict[Keys, bool] = field(default_factory=dict)
    mistakes: list[tuple[TextPosition, Mistake]] = field(default_factory=list)

    def known(self, path: Keys) -> Keys:
        """The longest part of a path that stands in the text."""
        while path not in self.values:
            path = path[:-1]
        return path

    def location(self, mistake: Mistake) -> TextPosition:
        """Where a mistake stands."""
        path = self.known(mistake.path)
        return self.keys.get(path, self.values[path]) if mistake.at_key else self.values[path]


@dataclass
class _Node:
    location: TextPosition
    plain: bool = False
    text: str | None = None
    items: list[_Node] | None = None
    pairs: list[tuple[_Node, _Node]] | None = None
    own_location: bool = True  # False: a block mapping or nothing, better shown at its key


def read(text: str) -> ManifestSource:
    """The data of one YAML document.

    Raises ``Unreadable`` where the text is not YAML, is empty, or is larger than the limits; lesser
    mistakes (duplicate keys, tags) are in the result.
    """
    bad = _UNPRINTABLE.search(text)
    if bad:
        line = text.count("\n", 0, bad.start()) + 1
        column = bad.start() - text.rfind("\n", 0, bad.start())
        raise Unreadable(
            TextPosition(line, column),
            f"the character U+{ord(bad.group()):04X} is not allowed in YAML; remove it",
        )
    source = ManifestSource()
    try:
        root = _Composer(yaml.parse(text, Loader=_LOADER), source).document()
    except yaml.MarkedYAMLError as error:
        raise _unreadable(error, text) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise Unreadable(TextPosition(1, 1), f"this is not YAML: {quote(error, 200)}") from None
    _Builder(source).build(root, (), 0)
    return source


def _location(mark: Any) -> TextPosition:
    return TextPosition(mark.line + 1, mark.column + 1)


def _unreadable(error: yaml.MarkedYAMLError, text: str) -> Unreadable:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return Unreadable(TextPosition(1, 1), f"this is not YAML: {error.problem}")
    lines = text.splitlines() or [""]
    if mark.line >= len(lines):
        begin = error.context_mark
        if begin is not None and begin.line < len(lines):
            location = _location(begin)
        else:
            location = TextPosition(len(lines), max(1, len(lines[-1])))
        what = "the file ends while something is open; close the bracket or the quote"
        return Unreadable(location, f"this is not YAML: {what}")
    line = lines[mark.line]
    message = f"this is not YAML: {error.problem}"
    if "\t" in line[: mark.column + 1]:
        message += "; indent with spaces, never with tabs"
    elif re.search(r"\{.*\b[a-z]+\d*\[", line):
        message += '; inside braces a shape needs quotes: {image: "float32[1, 3]"}'
    elif re.search(r"[:\-,\[{]\s*[*&@`%!]", line):
        message += "; a value that begins with a special character needs quotes"
    elif "mapping values" in str(error.problem):
        message += "; a value that contains ': ' needs quotes, a key stands on its own line"
    else:
        message += "; check the indentation, the brackets and the quotes near here"
    return Unreadable(_location(mark), message)


class _Composer:
    """Nodes from the parser's events; PyYAML's own composer has no limit on depth."""

    def __init__(self, events: Iterator[Any], source: ManifestSource) -> None:
        self._events = events
        self._source = source
        self._anchors: dict[str, _Node | None] = {}

    def document(self) -> _Node:
        root: _Node | None = None
        for event in self._events:
            if isinstance(event, yaml.StreamStartEvent | yaml.StreamEndEvent):
                continue
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise Unreadable(
                        _location(event.start_mark),
                        "a second document begins here; write one manifest a file, without '---'",
                    )
            elif not isinstance(event, yaml.DocumentEndEvent):
                root = self._node(event, 0)
        if root is None or (root.plain and not root.text):  # or has a mark of a document alone
            raise Unreadable(
                TextPosition(1, 1), f"the file is empty; write one: {page('manifest.md')}"
            )
        return root

    def _node(self, event: Any, depth: int) -> _Node:
        location = _location(event.start_mark)
        if depth > MAX_DEPTH:
            raise Unreadable(location, f"nested deeper than {MAX_DEPTH} levels; flatten it")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), location)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event, location)
        else:
            self._check_tag(event.tag, location, _STRUCTURE_TAGS)
            node = self._collection(event, location, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, anchor: str, location: TextPosition) -> _Node:
        if anchor not in self._anchors:
            raise Unreadable(
                location,
                f"no anchor &{anchor} before this alias; "
                "define it above, or quote a value that begins with '*'",
            )
        node = self._anchors[anchor]
        if node is None:
            raise Unreadable(location, f"the anchor &{anchor} contains itself; write it out")
        return node

    def _scalar(self, event: Any, location: TextPosition) -> _Node:
        self._check_tag(event.tag, location, _TEXT_TAGS)
        plain = event.style in (None, "") and event.implicit[0] and event.tag is None
        empty = plain and not event.value
        return _Node(location, plain=plain, text=event.value, own_location=not empty)

    def _collection(self, event: Any, location: TextPosition, depth: int) -> _Node:
        children: list[_Node] = []
        for child in self._events:
            if isinstance(child, yaml.SequenceEndEvent | yaml.MappingEndEvent):
                break
            children.append(self._node(child, depth + 1))
        if isinstance(event, yaml.SequenceStartEvent):
            return _Node(location, items=children)
        pairs = list(zip(children[::2], children[1::2], strict=True))
        return _Node(location, pairs=pairs, own_location=bool(event.flow_style))

    def _check_tag(self, tag: str | None, location: TextPosition, allowed: tuple[str, ...]) -> None:
        if tag is not None and tag not in allowed:
            shown = quote(tag.replace("tag:yaml.org,2002:", "!!"))
            message = f"the tag {shown} is not allowed; write plain values"
            self._source.mistakes.append((location, Mistake((), message)))


class _Builder:
    """Plain data from nodes, with aliases expanded as far as the limits allow."""

    def __init__(self, source: ManifestSource) -> None:
        self._source = source
        self._count = 0
        self._reported: set[tuple[TextPosition, str]] = set()

    def build(self, node: _Node, path: Keys, depth: int) -> None:
        self._source.data = self._value(node, path, depth)

    def _value(self, node: _Node, path: Keys, depth: int) -> Any:
        self._spend(node, depth)
        source = self._source
        source.values[path] = (
            node.location if node.own_location else source.keys.get(path, node.location)
        )
        if node.items is not None:
            return [
                self._value(item, (*path, index), depth + 1)
                for index, item in enumerate(node.items)
            ]
        if node.pairs is not None:
            return self._mapping(node, path, depth)
        if node.plain and node.text is not None and node.text.lower() in _OLD_BOOLEANS:
            source.old_booleans[path] = _OLD_BOOLEANS[node.text.lower()]
        return self._text_value(node, path)

    def _mapping(self, node: _Node, path: Keys, depth: int) -> dict[str, Any]:
        own, merged = self._pairs(node, path, depth)
        made: dict[str, Any] = {}
        for (key, value), is_own in [(pair, True) for pair in own] + [(p, False) for p in merged]:
            if key.text is None:
                self._mistake(key.location, path, "a key must be plain text; remove the brackets")
                continue
            here = (*path, key.text)
            if key.text in made:
                if is_own:
                    line = self._source.keys[here].line
                    what = f"the key {quote(key.text)} is already on line {line}; keep one of them"
                    self._mistake(key.location, path, what)
                continue
            if _SURROGATE.search(key.text):
                self._mistake(key.location, path, "a lone surrogate is not text; remove it")
                continue
            self._source.keys[here] = key.location
            made[key.text] = self._value(value, here, depth + 1)
        return made

    def _pairs(self, node: _Node, path: Keys, depth: int) -> tuple[list[Any], list[Any]]:
        """The pairs of a mapping: its own, and those that ``<<`` brings in."""
        own, merged = [], []
        for key, value in node.pairs or ():
            if not (key.plain and key.text == "<<"):
                own.append((key, value))
                continue
            for base in value.items if value.items is not None else [value]:
                self._spend(base, depth + 1)
                if base.pairs is None:
                    what = "only a mapping, or a list of mappings, can be merged with '<<'"
                    self._mistake(base.location, path, what)
                    continue
                for part in self._pairs(base, path, depth + 1):
                    merged += part
                    self._count += len(part)
        return own, merged

    def _text_value(self, node: _Node, path: Keys) -> Any:
        text = node.text or ""
        if not node.plain:
            if _SURROGATE.search(text):
                self._mistake(node.location, path, "a lone surrogate is not text; remove it")
                return "?"
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INT.fullmatch(text):
            if len(text) > MAX_DIGITS:
                what = f"a number of {len(text)} digits; at most {MAX_DIGITS} are read"
                raise Unreadable(node.location, what)
            base = {"0x": 16, "0o": 8}.get(text[:2], 10)
            return int(text, base)
        if _FLOAT.fullmatch(text):
            return float(text)
        if _INFINITY.fullmatch(text):
            return float(text.replace(".", "").lower())
        return text

    def _spend(self, node: _Node, depth: int) -> None:
        self._count += 1
        if depth > MAX_DEPTH:
            raise Unreadable(node.location, f"nested deeper than {MAX_DEPTH} levels; flatten it")
        if self._count > MAX_NODES:
            raise Unreadable(
                node.location,
                f"more than {MAX_NODES} values once the aliases are expanded; split the manifest",
            )

    def _mistake(self, location: TextPosition, path: Keys, message: str) -> None:
        if (location, message) not in self._reported:  # an alias brings the same mistake again
            self._reported.add((location, message))
            self._source.mistakes.append((location, Mistake(path, message)))
