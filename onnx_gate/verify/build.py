"""From a reference such as ``models/resnet.py:build`` to a module in ``eval()`` mode."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec
from onnx_gate.manifest.paths import is_program
from onnx_gate.runtimes import state
from onnx_gate.runtimes.base import first_line
from onnx_gate.runtimes.torch_eager import seed_everything
from onnx_gate.text import counted, did_you_mean, listed
from onnx_gate.verify.checkpoint import is_lfs_pointer, load_weights
from onnx_gate.verify.reference.file import open_file
from onnx_gate.verify.source_lines import at, is_own_file, of_error
from onnx_gate.verify.taken import ON_CPU

# What is installed under another name than it is imported by.
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
}


@dataclass(frozen=True)
class Built:
    """A module ready to be called, and what building it brought to light."""

    module: nn.Module
    findings: tuple[Finding, ...]


def build(
    spec: ModelSpec, workspace: Path, fill: Callable[[nn.Module], None] | None = None
) -> Built:
    """Import, call, load the weights and put the module in ``eval()``.

    ``fill`` is called with the module in the place of what gives it its weights. Raises ``GateError`` of
    kind ``build``; what the user's own code raises is in its message.
    """
    if spec.reference is not None:
        return Built(open_file(spec, workspace), ())
    if is_program(spec.model):
        assert spec.model is not None
        module: nn.Module = load_program(spec.model, workspace, f"models.{spec.name}.model")
        _to_eval(module, spec, workspace)
        return Built(module, tuple(f for f in (_float64(module),) if f is not None))
    assert spec.model is not None
    seed_everything(spec.seed)
    target = load_object(spec.model, workspace, f"models.{spec.name}.model")
    # Again, so that the weights do not depend on what else the file makes as it is imported.
    seed_everything(spec.seed)
    module, made_by_user = _instantiate(target, spec, workspace)
    _uncompiled(module)
    findings = [_training(module, _is_own(target, workspace))] if made_by_user else []
    if fill is not None:
        fill(module)
    elif spec.weights is not None:
        load_weights(module, spec.weights, workspace)
    if fill is None:
        _have_values(module, spec)
    _to_eval(module, spec, workspace)
    return Built(module, tuple(f for f in (*findings, _float64(module)) if f is not None))


def load_program(file: str, workspace: Path, where: str) -> torch.jit.ScriptModule:
    """Load the TorchScript file that stands for a model.

    Raises ``GateError`` of kind ``build``, which begins with ``where``.
    """
    try:
        program = torch.jit.load(str(workspace / file), map_location="cpu")
    except Exception as error:
        if is_lfs_pointer(workspace / file):
            why = "is a Git LFS pointer; fetch it with git lfs pull (lfs: true of actions/checkout)"
        else:
            why = (
                f"is no program of torch.jit.save ({first_line(error, 80)}); where it holds weights, "
                "let model name the class or the factory, and weights this file"
            )
        raise codes.OG204.error(f"{where}: {file} {why}") from error
    assert isinstance(program, torch.jit.ScriptModule)
    return program


def _have_values(module: nn.Module, spec: ModelSpec) -> None:
    """Raise ``GateError`` where parameters are on the device ``meta``, which holds no values."""
    empty = [name for name, tensor in state.tensors(module) if tensor.is_meta]
    if empty:
        raise codes.OG204.error(
            f"models.{spec.name}.model: {len(empty)} weights are on the device meta ({listed(empty, 3)}), "
            "where they have no values: build the model on the CPU, or load weights into it"
        )


def _to_eval(module: nn.Module, spec: ModelSpec, workspace: Path) -> None:
    try:
        module.eval()
    except NotImplementedError:
        # A program of torch.export's is in the mode in which it was captured.
        if not isinstance(module, torch.fx.GraphModule):
            raise
    except Exception as error:
        raise codes.OG204.error(
            f"models.{spec.name}.model: eval() raised {raised(error, workspace)}",
            remedy=remedy_of(error),
        ) from error


def load_object(reference: str, workspace: Path, where: str) -> Any:
    """Import ``file.py:attribute`` or ``package.module:attribute``.

    The workspace is importable, with its ``src``, and for a file its own folder too, so that the
    file's imports work as they do when the user runs it. Raises ``GateError`` of kind ``build``.
    """
    place, _, attribute = reference.partition(":")
    sources = workspace / "src"
    if sources.is_dir() and not (sources / "__init__.py").exists():
        _importable(sources)
    _importable(workspace)
    try:
        if place.endswith(".py"):
            module = _import_file((workspace / place).resolve(), workspace.resolve())
        else:
            module = importlib.import_module(place)
    except Exception as error:
        raise codes.OG204.error(
            f"{where}: importing {place} raised {raised(error, workspace)}", remedy=remedy_of(error)
        ) from error
    value: Any = module
    for name in attribute.split("."):
        try:
            value = getattr(value, name)
        except Exception as error:
            if not isinstance(error, AttributeError):
                raise codes.OG204.error(
                    f"{where}: {name!r} of {place} raised {raised(error, workspace)}",
                    remedy=remedy_of(error),
                ) from error
            raise codes.OG204.error(
                f"{where}: {place} has no attribute {attribute!r}{_instead(attribute, module)}"
            ) from error
    return value


def _instead(attribute: str, module: ModuleType) -> str:
    names = [
        str(name)
        for name, value in vars(module).items()
        if not str(name).startswith("_") and not isinstance(value, ModuleType)
    ]
    known = ", ".join(sorted(names)[:12]) or "nothing public"
    return did_you_mean(attribute, names) or f"; it has {known}"


def load_function(reference: str, workspace: Path, where: str) -> Callable[..., Any]:
    """Import a function of the user's; raises ``GateError`` where it cannot be called."""
    value = load_object(reference, workspace, where)
    if not callable(value):
        raise codes.OG204.error(f"{where}: {reference} is a {type(value).__name__}, not a function")
    function: Callable[..., Any] = value
    return function


