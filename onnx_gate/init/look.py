"""What can be seen of a module without calling it."""

from __future__ import annotations

import dataclasses
import inspect
import operator
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, is_typeddict

import torch
from torch import fx, nn

from onnx_gate.init.facts import Declared, Facts, Layer, Parameter
from onnx_gate.runtimes import state
from onnx_gate.workers.forked import run_forked

_SIZES = ("in_features", "in_channels", "num_embeddings", "input_size", "embed_dim", "num_features")
_MAX_LAYERS = 40
_SECONDS = 60.0
# Operations after which an axis is still where it was.
_SAME_SHAPE = ("to", "float", "contiguous", "clone", "type", "half", "double", "detach", "type_as")


def facts_of(module: nn.Module) -> Facts:
    """Return what the module's signature, layers and config say."""
    config, uses = _config(module), _uses(module)
    return Facts(
        name=getattr(module, "original_name", type(module).__name__),
        parameters=tuple(
            part for each in _parameters(module) for part in _entries_of(each, tuple(uses))
        ),
        layers=tuple(layers_of(module)),
        uses=uses,
        config=config,
        main_input=_text(getattr(module, "main_input_name", None)),
        image=_image(module),
    )


def layers_of(module: nn.Module) -> Iterator[Layer]:
    """Yield the layers that say what they take, in the order of registration."""
    count = 0
    for path, part in state.parts(module):
        layer = _layer(path, part)
        if layer is not None and count < _MAX_LAYERS:
            count += 1
            yield layer


