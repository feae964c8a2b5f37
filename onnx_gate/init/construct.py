"""How a target becomes a module: as it is, with guessed arguments, or from a config object."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from onnx_gate.init.facts import Note

# Small enough to verify in seconds; what a config calls otherwise stays as it is.
_SMALL: Mapping[str, int] = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "d_model": 64,
    "intermediate_size": 128,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "d_ff": 128,
    "d_kv": 16,
    "num_attention_heads": 4,
    "num_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "embedding_size": 64,
}
_SHALLOW: Mapping[str, int] = {
    "num_hidden_layers": 2,
    "num_layers": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_decoder_layers": 2,
}
_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
# What a config says of the file that it was read from.
_OF_FILES = ("transformers_version", "architectures", "model_type", "_name_or_path", "dtype")
# What an argument of a constructor is called, and what it may be.
_ARGUMENTS: tuple[tuple[str, Any], ...] = (
    (r".*class(es)?|horizon|n_?out(puts?)?|out(put)?_(dim|size|features|channels)", 10),
    (r"device", "cpu"),
    (r"in(put)?_channels?|channels?|in_chans?", 3),
    (r".*vocab.*|num_(tokens|embeddings|users|items)|n_(users|items)|.*cardinality", 1000),
    (r".*(layers?|depth|blocks?|stages?)", 2),
    (r".*heads?", 4),
    (r".*(dropout|drop_rate|drop_prob)|p", 0.0),
    (r".*(max_len|length|positions|context|block_size).*", 128),
    (r".*(dim|size|features|hidden|width|d_model|embed|units|input).*", 64),
)


class NoModel(Exception):
    """A target that gives no module: what it is instead, or what it lacks."""


@dataclass(frozen=True)
class Construction:
    """One way to build a target; ``factory`` is the source of a file with ``build``."""

    module: nn.Module
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    factory: str | None = None
    notes: tuple[Note, ...] = ()
    is_target: bool = False  # the target is the module itself, and not what makes it


def constructions(
    target: Any,
    reference: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    recorded: Mapping[str, Any] | None = None,
) -> Iterator[Construction]:
    """Yield the ways to build a target that work, the best first.

    ``recorded`` are the values of the config object that it was seen to be made from. Raises
    ``NoModel``, or what the target itself raises, where no way works.
    """
    if isinstance(target, nn.Module):
        yield from _exportable(Construction(target, is_target=True), reference)
        return
    if not callable(target):
        raise NoModel(
            f"this is a {type(target).__name__}; name an nn.Module, a class or a function that "
            "returns one"
        )
    missing = _missing(target, args, kwargs)
    config = _config_class(target, missing)
    if config is None:
        guessed = _arguments(missing)
        unknown = [each.name for each in missing if each.name not in guessed]
        if unknown:
            raise NoModel(
                f"it is called with {', '.join(unknown)}, of which nothing is known: "
                + " ".join(f"--arg {name}=VALUE" for name in unknown)
                + ", or name a function without arguments that builds the model"
            )
        given = {**kwargs, **guessed}
        module = _checked(target(*args, **given))
        notes = tuple(
            Note("guessed", f"{name}={value!r} of {reference}, by its name")
            for name, value in guessed.items()
        )
        yield from _exportable(Construction(module, given, None, notes), reference)
        return
    yield from _configured(target, config, reference, recorded)


def _checked(module: Any) -> nn.Module:
    if isinstance(module, nn.Module):
        return module
    raise NoModel(
        f"it returned a {type(module).__name__}, not an nn.Module; name a function that returns "
        "the model alone"
    )


def _missing(
    target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[inspect.Parameter]:
    """Return the parameters that a target cannot be called without."""
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        each
        for each in parameters[len(args) :]
        if each.default is each.empty and each.kind not in kinds and each.name not in kwargs
    ]


def _arguments(missing: list[inspect.Parameter]) -> dict[str, Any]:
    """Return the arguments that can be guessed by their names."""
    guessed: dict[str, Any] = {}
    for each in missing:
        value = next((v for pattern, v in _ARGUMENTS if re.fullmatch(pattern, each.name)), None)
        kind = getattr(each.annotation, "__name__", str(each.annotation)).lower()
        if value is not None and kind not in ("str", "bool"):
            several = re.search(r"\b(list|tuple|sequence|iterable)\b", kind)
            guessed[each.name] = [value, value] if several else value
    return guessed


def _config_class(target: Any, missing: list[inspect.Parameter]) -> type | None:
    """Return the class of the one object that a target is made from, where it can be made."""
    if len(missing) != 1 or not inspect.isclass(target):
        return None
    declared = getattr(target, "config_class", None)
    parameter = missing[0]
    annotation = None if parameter.annotation is parameter.empty else parameter.annotation
    home = importlib.import_module(target.__module__)
    if isinstance(annotation, str):
        annotation = getattr(home, annotation, None)
    candidates: list[Any] = [declared, annotation]
    if re.fullmatch(r"config|cfg|conf|args|hparams|params|options", parameter.name):
        candidates += [v for k, v in vars(home).items() if k.lower().endswith("config")]
    for each in candidates:
        if not inspect.isclass(each) or each.__module__ in ("builtins", "typing"):
            continue
        needed = _missing(each, (), {})
        if not issubclass(each, torch.Tensor) and len(_arguments(needed)) == len(needed):
            return each
    return None


def _configured(
    target: type, config: type, reference: str, recorded: Mapping[str, Any] | None
) -> Iterator[Construction]:
    failure: Exception | None = None
    reductions = _reductions(config) if recorded is None else [_keywords_of(config, recorded)]
    for values in reductions:
        try:
            module = _checked(target(config(**values)))
        except Exception as error:
            failure = error
            continue
        source = _factory(target, config, reference, values)
        small = f" with {_keywords(values)}" if values else ""
        if recorded is None:
            how = f"{target.__name__} is built from {config.__name__}(){small}, with random weights"
            note = Note("guessed", f"{how}: change build() if yours is another")
        else:
            note = Note(
                "learned", f"{target.__name__} is built from a {config.__name__} as recorded"
            )
        yield from _exportable(Construction(module, {}, source, (note,)), reference)
    if failure is not None:
        raise failure


def _keywords_of(config: type, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of an object's values that make another like it."""
    kept = {name: value for name, value in recorded.items() if name not in _OF_FILES}
    parameters = inspect.signature(config).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return kept
    return {k: v for k, v in kept.items() if k in parameters and v != parameters[k].default}


