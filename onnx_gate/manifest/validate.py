"""Plain data against the types of the manifest, each mistake a sentence a person would write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from onnx_gate.manifest.problems import Keys, Mistake, describe, missing
from onnx_gate.manifest.schema import ABSENT, ManifestFile
from onnx_gate.manifest.values.base import keys_of
from onnx_gate.manifest.values.exports import BESIDE_OPTIONS, ExportOptions
from onnx_gate.manifest.values.inputs import CacheEntry, InputSpec
from onnx_gate.manifest.values.suites import BUILT_IN_KINDS
from onnx_gate.manifest.yaml_source import ManifestSource
from onnx_gate.pages import page
from onnx_gate.text import did_you_mean, nearest, quote

MAX_MISTAKES = 100

_EXPECTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
}
_LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("greater than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}
# A mapping is read as one kind of entry by the key that tells it, which may be misspelled.
_ALSO: Mapping[type, type] = {InputSpec: CacheEntry}
_OPTIONS = ("options", "provider_options", "session_options")


@dataclass(frozen=True)
class Checked:
    """What could be read: ``file`` lacks everything at or below the ``damaged`` paths."""

    file: ManifestFile | None
    damaged: frozenset[Keys]
    mistakes: tuple[Mistake, ...]


_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def validate(source: ManifestSource) -> Checked:
    """The manifest as written, and every mistake in it.

    What is wrong is cut out and the rest read again, so that mistakes of meaning in the rest are
    found in the same run.
    """
    data = source.data
    mistakes = _old_booleans(source)
    damaged: set[Keys] = set()
    if not isinstance(data, dict):
        what = f"expected a mapping with 'version' and 'models', found {describe(data)}"
        return Checked(None, frozenset(), (Mistake((), f"{what}; see {page('manifest.md')}"),))
    while () not in damaged:
        read_as: dict[int, type] = {}
        try:
            file = ManifestFile.model_validate(data, context=read_as)
        except ValidationError as error:
            every = error.errors(include_url=False)
            details = [each for each in every if not _echo(each)] or every
        else:
            return Checked(file, frozenset(damaged), tuple(mistakes))
        if not damaged:
            mistakes += _mistakes(details, source, read_as)
        cuts = {_cut(source, detail) for detail in details}
        if cuts <= damaged:
            # Nothing more can be cut out, and what is left cannot be read.
            break
        damaged |= cuts
        data = {**_without(data, cuts), "version": 1}
    return Checked(None, frozenset(damaged), tuple(mistakes))


def _echo(detail: ErrorDetails) -> bool:
    """Whether a list is called too short only because its entries are wrong, which is reported."""
    return detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]


def _mistakes(
    details: list[ErrorDetails], source: ManifestSource, read_as: Mapping[int, type]
) -> list[Mistake]:
    unknown = [each["loc"] for each in details if each["type"] in _UNKNOWN]

    def mistyped(detail: ErrorDetails) -> bool:
        """Whether a missing key is there, under a name that is nearly its own."""
        beside = (loc[-1] for loc in unknown if loc[:-1] == detail["loc"][:-1])
        wanted = [str(detail["loc"][-1])]
        absent = detail["type"] == "missing" or detail["input"] is ABSENT
        return absent and any(nearest(str(key), wanted) for key in beside)

    told = [detail for detail in details if not mistyped(detail)]
    ordered = sorted(told, key=lambda detail: source.location(Mistake(detail["loc"], "")))
    return [_mistake(detail, source, read_as) for detail in ordered[: MAX_MISTAKES + 1]]


def _mistake(detail: ErrorDetails, source: ManifestSource, read_as: Mapping[int, type]) -> Mistake:
    loc = detail["loc"]
    kind = detail["type"]
    known = source.known(loc)
    if kind == "missing":
        return Mistake(known, missing(str(loc[-1])))
    if kind in _UNKNOWN:
        entry = read_as.get(id(_at(source.data, loc[:-1])))
        return Mistake(loc, _unknown_key(loc, entry), at_key=True)
    return Mistake(known, sentence(detail), at_key=loc != known and loc[-1] == "[key]")


def _unknown_key(loc: Keys, entry: type | None) -> str:
    key = str(loc[-1])
    if loc == ("defaults", key) and key in ("model", "reference", "inputs", "weights", "onnx"):
        return f"{quote(key)} belongs to each model; move it there"
    if entry is ExportOptions and key in BESIDE_OPTIONS:
        return f"{quote(key)} is no option here: {BESIDE_OPTIONS[key]}"
    kinds = (entry, _ALSO.get(entry)) if entry else ()
    known = [key for kind in kinds if kind for key in keys_of(kind)]
    if key in BUILT_IN_KINDS and len(loc) == 3:
        return f"{quote(key)} is another kind of suite; write two suites"
    return f"unknown key {quote(key)}{did_you_mean(key, known)}"


def sentence(detail: ErrorDetails) -> str:
    """What is wrong with a value, for one error of pydantic's."""
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "manifest":
        return str(context["message"])
    if kind in _EXPECTED:
        what = f"expected {_EXPECTED[kind]}, found {describe(value)}"
        return what + _remedy(_EXPECTED[kind], value)
    if kind in _LIMITS:
        words, key = _LIMITS[kind]
        return f"must be {words} {context[key]:g}, found {describe(value)}"
    if kind == "finite_number":
        return f"must be a finite number, found {describe(value)}"
    if kind == "literal_error":
        allowed = [
            each.strip("'") for each in context["expected"].replace(" or ", ", ").split(", ")
        ]
        if isinstance(value, str):
            return f"unknown value {quote(value)}{did_you_mean(value, allowed)}"
        return f"expected {context['expected']}, found {describe(value)}"
    if kind == "too_short":
        least = context["min_length"]
        count = "one entry" if least == 1 else f"{least} entries"
        return f"at least {count} needed, found {context['actual_length']}; add what is missing"
    if kind == "too_long":
        return f"at most {context['max_length']} entries work; remove some"
    return detail["msg"]