def _layer(path: str, part: nn.Module, direct: bool = True) -> Layer | None:
    kind = str(getattr(part, "original_name", type(part).__name__))
    if isinstance(part, torch.jit.ScriptModule):
        return _scripted(path, kind, part)
    if isinstance(part, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        attention = part.self_attn
        return Layer(path, kind, attention.embed_dim, batch_first=attention.batch_first)
    for base in (nn.Embedding, nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d):
        if isinstance(part, base):
            kind = base.__name__
    if type(part).__name__ == "Conv1D" and hasattr(part, "nx"):
        return Layer(path, "Linear", int(part.nx), direct=direct)  # type: ignore[arg-type]
    size = next((getattr(part, each) for each in _SIZES if hasattr(part, each)), None)
    if size is None and isinstance(part, nn.LayerNorm | nn.RMSNorm):
        size = part.normalized_shape[-1]
    if not isinstance(size, int) or (
        not type(part).__module__.startswith("torch.nn")
        and (kind not in ("Embedding", "Linear", "Conv1d", "Conv2d", "Conv3d"))
    ):
        return None
    stride = getattr(part, "stride", 1)
    return Layer(
        path=path,
        kind=kind,
        size=size,
        stride=stride[0] if isinstance(stride, tuple) and stride else 1,
        batch_first=bool(getattr(part, "batch_first", True)),
        direct=direct,
        state=_state(part) if isinstance(part, nn.RNNBase) else None,
    )


def _state(part: nn.RNNBase) -> tuple[int, int]:
    return part.num_layers * (2 if part.bidirectional else 1), part.hidden_size


def _scripted(path: str, kind: str, part: nn.Module) -> Layer | None:
    """A layer of TorchScript, of which the weight is all that is left."""
    weight = dict(part.named_parameters(recurse=False)).get("weight")
    if weight is None or weight.dim() < 2:
        return None
    return Layer(path, kind, weight.shape[0 if kind.startswith("Embedding") else 1])


def _parameters(module: nn.Module) -> tuple[Parameter, ...]:
    schema = getattr(getattr(module, "forward", None), "schema", None)
    if schema is not None:
        return tuple(
            Parameter(each.name, not each.has_default_value(), str(each.type))
            for each in schema.arguments
            if each.name != "self"
        )
    signature = _signature(module)
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [each for each in signature.parameters.values() if each.kind not in kinds]
    if not named:
        return (Parameter("input", True),)
    count = _stacked(module)
    return tuple(
        Parameter(name, each.default is each.empty, _shown(kind), _declared(kind))
        for each in named
        for name, kind in (
            _leaves(each.name, each.annotation, count)
            if each.default is each.empty
            else [(each.name, each.annotation)]
        )
    )


def _leaves(name: str, kind: Any, count: int) -> Iterator[tuple[str, Any]]:
    """Yield what a parameter of this annotation is put together of, ``count`` of what has no number."""
    origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
    parts: dict[str, Any] = {}
    if isinstance(origin, type) and not issubclass(origin, torch.Tensor):
        if dataclasses.is_dataclass(origin) or hasattr(origin, "_fields") or is_typeddict(origin):
            with suppress(Exception):
                parts = typing.get_type_hints(origin)
        elif issubclass(origin, tuple) and arguments and arguments[-1] is not ...:
            parts = {str(number): each for number, each in enumerate(arguments)}
        elif issubclass(origin, Sequence) and arguments:
            parts = {str(number): arguments[0] for number in range(count)}
    for key, part in parts.items():
        yield from _leaves(f"{name}.{key}", part, count)
    if not parts:
        yield name, kind


def _stacked(module: nn.Module) -> int:
    """How many layers of a kind the module has, which lists of caches have one each for."""
    lengths = [len(part) for part in module.modules() if isinstance(part, nn.ModuleList)]
    return max(lengths, key=lengths.count, default=2)


def _entries_of(parameter: Parameter, used: tuple[str, ...]) -> tuple[Parameter, ...]:
    """Return the entries of a parameter that ``forward`` reads as a mapping, else the parameter."""
    entries = [name for name in used if name.startswith(f"{parameter.name}.")]
    return tuple(Parameter(name, parameter.required) for name in entries) or (parameter,)


def _signature(module: nn.Module) -> inspect.Signature:
    """Return the signature of ``forward``, with annotations as objects where they can be had."""
    with suppress(Exception):  # a name that is imported for type checkers alone
        return inspect.signature(module.forward, eval_str=True)
    with suppress(TypeError, ValueError):
        return inspect.signature(module.forward)
    return inspect.Signature()


def _shown(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


_WRITTEN = re.compile(r"\b(Float\d*|BFloat16|Int\d*|UInt8|Bool|Integer)\[[^,]*,\s*['\"]([^'\"]*)")
_NAMED = {"Float": "float32", "Int": "int64", "Integer": "int64", "Bool": "bool"}


def _declared(annotation: Any) -> Declared | None:
    """Return what an annotation of jaxtyping's says, from its text where that is all there is."""
    for part in (annotation, *typing.get_args(annotation)):
        dtypes, dims = getattr(part, "dtypes", None), getattr(part, "dim_str", None)
        if isinstance(dims, str) and isinstance(dtypes, list | tuple):
            return Declared(tuple(str(each) for each in dtypes), dims)
    match = _WRITTEN.search(annotation) if isinstance(annotation, str) else None
    if match is None:
        return None
    return Declared((_NAMED.get(match[1], match[1].lower()),), match[2])


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _config(module: nn.Module) -> dict[str, Any]:
    """The plain values of a config object, as transformers and diffusers have them."""
    config: Any = getattr(module, "config", None)
    values: Any = {}
    with suppress(Exception):
        values = config if isinstance(config, Mapping) else config.to_dict()
    kept = {
        str(key): list(value) if isinstance(value, tuple) else value
        for key, value in dict(values or {}).items()
        if isinstance(value, str | int | float | bool | list | tuple)
    }
    # A part's config counts where the whole has none of its own: of an image and a text, say.
    for part in ("text_config", "vision_config"):
        inner = (values or {}).get(part) if isinstance(values, Mapping) else None
        for key, value in inner.items() if isinstance(inner, Mapping) else ():
            if isinstance(value, str | int | float | bool | list):
                kept.setdefault(str(key), value)
    for key in ("vocab_size", "hidden_size", "num_channels"):
        with suppress(Exception):
            if key not in kept and isinstance(getattr(config, key, None), int):
                kept[key] = getattr(config, key)
    return kept


def _image(module: nn.Module) -> tuple[int, int, int] | None:
    """The size of the images that timm says a model is for."""
    for name in ("pretrained_cfg", "default_cfg"):
        config = getattr(module, name, None)
        size = config.get("input_size") if isinstance(config, Mapping) else None
        if isinstance(size, tuple | list) and len(size) == 3:
            return int(size[0]), int(size[1]), int(size[2])
    return None


class _Follower(fx.Tracer):
    """Follows ``forward`` as far as its code can be followed."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return _layer("", m) is not None or super().is_leaf_module(m, module_qualified_name)


def _uses(module: nn.Module) -> dict[str, tuple[Layer, ...]]:
    """The layers that each parameter of ``forward`` reaches first; ``x.ids`` is ``x["ids"]``.

    It is followed in a fork: what ``forward`` keeps of its stand-ins would be in later calls' way.
    """
    if isinstance(module, torch.jit.ScriptModule | fx.GraphModule):
        return {}
    answer, _ = run_forked(lambda: dict(_followed(module)), _SECONDS)
    return {name: tuple(Layer(**each) for each in uses) for name, uses in answer.items()}


def _followed(module: nn.Module) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    known = _parameters(module)
    optional = {each.name: None for each in known if not each.required}
    leaves = [each.name for each in known]
    tracer = _Follower()
    with suppress(Exception):
        tracer.trace(module, concrete_args=optional or None)
    graph = getattr(tracer, "graph", None)
    parts = dict(module.named_modules())
    for node in graph.nodes if graph is not None else ():
        if node.op != "placeholder":
            continue
        name = str(node.target).lstrip("*")
        entries = _entries(node) or {
            each.removeprefix(f"{name}."): part
            for each in leaves
            if each.startswith(f"{name}.")
            for part in _read(node, each.split(".")[1:])
        }
        for key, start in entries.items():
            yield f"{name}.{key}", [asdict(each) for each in _reached(start, parts)]
        if not entries:
            yield name, [asdict(each) for each in _reached(node, parts)]


def _entries(mapping: fx.Node) -> dict[str, fx.Node]:
    """Return what is read of a parameter by keys that are text, none where it is no mapping."""
    read = [user for user in mapping.users if user.target is operator.getitem]
    return {user.args[1]: user for user in read if isinstance(user.args[1], str)}


def _read(node: fx.Node, path: Sequence[str]) -> list[fx.Node]:
    """Return where a part is read of a parameter: ``(0, "key")`` of ``x[0].key``."""
    nodes = [node]
    for part in path:
        nodes = [
            user
            for each in nodes
            for user in each.users
            if user.target in (operator.getitem, getattr) and str(user.args[1]) == part
        ]
    return nodes[:1]


def _reached(start: fx.Node, parts: Mapping[str, nn.Module]) -> Iterator[Layer]:
    queue: list[tuple[fx.Node, bool]] = [(start, True)]
    seen = {start}
    while queue:
        node, direct = queue.pop(0)
        for user in node.users:
            if user in seen:
                continue
            seen.add(user)
            part = parts.get(str(user.target)) if user.op == "call_module" else None
            layer = _layer(str(user.target), part, direct) if part is not None else None
            if layer is not None:
                yield layer
            elif user.op in ("call_module", "call_method", "call_function"):
                queue.append((user, direct and _keeps_shape(user)))


def _keeps_shape(node: fx.Node) -> bool:
    if node.op == "call_method":
        return str(node.target) in _SAME_SHAPE
    function: Callable[..., Any] | str = node.target
    return getattr(function, "__name__", "") in ("add", "sub", "mul", "truediv", "relu", "gelu")
