"""The engines that run the ONNX model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)

from onnx_gate.manifest.engines import Engine, engine, unheeded
from onnx_gate.manifest.problems import describe
from onnx_gate.manifest.values.base import Maybe, choice, mistake, note, text_schema
from onnx_gate.manifest.values.names import Name, read_identifier
from onnx_gate.manifest.values.shapes import NAME
from onnx_gate.manifest.values.tolerances import ToleranceChoice
from onnx_gate.text import did_you_mean, quote

Optimization = Literal["off", "basic", "extended", "all"]
OPTIMIZATIONS: tuple[Optimization, ...] = get_args(Optimization)
"""ONNX Runtime's levels, each with all that those before it do."""

SWITCH_OFF = "optimization.disable_specified_optimizers"
"""ONNX Runtime's session option that takes names of optimisers, joined with semicolons."""

_LABEL = re.compile(r"([^:\[\]]+)((?::[^:\[\]]+)*)(?:\[([^\[\]]*)\])?")

# What is also said for an execution provider: spelling is no guide to these.
_PROVIDERS_MEANT = {
    "gpu": "cuda",
    "nvidia": "cuda",
    "trt": "tensorrt",
    "amd": "migraphx",
    "directml": "dml",
    "apple": "coreml",
    "metal": "coreml",
    "mps": "coreml",
    "intel": "openvino",
}


def _read_provider(value: Any) -> Any:
    """An execution provider, as ONNX Runtime calls it."""
    text = read_identifier(value)
    meant = _PROVIDERS_MEANT.get(text.lower())
    if meant is not None:
        raise mistake(
            f"no execution provider is called {quote(text)}; did you mean {quote(meant)}?"
        )
    return text


def _read_optimization(value: Any) -> Any:
    """One of the levels; YAML 1.1 reads ``off`` as false."""
    if value is False:
        return "off"
    if not isinstance(value, str) or value not in OPTIMIZATIONS:
        likeness = did_you_mean(value, OPTIMIZATIONS) if isinstance(value, str) else ""
        raise mistake(
            f"unknown optimization level {quote(value)}{likeness or '; write off or all'}"
        )
    return value


