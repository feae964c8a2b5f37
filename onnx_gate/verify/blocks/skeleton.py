"""A module without the values of its parameters, which are put in for as long as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.parameter import UninitializedParameter

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec
from onnx_gate.runtimes import state
from onnx_gate.text import listed
from onnx_gate.verify.blocks.stored import LEAST_ROWS, Stored, StoredWeights, find_stored
from onnx_gate.verify.build import build
from onnx_gate.verify.reference.widened import Widened, widened_as_read


@dataclass(frozen=True)
class Weight:
    """A parameter under all of its names (tied ones have several), and where its values lie."""

    names: tuple[str, ...]
    stored: Stored
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """The bytes of the parameter, which need not be those of the file."""
        return self.dtype.itemsize * (self.stored.nbytes // self.stored.dtype.itemsize)

    @property
    def widens(self) -> bool:
        """Whether the parameter has all values of the file's dtype, and more."""
        wide = torch.promote_types(self.stored.dtype, self.dtype) == self.dtype
        return wide and self.stored.dtype != self.dtype


class Skeleton:
    """A module on the CPU whose parameters have shapes, and NaN in the place of every value.

    Buffers have their values: modules compute them as they are made, and they are few. Of a large
    parameter that a file has in fewer bits the rows that operators read are widened, where these may be
    some of all: layers of torch's that are no table compute with all.
    """

    def __init__(
        self, module: nn.Module, weights: StoredWeights, findings: tuple[Finding, ...]
    ) -> None:
        self.module, self.weights, self.findings = module, weights, findings
        self._places: dict[int, list[tuple[nn.Module, str]]] = {}
        self.parameters: dict[str, Weight] = {}
        self._keys: dict[str, int] = {}
        names: dict[int, list[str]] = {}
        own: dict[int, nn.Parameter] = {}
        for path, part in module.named_modules(remove_duplicate=False):
            for key, parameter in part._parameters.items():
                if parameter is not None:
                    own[id(parameter)] = parameter
                    names.setdefault(id(parameter), []).append(f"{path}.{key}".lstrip("."))
                    self._places.setdefault(id(parameter), []).append((part, key))
        for each, called in names.items():
            stored = next(weights.tensors[name] for name in called if name in weights.tensors)
            weight = Weight(tuple(called), stored, own[each].dtype)
            self.parameters |= dict.fromkeys(called, weight)
            self._keys |= dict.fromkeys(called, each)
        self._own = own
        self._held: set[int] = set()
        self._read: set[int] = set()
        self._put({each: _placeholder(parameter) for each, parameter in own.items()})

    def changed(self, places: Mapping[str, Stored]) -> Skeleton:
        """Return that of the module as it is now; ``places`` are those of parameters that are new."""
        tensors = {**self.weights.tensors, **places}
        return Skeleton(self.module, replace(self.weights, tensors=tensors), self.findings)

    def named_below(self, path: str) -> tuple[str, ...]:
        """Return the names of the parameters of a part."""
        return tuple(name for name in self.parameters if name.startswith(f"{path}."))

    def named_in(self, parts: Collection[nn.Module]) -> tuple[str, ...]:
        """Return the names of the parameters of parts of the module."""
        every = ((path, part) for path, part in self.module.named_modules() if part in parts)
        return tuple(name for path, _ in every for name in self.named_below(path))

    def distinct(self, names: Collection[str]) -> tuple[Weight, ...]:
        """Return the parameters of these names, each once."""
        return tuple({self._keys[name]: self.parameters[name] for name in names}.values())

    def nbytes(self, names: Collection[str]) -> int:
        """Return the bytes of the parameters of these names, each counted once."""
        return sum(weight.nbytes for weight in self.distinct(names))

    def values(self, name: str) -> torch.Tensor | None:
        """Return a parameter's values, ``None`` where there is no such one.

        In a narrower dtype of the checkpoint's, if that loses nothing: then they take no memory.
        """
        weight = self.parameters.get(name)
        if weight is None:
            return None
        return weight.stored.load(weight.stored.dtype if weight.widens else weight.dtype)

    def lying(self, weight: Weight) -> int:
        """Return the bytes of a parameter of which rows are read: as PyTorch has it while it is called."""
        key = self._keys[weight.names[0]]
        apart = self._in_rows(key, weight) and key not in self._read
        return weight.stored.nbytes if apart else weight.nbytes

    @contextmanager
    def loaded(self, names: Collection[str]) -> Iterator[None]:
        """Have the values of these parameters inside of a ``with``."""
        new = {self._keys[name]: self.parameters[name] for name in names}
        new = {key: weight for key, weight in new.items() if key not in self._held}
        before = self._now(new)
        self._held |= new.keys()
        own = {key: self._loaded(key, weight) for key, weight in new.items()}
        try:
            self._put(own)
            yield
        finally:
            read = (k for k, p in own.items() if isinstance(p, Widened) and p.read is not None)
            self._read.update(read)
            self._put(before)
            self._held -= new.keys()

    @contextmanager
    def faked(self) -> Iterator[None]:
        """Have parameters without memory inside of a ``with``, as ``torch.export`` traces them."""
        before = self._now(self._own)
        mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv(), static_shapes=True)
        with mode:
            fakes = {
                key: nn.Parameter(torch.empty(p.shape, dtype=p.dtype), requires_grad=False)
                for key, p in before.items()
            }
        try:
            self._put(fakes)
            yield
        finally:
            self._put(before)

    def _loaded(self, key: int, weight: Weight) -> nn.Parameter:
        if self._in_rows(key, weight):
            return widened_as_read(weight.stored.load(weight.stored.dtype), weight.dtype)
        return nn.Parameter(weight.stored.load(weight.dtype), requires_grad=False)

    def _in_rows(self, key: int, weight: Weight) -> bool:
        parts = {type(part) for part, _ in self._places[key]} - {nn.Embedding}
        own = not any(kind.__module__.startswith("torch.nn.") for kind in parts)
        return weight.widens and weight.nbytes > LEAST_ROWS and own

    def _now(self, keys: Collection[int]) -> dict[int, nn.Parameter]:
        return {key: part._parameters[name] for key in keys for part, name in self._places[key][:1]}  # type: ignore[misc]

    def _put(self, parameters: Mapping[int, nn.Parameter]) -> None:
        for key, parameter in parameters.items():
            for part, name in self._places[key]:
                part._parameters[name] = parameter


