"""Operators that an exporter has no translation of, or that nothing can follow."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import torch

from onnx_gate.verify.export import translations
from onnx_gate.verify.export.failed import ExportFailure, FailureSaid, locals_of
from onnx_gate.verify.source_lines import at, shown

_NO_TRANSLATION = re.compile(
    r"No ONNX function found for <OpOverload\(op='([^']+)'(?:, overload='([^']+)')?"
)
_NO_SYMBOLIC = re.compile(
    r"(?:Exporting the operator|ONNX export of operator) '?([\w:.]+)'?.*? opset version (\d+)"
    r"(?:.*?added in version (\d+))?"
)
_NO_NAMESPACE = re.compile(r"operator with unrecognized namespace ([\w:.]+?)\. ")
_NO_FAKE = re.compile(
    r"no fake impl registered for <CustomOpDef\(([\w:.]+)\)>|"
    r"([\w:]+)(?:\.\w+)?: attempted to run this operator with Meta tensors"
)
_COMPLEX = "No decompositions registered for the complex-valued input"
_TORCH_NAMESPACES = frozenset(
    {"aten", "prims", "prim", "quantized", "_operator", "math", "builtins"}
)
_CACHEMASK = re.compile(r"_cachemask(_tensor_qparams)?$")

_DISTANCES = "aten::_cdist_forward"

# Of transformers' ways through a mixture of experts the one that an exporter can follow and write.
OTHER_EXPERTS = (
    'build the model with transformers\' other experts, experts_implementation="batched_mm"'
)


def complex_numbers(failure: ExportFailure) -> FailureSaid | None:
    """Recognise complex numbers, of which ONNX has none."""
    if _COMPLEX not in failure.text:
        return None
    name = _untranslated(failure.text) or _unfaked(failure.text)
    return FailureSaid(
        f"{shown(failure.source, 'forward')} computes with complex numbers, of which ONNX has none "
        f"and the exporter translates a few operators only, not {name}",
        "write it with real and imaginary parts, or leave it out of what is exported",
    )


def custom_operator(failure: ExportFailure) -> FailureSaid | None:
    """Recognise an operator of somebody else's that cannot be traced, or has no translation."""
    name = _unfaked(failure.text)
    if name is not None and name.split("::")[0] not in _TORCH_NAMESPACES:
        return FailureSaid(
            f"the custom operator {name} has no fake implementation{at(failure.source)}, so nothing "
            "can trace it",
            f"register one with @torch.library.register_fake({name!r})",
        )
    name = _untranslated(failure.text)
    if name is None or name.split("::")[0] in _TORCH_NAMESPACES:
        return None
    if name.startswith("transformers::grouped_mm"):
        return FailureSaid(
            f"the experts' operator {name} has no translation to ONNX{at(failure.source)}",
            OTHER_EXPERTS,
        )
    return FailureSaid(
        f"the custom operator {name} has no translation to ONNX{at(failure.source)}",
        f"write it with PyTorch's own operators, or {_registered(name)}"
        if failure.exporter == "torchscript"
        else "write it with PyTorch's own operators, or export with a function of yours (export: "
        '{exporter: "export.py:export"}) that passes custom_translation_table to torch.onnx.export',
    )


def torch_operator(failure: ExportFailure) -> FailureSaid | None:
    """Recognise an operator of PyTorch's that has no translation, or cannot be traced."""
    name = _untranslated(failure.text)
    if name is None:
        return _untraced(failure)
    by_hand = _of_distances(failure.chain) if name == _DISTANCES else ""
    added = _NO_SYMBOLIC.search(failure.text)
    of = _made_of_it(failure.chain, name)
    missing = f"the {failure.called} has no translation of {name}{of}"
    head = f"{missing} to ONNX"
    if added is not None and added[3]:
        return FailureSaid(
            f"{head} at opset {added[2]}{at(failure.source)}: it has one from opset {added[3]} on",
            f"ask for that, export: {{opset: {added[3]}}}",
        )
    overload = (_NO_TRANSLATION.search(failure.text) or ("", "", ""))[2] or ""
    arguments = translations.beyond_default(name, overload)
    if arguments:
        return FailureSaid(
            f"{missing} with `{'`, `'.join(arguments)}` to ONNX{at(failure.source)}, and has one without",
            f"leave {'it' if len(arguments) == 1 else 'them'} out of the call, where that is as good",
        )
    if by_hand:
        return FailureSaid(f"{head}{at(failure.source)}", by_hand)
    known = _elsewhere(f"{head}{at(failure.source)}", "has", name, failure)
    if known is not None:
        return known
    head = f"{head} at any opset{at(failure.source)}"
    if failure.exporter == "torchscript":
        # torch.export takes many an operator apart that it has no translation of.
        otherwise = f"write it with other operators, or {_registered(name)}"
        return FailureSaid(
            head,
            f"try export: {{exporter: dynamo}}, {otherwise}",
            changes=(("export", {"exporter": "dynamo"}),),
            otherwise=otherwise,
        )
    return FailureSaid(
        head,
        _parametrized(failure.chain)
        or "write it with other operators, or export with a function of yours that passes "
        "custom_translation_table to torch.onnx.export",
    )