def _remedy(expected: str, value: Any) -> str:
    if expected == "a list" and isinstance(value, str | int | float):
        plain = str(value).isidentifier() or not isinstance(value, str)
        return f"; write [{value}]" if plain else "; write it in brackets"
    if expected in ("an integer", "a number") and isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return ""
        return "; remove the quotes"
    return ""


def _old_booleans(source: ManifestSource) -> list[Mistake]:
    """Words whose meaning depends on the version of YAML, where nothing else decides it."""
    return [
        Mistake(
            path,
            f"an unquoted word that is {str(meaning).lower()} in YAML 1.1 and text in YAML 1.2; "
            f"write {str(meaning).lower()}, or put it in quotes",
        )
        for path, meaning in source.old_booleans.items()
        if _is_free(path)
    ]


def _is_free(path: Keys) -> bool:
    """Whether a value is handed on as it is: to the user's code or to an engine."""
    setting = path[1:] if path[:1] == ("defaults",) else path[2:]
    if setting[:1] == ("runtimes",):
        return len(setting) > 3 and setting[2] in _OPTIONS
    return len(setting) > 1 and setting[0] in ("args", "kwargs", "call")


def _cut(source: ManifestSource, detail: ErrorDetails) -> Keys:
    """The smallest part to leave out: a whole entry of a mapping, as a list would renumber."""
    loc = detail["loc"]
    path = source.known(loc[:-1] if detail["type"] == "missing" else loc)
    while path and isinstance(path[-1], int):
        path = path[:-1]
    return path


def _without(data: Any, cuts: set[Keys], path: Keys = ()) -> Any:
    if isinstance(data, dict):
        return {
            key: _without(value, cuts, (*path, key))
            for key, value in data.items()
            if (*path, key) not in cuts
        }
    if isinstance(data, list):
        return [_without(value, cuts, (*path, index)) for index, value in enumerate(data)]
    return data


def _at(data: Any, path: Keys) -> Any:
    for key in path:
        data = data[key]
    return data
