"""Runs in the user's own script, before it: notes the calls of one class of modules.

It is imported by Python itself, because its folder is on PYTHONPATH, and imports nothing of
onnx-gate, which need not be installed there. What to note is in ONNX_GATE_RECORD.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_PLAIN = (bool, int, float, str)
_MAX_CALLS = 1000


def _give_way() -> None:
    """Let the sitecustomize run that would have run without this one."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    this = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ImportError:
        if this is not None:
            sys.modules["sitecustomize"] = this


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Calls ``install`` when torch has been imported."""

    def __init__(self, install: Callable[[Any], None]) -> None:
        self._install = install

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._install(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class _Recorder:
    def __init__(self, wanted: dict[str, Any]) -> None:
        self._folder = wanted["folder"]
        self._qualname = wanted["qualname"]
        self._file = wanted["file"]
        self._made: dict[int, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._depth = 0
        self._calls = 0
        self._shapes: dict[tuple[str, ...], list[list[list[int]]]] = {}
        self._elements: dict[tuple[str, ...], int] = {}

    def install(self, torch: Any) -> None:
        module = torch.nn.Module
        called = module.__call__
        recorder = self

        @functools.wraps(called)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder._depth or not recorder._is_wanted(self):
                return called(self, *args, **kwargs)
            try:
                recorder._note(torch, self, args, kwargs)
            except Exception as error:
                recorder._write({"trouble": f"{type(error).__name__}: {error}"})
            recorder._depth += 1
            try:
                return called(self, *args, **kwargs)
            finally:
                recorder._depth -= 1

        def new(cls: type, *args: Any, **kwargs: Any) -> Any:
            made: Any = object.__new__(cls)
            if recorder._is_wanted(made):
                recorder._made[id(made)] = (args, kwargs)
            return made

        module.__call__ = call
        module.__new__ = new

    def _is_wanted(self, module: Any) -> bool:
        kind = type(module)
        if self._file is None:
            return bool(getattr(module, "original_name", kind.__qualname__) == self._qualname)
        code = getattr(kind.forward, "__code__", None)
        if code is None or kind.__qualname__ != self._qualname:
            return False
        return bool(os.path.realpath(code.co_filename) == self._file)

    def _note(self, torch: Any, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._calls += 1
        if self._calls > _MAX_CALLS:
            return
        row: dict[str, Any] = {"tensors": {}, "constants": {}, "others": {}}
        tensors = {}
        for name, value, default in self._leaves(torch, self._bound(module, args, kwargs)):
            if isinstance(value, torch.Tensor):
                row["tensors"][name] = self._described(torch, value)
                tensors[name] = value
            elif value is None or isinstance(value, _PLAIN):
                if value is not None and value is not default and value != default:
                    row["constants"][name] = value
            else:
                row["others"][name] = type(value).__name__
        row["file"] = self._kept(torch, tensors)
        made = self._made.get(id(module))
        if made is not None:
            row.update(_arguments(*made))
        self._write(row)

    def _leaves(self, torch: Any, values: Any) -> Iterator[tuple[str, Any, Any]]:
        """Yield what containers hold by dotted names, as a manifest has them."""
        for name, value, default in values:
            parts = _parts(torch, value)
            if parts is None:
                yield name, value, default
            else:
                below = ((f"{name}.{key}", part, None) for key, part in parts.items())
                yield from self._leaves(torch, below)

    def _bound(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[tuple[str, Any, Any]]:
        schema = getattr(getattr(module, "forward", None), "schema", None)
        if schema is not None:
            names = [each.name for each in schema.arguments[1:]]
            for name, value in [*zip(names, args), *kwargs.items()]:  # noqa: B905 - Python 3.9
                yield name, value, None
            return
        signature = inspect.signature(module.forward)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            parameter = signature.parameters[name]
            if parameter.kind is parameter.VAR_KEYWORD:
                for key, each in value.items():
                    yield key, each, None
            elif parameter.kind is parameter.VAR_POSITIONAL:
                for number, each in enumerate(value):
                    yield f"{name}_{number}", each, None
            else:
                yield name, value, parameter.default

    def _described(self, torch: Any, tensor: Any) -> dict[str, Any]:
        low = high = None
        values = tensor.detach()
        if values.numel() and values.dtype != torch.bool and not values.is_complex():
            if values.is_floating_point():
                values = values[torch.isfinite(values)].float()
            if values.numel():
                low, high = values.min().item(), values.max().item()
        dtype = str(tensor.dtype).replace("torch.", "")
        return {"dtype": dtype, "shape": list(tensor.shape), "low": low, "high": high}

    def _kept(self, torch: Any, tensors: dict[str, Any]) -> str | None:
        """Store the first call of its kind, and the largest of those that have other sizes."""
        kind = tuple(tensors)
        shapes = [list(tensor.shape) for tensor in tensors.values()]
        elements = sum(tensor.numel() for tensor in tensors.values())
        if not tensors:
            return None
        known = self._shapes.setdefault(kind, [])
        if not known:
            name = "first"
        elif len(known) == 1 or (shapes not in known and elements > self._elements[kind]):
            name, self._elements[kind] = "other", elements
        else:
            return None
        known.append(shapes)
        arrays = {key: tensor.detach().cpu().clone() for key, tensor in tensors.items()}
        path = os.path.join(self._folder, f"{name}-{os.getpid()}-{list(self._shapes).index(kind)}")
        if any(tensor.dtype == torch.bfloat16 for tensor in arrays.values()):
            torch.save(arrays, path + ".pt")
            return path + ".pt"
        import numpy

        numpy.savez(path + ".npz", **{key: tensor.numpy() for key, tensor in arrays.items()})
        return path + ".npz"

    def _write(self, row: dict[str, Any]) -> None:
        path = os.path.join(self._folder, f"calls-{os.getpid()}.jsonl")
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _parts(torch: Any, value: Any) -> dict[str, Any] | None:
    """Return what a container of tensors holds, null for everything else."""
    if isinstance(value, dict) and value:
        return {str(key): part for key, part in value.items()}
    if isinstance(value, (list, tuple)) and value and not _is_plain(value):
        return {str(number): part for number, part in enumerate(value)}
    layers = getattr(value, "layers", None)
    if isinstance(layers, list) and all(hasattr(each, "keys") for each in layers):
        pairs = [(each.keys, each.values) for each in layers]
        if all(isinstance(keys, torch.Tensor) for keys, _ in pairs):
            return {str(n): {"key": keys, "value": held} for n, (keys, held) in enumerate(pairs)}
    return None


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a module was made with: plain arguments, or the values of the one object among them."""
    if _is_plain([args, kwargs]):
        return {"args": list(args), "kwargs": kwargs}
    values = [*args, *kwargs.values()]
    if len(values) != 1:
        return {}
    different = getattr(values[0], "to_diff_dict", None)
    plain = different() if different is not None else getattr(values[0], "__dict__", {})
    return {"config": {k: v for k, v in plain.items() if _is_plain(v) and isinstance(k, str)}}


def _is_plain(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(each) for each in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    return value is None or isinstance(value, _PLAIN)


_give_way()
_wanted = os.environ.get("ONNX_GATE_RECORD")
if _wanted:
    sys.meta_path.insert(0, _AfterTorch(_Recorder(json.loads(_wanted)).install))
