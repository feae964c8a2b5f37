"""Weights as their owners have them: read without running anything that the files hold, and loaded."""

from __future__ import annotations

import contextlib
import pickle
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.manifest import WeightsSpec
from onnx_gate.manifest.paths import is_inside
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import first_line
from onnx_gate.text import did_you_mean, listed, quote
from onnx_gate.verify.checkpoint_files import main_file, shards
from onnx_gate.verify.hub_names import hub_names

# Where a state dict is looked for that no key names.
_USUAL = ("state_dict", "model_state_dict", "model")
# Levels of a checkpoint that are searched for a state dict that would fit.
_DEPTH = 3
_SHOWN = 5
_OTHER_SIZES = (
    "build the model with the checkpoint's sizes (args or kwargs in the manifest), or name the "
    "checkpoint of this one"
)
_MERGED = (
    ": they have the names of the Hub, as save_pretrained of transformers writes them, which renames and "
    "merges them as it loads"
)
_SAVE_OWN = (
    "write the weights as the module has them, with safetensors.torch.save_model(Model.from_pretrained("
    "folder), path), and name that file; or, but for verify: blocks, let 'model' name a function that "
    "returns from_pretrained(folder), and leave out weights"
)
_AGAIN = "fetch or write the file again: it is cut short, damaged, or no file of its format"
_REFUSED = re.compile(r"GLOBAL ([\w.]+)")
_TORCHSCRIPT = re.compile(r"TorchScript archive")