def build_skeleton(spec: ModelSpec, workspace: Path) -> Skeleton:
    """Build a model without values and find those in its checkpoint.

    Raises ``GateError`` of kind ``build``: OG434 where this model cannot be built so, OG205 where the
    checkpoint is of another model.
    """
    assert spec.weights is not None
    weights = find_stored(spec.weights, workspace)

    def fill(module: nn.Module) -> None:
        nonlocal weights
        held = [n for n, p in module.named_parameters() if not p.is_meta]
        if held:
            raise codes.OG434.error(
                f"models.{spec.name}.model: {listed(held, 3)} have values that the class or the factory "
                "has put there past register_parameter, as from_pretrained does; build the model from its "
                "config, and let weights name the file"
            )
        weights = weights.of(module)
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                if name in weights.tensors:
                    buffer.copy_(weights.tensors[name].load(buffer.dtype))

    with _without_values():
        built = build(spec, workspace, fill)
    if state.uninitialized(built.module) or isinstance(built.module, torch.jit.ScriptModule):
        raise codes.OG434.error(
            f"models.{spec.name}.model: lazy modules and TorchScript have no parameters to leave out"
        )
    return Skeleton(built.module, weights, built.findings)


@contextmanager
def _without_values() -> Iterator[None]:
    """Let parameters be made without memory.

    They are registered before they are initialised, so that this, too, costs nothing.
    """

    def on_meta(_: nn.Module, __: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
        if parameter is None or parameter.is_meta or isinstance(parameter, UninitializedParameter):
            return None
        return nn.Parameter(parameter.to("meta"), requires_grad=False)

    # Torch says that the hook returns nothing; what it returns is registered.
    hook = register_module_parameter_registration_hook(cast(Callable[..., None], on_meta))
    try:
        yield
    finally:
        hook.remove()


def _placeholder(parameter: nn.Parameter) -> nn.Parameter:
    """Return a parameter of the same form on the CPU that takes no memory.

    What reads it by mistake reads NaN, which no comparison lets pass.
    """
    one = torch.zeros((), dtype=parameter.dtype)
    if parameter.is_floating_point() or parameter.is_complex():
        one.fill_(torch.nan)
    return nn.Parameter(one.expand(parameter.shape), requires_grad=False)