def _instantiate(target: Any, spec: ModelSpec, workspace: Path) -> tuple[nn.Module, bool]:
    """Return the module, and whether the user's own code (not the gate) called its class."""
    where = f"models.{spec.name}.model"
    if isinstance(target, nn.Module):
        if spec.args or spec.kwargs:
            raise codes.OG204.error(
                f"{where}: {spec.model} is a module, which takes no args or kwargs"
            )
        return _unwrapped(target), True
    if not callable(target):
        raise codes.OG204.error(
            f"{where}: {spec.model} is a {type(target).__name__}; name an nn.Module, a class or a "
            "function that returns one"
        )
    try:
        module = target(*spec.args, **spec.kwargs)
    except Exception as error:
        raise codes.OG204.error(
            f"{where}: {spec.model} raised {raised(error, workspace)}", remedy=remedy_of(error)
        ) from error
    if not isinstance(module, nn.Module):
        raise codes.OG204.error(
            f"{where}: {spec.model} returned a {type(module).__name__}, not an nn.Module"
        )
    return _unwrapped(module), not isinstance(target, type)


def _unwrapped(module: nn.Module) -> nn.Module:
    """Return what is exported of a module that only spreads another over devices."""
    while isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        module = module.module
    return module


def _uncompiled(module: nn.Module) -> None:
    """Have what is compiled with ``torch.compile`` run as it is written, from here on.

    Compiling needs a C++ compiler and the better part of a minute, and answers what eager does.
    """
    if "torch._dynamo" in sys.modules and any(_is_compiled(*each) for each in state.parts(module)):
        torch.compiler.set_stance("force_eager")


def _is_compiled(name: str, part: nn.Module) -> bool:
    # Of the class, not of the module: what is asked of that may be the user's to answer.
    forward = getattr(type(part), "forward", None)
    return name.rpartition(".")[2] == "_orig_mod" or hasattr(forward, "_torchdynamo_orig_callable")


def raised(error: Exception, workspace: Path) -> str:
    """Return an exception of the user's code, and its line."""
    line = of_error(error, workspace.resolve())
    return f"{type(error).__name__}: {first_line(error)}{at(line)}"


def remedy_of(error: Exception) -> str:
    """Return what helps against an exception of the usual kinds, empty for any other."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        name = error.name.partition(".")[0]
        package = _DISTRIBUTIONS.get(name, name)
        return f"install {package}: list it in the file that the manifest's requirements name"
    if isinstance(error, FileNotFoundError) and error.filename:
        return "a relative path starts where onnx-gate runs, so make it from Path(__file__).parent"
    return ON_CPU if "cuda" in str(error).lower() else ""


def _is_own(factory: Any, workspace: Path) -> bool:
    """Return whether a factory is code of the workspace, which its owner can change."""
    try:
        file = inspect.getsourcefile(inspect.unwrap(factory))
    except (TypeError, ValueError):
        return False
    return file is not None and is_own_file(file, workspace)


def _training(module: nn.Module, own: bool) -> Finding | None:
    live = state.in_training(module)
    if not live:
        return None
    remedy = "Return model.eval(), or" if own else "Call eval() where you export it:"
    return codes.OG101.finding(
        f"the model was returned in training mode ({listed(live, 3)} would act differently); "
        f"the gate verified it in eval() mode. {remedy} an export of the model as it "
        "is keeps Dropout alive",
        severity="warning" if own else "note",
    )


def _float64(module: nn.Module) -> Finding | None:
    wide = [name for name, tensor in state.tensors(module) if tensor.dtype == torch.float64]
    if not wide:
        return None
    are = "is" if len(wide) == 1 else "are"
    return codes.OG103.finding(
        f"{counted(len(wide), 'weight')} {are} float64 ({listed(wide, 3)}); many runtimes have no float64 "
        "kernels, and the others are slow: convert with .float() where that is not meant"
    )


def _importable(folder: Path) -> None:
    text = str(folder.resolve())
    if text not in sys.path:
        sys.path.insert(0, text)


def _import_file(path: Path, workspace: Path) -> ModuleType:
    """Import a file: as part of its package where it is in one, so that relative imports work."""
    root = path.parent
    while (root / "__init__.py").exists() and root != workspace and root.parent != root:
        root = root.parent
    if root != path.parent:
        _importable(root)
        return importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    # A name of its own: a file called transformers.py must not hide the library of that name.
    name = f"onnx_gate_model_{path.stem}"
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) == str(path):
        return sys.modules[name]
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise ImportError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module
