"""Which of torch's exporters knows an operator, as far as its own registries say."""

from __future__ import annotations

import importlib
from typing import Any

import torch

_TORCHSCRIPT = "torch.onnx._internal.torchscript_exporter"
_DYNAMO = "torch.onnx._internal.exporter._registration"


def elsewhere(operator: str, exporter: str) -> tuple[str, dict[str, Any]] | None:
    """Return what the other exporter can do: a phrase, and the keys of ``export`` that ask for it.

    ``operator`` is named as ``aten::fft_rfft``. ``None`` where the other one does not know it, or
    where this version of torch does not say.
    """
    try:
        if exporter == "dynamo":
            opset = _torchscript_opset(operator)
            if opset is None:
                return None
            return (
                f"the torchscript exporter (opset {opset} and later)",
                {"exporter": "torchscript", "opset": max(opset, 17)},
            )
        if exporter == "torchscript" and _in_dynamo(operator):
            return "the dynamo exporter", {"exporter": "dynamo"}
    except (ImportError, AttributeError, TypeError):  # the registries are private to torch
        return None
    return None


def beyond_default(operator: str, overload: str) -> tuple[str, ...]:
    """Return the arguments that an overload has and one that the dynamo exporter knows has not.

    Empty where it knows none of that name without arguments of this kind.
    """
    namespace, _, name = operator.partition("::")
    try:
        packet: Any = getattr(getattr(torch.ops, namespace), name)
        own, plain = (
            {argument.name for argument in getattr(packet, each)._schema.arguments}
            for each in (overload, "default")
        )
        known = operator in importlib.import_module(_DYNAMO).ONNXRegistry.from_torchlib().functions
    except (ImportError, AttributeError, TypeError):  # the registries are private to torch
        return ()
    return tuple(sorted(own - plain)) if known and plain < own else ()


def opsets_of_torchscript() -> tuple[int, int]:
    """Return the lowest and the highest opset that the TorchScript exporter writes."""
    try:
        constants: Any = importlib.import_module("torch.onnx._constants")
        return int(constants.ONNX_MIN_OPSET), int(constants.ONNX_MAX_OPSET)
    except (ImportError, AttributeError):
        return 7, 20


def _torchscript_opset(operator: str) -> int | None:
    for version in range(7, 21):
        importlib.import_module(f"{_TORCHSCRIPT}.symbolic_opset{version}")
    registry: Any = importlib.import_module(f"{_TORCHSCRIPT}.registration").registry
    groups = (registry.get_function_group(name) for name in (operator, _public(operator)))
    return next((int(group.get_min_supported()) for group in groups if group is not None), None)


def _public(operator: str) -> str:
    """Return the name of what calls ``aten::_cdist_forward``, at which the other exporter stops."""
    namespace, _, name = operator.rpartition("::")
    return f"{namespace}::{name.removeprefix('_').removesuffix('_forward')}"


def _in_dynamo(operator: str) -> bool:
    registry: Any = importlib.import_module(_DYNAMO).ONNXRegistry.from_torchlib()
    return any(str(target).partition(".")[0] == operator for target in registry.functions)