State = Mapping[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds, and the state dict in it that is to be loaded."""

    spec: WeightsSpec
    content: Any
    state: State


def load_weights(module: nn.Module, weights: WeightsSpec, workspace: Path) -> None:
    """Load a checkpoint strictly into ``module``.

    Raises ``GateError`` (OG205) that names the missing, unexpected and misshapen keys, and the
    ``key`` or ``strip`` with which they would fit.
    """
    stored = need_fit(module, read_checkpoint(weights, workspace))
    try:
        module.load_state_dict(stored, strict=False)
    except Exception as error:
        raise codes.OG205.error(
            f"the weights in {weights.file} do not fit the model: {type(error).__name__}: "
            f"{first_line(error)}"
        ) from error


def need_fit(module: nn.Module, checkpoint: Checkpoint) -> State:
    """Return what a checkpoint has for a module, by the module's names.

    Raises ``GateError`` (OG205) where it is another model's. Names and shapes only: neither needs values.
    """
    shown = checkpoint.spec.file
    try:
        own: State = module.state_dict()
    except Exception as error:
        raise codes.OG204.error(
            f"the weights in {shown} cannot be loaded: state_dict() raised "
            f"{type(error).__name__}: {first_line(error)}"
        ) from error
    stored, merged = _by_own_names(module, own, checkpoint.state)
    missing = sorted(own.keys() - stored.keys() - _shared_keys(module, stored))
    unexpected = sorted(
        key for key in stored.keys() - own.keys() if isinstance(stored[key], torch.Tensor)
    )
    shapes = [
        f"{key} is {tuple(stored[key].shape)}, the model has {size}"
        for key in sorted(own.keys() & stored.keys())
        if isinstance(stored[key], torch.Tensor)
        and (size := _shape_to_fill(own[key])) not in (None, tuple(stored[key].shape))
    ]
    problems = [
        *([f"missing {listed(missing, _SHOWN)}"] if missing else []),
        *([f"unexpected {listed(unexpected, _SHOWN)}"] if unexpected else []),
        *([f"another shape: {listed(shapes, _SHOWN)}"] if shapes else []),
    ]
    if problems:
        only_shapes = shapes and not missing and not unexpected
        raise codes.OG205.error(
            f"the weights in {shown} do not fit the model"
            + (f"{_MERGED if merged else ''}: {'; '.join(problems)}")
            + ("" if merged else _remedy(checkpoint, own.keys())),
            remedy=_SAVE_OWN if merged else _OTHER_SIZES if only_shapes else "",
        )
    return {name: value for name, value in stored.items() if name in own}


def _by_own_names(module: nn.Module, own: State, stored: State) -> tuple[State, bool]:
    """Return the state by a module's own names, and whether transformers merges some of it as it loads."""
    missing = own.keys() - stored.keys()
    hub = hub_names(module, stored.keys(), own.keys()) if missing else None
    if hub is None:
        return stored, False
    return {hub.own.get(name, name): value for name, value in stored.items()}, bool(hub.merged)


def read_checkpoint(
    weights: WeightsSpec, workspace: Path, read: Callable[[Path, str], Any] | None = None
) -> Checkpoint:
    """Read a checkpoint and find the state dict in it; raises ``GateError`` (OG205).

    ``read`` reads one file in another way, given what to call it.
    """
    path = main_file(workspace / weights.file)
    if not is_inside(workspace, path):
        raise codes.OG205.error(
            f"{weights.file} leads out of the manifest's folder, to {path.name}: keep it inside"
        )
    parts = shards(path, weights.file, workspace)
    content: Any = {}
    for file, named in parts.items():
        shown = weights.file if file == path else f"{weights.file} ({file.name})"
        part = (read or _read)(file, shown)
        content = (
            part if file == path else {**content, **_of_shard(part, file, named, parts, shown)}
        )
    found = content if weights.key is None else _under(content, weights.key, weights.file)
    if weights.key is None:
        for key in _USUAL:
            if isinstance(found, dict) and isinstance(found.get(key), dict):
                found = found[key]
    if not is_state(found):
        where = f"{weights.file} holds no state dict"
        if weights.key is not None:
            where = f"what {weights.file} has under {weights.key} is no state dict"
        raise codes.OG205.error(f"{where}, a mapping from names to tensors{_inner(content)}")
    return Checkpoint(weights, content, _stripped(found, weights))


def _of_shard(
    part: Any, file: Path, named: Collection[str], parts: Mapping[Path, Collection[str]], shown: str
) -> State:
    """Return what one shard has but for what the index has in another."""
    missing = sorted(set(named) - part.keys()) if isinstance(part, dict) else sorted(named)
    if missing:
        raise codes.OG205.error(
            f"the index has {listed(missing, _SHOWN)} in {file.name}, and {shown} does not",
            remedy="write the index and its shards together again, as save_pretrained does",
        )
    others = set().union(*parts.values()).difference(named)
    return {name: value for name, value in part.items() if name not in others}


def is_state(value: object) -> bool:
    """Return whether something is a mapping from names to tensors; numbers may be beside them."""
    return (
        isinstance(value, dict)
        and any(isinstance(each, torch.Tensor) for each in value.values())
        and not any(isinstance(each, dict) for each in value.values())
    ) or value == {}


def _under(content: Any, key: str, shown: str) -> Any:
    """Return what is under a dotted path; a name with dots in it is taken as one where it is there."""
    value, rest, passed = content, key, ""
    while rest:
        names = list(value) if isinstance(value, dict) else []
        step = next(
            (
                name
                for name in sorted(map(str, names), key=len, reverse=True)
                if rest == name or rest.startswith(f"{name}.")
            ),
            None,
        )
        if step is None:
            unknown = rest.partition(".")[0]
            inside = f" under {passed}" if passed else ""
            if not names:
                raise codes.OG205.error(
                    f"{shown} has no {key}: what it has{inside} is a {type(value).__name__}, which "
                    "has no keys"
                )
            raise codes.OG205.error(
                f"{shown} has no key {quote(unknown)}{inside}"
                f"{did_you_mean(unknown, map(str, names))} "
                f"(it has {listed(sorted(map(str, names)), _SHOWN)})"
            )
        value = next(each for name, each in value.items() if str(name) == step)
        passed = f"{passed}.{step}".strip(".")
        rest = rest[len(step) + 1 :]
    return value


def _stripped(stored: State, weights: WeightsSpec) -> State:
    """Return the entries whose keys begin with the prefix, without it."""
    prefix = weights.strip
    if prefix is None:
        return stored
    kept = {key[len(prefix) :]: value for key, value in stored.items() if key.startswith(prefix)}
    if not kept:
        heads = sorted({f"{key.partition('.')[0]}." for key in stored if "." in key})
        raise codes.OG205.error(
            f"no key in {weights.file} begins with {quote(prefix)}, which is to be stripped; they are "
            f"{listed(sorted(stored), _SHOWN)}{did_you_mean(prefix, heads) if heads else ''}"
        )
    return kept


def _states(content: Any, path: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, State]]:
    """Yield every state dict in a checkpoint, with the dotted path to it."""
    if is_state(content) and content:
        yield path, content
    elif isinstance(content, dict) and depth:
        for key, value in content.items():
            yield from _states(value, f"{path}.{key}".strip("."), depth - 1)


