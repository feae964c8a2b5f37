"""From Python: ``check_parity`` and ``assert_parity``, the same as one model of a manifest.

What a manifest would say is made of the arguments and read by the manifest's own reader, so that
every key means what it means there. The model is verified in a fork of this process, which has the
object: nothing is pickled, and whatever an export or a runtime does to the model, it does to a copy.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onnx_gate.errors import UserError
from onnx_gate.gate.history import History
from onnx_gate.gate.options import Options
from onnx_gate.gate.progress import ProgressDisplay
from onnx_gate.gate.run import run
from onnx_gate.gate.tasks import PRELOAD
from onnx_gate.manifest import GeneratorSuite, Manifest, ManifestError
from onnx_gate.manifest.load import load_bytes
from onnx_gate.objects import Names, named
from onnx_gate.parity import ParityError, ParityReport
from onnx_gate.report.layout import slug
from onnx_gate.report.model import ManifestInfo
from onnx_gate.text import did_you_mean, quote
from onnx_gate.workers.launch import Launch

__all__ = ["ParityError", "UserError", "assert_parity", "check_parity"]

GIVEN = "given"
"""The suite that has the tensors of the call."""

Model = torch.nn.Module | Callable[..., torch.nn.Module] | str
Inputs = Mapping[str, object] | Sequence[torch.Tensor] | torch.Tensor


def assert_parity(model: Model, inputs: Inputs, **options: Any) -> ParityReport:
    """Do as ``check_parity`` does; raise ``ParityError``, with the diagnosis, unless it passes."""
    __tracebackhide__ = True
    report = check_parity(model, inputs, **options)
    if report.verdict != "pass":
        raise ParityError(report)
    return report


def check_parity(
    model: Model,
    inputs: Inputs,
    *,
    dynamic: Mapping[str, Mapping[int, object]] | None = None,
    name: str | None = None,
    onnx: str | Path | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    suites: Sequence[object] | None = None,
    output: str | Path | None = None,
    **keys: object,
) -> ParityReport:
    """Export a model, run it in PyTorch and in ONNX Runtime on the same inputs, and compare.

    ``model`` is a module, a class or function that returns one, or ``file.py:attribute``. ``inputs``
    are its arguments, by name or in the order of ``forward``: tensors, which are tried as they are
    and say dtype and shape, or what a manifest would say (``"float32[batch, 3, 224, 224]"``).
    ``dynamic`` names the dimensions that vary, ``{"image": {0: "batch"}}``. At several sizes of these,
    the random and edge values of the default suites are tried besides; integers between the least
    and the largest of the tensor.

    ``onnx`` is a file to verify as it is, without an export. ``atol`` and ``rtol`` are short for
    ``tolerance={"atol": ..., "rtol": ...}``. ``suites`` are what is tried beside the tensors: names,
    and functions ``(inputs, seed)`` that yield cases. Every further argument is a key of a model in
    the manifest (``tolerance``, ``runtimes``, ``outputs``, ``dims``, ``export``, ``call``, ...); where
    a manifest names a function, it can be the function itself.

    Logs and reproductions go to the folder ``output``; without one to a temporary folder, which is
    kept unless the verdict is ``pass``. Raises ``UserError`` for arguments that make no sense.
    """
    if atol is not None or rtol is not None:
        if "tolerance" in keys:
            raise UserError(
                "atol and rtol are a tolerance; leave out tolerance, or put them into it"
            )
        keys["tolerance"] = _given(atol=atol, rtol=rtol)
    values = _by_name(model, inputs)
    axes = _axes(values, dynamic or {})
    title = slug(name or _title(model))
    with named() as names:
        entry = _given(
            model=model,
            inputs={each: _input(value, axes.get(each, {})) for each, value in values.items()},
            **keys,
        )
        file = {"version": 1, "models": {title: entry}}
        tensors = {each: value for each, value in values.items() if _is_array(value)}
        given = names.reference(lambda _inputs, _seed: iter([tensors]))
        whole = bool(values) and len(tensors) == len(values)
        if suites is not None:
            own = {GIVEN: {"generator": given}} if whole else {}
            file["suites"] = own
            entry["suites"] = list(dict.fromkeys((*own, *suites)))
        _name_functions(file, entry)
        manifest = _manifest(_plain(file, names), title)
        spec = manifest.models[0]
        if suites is None and whole:
            spec = replace(spec, given={GIVEN: GeneratorSuite(given)})
        if onnx is not None:
            # A manifest's files lie in its folder; a caller's may be anywhere.
            spec = replace(spec, onnx=str(_existing(onnx)))
        return _verify(replace(manifest, models=(spec,)), output)


def _verify(manifest: Manifest, output: str | Path | None) -> ParityReport:
    _import_once()
    folder = Path(output) if output is not None else Path(tempfile.mkdtemp(prefix="onnx-gate-"))
    options = Options(output=folder.resolve(), launch=Launch(forked=True))
    report = run(manifest, options, History(), ProgressDisplay())
    if output is None and report.verdict == "pass":
        shutil.rmtree(folder, ignore_errors=True)
    # There is no manifest, so nothing can be said of a line in it.
    models = tuple(model.model_copy(update={"line": None}) for model in report.models)
    nowhere = ManifestInfo(path="", sha256=report.manifest.sha256)
    shown = ParityReport.model_construct(**dict(report) | {"manifest": nowhere, "models": models})
    return shown.located(str(folder))


def _import_once() -> None:
    """Import here what each fork would import for itself, for seconds; and what that logs, nowhere."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        for name in PRELOAD:
            importlib.import_module(name)
    finally:
        logging.disable(before)


