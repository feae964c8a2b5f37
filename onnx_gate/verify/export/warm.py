"""What every export would otherwise import for itself: for all models of a run, or in a model's process.

Imports and tables only. A fork server that had exported a model would spoil the later exports of
recurrent networks with a dynamic length, and so would one that had captured one.
"""

from __future__ import annotations

import functools
import importlib
from contextlib import suppress

from onnx_gate.workers import child

# Where torch's exporter lives is its own business: what is not there in some version is not warmed.
_MODULES = (
    "torch.export._trace",
    "torch._dynamo.debug_utils",
    "torch._dynamo.backends.common",
    "torch._decomp.decompositions",
    "torch._higher_order_ops",
    "torch.onnx._internal.exporter._core",
    "torch.onnx._internal.exporter._registration",
    "torch.onnx._internal.exporter._onnx_program",
    "torch.onnx._internal.torchscript_exporter.utils",
    "onnxscript.function_libs.torch_lib.ops",
    "onnxscript.optimizer",
    "onnxscript.rewriter.onnx_fusions",
    "onnxscript.version_converter",
    "sympy.combinatorics",
    "sympy.tensor.tensor",
    "functorch.compile",
    "safetensors.torch",
)


def _warm() -> None:
    """Import the exporters' modules.

    The registry of operators is not made: every export makes its own, whatever there was before,
    because a model may register operators. What the registry is made of is: the translations of
    operators, of which every export would read and parse the source of each for its domain.
    """
    for name in _MODULES:
        with suppress(Exception):
            importlib.import_module(name)
    with suppress(Exception):
        torch_export = importlib.import_module("torch.export")
        torch_export.default_decompositions()
    with suppress(Exception):
        traced = importlib.import_module("onnxscript._internal.values").TracedOnnxFunction
        once = functools.cached_property(traced.function_ir.fget)
        once.__set_name__(traced, "function_ir")
        traced.function_ir = once
        importlib.import_module("onnxscript._framework_apis.torch_2_5").get_torchlib_ops()


with child.own_imports():
    _warm()
