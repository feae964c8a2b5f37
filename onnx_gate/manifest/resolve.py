"""From what is written to what is meant: defaults merged, names looked up, files found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from onnx_gate.manifest import nesting, steps
from onnx_gate.manifest.dimensions import names_of
from onnx_gate.manifest.engines import ENGINES, unheeded
from onnx_gate.manifest.input_tensors import (
    bounds_problems,
    expanded,
    possible_sizes,
    size_problems,
    twice,
)
from onnx_gate.manifest.lookup import Lookup, registered
from onnx_gate.manifest.problems import Keys
from onnx_gate.manifest.roles import default_sizes
from onnx_gate.manifest.schema import DefaultsEntry, ManifestFile, ModelEntry
from onnx_gate.manifest.spec import DEFAULT_AUTO, DEFAULT_TIMEOUT, ModelSpec
from onnx_gate.manifest.values import shapes
from onnx_gate.manifest.values.exports import COMMAND, OF_EXPORTER, ExportSpec
from onnx_gate.manifest.values.inputs import CacheEntry, InputSpec
from onnx_gate.manifest.values.runtimes import RuntimeSpec
from onnx_gate.manifest.values.suites import (
    BUILT_IN_KINDS,
    BUILT_IN_SUITES,
    FilesSuite,
    GeneratorSuite,
    PluginSuite,
    Suite,
)
from onnx_gate.manifest.values.tolerances import NamedTolerance, Output, Tolerance
from onnx_gate.text import quote

BUILT_IN_RUNTIMES = tuple(ENGINES)


@dataclass(frozen=True)
class _Settings:
    """A model's settings over the defaults, and where each of them is written."""

    values: Mapping[str, Any]
    origins: Mapping[str, Keys]

    @classmethod
    def of(cls, here: Keys, model: ModelEntry, defaults: DefaultsEntry) -> _Settings:
        own = model.model_fields_set
        keys = type(defaults).model_fields
        return cls(
            {key: getattr(model if key in own else defaults, key) for key in keys},
            {key: (*(here if key in own else ("defaults",)), key) for key in keys},
        )

    def plain(self, **defaults: Any) -> dict[str, Any]:
        """Settings that mean what is written, or what is given here."""
        return {
            key: default if self.values[key] is None else self.values[key]
            for key, default in defaults.items()
        }