def _reductions(config: type) -> Iterator[dict[str, Any]]:
    """Yield keywords that make a config small, and fewer of them where it objects."""
    needed = _arguments(_missing(config, (), {}))
    defaults = config(**needed)
    shallow = {**needed, **_lower(defaults, _SHALLOW)}
    small = {**shallow, **_lower(defaults, _SMALL)}
    if small.get("vocab_size"):
        for token in _TOKENS:
            value = getattr(defaults, token, None)
            if isinstance(value, int) and value >= small["vocab_size"]:
                small[token] = 0 if token == "pad_token_id" else 1
    seen: list[dict[str, Any]] = []
    for each in (small, shallow, needed):
        if each not in seen:
            seen.append(each)
            yield each


def _lower(config: Any, limits: Mapping[str, int]) -> dict[str, Any]:
    names = getattr(type(config), "attribute_map", {})
    own = getattr(config, "to_dict", lambda: vars(config))()
    # A count of stages goes with lists that have an entry for each of them.
    stages = {len(value) for value in own.values() if isinstance(value, list | tuple)}
    lowered: dict[str, Any] = {}
    for name, limit in limits.items():
        value = getattr(config, name, None)
        written = names.get(name, name)
        if (
            isinstance(value, int)
            and not isinstance(value, bool)
            and value > limit
            and written in own
            and value not in stages
        ):
            lowered[written] = limit
    return lowered


def _keywords(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _import(reference: str, *names: str) -> list[str]:
    """The lines that import what a target's file or package has."""
    place = reference.partition(":")[0]
    module = ".".join(Path(place).with_suffix("").parts) if place.endswith(".py") else place
    return [f"from {module} import {', '.join(sorted(names))}"]


def _factory(target: type, config: type, reference: str, values: Mapping[str, Any]) -> str:
    name = reference.partition(":")[2]
    lines = [
        f'"""Builds {name} for onnx-gate; made by `onnx-gate init`, and yours to change."""',
        "",
    ]
    where = reference.partition(":")[0]
    home = importlib.import_module(where) if not where.endswith(".py") else None
    if home is not None and not hasattr(home, config.__name__):
        lines += [f"from {config.__module__} import {config.__name__}"]
        lines += _import(reference, name)
    else:
        lines += _import(reference, config.__name__, name)
    arguments = "".join(f"\n        {k}={v!r}," for k, v in values.items())
    made = f"{config.__name__}({arguments}\n    )" if values else f"{config.__name__}()"
    lines += ["", "", f"def build() -> {name}:", f"    config = {made}"]
    if hasattr(target, "from_pretrained"):
        lines += [f'    # The real one: return {name}.from_pretrained("...").eval()']
    lines += [f"    return {name}(config).eval()", ""]
    return "\n".join(lines)


def _exportable(made: Construction, reference: str) -> Iterator[Construction]:
    """Yield a construction with the library's own switch for export set, where it has one."""
    switches = [
        name for name, part in made.module.named_modules() if getattr(part, "export", None) is False
    ]
    if not switches or made.factory is not None:
        yield made
        return
    for name in switches:
        made.module.get_submodule(name).export = True  # type: ignore[assignment]
    target = reference.partition(":")[2]
    built = target if made.is_target else f"{target}({_keywords(made.kwargs)})"
    lines = [
        f'"""Builds {target} for onnx-gate; made by `onnx-gate init`, and yours to change."""',
        "",
        *_import(reference, target.partition(".")[0]),
        "",
        "",
        "def build():",
        f"    model = {built}",
        "    for part in model.modules():",
        '        if getattr(part, "export", None) is False:',
        "            part.export = True  # what the library sets before it exports",
        "    return model.eval()",
        "",
    ]
    shown = ", ".join(switches[:3])
    note = Note("learned", f"{shown} has a switch `export`: build() sets it, as its library does")
    yield Construction(made.module, {}, "\n".join(lines), (*made.notes, note))