def _registered(name: str) -> str:
    """Return how the torchscript exporter is given a translation, which takes no table of them."""
    return (
        f"register a translation where the model is built, "
        f"torch.onnx.register_custom_op_symbolic({name!r}, ...)"
    )


def _of_distances(chain: tuple[BaseException, ...]) -> str:
    """Return how to write distances that are not Euclidean, '' where they are.

    The TorchScript exporter leaves the absolute value out, and its file answers NaN.
    """
    degree = next((node.args[2] for node in translated_nodes(chain) if len(node.args) > 2), 2.0)
    if not isinstance(degree, int | float) or degree == 2:
        return ""
    apart = "(x.unsqueeze(-2) - y.unsqueeze(-3)).abs()"
    if degree == 1:
        return f"write it as {apart}.sum(-1)"
    if degree == math.inf:
        return f"write it as {apart}.amax(-1)"
    return f"write it as {apart}.pow({degree:g}).sum(-1).pow(1 / {degree:g})"


def _untraced(failure: ExportFailure) -> FailureSaid | None:
    name = _unfaked(failure.text)
    if name is None:
        return None
    # A quantiser appears as what PyTorch makes of it for gradients, with the mask of its clipping.
    name = _CACHEMASK.sub("", name).replace("::_fake", "::fake")
    head = f"torch.export cannot follow {name}{at(failure.source)}"
    return _elsewhere(head, "can", name, failure) or FailureSaid(
        head, "write it with other operators"
    )


def _elsewhere(head: str, does: str, name: str, failure: ExportFailure) -> FailureSaid | None:
    """Return that another exporter ``does``, with the keys that ask for it; ``None`` where none does."""
    other = translations.elsewhere(name, failure.exporter)
    if other is None:
        return None
    phrase, keys = other
    asked = ", ".join(f"{key}: {value}" for key, value in keys.items())
    return FailureSaid(
        f"{head}, and {phrase} {does}",
        f"write export: {{{asked}}}",
        changes=(("export", keys),),
        otherwise="write it with other operators",
    )


def _untranslated(text: str) -> str | None:
    """Return the operator that an exporter does not know, as ``aten::linalg_qr``."""
    missing = (
        _NO_TRANSLATION.search(text) or _NO_NAMESPACE.search(text) or _NO_SYMBOLIC.search(text)
    )
    if missing is None:
        return None
    name = missing[1]
    return name if "::" in name else name.replace(".", "::", 1)


def _unfaked(text: str) -> str | None:
    """Return the operator that cannot be traced for want of a fake implementation."""
    fake = _NO_FAKE.search(text)
    return None if fake is None else fake[1] or fake[2]


def translated_nodes(chain: tuple[BaseException, ...]) -> Iterator[torch.fx.Node]:
    """Yield the nodes that the exporter was translating, where it was at that."""
    for error in chain:
        for value in locals_of(error):
            if isinstance(value, torch.fx.Node) and value.op == "call_function":
                yield value


def _made_of_it(chain: tuple[BaseException, ...], name: str) -> str:
    """Return of the operator that the module calls that ``name`` is what torch makes of it."""
    called = next((node.meta.get("original_aten") for node in translated_nodes(chain)), None)
    own = str(getattr(getattr(called, "_schema", None), "name", name))
    return "" if own == name else f", which {own} is made of,"


def _parametrized(chain: tuple[BaseException, ...]) -> str:
    """Return how to fix the weight that the operator computes anew at each call, or ''."""
    for node in translated_nodes(chain):
        for path, _ in (node.meta.get("nn_module_stack") or {}).values():
            owner, found, weight = str(path).partition(".parametrizations.")
            if found:
                owner = f"model.{owner}".removesuffix(".").replace("model.L['self'].", "model.")
                return (
                    "fix the weight before it is exported, torch.nn.utils.parametrize."
                    f"remove_parametrizations({owner}, {weight.partition('.')[0]!r})"
                )
    return ""