def _inner(content: Any) -> str:
    """Return what a checkpoint has instead of a state dict where one is looked for."""
    inner = [path for path, _ in _states(content) if path]
    if inner:
        return f"; name it with key: {' or key: '.join(inner[:_SHOWN])}"
    if isinstance(content, dict):
        return f"; its keys are {listed(sorted(map(str, content)), _SHOWN)}"
    return f"; it is a {type(content).__name__}"


_WRAPPERS = {"module.": "DataParallel", "_orig_mod.": "torch.compile"}


def _remedy(checkpoint: Checkpoint, own: Collection[str]) -> str:
    """Return with which ``key`` and ``strip`` the keys would fit, or what else would help."""
    weights = checkpoint.spec
    for path, stored in _states(checkpoint.content):
        prefix = "" if set(own) <= stored.keys() else _prefix(own, stored.keys())
        if not prefix and not set(own) <= stored.keys():
            continue
        usual = path if path != weights.key and path not in ("", *_USUAL) else weights.key
        asked = {"key": usual, "strip": prefix or None}
        if asked == {"key": weights.key, "strip": weights.strip}:
            continue
        given = ", ".join(f"{name}: {quote(text)}" for name, text in asked.items() if text)
        by = f" ({_WRAPPERS[prefix]} put it there)" if prefix in _WRAPPERS else ""
        begin = f"; the file's keys start with {prefix!r}{by}" if prefix else "; they would fit"
        return f"{begin}: write weights: {{file: {weights.file}{', ' if given else ''}{given}}}"
    prefix = _prefix(checkpoint.state.keys(), own)
    if prefix:
        return (
            f"; the model's keys start with {prefix!r}: name the part called "
            f"{prefix.rstrip('.')} in the manifest, or save the state of the whole model"
        )
    return ""


def _prefix(short: Collection[str], long: Collection[str]) -> str:
    """Return what has to stand before every key of ``short`` to make it one of ``long``."""
    name = min(short, default="")
    known = set(long)
    if name:
        for prefix in sorted({key.removesuffix(name) for key in long if key.endswith(name)}):
            if prefix and {prefix + each for each in short} <= known:
                return prefix
    return ""


def _shape_to_fill(value: Any) -> tuple[int, ...] | None:
    """Return the shape that stored weights must have; ``None`` where they decide it."""
    return state.shape(value) if isinstance(value, torch.Tensor) else None


def _shared_keys(module: nn.Module, stored: State) -> set[str]:
    """Return keys absent from the file whose tensor another, present key holds (tied weights)."""
    tensors = {**dict(module.named_parameters(remove_duplicate=False))}
    present = {id(tensor) for name, tensor in tensors.items() if name in stored}
    return {name for name, tensor in tensors.items() if id(tensor) in present}


def _read(path: Path, shown: str) -> Any:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(str(path))
        return torch.load(str(path), map_location="cpu", weights_only=True)
    except Exception as error:
        raise unreadable(path, shown, error) from error


def is_lfs_pointer(path: Path) -> bool:
    """Return whether Git LFS has left a note in the place of the file."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(40).startswith(b"version https://git-lfs")
    return False


def unreadable(path: Path, shown: str, error: Exception) -> GateError:
    """Return the error of a file that cannot be read: it says nothing of keys, which nobody has seen."""
    why, remedy = _unreadable(path, error)
    return codes.OG205.error(f"the weights in {shown} cannot be read: {why}", remedy=remedy)


def _unreadable(path: Path, error: Exception) -> tuple[str, str]:
    if is_lfs_pointer(path):
        return (
            "the file is a Git LFS pointer",
            "fetch it with git lfs pull (lfs: true of actions/checkout)",
        )
    if _TORCHSCRIPT.search(str(error)):
        return (
            "it is a program (torch.jit.save), not a state dict",
            "load it in the factory that 'model' names, with "
            f"torch.jit.load(Path(__file__).parent / {path.name!r})",
        )
    if isinstance(error, pickle.UnpicklingError):
        kinds = [
            name for name in _REFUSED.findall(str(error)) if not name.startswith("torch._utils")
        ]
        held = f"it holds a {kinds[0]}" if kinds else "it holds other objects than tensors"
        return (
            f"{held}, and only tensors and plain values are unpickled, because anything else can run "
            "code",
            "write it with torch.save(model.state_dict(), path)",
        )
    return first_line(error), _AGAIN