class Resolver:
    """The models of a manifest; ``lookup`` has the mistakes that were found on the way."""

    def __init__(self, lookup: Lookup) -> None:
        self._at = lookup
        self._used_dims: set[str] = set()

    def resolve(self, file: ManifestFile) -> tuple[ModelSpec, ...]:
        """Every model that could be read; complete only where there are no mistakes."""
        self._at.find(("requirements",), file.requirements)
        self._suites: dict[str, Suite | None] = dict(BUILT_IN_SUITES)
        self._suites |= dict.fromkeys(self._at.names("suites"))
        for name, suite in (file.suites or {}).items():
            self._suites[name] = self._suite(("suites", name), suite)
        self._tolerances: dict[str, Tolerance | None] = dict.fromkeys(self._at.names("tolerances"))
        for name, tolerance in (file.tolerances or {}).items():
            self._tolerances[name] = self._tolerance(("tolerances", name), tolerance)
        defaults = file.defaults or DefaultsEntry()
        models = tuple(
            self._model(name, model, defaults, file.dims or {})
            for name, model in file.models.items()
        )
        if not self._at.is_damaged(("models",)):
            self._likely_typos(("dims",), file.dims or {})
            self._likely_typos(("defaults", "dims"), defaults.dims or {})
        return models

    def _model(
        self,
        name: str,
        model: ModelEntry,
        defaults: DefaultsEntry,
        dims: Mapping[str, tuple[int, ...]],
    ) -> ModelSpec:
        here: Keys = ("models", name)
        settings = _Settings.of(here, model, defaults)
        written, origins = settings.values, settings.origins
        self._find_files(here, model)
        suites = self._chosen_suites(origins["suites"], written["suites"])
        inputs = self._inputs(here, model, suites, settings)
        used = {n for each in inputs.values() for dim in each.shape for n in names_of(dim)}
        self._used_dims |= used
        if model.inputs is not None and not self._at.is_damaged((*here, "inputs")):
            self._unused_dims((*here, "dims"), model.dims or {}, used)
        sizes = {**dims, **(defaults.dims or {}), **(model.dims or {})}
        if model.inputs is None:
            # Which dimensions the file has is known once it is read.
            used = set(sizes)
        own = {dim: sizes[dim] for dim in used & sizes.keys()}
        for key, problem in (*size_problems(inputs, own), *bounds_problems(inputs, own)):
            self._at.tell((*here, "inputs", self._at.of_input(here, key)), problem)
        usual = default_sizes(inputs)
        outputs = self._outputs(origins["outputs"], written["outputs"])
        tolerance = self._tolerance(origins["tolerance"], written["tolerance"])
        return ModelSpec(
            name=name,
            model=model.model,
            reference=model.reference,
            weights=model.weights,
            onnx=model.onnx,
            inputs=inputs,
            caches={
                n: e.cache for n, e in (model.inputs or {}).items() if isinstance(e, CacheEntry)
            },
            outputs=outputs,
            where=self._where(origins["outputs"], written["outputs"], inputs),
            export=self._export(here, model, defaults, used),
            dims={d: sizes.get(d) or possible_sizes(d, usual[d], inputs) for d in sorted(used)},
            named_dims=frozenset(used & sizes.keys()),
            runtimes=self._runtimes(origins["runtimes"], written["runtimes"]),
            suites={key: suite for key, suite in suites.items() if suite is not None},
            steps=model.steps,
            tolerance=tolerance or Tolerance(auto=DEFAULT_AUTO),
            line=self._at.line(here),
            lines={n: self._at.line((*here, "inputs", self._at.of_input(here, n))) for n in inputs},
            **settings.plain(
                args=(),
                kwargs={},
                call={},
                coverage=None,
                targets=(),
                timeout=DEFAULT_TIMEOUT,
                memory=None,
                seed=0,
                required=True,
                waivers=(),
                verify=None,
            ),
        )

    def _find_files(self, here: Keys, model: ModelEntry) -> None:
        self._at.find_reference((*here, "model"), model.model)
        self._at.find((*here, "reference"), model.reference)
        self._at.find((*here, "onnx"), model.onnx)
        if model.weights is not None:
            self._at.find_weights((*here, "weights", "file"), model.weights.file)
        if model.reference is not None and model.reference == model.onnx:
            self._at.tell(
                (*here, "reference"), "a file cannot be held against itself; name another"
            )

    def _inputs(
        self, here: Keys, model: ModelEntry, suites: Mapping[str, Suite | None], settings: _Settings
    ) -> dict[str, InputSpec]:
        """Every tensor of the inputs, and what is wrong with what is said of them."""
        written = model.inputs or {}
        inputs = expanded(written)
        self._need_ranges(here, inputs, suites)
        for key, problem in (*twice(written), *nesting.problems(list(inputs))):
            self._at.tell((*here, "inputs", key), problem, at_key=True)
        taken = {*inputs, *(nesting.parts(name)[0] for name in inputs)}
        for key in taken & (settings.values["call"] or {}).keys():
            self._at.tell(
                (*settings.origins["call"], key),
                "also one of the inputs; name it in one place only",
            )
        # The inputs of a file that stands for the model are its own.
        if model.steps is not None and inputs and not self._at.is_damaged((*here, "inputs")):
            for keys, message in steps.mistakes(model.steps, inputs):
                self._at.tell((*here, "steps", *keys), message, at_key=True)
        return inputs

    def _suite(self, here: Keys, suite: Suite) -> Suite | None:
        if isinstance(suite, FilesSuite):
            self._at.find_globs((*here, "files"), suite.files)
        if isinstance(suite, GeneratorSuite):
            self._at.find_reference((*here, "generator"), suite.generator)
        if not isinstance(suite, PluginSuite):
            return suite
        kinds = registered("onnx_gate.suites") | BUILT_IN_KINDS.keys()
        kind = next((key for key in suite.options if key in kinds), None)
        if kind is not None:
            return replace(suite, kind=kind)
        if self._at.workspace is None:
            return suite
        what = f"unknown kind of suite {quote(suite.kind)}{self._at.likeness(suite.kind, kinds)}"
        self._at.tell((*here, suite.kind), what, at_key=True)
        return None

    def _chosen_suites(
        self, here: Keys, choices: tuple[str | Suite, ...] | None
    ) -> dict[str, Suite | None]:
        suites: dict[str, Suite | None] = {}
        named = {each for each in choices or () if isinstance(each, str)}
        for index, choice in enumerate(choices or ()):
            if not isinstance(choice, str):
                kind = choice.kind
                numbered = (f"{kind}-{n}" if n > 1 else kind for n in count(1))
                name = next(each for each in numbered if each not in named | suites.keys())
                suites[name] = self._suite((*here, index), choice)
                continue
            if choice not in self._suites:
                self._at.tell(
                    (*here, index),
                    f"unknown suite {quote(choice)}{self._at.likeness(choice, self._suites)}",
                )
            suites[choice] = self._suites.get(choice)
        return suites

    def _need_ranges(
        self, here: Keys, inputs: Mapping[str, InputSpec], suites: Mapping[str, Suite | None]
    ) -> None:
        """Integers are never drawn from a range that nobody named."""
        unknown = None in suites.values() or any(
            self._at.is_damaged(path) for path in ((*here, "suites"), ("defaults", "suites"))
        )
        own_values = bool(suites) and all(
            isinstance(suite, FilesSuite | GeneratorSuite) for suite in suites.values()
        )
        if unknown or own_values:
            return
        for name, each in inputs.items():
            path = (*here, "inputs", self._at.of_input(here, name))
            needed = each.dtype in shapes.INTEGER_BOUNDS and not each.has_range
            if needed and not self._at.is_damaged(path):
                example = shapes.suggestion(each.dtype, each.shape)
                self._at.tell(path, f"an integer input needs a range; write {example}")

    def _unused_dims(self, here: Keys, dims: Iterable[str], used: set[str]) -> None:
        for dim in dims:
            if dim not in used:
                hint = (
                    self._at.likeness(dim, used) if used else "; the inputs have fixed sizes only"
                )
                self._unused_dim(here, dim, hint)

    def _likely_typos(self, here: Keys, dims: Mapping[str, object]) -> None:
        """Sizes for all models may serve none of them, unless they look meant for one."""
        for dim in dims:
            if dim not in self._used_dims:
                hint = self._at.likeness(dim, self._used_dims - dims.keys())
                if "did you mean" in hint:
                    self._unused_dim(here, dim, hint)

    def _unused_dim(self, here: Keys, dim: str, hint: str) -> None:
        self._at.tell((*here, dim), f"no input has the dimension {quote(dim)}{hint}", at_key=True)

    def _export(
        self, here: Keys, model: ModelEntry, defaults: DefaultsEntry, used: set[str]
    ) -> ExportSpec:
        made: dict[str, Any] = {}
        origins: dict[str, Keys] = {}
        for owner, entry in ((("defaults",), defaults.export), (here, model.export)):
            if entry is None:
                continue
            keys = self._at.written((*owner, "export"))
            if "exporter" in keys:
                made = {key: value for key, value in made.items() if key not in ("command", "file")}
                if ":" in entry.exporter:
                    self._at.find_reference((*owner, "export", "exporter"), entry.exporter)
            made |= {key: getattr(entry, key) for key in keys}
            origins |= dict.fromkeys(keys, owner)
        if made.get("command") is not None:
            return ExportSpec(COMMAND, command=made["command"], file=made.get("file"))
        if not self._at.is_damaged((*here, "inputs")):
            own = model.export.example if model.export else {}
            self._unused_dims((*here, "export", "example"), own, used)
        # What holds for all models may name dimensions that this one lacks.
        example = {dim: size for dim, size in made.get("example", {}).items() if dim in used}
        export = ExportSpec(**{**made, "example": example})
        self._heeded_options(export, origins)
        return export

    def _heeded_options(self, export: ExportSpec, origins: Mapping[str, Keys]) -> None:
        """An option of torch.onnx.export that the exporter does not heed is a mistake."""
        heeded = OF_EXPORTER.get(export.exporter, ())
        given: dict[str, Keys] = {
            key: ("options", key) for key in export.options if key not in heeded
        }
        if export.optimize is not None and export.exporter != "dynamo":
            given["optimize"] = ("optimize",)
        for key in sorted(given):
            others = [name for name, known in OF_EXPORTER.items() if key in known] or ["dynamo"]
            self._at.tell(
                (*origins[str(given[key][0])], "export", *given[key]),
                f"{quote(export.exporter)} does not heed {quote(key)}, which is for "
                f"{' and '.join(others)}",
                at_key=True,
            )

    def _runtimes(
        self, here: Keys, written: tuple[RuntimeSpec, ...] | None
    ) -> tuple[RuntimeSpec, ...]:
        if written is None:
            return (RuntimeSpec("onnxruntime"),)
        made: list[RuntimeSpec] = []
        labels: set[str] = set()
        for index, runtime in enumerate(written):
            path = (*here, index)
            self._known_runtime((*path, "name"), runtime.name)
            for key in unheeded(runtime.name, sorted(self._at.written(path))):
                takes = ", ".join(("tolerance", *(runtime.engine.keys or ())))
                self._at.tell(
                    (*path, key),
                    f"the runtime {quote(runtime.name)} does not heed {quote(key)}; it takes {takes}",
                    at_key=True,
                )
            tolerance = self._tolerance((*path, "tolerance"), runtime.tolerance)
            if runtime.label in labels:
                self._at.tell(
                    (*path, "name"),
                    f"the runtime {quote(runtime.label)} is listed twice; remove one",
                )
            labels.add(runtime.label)
            made.append(replace(runtime, tolerance=tolerance))
        return tuple(made)

    def _known_runtime(self, path: Keys, name: str) -> None:
        if name in BUILT_IN_RUNTIMES or self._at.workspace is None:
            return
        known = registered("onnx_gate.runtimes") | set(BUILT_IN_RUNTIMES)
        if name in known:
            return
        engine, colon, provider = name.partition(":")
        if colon and engine in known:
            hint = f"; write {{name: {engine}, provider: {provider}}}"
        else:
            hint = self._at.likeness(name, known)
            hint += " (an engine of another package must be installed)"
        self._at.tell(path, f"unknown runtime {quote(name)}{hint}")

    def _outputs(
        self, here: Keys, written: Mapping[str, Tolerance | None] | None
    ) -> dict[str, Tolerance | None] | None:
        if written is None:
            return None
        return {name: self._tolerance((*here, name), each) for name, each in written.items()}

    def _where(
        self,
        here: Keys,
        written: Mapping[str, Tolerance | None] | None,
        inputs: Mapping[str, InputSpec],
    ) -> dict[str, str]:
        """Return which input says where each output counts."""
        masks = {
            name: each.where
            for name, each in (written or {}).items()
            if isinstance(each, Output) and each.where is not None
        }
        for name, mask in masks.items():
            path = (*here, name, "where")
            if mask not in inputs:
                self._at.tell(
                    path, f"no input is called {quote(mask)}{self._at.likeness(mask, inputs)}"
                )
            elif not inputs[mask].shape:
                self._at.tell(
                    path, f"{quote(mask)} is a single number; a mask has a value for each position"
                )
        return masks

    def _tolerance(self, here: Keys, written: Tolerance | None) -> Tolerance | None:
        if isinstance(written, NamedTolerance):
            return self._named(here, written.name)
        if written is not None:
            self._at.find_reference((*here, "metric"), written.metric)
        return written.tolerance if isinstance(written, Output) else written

    def _named(self, here: Keys, name: str) -> Tolerance | None:
        if name not in self._tolerances:
            hint = self._at.likeness(name, self._tolerances)
            if not self._tolerances:
                hint += " under 'tolerances'"
            self._at.tell(here, f"unknown tolerance {quote(name)}{hint}")
        return self._tolerances.get(name)