def _read_option(value: Any) -> str:
    """An option of ONNX Runtime, which takes text only."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return value
    raise mistake(f"expected text or a number, found {describe(value)}")


_Provider = Annotated[str, PlainValidator(_read_provider), text_schema("name", pattern=f"^{NAME}$")]
_Level = Annotated[Optimization, PlainValidator(_read_optimization), choice(OPTIMIZATIONS)]
_Option = Annotated[
    str,
    PlainValidator(_read_option),
    WithJsonSchema({"type": ["string", "number", "boolean"], "title": "text"}),
]
_OF_THE_ENGINE = {"$comment": "default: the engine's own"}


@dataclass(frozen=True)
class RuntimeSpec:
    """An engine to run the ONNX model with. The name alone is the short form."""

    __pydantic_config__ = ConfigDict(title="Runtime", extra="forbid")

    name: Annotated[
        Name,
        Field(
            description="`onnxruntime`, `half` (16-bit results rounded as they are stored), `reference` "
            "(the evaluator of the onnx package), or an engine that a package registers."
        ),
    ]
    provider: Annotated[
        Maybe[_Provider],
        Field(
            description="The execution provider, such as `cpu`, `cuda` or `tensorrt`.",
            json_schema_extra=_OF_THE_ENGINE,
        ),
    ] = None
    optimization: Annotated[
        Maybe[_Level],
        Field(description="The level of graph optimisations.", json_schema_extra=_OF_THE_ENGINE),
    ] = None
    provider_options: Annotated[
        Mapping[str, _Option],
        Field(description="Options of the execution provider.", json_schema_extra={"default": {}}),
    ] = field(default_factory=dict)
    session_options: Annotated[
        Mapping[str, _Option],
        Field(
            description="Configuration entries of the session.", json_schema_extra={"default": {}}
        ),
    ] = field(default_factory=dict)
    options: Annotated[
        Mapping[str, Any],
        Field(description="What another engine takes.", json_schema_extra={"default": {}}),
    ] = field(default_factory=dict)
    device: Annotated[
        Maybe[Name],
        Field(
            description="The device, as the engine calls it: `CPU`, `GPU.1`.",
            json_schema_extra=_OF_THE_ENGINE,
        ),
    ] = None
    strict: Annotated[
        Maybe[bool],
        Field(
            description="Whether a node that the provider leaves to another one is an error; where it "
            "is not, the report says which nodes those are.",
            json_schema_extra=_OF_THE_ENGINE,
        ),
    ] = None
    tolerance: Annotated[
        Maybe[ToleranceChoice],
        Field(
            description="What holds on this runtime in place of the model's `tolerance`. An output's "
            "own goes first.",
            json_schema_extra={"$comment": "default: the model's"},
        ),
    ] = None

    @property
    def engine(self) -> Engine:
        """What its engine can do."""
        return engine(self.name)

    @property
    def processor(self) -> str:
        """The provider that runs it, as the manifest spells it, nothing where engines have none."""
        given = self.provider or self.engine.provider
        return given.removesuffix("ExecutionProvider").lower()

    def plain(self) -> RuntimeSpec | None:
        """Return it running the file as it is written; ``None`` where that cannot be told apart."""
        return replace(self, optimization="off") if self.engine.plain else None

    def without(self, names: Iterable[str]) -> RuntimeSpec:
        """Return it with the named optimisers switched off, beside those that it switches off."""
        already = self.session_options.get(SWITCH_OFF, "")
        joined = ";".join([*([already] if already else []), *names])
        return replace(self, session_options={**self.session_options, SWITCH_OFF: joined})

    @property
    def label(self) -> str:
        """The runtime's name in reports: ``onnxruntime:cpu:off``, ``openvino:GPU``.

        Options follow in brackets, so that two entries that differ have different labels.
        """
        label = self.name
        if self.provider or self.optimization:
            label += f":{self.provider or 'cpu'}"
        if self.device:
            label += f":{self.device}"
        if self.optimization:
            label += f":{self.optimization}"
        given = {**self.provider_options, **self.session_options, **self.options}
        if given:
            label += "[" + ",".join(f"{key}={given[key]}" for key in sorted(given)) + "]"
        return label


def engine_of_label(label: str) -> str:
    """Return the name of the engine that a label begins with; the text itself where it is no label."""
    match = _LABEL.fullmatch(label)
    return match[1] if match is not None else label


def runtime_of_label(label: str) -> RuntimeSpec:
    """Return the runtime that a label means: ``onnxruntime:cuda:all[use_tf32=1]``.

    Of ONNX Runtime an option without a dot is the provider's where one is named, and ``strict`` is
    ``strict``. Raises ``ValueError`` with what is wrong.
    """
    match = _LABEL.fullmatch(label)
    if match is None:
        raise ValueError(
            f"{quote(label)} is no runtime: write NAME, NAME:PROVIDER or NAME:PROVIDER[KEY=VALUE,...]"
        )
    name, rest, listed = match[1], [each for each in (match[2] or "").split(":") if each], match[3]
    given: dict[str, Any] = {"name": name}
    takes = engine(name).takes
    if rest and takes("optimization") and rest[-1] in OPTIMIZATIONS:
        given["optimization"] = rest.pop()
    if rest:
        given["provider" if takes("provider") else "device"] = rest.pop(0)
    if rest:
        raise ValueError(f"{quote(label)}: {quote(rest[0])} is no level of optimization")
    for pair in filter(None, (listed or "").split(",")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"{quote(label)}: {quote(pair)} is not KEY=VALUE")
        if key == "strict":
            given["strict"] = value.lower() in ("1", "true")
            continue
        of = "provider_options" if "." not in key and "provider" in given else "session_options"
        given.setdefault(of if takes(of) else "options", {})[key] = value
    unread = unheeded(name, given)
    if unread:
        raise ValueError(f"{quote(label)}: {name} takes no {unread[0]}")
    try:
        spec: RuntimeSpec = TypeAdapter(RuntimeSpec).validate_python(given)
    except ValidationError as error:
        raise ValueError(f"{quote(label)}: {error.errors()[0]['msg']}") from None
    return spec


def _runtime(value: Any) -> Any:
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, dict):
        raise mistake(f"expected the name of a runtime or a mapping, found {describe(value)}")
    return value


Runtime = Annotated[
    RuntimeSpec,
    note(RuntimeSpec),
    BeforeValidator(_runtime, json_schema_input_type=Name | RuntimeSpec),
]
