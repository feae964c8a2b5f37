"""How the inputs of a manifest reach ``forward``: by name, whatever their order in the manifest."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import Parameter
from typing import Any

import torch
from torch import nn

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.manifest.nesting import Tree, trees
from onnx_gate.runtimes.file_module import FileModule
from onnx_gate.runtimes.structure import Nested, annotated, nested

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Binding:
    """Which parameters are passed by position and which by keyword, in the order of ``forward``.

    ``extra`` are those of the keywords that ``forward`` takes as ``**kwargs``, ``constants`` the
    arguments beside the inputs, which are no tensors. ``nested`` says how parameters are put
    together that hold several inputs.
    """

    positional: tuple[str, ...]
    keyword: tuple[str, ...]
    extra: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    nested: Mapping[str, Nested] = field(default_factory=dict)

    @property
    def order(self) -> tuple[str, ...]:
        """The inputs in the order of ``forward``'s parameters, which is the exporters' too."""
        return tuple(
            name
            for parameter in (*self.positional, *self.keyword)
            for name in (self.nested[parameter].names if parameter in self.nested else (parameter,))
        )

    @property
    def identifiers(self) -> dict[str, str]:
        """The inputs as a function's parameters can be called, by those names: no dots."""
        return {identifier(name): name for name in self.order}

    @property
    def signature(self) -> inspect.Signature:
        """What a function has that takes these inputs, and no others, by position or by name."""
        return inspect.Signature(
            [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in self.identifiers]
        )

    def named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs by their names, of a call by position or by parameters' names."""
        known = self.identifiers
        return dict(zip(self.order, args, strict=False)) | {
            known.get(name, name): value for name, value in kwargs.items()
        }

    @property
    def caches(self) -> tuple[str, ...]:
        """The parameters that take a cache."""
        return tuple(name for name, each in self.nested.items() if each.is_cache)

    def split(self, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return ``(args, kwargs)`` of a call with these values; containers are new each time."""
        return (
            tuple(self._value(name, values) for name in self.positional),
            {**{name: self._value(name, values) for name in self.keyword}, **self.constants},
        )

    def _value(self, parameter: str, values: Mapping[str, Any]) -> Any:
        container = self.nested.get(parameter)
        return values[parameter] if container is None else container.make(values)

    @property
    def is_direct(self) -> bool:
        """Return whether exporters can call the module as it is called here.

        torch.export takes no dynamic shapes for what goes into ``**kwargs``, and would make inputs
        of constants; and tracing knows few containers.
        """
        return not self.extra and not self.constants and not self.nested

    def for_export(self, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return ``(args, kwargs)`` for a module that ``flat_outputs`` has given this binding."""
        return self.split(values) if self.is_direct else (tuple(values[n] for n in self.order), {})


def identifier(name: str) -> str:
    """Return the name of an input as a parameter can be called: ``past_0_key`` of ``past.0.key``."""
    return re.sub(r"\W", "_", name)


def bind(
    module: nn.Module,
    names: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    caches: Mapping[str, str] | None = None,
) -> Binding:
    """Join the inputs called ``names``, and constant arguments, with the parameters of ``forward``.

    By name, always, with two exceptions in which there is nothing to mistake: a single input, and
    what goes into ``*args``. Dotted names are below a parameter; ``caches`` has the kinds of those
    that are caches. Raises ``GateError`` of kind ``build`` (OG104, OG127) for a name that is no
    parameter, and where ``forward`` cannot be called with these inputs.
    """
    if isinstance(module, FileModule):  # takes the manifest's inputs in the manifest's order
        return Binding(tuple(names), ())
    constants = dict(constants or {})
    signature = signature_of(module)
    try:
        by_parameter = trees(names)
    except ValueError as error:
        raise codes.OG104.error(str(error)) from error
    containers = {n: tree for n, tree in by_parameter.items() if not isinstance(tree, str)}
    names = tuple(by_parameter)
    if signature is None:
        binding = Binding(names, (), constants=constants)
        return replace(binding, nested=_nested(binding, {}, {}, containers, caches or {}))
    binding = replace(_bind(module, signature, names, bool(constants)), constants=constants)
    if containers:
        hints, parameters = annotated(module), signature.parameters
        made = _nested(binding, parameters, hints, containers, caches or {})
        binding = replace(binding, nested=made)
    for name in constants:
        _need_parameter(name, signature, [*names, *(each for each in constants if each != name)])
    try:
        signature.bind(*binding.positional, **dict.fromkeys((*binding.keyword, *constants)))
    except TypeError as error:
        listed = ", ".join(names) or "(none)"
        raise _mismatch(
            f"forward cannot be called with the inputs {listed}: {error}", signature
        ) from error
    return binding


def _nested(
    binding: Binding,
    parameters: Mapping[str, Parameter],
    hints: Mapping[str, Any],
    containers: Mapping[str, Mapping[str, Tree]],
    caches: Mapping[str, str],
) -> dict[str, Nested]:
    """Return how the parameters are put together that hold several inputs."""
    # A single input may be called anything.
    known = {**dict(zip(binding.positional, parameters.values(), strict=False)), **parameters}
    made = {}
    for name, tree in containers.items():
        parameter = known.get(name, Parameter(identifier(name), Parameter.KEYWORD_ONLY))
        annotation = hints.get(parameter.name, parameter.annotation)
        made[name] = nested(name, tree, caches.get(name), annotation, parameter.default)
    return made


def signature_of(module: nn.Module) -> inspect.Signature | None:
    """Return the signature of ``forward``, ``None`` where it tells none."""
    if isinstance(module, torch.jit.ScriptModule):
        schema: Any = getattr(module.forward, "schema", None)
        # The first is self.
        return inspect.Signature([_parameter(each) for each in schema.arguments[1:]])
    try:
        return inspect.signature(module.forward)
    except (TypeError, ValueError):  # forward written in C has no signature
        return None


def _parameter(argument: Any) -> Parameter:
    default = argument.default_value if argument.has_default_value() else Parameter.empty
    kinds = {"TupleType": tuple, "ListType": list, "DictType": dict}
    kind = (
        argument.type.getElementType() if argument.type.kind() == "OptionalType" else argument.type
    )
    return Parameter(
        argument.name,
        Parameter.KEYWORD_ONLY if argument.kwarg_only else Parameter.POSITIONAL_OR_KEYWORD,
        default=default,
        annotation=kinds.get(kind.kind(), Parameter.empty),
    )


def _bind(
    module: nn.Module, signature: inspect.Signature, names: Sequence[str], has_constants: bool
) -> Binding:
    parameters = signature.parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    named = [
        name
        for name, parameter in parameters.items()
        if name in names and parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    ]
    others = tuple(name for name in names if name not in named)
    first = next(iter(parameters.values()), None)
    if len(names) == 1 and others and first is not None:
        required = first.kind in _POSITIONAL and first.default is Parameter.empty
        if required or Parameter.VAR_KEYWORD not in kinds:
            return Binding(others, ())
    for name in others:
        _need_parameter(name, signature, named)
    # Exporters call scripted modules by position. Constants, which may stand before inputs, are left to
    # what stands between (``is_direct``).
    captured = isinstance(module, torch.fx.GraphModule) or (
        isinstance(module, torch.jit.ScriptModule) and not has_constants
    )
    by_position = [n for n in named if _goes_by_position(captured, parameters[n])]
    if others and Parameter.VAR_POSITIONAL in kinds:
        # What stands before *args cannot be passed by keyword beside them.
        by_position = [n for n in named if parameters[n].kind != Parameter.KEYWORD_ONLY]
        keyword = [name for name in named if name not in by_position]
        return Binding((*by_position, *others), tuple(keyword))
    keyword = [name for name in named if name not in by_position]
    return Binding(tuple(by_position), (*keyword, *others), others)


def _need_parameter(name: str, signature: inspect.Signature, taken: Sequence[str]) -> None:
    """Raise ``GateError`` unless ``forward`` has the parameter, or takes any without one like it."""
    parameters = signature.parameters
    if name in parameters:
        return
    free = [p for p in parameters if p not in taken]
    near = difflib.get_close_matches(name, free, 1, 0.6)
    kinds = {parameter.kind for parameter in parameters.values()}
    if near or not kinds & {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}:
        needed = [p for p in free if parameters[p].default is Parameter.empty]
        hint = f" (is it {near[0]!r}?)" if near else ""
        if not near and len(needed) == 1:
            hint = f" (where {needed[0]} holds several tensors, this one is {needed[0]}.{name})"
        raise _mismatch(f"forward has no parameter {name!r}{hint}", signature)


def _goes_by_position(captured: bool, parameter: Parameter) -> bool:
    if parameter.kind == Parameter.POSITIONAL_ONLY:
        return True
    # A captured program wants its arguments as they were given when it was captured.
    return captured and parameter.kind != Parameter.KEYWORD_ONLY


def _mismatch(problem: str, signature: inspect.Signature) -> GateError:
    listed = ", ".join(str(p).split(":")[0].split("=")[0] for p in signature.parameters.values())
    return codes.OG104.error(f"{problem}; its parameters are {listed or 'none'}")