def _manifest(file: object, title: str) -> Manifest:
    """Return the manifest that the arguments make; raises ``UserError``, in their words."""
    try:
        content = json.dumps(file, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise UserError(f"an argument is nothing that a manifest can hold: {error}") from None
    try:
        return load_bytes(content, Path.cwd() / "onnx-gate.yml", on_disk=True)
    except ManifestError as error:
        start = f"models.{title}."
        problems = (f"{p.path.removeprefix(start)}: {p.message}" for p in error.problems)
        raise UserError("\n".join(problems)) from None


def _title(model: Model) -> str:
    if isinstance(model, str):
        return model.rpartition(":")[2]
    return str(getattr(model, "__name__", type(model).__name__))


def _by_name(model: Model, inputs: Inputs) -> dict[str, object]:
    """Return the inputs by name, those without one in the order of ``forward``."""
    target = model if isinstance(model, type) else type(model)
    takes: list[inspect.Parameter] = []
    if issubclass(target, torch.nn.Module):
        takes = list(inspect.signature(target.forward).parameters.values())[1:]
    if isinstance(inputs, Mapping):
        # Any name will do for the only input; one that is nearly right is a slip, here as there.
        only = next(iter(inputs)) if len(inputs) == 1 else ""
        near = difflib.get_close_matches(only, [p.name for p in takes], 1, 0.6)
        if near and only not in {p.name for p in takes}:
            raise UserError(
                f"inputs: forward has no parameter {quote(only)}; did you mean {quote(near[0])}?"
            )
        return dict(inputs)
    values = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
    if not takes:
        raise UserError(
            "inputs: give them by name, {'image': tensor}: only a module says its names"
        )
    names = [p.name for p in takes if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(values) > len(names):
        raise UserError(f"inputs: {len(values)} are given, and forward takes {len(names)}")
    return dict(zip(names, values, strict=False))


def _axes(
    values: Mapping[str, object], dynamic: Mapping[str, Mapping[int, object]]
) -> dict[str, dict[int, str]]:
    """Return the names of the dynamic dimensions, by input and by axis from 0."""
    axes: dict[str, dict[int, str]] = {}
    for name, dimensions in dynamic.items():
        value = values.get(name)
        if value is None:
            hint = did_you_mean(name, values)
            raise UserError(f"dynamic: no input is called {quote(name)}{hint}")
        if not _is_array(value):
            raise UserError(f"dynamic: {name} is no tensor; put the names into its shape")
        rank = len(value.shape)  # type: ignore[attr-defined]
        if not isinstance(dimensions, Mapping):
            raise UserError(f"dynamic: write {{{name!r}: {{0: 'batch'}}}}, the axis and its name")
        for axis, dimension in dimensions.items():
            if not -rank <= axis < rank:
                raise UserError(f"dynamic: {name} has {rank} dimensions, and none is {axis}")
            # torch.export.Dim says its name itself.
            label = str(getattr(dimension, "__name__", dimension))
            axes.setdefault(name, {})[axis % rank] = label
    return axes


def _is_array(value: object) -> bool:
    return isinstance(value, torch.Tensor | np.ndarray)


def _input(value: Any, axes: Mapping[int, str]) -> object:
    """Return an input as a manifest has it: a tensor's dtype, shape and range."""
    if not _is_array(value):
        return value
    tensor = torch.as_tensor(value)
    entry: dict[str, object] = {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": [axes.get(axis, size) for axis, size in enumerate(tensor.shape)],
    }
    if not tensor.dtype.is_floating_point and tensor.dtype != torch.bool and tensor.numel():
        entry["range"] = [int(tensor.min()), int(tensor.max())]
    return entry


def _existing(path: str | Path) -> Path:
    if not Path(path).is_file():
        raise UserError(f"onnx: {path}: no such file")
    return Path(path).resolve()


def _name_functions(file: dict[str, Any], entry: dict[str, Any]) -> None:
    """Put each suite that is a function among the named ones, and its name in its place."""
    for index, suite in enumerate(entry.get("suites", ())):
        if callable(suite):
            name = f"{getattr(suite, '__name__', 'suite')}-{index}"
            file.setdefault("suites", {})[name] = {"generator": suite}
            entry["suites"][index] = name


def _plain(value: Any, names: Names) -> Any:
    """Return what a manifest can hold: in the place of an object a reference to it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each, names) for key, each in value.items()}
    if isinstance(value, torch.nn.Module) or callable(value):
        return names.reference(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_plain(each, names) for each in value]
    return str(value) if isinstance(value, Path) else value


def _given(**arguments: object) -> dict[str, Any]:
    return {key: value for key, value in arguments.items() if value is not None}
